"""One signed document for each drill, as canonical JSON.

    {"application":"shop",...,"number":7,"previous":"<SHA-256 of document 6>",...,"signature":"<Ed25519, Base64>",...}

Canonical: keys in order, no blanks, UTF-8, whole numbers only. The signature covers the canonical text without itself.
The digest of a document, which the next one and the head name, is the SHA-256 of all of its bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from statestore.definitions.objectives import RestoreObjectives
from statestore.drills.keys import PublicKey, SigningKey
from statestore.errors import InputError
from statestore.reports import DrillRow, DrillVerdict, SuiteVerdict

#: The digest that the first document names as the one before it.
NOTHING_BEFORE = "0" * 64
_SHA256 = "detects any change, also a deliberate one: nobody can make other content with the same digest"
_XXH64 = "detects accidents; no protection against forgery: anybody can make other rows with the same digest"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Inputs(_Part):
    """Source of the restored store."""

    source: Literal["snapshot", "full"] | None
    snapshot: str | None
    snapshot_age_ms: int | None
    topic: str | None
    topic_id: str | None
    start: int | None = Field(description="first changelog offset read")
    end: int | None = Field(description="offset before which reading ended")
    records: int


class Compared(_Part):
    """Result of the comparison with the changelog."""

    rows: int
    log_rows: int
    committed: int | None
    offsets: tuple[tuple[int, int], ...]


class Suite(_Part):
    """Result of the suite of the store on the restored rows; not in documents of version 1."""

    verdict: SuiteVerdict
    expectations: int
    failed: tuple[str, ...]
    detail: str


class Measures(_Part):
    """How long the phases took, ms."""

    fetch_ms: int
    replay_ms: int
    build_ms: int
    check_ms: int
    proof_ms: int
    restore_ms: int


class ContentDigest(_Part):
    """A digest, and what it resists."""

    of: str
    algorithm: Literal["SHA-256", "XXH64"]
    value: str
    resists: str


class Run(_Part):
    """The run that made the drill."""

    run_id: str
    dag_id: str | None = None
    dag_run_id: str | None = None


class EvidenceDocument(_Part):
    """Evidence of one drill.

    Attributes
    ----------
    number
        Its place in the chain of the application, from 1 on.
    previous
        SHA-256 of the document before it.
    key_id
        SHA-256 of the public key that verifies the signature.
    """

    schema_version: Literal[1, 2] = 2
    application: str
    store: str
    task: str
    number: int = Field(ge=1)
    previous: str = Field(pattern=r"^[0-9a-f]{64}$")
    run: Run
    ended_ms: int
    verdict: DrillVerdict
    detail: str
    objectives: dict[str, int]
    inputs: Inputs
    compared: Compared
    suite: Suite | None = Field(default=None, description="None: no objective asked for it")
    measures: Measures
    digests: tuple[ContentDigest, ...]
    versions: dict[str, str]
    key_id: str = Field(pattern=r"^[0-9a-f]{64}$")
    signature: str = ""

    def content(self) -> dict[str, Any]:
        """Return all fields that a document of this version has."""
        return self.model_dump(mode="json", exclude={"suite"} if self.schema_version == 1 else None)

    @property
    def label(self) -> str:
        """Name of the store partition."""
        return f"{self.application}/{self.store}/{self.task}"


class Head(NamedTuple):
    """The last document of a chain.

    Attributes
    ----------
    length
        Number of documents.
    sha256
        Digest of the last one; `NOTHING_BEFORE` for an empty chain.
    """

    length: int = 0
    sha256: str = NOTHING_BEFORE

    def __str__(self) -> str:
        return f"{self.length}:{self.sha256}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read `42:<digest>`.

        Raises
        ------
        InputError
            If it is no head.
        """
        length, _, digest = text.partition(":")
        is_length = re.fullmatch(r"[1-9][0-9]{0,11}", length)
        if not (is_length and len(digest) == 64 and set(digest) <= set("0123456789abcdef")):
            raise InputError(
                f"{text!r} is no head of evidence: expected <length>:<SHA-256>, as a report has it. The length is at "
                "least 1"
            )
        return cls(int(length), digest)


