"""The chain of evidence of an application: numbered documents, each with the digest of the one before it.

    <evidence>/<application.id>/000000000001.json, 000000000002.json, ...

A document is appended by a write that fails if its number is taken. Two drills at once therefore make one chain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from statestore import kill_switch
from statestore.drills.evidence import (
    EvidenceDocument,
    Head,
    digest_of,
    read_document,
    signature_problem,
    signed,
)
from statestore.drills.keys import PublicKey, SigningKey
from statestore.errors import EvidenceError, RetryError
from statestore.model import check_name
from statestore.objects.path import Location, create_whole, listing, read_all

_FILE = re.compile(r"([0-9]{12})\.json")
#: A document is lost to others that were appended meanwhile so many times at most.
_ATTEMPTS = 1_000


class VerifiedChain(NamedTuple):
    """A chain, and what is wrong with it.

    Attributes
    ----------
    documents
        Those that can be read, in order of their numbers.
    head
        The last document that was found.
    problems
        Empty if each document is as it was written, and none is missing.
    notes
        Remarks that are no problems.
    """

    documents: tuple[EvidenceDocument, ...]
    head: Head
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


class Chain:
    """The evidence of one application.

    Parameters
    ----------
    evidence
        Directory of all evidence.
    """

    def __init__(self, evidence: Location, application: str) -> None:
        self.application = application
        self.directory = evidence / check_name(application)

    def numbers(self) -> list[int]:
        """Return the numbers of the documents that exist."""
        names = (_FILE.fullmatch(path.name) for path in listing(self.directory, "*.json"))
        return sorted(int(name[1]) for name in names if name)

    def head(self) -> Head:
        """Return the last document that exists; the ones before it are not looked at."""
        numbers = self.numbers()
        return Head(numbers[-1], digest_of(self._path(numbers[-1]).read_bytes())) if numbers else Head()

    def append(self, document: EvidenceDocument, key: SigningKey, recorded: Head) -> Head:
        """Append a document, and return the head of the chain with it.

        Parameters
        ----------
        recorded
            The head that is recorded elsewhere, or an empty one: a chain that lacks it is not continued.

        Raises
        ------
        EvidenceError
            If the chain was cut, or a document of it was changed.
        """
        for _ in range(_ATTEMPTS):
            numbers = self.numbers()
            if (why := self._cut(numbers, recorded)) is not None:
                raise EvidenceError(
                    f"evidence of {self.application} is not continued: {why}. Run `statestore evidence verify`, and "
                    "restore what is missing from a copy"
                )
            after = Head(numbers[-1], digest_of(self._path(numbers[-1]).read_bytes())) if numbers else Head()
            content = signed(document, after, key)
            kill_switch.reached("evidence signed, not appended")
            if create_whole(self._path(after.length + 1), content):
                kill_switch.reached("evidence appended, head not recorded")
                return Head(after.length + 1, digest_of(content))
            if self._path(after.length + 1).read_bytes() == content:  # an attempt whose answer was lost
                return Head(after.length + 1, digest_of(content))
        raise RetryError(f"evidence of {self.application}: other drills appended first {_ATTEMPTS} times; run again")

    def _cut(self, numbers: list[int], recorded: Head) -> str | None:
        if numbers != list(range(1, len(numbers) + 1)):
            missing = next(number for number, found in enumerate(numbers, 1) if number != found)
            return f"document {missing} is missing"
        if not recorded.length:
            return None
        if len(numbers) < recorded.length:
            return f"it has {len(numbers)} documents, the recorded head is document {recorded.length}"
        found = digest_of(self._path(recorded.length).read_bytes())
        if found != recorded.sha256:
            return f"document {recorded.length} has the SHA-256 {found}, the recorded head has {recorded.sha256}"
        return None

    def verify(self, keys: Iterable[PublicKey], recorded: Head) -> VerifiedChain:
        """Verify all documents, and that the chain has the recorded head."""
        known = {key.key_id: key for key in keys}
        numbers = self.numbers()
        documents: list[EvidenceDocument] = []
        problems: list[str] = []
        before, expected = Head(), 1
        digests: dict[int, str] = {}
        for number, content in zip(numbers, read_all([self._path(each) for each in numbers]), strict=True):
            problems += [f"document {missing} is missing" for missing in range(expected, number)]
            expected, digests[number] = number + 1, digest_of(content)
            try:
                document = read_document(content)
            except ValueError as error:
                problems.append(f"document {number}: {error}")
            else:
                documents.append(document)
                problems += [f"document {number}: {why}" for why in self._problems(document, number, before, known)]
            before = Head(number, digests[number])
        problems += [f"document {missing} is missing" for missing in range(expected, recorded.length + 1)]
        if recorded.length in digests and digests[recorded.length] != recorded.sha256:
            problems.append(
                f"document {recorded.length} has the SHA-256 {digests[recorded.length]}, the recorded head has "
                f"{recorded.sha256}"
            )
        newer = before.length - recorded.length
        notes = [f"{newer} documents are newer than the recorded head"] if newer > 0 else []
        return VerifiedChain(tuple(documents), before, tuple(problems), tuple(notes))

    def _problems(
        self, document: EvidenceDocument, number: int, before: Head, keys: dict[str, PublicKey]
    ) -> Iterable[str]:
        if document.application != self.application:
            yield f"it belongs to application {document.application}"
        if document.number != number:
            yield f"it was written as document {document.number}"
        if before.length == number - 1 and document.previous != before.sha256:
            yield f"it names {document.previous} as the document before it, found {before.sha256}"
        if (why := signature_problem(document, keys)) is not None:
            yield why

    def _path(self, number: int) -> Location:
        return self.directory / f"{number:012d}.json"
