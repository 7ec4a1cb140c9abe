"""Heads of evidence in the command topic: cutting a chain does not change them."""

from __future__ import annotations

from statestore.drills.evidence import Head
from statestore.errors import EvidenceError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import Command, EvidenceRecord, RecordEvidence
from statestore.metastore.metastore import Metastore


def recorded_head(catalogue: Catalogue, application: str) -> Head:
    """Return the head that a catalogue has of an application's evidence; an empty one if it has none."""
    found = catalogue.evidence.get(application)
    return Head() if found is None else Head(found.length, found.sha256)


def record_head(metastore: Metastore, application: str, head: Head) -> None:
    """Record a head; if a longer chain is recorded meanwhile, that one stays.

    Raises
    ------
    EvidenceError
        If another document of the same number is recorded.
    """

    def command(catalogue: Catalogue) -> Command | None:
        recorded = recorded_head(catalogue, application)
        if recorded.length == head.length and recorded.sha256 != head.sha256:
            raise EvidenceError(
                f"evidence of {application}: document {head.length} has the SHA-256 {head.sha256}, and the command "
                f"topic has {recorded.sha256}. One of them was written past the other: verify the evidence"
            )
        if recorded.length >= head.length:
            return None
        return RecordEvidence(application=application, head=EvidenceRecord(length=head.length, sha256=head.sha256))

    metastore.submit(command)
