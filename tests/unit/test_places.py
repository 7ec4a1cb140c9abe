"""Which directories of a store are live is decided by evidence that agrees, and asked if there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.definitions.store import StoreDefinition
from statestore.discovery.directories import stores_named
from statestore.discovery.hints import Hint
from statestore.discovery.known_store import KnownStore
from statestore.discovery.known_stores_file import keep_known
from statestore.discovery.places import Place, Use, placed
from statestore.discovery.store_directory import LiveStore
from statestore.errors import InputError
from statestore.model import TaskId
from statestore.partition.spec import GLOBAL_TASK

APP = Path("/state/app")
OLD, NEW = Use(49, 1), Use(99, 2)
NOTHING = Hint()


def store(subtopology=0, partition=0, *, segmented=False):
    task = TaskId(subtopology, partition)
    directory = APP / str(task) / ("totals" if segmented else "rocksdb/totals")
    return LiveStore("totals", segmented, directory, "app", task, Path("/state"))


def known(subtopology=0, kind="key-value", **fields):
    times = {"retention_ms": 3_600_000, "window_size_ms": 0} if kind == "window" else {}
    definition = StoreDefinition(name="totals", kind=kind, format="plain", engine="rocksDB", **times)
    return KnownStore(definition=definition, subtopology=subtopology, **fields)


def decide(uses, by_user=NOTHING, group=None, before=None, **evidence):
    """Return the tasks of live and stale directories, and what the user is asked."""
    found = placed(list(uses), by_user, group, before, uses.__getitem__, **evidence)
    return (
        sorted(str(one.task) for one in found.live),
        sorted(str(one.task) for one in found.stale),
        bool(found.problem),
    )


MOVED = {store(0): OLD, store(1): NEW}
SAME = {store(0): Use(49, 1), store(1): Use(49, 2)}
OTHER_KIND = {store(): Use(49, 1), store(segmented=True): Use(20, 2)}


def test_directories_of_one_place_are_live_and_not_looked_at():
    found = placed([store(), store(0, 1)], NOTHING, None, None, lambda _: pytest.fail("looked"))
    assert (len(found.live), [*found.stale], found.subtopology) == (2, [], 0)


def test_the_place_that_was_written_last_and_has_applied_more_is_live():
    assert decide(MOVED) == (["1_0"], ["0_0"], False)


@pytest.mark.parametrize(
    "uses",
    [
        {store(0): Use(49, 2), store(1): Use(99, 1)},  # files of a copy, or a return that was interrupted
        {store(0): Use(99, 1), store(1): Use(49, 2)},
        SAME,
        {store(0): OLD, store(1, 1): NEW},  # no partition in common
        {store(0, 0): Use(49, 1), store(0, 1): Use(49, 2), store(1, 0): Use(99, 2), store(1, 1): Use(99, 1)},
    ],
)
def test_evidence_that_does_not_agree_decides_nothing(uses):
    live, stale, asked = decide(uses)
    assert (len(live), stale, asked) == (len(uses), [], True)


def test_the_user_and_then_the_group_go_before_the_directories():
    assert decide(MOVED, group=0) == (["0_0"], ["1_0"], False)
    assert decide(MOVED, Hint(subtopology=0), group=1) == (["0_0"], ["1_0"], False)
    assert decide(OTHER_KIND, Hint(kind="key-value")) == (["0_0"], ["0_0"], False)


def test_a_store_that_the_group_has_elsewhere_is_missing():
    found = placed([store(0)], NOTHING, 1, None, {store(0): OLD}.__getitem__)
    assert (found.live, len(found.stale), found.subtopology) == ((), 1, 1)


def test_what_was_stale_stays_so_until_it_is_used_again():
    before = known(1, stale={"0_0/rocksdb/totals": 49})
    assert decide({store(0): OLD}, before=before) == ([], ["0_0"], False)
    assert decide({store(0): Use(60, 3)}, before=before) == (["0_0"], [], False)
    assert decide(SAME, before=before) == (["1_0"], ["0_0"], False)
    assert decide({store(0): OLD}, Hint(subtopology=0), before=before) == (["0_0"], [], False)


def test_what_appeared_after_the_last_verification_is_live_if_it_was_written_later():
    assert decide(SAME, before=known(0)) == (["1_0"], ["0_0"], False)
    assert decide(SAME, before=known(1))[2]
    assert decide({store(0): Use(49, 1), store(1): Use(20, 2)}, before=known(0))[2]


def test_the_topics_decide_together_with_the_times():
    assert decide(SAME, repartitioned=True) == (["1_0"], ["0_0"], False)
    assert decide({store(0): Use(49, 2), store(1): Use(49, 1)}, repartitioned=True)[2]
    assert decide(OTHER_KIND, policy="compact,delete") == (["0_0"], ["0_0"], False)
    assert decide(OTHER_KIND, policy="compact")[2]


def test_offsets_of_another_changelog_are_not_compared():
    assert decide(OTHER_KIND, before=known(0))[2]
    found = placed([*OTHER_KIND], NOTHING, None, known(0), OTHER_KIND.__getitem__, same_log=False)
    assert [Place.of(one) for one in found.live] == [Place(0, True)]


def test_a_store_that_is_read_by_its_name_has_one_place(tmp_path):
    for task in ("0_0", "1_0"):
        (tmp_path / "app" / task / "rocksdb" / "totals").mkdir(parents=True)
    with pytest.raises(InputError, match="statestore verify --application app"):
        stores_named(tmp_path, "app", "totals")
    keep_known(tmp_path, "app", {"totals": known(1, stale={"0_0/rocksdb/totals": 49})})
    assert [str(one.task) for one in stores_named(tmp_path, "app", "totals")] == ["1_0"]
    (tmp_path / "app/1_0/rocksdb/totals").rmdir()
    with pytest.raises(InputError, match="0_0/rocksdb/totals, and a former topology"):
        stores_named(tmp_path, "app", "totals")


def test_global_stores_are_left_as_they_are():
    one = LiveStore("totals", False, APP / "global/rocksdb/totals", "app", GLOBAL_TASK, Path("/state"))
    assert decide({one: OLD, store(1): NEW})[1] == []
