"""Whether a snapshot and the rest of its log make the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statestore.archive.manifest import Manifest
from statestore.changelog.epochs import Continuity, LogComparison
from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange
from statestore.model import StoreFormat, TaskId
from statestore.partition.snapshots import inadmissible
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.statedir.record import StoreRecord
from tests.archive.snapshots import manifest

NOW_MS, KEPT_MS = 10_000_000, 1_000_000
LOG = LogRange(0, 60, 60)
CHANGELOG = ChangelogSpec(topic="app-totals-changelog", topic_id="id", delete_retention_ms=KEPT_MS)


def _snapshot(**changes: Any) -> Manifest:
    record = StoreRecord(topic_id="id", caught_up_ms=NOW_MS - KEPT_MS + 1, committed=41, end=43)
    return manifest({"CURRENT": b""}, record=record.model_copy(update=changes.pop("record", {})), **changes)


def _why(
    snapshot: Manifest, log: LogRange = LOG, comparison: LogComparison | None = None, **changes: Any
) -> str | None:
    spec = StorePartitionSpec(
        application="app",
        task=TaskId(0, 3),
        store=StoreDefinition(name="totals"),
        changelog=CHANGELOG,
        cluster=Cluster("nowhere", 1),
        state_dir=Path("/state"),
    ).model_copy(update=changes)
    return inadmissible(spec, snapshot, log, comparison, NOW_MS)


@pytest.mark.parametrize("log", [LOG, LogRange(43, 60, 60), LogRange(43, 43, 43)])
def test_a_snapshot_whose_rest_is_in_the_log_is_used(log: LogRange) -> None:
    assert _why(_snapshot(), log) is None
    assert _why(_snapshot(), log, LogComparison(Continuity.UNKNOWN)) is None


@pytest.mark.parametrize("log", [LOG, LogRange(0, 0, 0)])
def test_a_snapshot_of_a_store_into_which_nothing_was_committed_is_continued_by_all_of_the_log(log: LogRange) -> None:
    assert _why(_snapshot(committed=None, record={"committed": None, "end": 0}), log) is None


def test_tombstones_that_may_be_gone_keep_it_from_being_used() -> None:
    old = _snapshot(record={"caught_up_ms": NOW_MS - KEPT_MS})
    assert "deletes may be gone from the log" in _why(old)
    assert _why(old, changelog=CHANGELOG.model_copy(update={"compacted": False})) is None
    future = _snapshot(record={"caught_up_ms": NOW_MS + 10 * KEPT_MS})
    assert "last known intact never" in _why(future)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (LogRange(44, 60, 60), "offsets 43 to 43 are gone from the log"),
        (LogRange(0, 42, 42), "is at or beyond the log's end 42"),
    ],
)
def test_a_log_that_does_not_continue_it_keeps_it_from_being_used(log: LogRange, said: str) -> None:
    assert said in _why(_snapshot(), log)


def test_a_log_that_was_cut_keeps_it_from_being_used() -> None:
    assert "was cut at offset 30" in _why(_snapshot(), comparison=LogComparison(Continuity.CUT, 30))


def test_another_topic_of_that_name_keeps_it_from_being_used() -> None:
    other = CHANGELOG.model_copy(update={"topic_id": "another"})
    assert "the topic was recreated" in _why(_snapshot(), changelog=other)
    assert "does not exist" in _why(_snapshot(), changelog=None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": StoreFormat.PLAIN}, "format timestamped"),
        ({"kind": "session", "retention_ms": 5}, "kind key-value, retention_ms None"),
        ({"supplier": "a:b"}, "supplier None"),
    ],
)
def test_another_definition_keeps_it_from_being_used(changes: dict[str, Any], said: str) -> None:
    assert said in _why(_snapshot(), store=StoreDefinition(name="totals").model_copy(update=changes))
