"""Unfinished replacements are removed, and versions that a log may lack are found."""

from __future__ import annotations

import pytest
from samples import CHANGELOG, store_partition

from statestore.definitions.store import StoreDefinition
from statestore.durable import write_durably
from statestore.kafka.topics import LogRange
from statestore.partition import replacement
from statestore.partition.replacement import clear_built, has_lost_none, may_follow, may_lack_versions
from statestore.partition.spec import GLOBAL_TASK
from statestore.statedir.lock import locked
from statestore.stores.last_use import last_use_file

VERSIONED = StoreDefinition(name="s", kind="versioned", retention_ms=600_000)
COMPACTED = store_partition().changelog.model_copy(update={"compacted": True})
VERSIONED_STORE = store_partition(store=VERSIONED, changelog=COMPACTED)


def build(paths, store):
    """Leave each file and directory that a replacement has."""
    for directory in (paths.staging(store), paths.staged_segments(store)):
        write_durably(directory / "CURRENT", "x")
    for file in (paths.staged_offsets(store), last_use_file(paths.staged_own, store)):
        write_durably(file, "x")


def test_what_was_built_of_a_store_goes_and_leaves_that_of_others(paths):
    for store in ("s", "t"):
        build(paths, store)
    with locked(paths):
        clear_built(paths, "s")
        left = {path for path in (*paths.staged.rglob("*"), *paths.staged_own.rglob("*")) if path.is_file()}
        assert left == {
            paths.staging("t") / "CURRENT",
            paths.staged_segments("t") / "CURRENT",
            paths.staged_offsets("t"),
            last_use_file(paths.staged_own, "t"),
        }
        clear_built(paths, "t")
        assert not paths.staged.exists()
        assert not paths.staged_own.exists()
        clear_built(paths, "t")


def test_what_was_built_of_all_stores_goes_at_once(paths):
    for store in ("s", "t"):
        build(paths, store)
    with locked(paths):
        clear_built(paths)
    assert not paths.staged.exists()
    assert not paths.staged_own.exists()


STREAMS = {"owned": False, "exactly_once": True}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"owned": True}, False),
        ({"exactly_once": False}, False),
        ({"owned": True, "exactly_once": False}, False),
        ({"task": GLOBAL_TASK}, False),
        ({"store": StoreDefinition(name="s", supplier="a:b")}, False),
    ],
)
def test_only_a_store_of_kafka_streams_exactly_once_may_get_the_rest_of_its_log(changes, expected):
    assert may_follow(store_partition(**{**STREAMS, **changes})) is expected


@pytest.mark.parametrize(("found", "expected"), [(0, True), (1, False), (None, False)])
def test_a_log_has_lost_nothing_only_if_all_of_its_offsets_were_seen(monkeypatch, found, expected):
    asked = []
    monkeypatch.setattr(replacement, "holes", lambda *given, **how: asked.append((given, how)) or found)
    assert has_lost_none(store_partition(), 3, 9) is expected
    assert asked == [((store_partition().cluster, CHANGELOG, 3, 9), {"enough": 1})]


@pytest.mark.parametrize(("committed", "end"), [(5, 6), (8, 9), (9, 10), (20, 10)])
@pytest.mark.parametrize("complete", [True, False])
def test_a_versioned_store_may_lack_what_compaction_took_up_to_its_committed_offset(
    monkeypatch, committed, end, complete
):
    asked = []
    monkeypatch.setattr(replacement, "has_lost_none", lambda *given: asked.append(given) or complete)
    assert may_lack_versions(VERSIONED_STORE, committed, LogRange(2, 10, 10)) is not complete
    assert asked == [(VERSIONED_STORE, 2, end)]


@pytest.mark.parametrize(
    ("changes", "committed", "start"),
    [
        ({"store": StoreDefinition(name="s")}, 5, 0),
        ({"changelog": None}, 5, 0),
        ({"changelog": COMPACTED.model_copy(update={"compacted": False})}, 5, 0),
        ({}, None, 0),
        ({}, 5, 6),
    ],
    ids=["rows are records", "no changelog", "not compacted", "nothing known", "read nothing that is left"],
)
def test_no_other_store_lacks_versions_and_its_log_is_not_asked(monkeypatch, changes, committed, start):
    monkeypatch.setattr(replacement, "has_lost_none", lambda *given: pytest.fail(f"asked: {given}"))
    store = VERSIONED_STORE.model_copy(update=changes)
    assert may_lack_versions(store, committed, LogRange(start, 10, 10)) is False