def document_of(row: DrillRow, run: Run, objectives: RestoreObjectives) -> EvidenceDocument:
    """Return the document of a drill, without its place in the chain and its signature."""
    assert row.verdict is not None, "a drill has a verdict"
    age = row.snapshot_age_seconds
    return EvidenceDocument(
        application=row.application,
        store=row.store,
        task=row.task,
        number=1,
        previous=NOTHING_BEFORE,
        run=run,
        ended_ms=row.drilled_ms or 0,
        verdict=row.verdict,
        detail=row.detail,
        objectives={
            name: value
            for name in ("restorable_within", "not_older_than", "proven_every")
            if (value := getattr(objectives, name)) is not None
        }
        | ({"suites": 1} if objectives.suites else {}),
        inputs=Inputs(
            source=row.source,
            snapshot=row.snapshot,
            snapshot_age_ms=None if age is None else round(age * 1000),
            topic=row.topic,
            topic_id=row.topic_id,
            start=row.start,
            end=row.end,
            records=row.records,
        ),
        compared=Compared(rows=row.rows, log_rows=row.log_rows, committed=row.committed, offsets=row.offsets),
        suite=_suite(row),
        measures=Measures(
            fetch_ms=round(row.fetch_seconds * 1000),
            replay_ms=round(row.replay_seconds * 1000),
            build_ms=round(row.build_seconds * 1000),
            check_ms=round(row.check_seconds * 1000),
            proof_ms=round(row.proof_seconds * 1000),
            restore_ms=round(row.seconds * 1000),
        ),
        digests=tuple(_digests(row)),
        versions={
            "statestore": version("statestore"),
            "rocksdict": version("rocksdict"),
            "python": platform.python_version(),
        },
        key_id=NOTHING_BEFORE,
    )


def _suite(row: DrillRow) -> Suite | None:
    if row.suite is None:
        return None
    return Suite(
        verdict=row.suite, expectations=row.suite_expectations, failed=row.suite_failed, detail=row.suite_detail
    )


def _digests(row: DrillRow) -> list[ContentDigest]:
    found = [
        ("rows of the restored store, in their order", "SHA-256", row.rows_sha256),
        ("manifest of the snapshot, which names the SHA-256 of each file", "SHA-256", row.snapshot_sha256),
        ("expectations of the suite", "SHA-256", row.suite_sha256),
        ("compared rows of the restored store", "XXH64", row.store_digest),
        ("compared rows of the changelog", "XXH64", row.log_digest),
    ]
    return [
        ContentDigest(of=of, algorithm=algorithm, value=value, resists=_SHA256 if algorithm == "SHA-256" else _XXH64)  # type: ignore[arg-type]
        for of, algorithm, value in found
        if value
    ]


def signed(document: EvidenceDocument, after: Head, key: SigningKey) -> bytes:
    """Return the bytes of a document at the end of a chain."""
    placed = {"number": after.length + 1, "previous": after.sha256, "key_id": key.key_id, "signature": ""}
    document = document.model_copy(update=placed)
    signature = base64.b64encode(key.sign(_signed_text(document))).decode()
    return _canonical(document.model_copy(update={"signature": signature}).content())


def digest_of(content: bytes) -> str:
    """Return the digest of a document's bytes."""
    return hashlib.sha256(content).hexdigest()


def read_document(content: bytes) -> EvidenceDocument:
    """Read a document; its signature is not verified.

    Raises
    ------
    ValueError
        If it is none, or is not the canonical text of one.
    """
    try:
        document = EvidenceDocument.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise ValueError(f"it is no document of version 1 or 2: {where}: {first['msg']}") from None
    if _canonical(document.content()) != content:
        raise ValueError("it is not the canonical text of its content")
    return document


def signature_problem(document: EvidenceDocument, keys: Mapping[str, PublicKey]) -> str | None:
    """Return what is wrong with a signature; None if it is good."""
    key = keys.get(document.key_id)
    if key is None:
        return f"it is signed with the key {document.key_id}, and no such public key was given"
    try:
        signature = base64.b64decode(document.signature, validate=True)
    except ValueError:
        return "its signature is not Base64"
    if base64.b64encode(signature).decode() != document.signature:  # several texts decode to the same bytes
        return "its signature is not canonical Base64"
    return None if key.verifies(signature, _signed_text(document)) else "its signature does not fit its content"


def _signed_text(document: EvidenceDocument) -> bytes:
    return _canonical({name: value for name, value in document.content().items() if name != "signature"})


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()
