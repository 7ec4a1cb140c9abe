"""From what was seen to a row: statuses and actions that offsets alone decide, and those of deep verification."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.changelog.topics import LogRange
from statestore.errors import InputError
from statestore.model import StoreDefinition, TaskId
from statestore.reports import Action, Contents, Status
from statestore.statedir.record import StoreRecord
from statestore.tasks.spec import ChangelogSpec, StorePartitionSpec
from statestore.verification.judging import Seen, judge, repartitioned, unread, with_contents, without_log
from statestore.verification.options import VerifyOptions
from statestore.verification.sampling import choose
from statestore.verification.seeing import damaged_file

NOW_MS = 1_000_000_000
LOG = LogRange(0, 10, 10)
RECORD = StoreRecord(topic_id="id", caught_up_ms=NOW_MS - 1, committed=4)


def spec(partition=0, partitions=2):
    changelog = ChangelogSpec(topic="app-s-changelog", topic_id="id", delete_retention_ms=1_000, partitions=partitions)
    return StorePartitionSpec(
        application="app",
        task=TaskId(0, partition),
        store=StoreDefinition(name="s"),
        changelog=changelog,
        bootstrap_servers="nowhere:9092",
        state_dir=Path("/state"),
        kafka_timeout_s=1,
    )


def seen(committed, **what):
    return Seen(present=True, committed=committed, empty=False, record=RECORD, sealed=True)._replace(**what)


def judged(found, first=None, log=LOG):
    row = judge(spec(), found, log, first, NOW_MS)
    return row.status, row.action, row.lag


def test_only_a_range_in_which_a_record_decides_is_looked_into():
    assert unread(spec(), seen(4), LOG, NOW_MS) == (5, 10)
    assert unread(spec(), seen(9), LOG, NOW_MS) is None
    assert unread(spec(), seen(10), LOG, NOW_MS) is None
    assert unread(spec(), seen(None), LOG, NOW_MS) is None
    assert unread(spec(), seen(None, empty=True), LOG, NOW_MS) == (0, 10)
    assert unread(spec(), Seen(present=False), LogRange(3, 10, 10), NOW_MS) == (3, 10)
    assert unread(spec(), Seen(present=False), LogRange(3, 3, 3), NOW_MS) is None


@pytest.mark.behaviour("R2")
def test_r2_markers_and_aborted_records_are_no_lag():
    assert judged(seen(4)) == (Status.OK, Action.NONE, 0)
    assert judged(seen(4), first=7) == (Status.LAGGING, Action.TAIL, 3)
    assert judged(Seen(present=False)) == (Status.EMPTY, Action.NONE, 0)
    assert judged(Seen(present=False), first=0) == (Status.MISSING, Action.FULL, 10)
    assert judged(seen(None, empty=True)) == (Status.EMPTY, Action.NONE, 0)


def test_r6_a_lag_of_a_store_not_known_whole_is_a_full_rebuild_and_no_lag_is_none():
    old = RECORD.model_copy(update={"caught_up_ms": 0})
    assert judged(seen(4, record=old), first=7) == (Status.LAGGING, Action.FULL, 3)
    assert judged(seen(4, record=old)) == (Status.OK, Action.NONE, 0)


def test_rows_in_an_older_format_are_a_notice_where_all_else_is_well():
    assert judged(seen(9, upgrade_pending=True)) == (Status.OLD_FORMAT, Action.NONE, 0)
    assert judged(seen(4, upgrade_pending=True), first=7) == (Status.LAGGING, Action.TAIL, 3)


@pytest.mark.parametrize(("partition", "partitions", "tasks"), [(1, 1, None), (0, 1, 2), (0, 3, 2), (5, 3, 2)])
def test_r10_a_changelog_needs_one_partition_for_each_task(partition, partitions, tasks):
    row = repartitioned(spec(partition, partitions), tasks)
    assert (row.status, row.action) == (Status.REPARTITIONED, Action.BY_HAND)
    assert f"has {partitions} partitions, expected" in row.detail


def test_r10_as_many_partitions_as_tasks_are_well():
    assert repartitioned(spec(1, 2), 2) is None
    assert repartitioned(spec(1, 5), None) is None
    assert repartitioned(spec(1, None), 2) is None
    assert repartitioned(spec().model_copy(update={"changelog": None}), 2) is None


def test_without_a_changelog_a_store_that_is_there_is_for_a_person():
    gone = spec().model_copy(update={"changelog": None})
    assert without_log(spec(), present=True) is None
    assert without_log(gone, present=False).status is Status.EMPTY
    row = without_log(gone, present=True)
    assert (row.status, row.action) == (Status.REPLACED, Action.BY_HAND)


def test_rows_that_differ_are_a_full_rebuild_unless_that_could_lose_some():
    whole = judge(spec(), seen(9), LOG, None, NOW_MS)
    assert with_contents(whole, Contents(store_rows=3, equal=3, not_judged=2)).status is Status.OK
    row = with_contents(whole, Contents(store_rows=3, equal=2, only_in_store=1))
    assert (row.status, row.action, row.keys) == (Status.DIVERGED, Action.FULL, 3)
    later = judge(spec(), seen(9), LogRange(2, 10, 10), None, NOW_MS)
    assert with_contents(later, Contents(only_in_store=1)).action is Action.BY_HAND
    assert with_contents(later, Contents(other_value=1)).action is Action.FULL
    assert with_contents(whole, Contents(store_rows=3, sample=0.5)).keys is None


def test_the_damaged_file_is_found_in_what_rocksdb_says():
    store = Path("/state/app/0_0/rocksdb/s")
    said = f"RocksDB cannot read {store}: Corruption: block checksum mismatch in {store}/000012.sst offset 5; restore"
    assert damaged_file(said, store) == f"{store}/000012.sst"
    assert damaged_file(f"{store}/s.0/MANIFEST-000004 is not as it was", store) == f"{store}/s.0/MANIFEST-000004"
    assert damaged_file(f"{store} has no CURRENT file", store) is None


# -- options and samples ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": "deeper"}, "depth: expected one of offsets, scan, deep, found 'deeper'"),
        ({"depth": "deep", "sample": 0}, "sample: expected a fraction above 0 and at most 1, found 0"),
        ({"depth": "deep", "sample": 1.5}, "found 1.5"),
        ({"depth": "deep", "sample": float("nan")}, "found nan"),
        ({"depth": "scan", "sample": 0.5}, "only depth deep compares a sample, found depth scan"),
        ({"first_keys": -1}, "first_keys: expected a number from 0, found -1"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        VerifyOptions(**options)


@pytest.mark.parametrize("fraction", [0.01, 0.25, 1.0])
def test_a_sample_covers_about_its_fraction_of_the_keys(fraction):
    keys = [b"customer-%06d" % number for number in range(5_000)]
    sample = choose(keys, fraction, seed=7)
    inside = [key for key in keys if any((a is None or key >= a) and (b is None or key < b) for a, b in sample.ranges)]
    assert sample.fraction == pytest.approx(fraction, abs=0.01)
    assert len(inside) == pytest.approx(fraction * len(keys), rel=0.3)


def test_samples_of_one_seed_are_the_same_and_of_others_are_not():
    keys = [b"%d" % number for number in range(1_000)]
    assert choose(keys, 0.1, seed=1).ranges == choose(reversed(keys), 0.1, seed=1).ranges
    assert choose(keys, 0.1, seed=1).ranges != choose(keys, 0.1, seed=2).ranges


def test_a_sample_of_a_log_without_keys_is_everything():
    assert choose([], 0.1, seed=1).ranges == ((None, None),)
