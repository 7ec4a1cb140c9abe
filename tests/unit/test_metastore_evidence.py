"""Heads of evidence in the catalogue: they only grow, survive compaction, and are no part of the catalogue's digest."""

from __future__ import annotations

import pytest

from statestore.errors import InvalidCommandError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import Command, EvidenceRecord, RecordEvidence, Snapshot, stamped

EMPTY = Catalogue()


def head(length: int, digit: str = "a", application: str = "shop") -> RecordEvidence:
    return RecordEvidence(application=application, head=EvidenceRecord(length=length, sha256=digit * 64))


def after(catalogue: Catalogue, *commands: Command) -> Catalogue:
    for command in commands:
        catalogue = catalogue.apply(stamped(command, catalogue.next_id, 1, "test"))
    return catalogue


def test_a_recorded_head_does_not_change_the_digest_of_the_catalogue() -> None:
    found = after(EMPTY, head(1), head(5, "b"), head(2, "c", "bakery"))
    assert {name: record.length for name, record in found.evidence.items()} == {"bakery": 2, "shop": 5}
    assert found.digest() == EMPTY.digest()


@pytest.mark.parametrize("length", [1, 5])
def test_a_shorter_chain_never_becomes_the_head(length: int) -> None:
    with pytest.raises(InvalidCommandError, match="the recorded head is document 5"):
        after(EMPTY, head(5), head(length, "b"))


def test_a_snapshot_keeps_the_heads() -> None:
    found = after(EMPTY, head(5))
    snapshot = stamped(found.snapshot(), found.next_id, 1, "test")
    assert EMPTY.apply(snapshot).evidence == found.evidence
    assert found.apply(snapshot).evidence == found.evidence
    without = Snapshot.model_validate({**snapshot.model_dump(), "evidence": {}})
    with pytest.raises(InvalidCommandError, match="heads of evidence"):
        found.apply(without)


def test_snapshots_of_earlier_versions_have_no_heads() -> None:
    snapshot = stamped(EMPTY.snapshot(), 1, 1, "test").model_copy(update={"version": 2})
    assert after(EMPTY.apply(snapshot), head(1)).evidence["shop"].length == 1
