"""From what was seen to a row: statuses and actions that offsets alone decide, and those of deep verification."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.changelog.topics import LogRange
from statestore.errors import InputError
from statestore.model import StoreDefinition, TaskId
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.reports import Action, Contents, Status, VerifyRow
from statestore.statedir.record import StoreRecord
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


# -- evidence ---------------------------------------------------------------------------------------------------------


def test_a_row_names_its_store_partition_and_has_the_evidence():
    found = judge(spec(1), seen(4), LogRange(2, 10, 12), 7, NOW_MS)
    assert found == VerifyRow(
        application="app",
        store="s",
        task="0_1",
        status=Status.LAGGING,
        action=Action.TAIL,
        detail="offsets 5 to 9 are to be read; first record at 7",
        topic_id="id",
        committed=4,
        start=2,
        end=10,
        lag=3,
        sealed=True,
    )
    missing = judge(spec(1), Seen(present=False), LogRange(2, 10, 12), 7, NOW_MS)
    assert (missing.status, missing.detail) == (Status.MISSING, "/state/app/0_1/rocksdb/s does not exist")
    assert (missing.committed, missing.start, missing.end, missing.lag, missing.sealed) == (None, 2, 10, 3, None)
    empty = judge(spec(), Seen(present=False), LOG, None, NOW_MS)
    assert (empty.status, empty.detail) == (Status.EMPTY, "nothing logged yet")


def test_where_no_record_was_looked_for_the_lag_is_not_known():
    assert judged(seen(10)) == (Status.AHEAD, Action.FULL, None)
    assert judged(seen(None)) == (Status.LAGGING, Action.FULL, None)


def test_a_store_with_nothing_in_it_lags_from_the_first_record_on():
    assert judged(seen(None, empty=True), first=0) == (Status.LAGGING, Action.TAIL, 10)
    assert judged(seen(None, empty=True, record=None), first=3) == (Status.LAGGING, Action.TAIL, 7)


def test_a_store_without_rows_that_has_an_offset_is_no_empty_one():
    assert judged(seen(9, empty=True)) == (Status.OK, Action.NONE, 0)
    assert judged(seen(None, empty=True), log=LogRange(0, 0, 0)) == (Status.EMPTY, Action.NONE, 0)


def test_an_older_format_is_told_with_how_its_rows_are_read():
    found = judge(spec(), seen(9, upgrade_pending=True), LOG, None, NOW_MS)
    assert found.detail == "rows in an older format are left; they are read as timestamped, and move when written to"
    for committed in (9, 4):  # all of the log, or all but what is no record
        assert judge(spec(), seen(committed), LOG, None, NOW_MS).detail == ""


def test_a_topic_that_was_recreated_or_is_not_compacted_is_judged_as_such():
    other = RECORD.model_copy(update={"topic_id": "other"})
    assert judged(seen(9, record=other)) == (Status.REPLACED, Action.FULL, None)
    assert judged(seen(9, record=None)) == (Status.OK, Action.NONE, 0)
    assert judged(seen(4, record=None), first=7) == (Status.LAGGING, Action.FULL, 3)
    keeps_all = spec().changelog.model_copy(update={"compacted": False})
    found = judge(spec().model_copy(update={"changelog": keeps_all}), seen(4, record=None), LOG, 7, NOW_MS)
    assert found.action is Action.TAIL


def test_how_long_tombstones_are_kept_is_the_changelogs():
    just_within = RECORD.model_copy(update={"caught_up_ms": NOW_MS - 999})
    just_outside = RECORD.model_copy(update={"caught_up_ms": NOW_MS - 1_000})
    assert judged(seen(4, record=just_within), first=7)[1] is Action.TAIL
    assert judged(seen(4, record=just_outside), first=7)[1] is Action.FULL


def test_a_record_of_a_store_that_was_further_says_nothing_of_one_that_is_behind():
    assert judged(seen(3), first=7) == (Status.LAGGING, Action.FULL, 3)  # RECORD speaks of offset 4


def test_without_a_changelog_the_row_says_what_is_missing():
    gone = spec().model_copy(update={"changelog": None})
    assert without_log(gone, present=False) == VerifyRow(
        application="app",
        store="s",
        task="0_0",
        status=Status.EMPTY,
        action=Action.NONE,
        detail="neither the store nor its changelog topic exists yet",
    )
    assert without_log(gone, present=True).detail == (
        "changelog topic app-s-changelog does not exist: there is nothing to rebuild the store from"
    )


@pytest.mark.parametrize(("tasks", "expected"), [(None, "at least 4"), (2, "2")])
def test_r10_the_row_says_how_many_partitions_were_expected_and_what_to_do(tasks, expected):
    assert repartitioned(spec(3, 3), tasks).detail == (
        f"changelog topic app-s-changelog has 3 partitions, expected {expected}, one for each task: keys are not where "
        "the tasks look for them; give the topics the numbers of partitions that they had, or process the input again "
        "under a new application name"
    )


def test_a_store_in_which_rows_differ_says_how_many_and_of_which_kind():
    contents = Contents(store_rows=9, equal=0, other_value=1, only_in_store=2, only_in_log=3)
    whole = judge(spec(), seen(9), LOG, None, NOW_MS)
    row = with_contents(whole, contents)
    said = "6 rows are not what the changelog gives: 1 have another value, 2 are only in the store, 3 only in the log"
    assert (row.status, row.action, row.detail, row.contents) == (Status.DIVERGED, Action.FULL, said, contents)
    later = with_contents(judge(spec(), seen(9), LogRange(2, 10, 10), None, NOW_MS), contents)
    assert later.detail == f"{said}; the log no longer begins at 0, so a rebuild could lose what only the store has"
    same = with_contents(whole, Contents(store_rows=3, equal=3))
    assert same == whole.model_copy(update={"contents": Contents(store_rows=3, equal=3), "keys": 3})
