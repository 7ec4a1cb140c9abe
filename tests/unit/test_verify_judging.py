"""From what was seen to a row: statuses and actions that offsets alone decide, and those of deep verification."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import WINDOW, store_partition

from statestore.advice import Situation, Target, advice
from statestore.changelog.epochs import Continuity, LogComparison, LogEnd
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, LockedError, StoreCorruptedError
from statestore.kafka.topics import LogRange
from statestore.model import TaskId
from statestore.partition.facts import (
    NO_LOG,
    DiskFacts,
    Facts,
    LastKnown,
    LogFacts,
    RebuildLoss,
    Trouble,
    cut_at,
    log_end,
)
from statestore.partition.inspection import damaged_file
from statestore.partition.plan import advised
from statestore.partition.replacement import staged_context
from statestore.partition.verdict import (
    LACKS_VERSIONS,
    Verdict,
    damaged,
    judge,
    locked,
    needed_from,
    needs_stream_time,
    rebuild_loss,
    repartitioned,
    unread,
    with_contents,
    with_loss,
)
from statestore.reports import Action, Contents, Loss, Status, VerifyRow
from statestore.statedir.record import StoreRecord
from statestore.verification.check import report_row
from statestore.verification.options import VerifyOptions
from statestore.verification.sampling import choose

NOW_MS = 1_000_000_000
LOG = LogRange(0, 10, 10)
RECORD = StoreRecord(topic_id="id", caught_up_ms=NOW_MS - 1, committed=4)


def spec(partition=0, partitions=2):
    changelog = store_partition().changelog.model_copy(update={"partitions": partitions})
    return store_partition(task=TaskId(0, partition), changelog=changelog)


def seen(committed, **what):
    found = DiskFacts(present=True, committed=committed, empty=False, record=RECORD, sealed=True)._replace(**what)
    return found._replace(known=LastKnown(not found.empty or committed is not None, committed, found.record))


def judge_facts(store, disk, log, first, now_ms=NOW_MS):
    """Judge with everything answered that may be asked."""
    answered = {"times_known": True, "lacks_versions": bool(log.lacks_versions), "tail_is_complete": False}
    return judge(Facts(store, disk, now_ms, log._replace(**answered), first, elsewhere=True))


def verdict_of(found, first=None, log=LOG, spec_=None):
    store = spec_ or spec()
    return judge_facts(store, found, LogFacts(store.changelog, log), first)


def row_of(verdict, spec_=None):
    return report_row(spec_ or spec(), verdict, "scan")


def unread_of(store, disk, log):
    return unread(Facts(store, disk, NOW_MS, LogFacts(store.changelog, log)))


def judge_row(store, disk, log, first, now_ms):
    return row_of(judge_facts(store, disk, log, first, now_ms), store)


def compared(verdict, contents):
    return row_of(with_contents(verdict, contents))


def read_with_error(verdict, *error):
    return row_of(damaged(verdict, Status.CORRUPT, *error))


def judgement(found, first=None, log=LOG, spec_=None):
    return row_of(verdict_of(found, first, log, spec_), spec_)


def judged(found, first=None, log=LOG):
    row = judgement(found, first, log)
    return row.status, row.action, row.lag


def test_only_a_range_in_which_a_record_decides_is_looked_into():
    assert unread_of(spec(), seen(4), LOG) == (5, 10)
    assert unread_of(spec(), seen(9), LOG) is None
    assert unread_of(spec(), seen(10), LOG) is None
    assert unread_of(spec(), seen(None), LOG) is None
    assert unread_of(spec(), seen(None, empty=True), LOG) == (0, 10)
    assert unread_of(spec(), DiskFacts(present=False), LogRange(3, 10, 10)) == (3, 10)
    assert unread_of(spec(), DiskFacts(present=False), LogRange(3, 3, 3)) is None


@pytest.mark.behaviour("R2")
def test_r2_markers_and_aborted_records_are_no_lag():
    assert judged(seen(4)) == (Status.OK, Action.NONE, 0)
    assert judged(seen(4), first=7) == (Status.LAGGING, Action.TAIL, 3)
    assert judged(DiskFacts(present=False)) == (Status.EMPTY, Action.NONE, 0)
    assert judged(DiskFacts(present=False), first=0) == (Status.MISSING, Action.FULL, 10)
    assert judged(seen(None, empty=True)) == (Status.EMPTY, Action.NONE, 0)


def test_r6_a_lag_of_a_store_not_known_whole_is_a_full_rebuild_and_no_lag_is_none():
    old = RECORD.model_copy(update={"caught_up_ms": 0})
    assert judged(seen(4, record=old), first=7) == (Status.LAGGING, Action.FULL, 3)
    assert judged(seen(4, record=old)) == (Status.OK, Action.NONE, 0)


@pytest.mark.parametrize(
    ("partition", "partitions", "tasks", "expected"),
    [
        (1, 1, None, "at least 2"),
        (3, 3, None, "at least 4"),
        (0, 1, 2, "2"),
        (0, 3, 2, "2"),
        (5, 3, 2, "2"),
        (5, 3, 3, "at least 6"),
    ],
)
def test_r10_a_changelog_needs_one_partition_for_each_task(partition, partitions, tasks, expected):
    row = row_of(repartitioned(spec(partition, partitions), tasks))
    assert (row.status, row.action) == (Status.REPARTITIONED, Action.BY_HAND)
    assert row.detail == (
        f"changelog topic app-s-changelog has {partitions} partitions, expected {expected}, one for each task: keys "
        "are not in the partitions of their tasks"
    )


def test_r10_as_many_partitions_as_tasks_are_well():
    assert repartitioned(spec(1, 2), 2) is None
    assert repartitioned(spec(1, 5), None) is None
    assert repartitioned(spec(1, None), 2) is None
    assert repartitioned(spec().model_copy(update={"changelog": None}), 2) is None


def test_without_a_changelog_a_store_that_is_or_was_there_is_for_a_person():
    gone = spec().model_copy(update={"changelog": None})
    row = judgement(DiskFacts(present=False), spec_=gone)
    assert (row.status, row.start, row.end) == (Status.EMPTY, None, None)
    assert row.detail == "neither the store nor its changelog topic exists yet"
    row = judgement(seen(4), spec_=gone)
    assert (row.status, row.action, row.loss) == (Status.REPLACED, Action.BY_HAND, Loss.LIKELY)
    gone_for_good = "changelog topic app-s-changelog does not exist: there is nothing to rebuild the store from"
    assert row.detail == gone_for_good
    assert (row.advice.situation, row.store_topic_id) == (Situation.CHANGELOG_MISSING, RECORD.topic_id)
    row = judgement(DiskFacts(present=False, record=RECORD, known=LastKnown(True, 4, RECORD)), spec_=gone)
    assert (row.status, row.action, row.loss) == (Status.MISSING, Action.BY_HAND, Loss.LIKELY)
    assert row.detail == "/state/app/0_0/rocksdb/s does not exist, and neither does changelog topic app-s-changelog"
    assert (row.topic_id, row.lag, row.loss_detail) == (None, None, "its changelog topic does not exist")


def test_rows_that_differ_are_a_full_rebuild_unless_that_could_lose_some():
    whole = verdict_of(seen(9))
    same = Contents(store_rows=3, equal=3, not_judged=2)
    assert with_contents(whole, same) == whole._replace(contents=same, keys=3)
    contents = Contents(store_rows=9, equal=0, other_value=1, only_in_store=2, only_in_log=3)
    row = compared(whole, contents)
    said = "6 rows differ from the changelog: 1 have another value, 2 are only in the store, 3 only in the log"
    assert (row.status, row.action, row.keys) == (Status.DIVERGED, Action.FULL, 9)
    assert (row.detail, row.contents) == (said, contents)
    later = verdict_of(seen(9), log=LogRange(2, 10, 10))
    row = compared(later, contents)
    assert row.action is Action.BY_HAND
    assert row.detail == f"{said}; a rebuild would lose data: its changelog begins at offset 2"
    assert compared(later, Contents(only_in_store=1)).action is Action.BY_HAND
    assert compared(later, Contents(other_value=1)).action is Action.BY_HAND
    assert compared(whole, Contents(store_rows=3, sample=0.5)).keys is None


def test_the_damaged_file_is_found_in_what_rocksdb_says():
    store = Path("/state/app/0_0/rocksdb/s")
    said = f"RocksDB cannot read {store}: Corruption: block checksum mismatch in {store}/000012.sst offset 5; restore"
    assert damaged_file(StoreCorruptedError(said), store) == f"{store}/000012.sst"
    assert (
        damaged_file(StoreCorruptedError(f"{store}/s.0/MANIFEST-4 is not as it was"), store)
        == f"{store}/s.0/MANIFEST-4"
    )
    assert damaged_file(StoreCorruptedError(f"{store} has no CURRENT file"), store) is None


# -- options and samples ----------------------------------------------------------------------------------------------


def test_a_negative_number_of_keys_to_tell_is_refused():
    with pytest.raises(InputError, match="first_keys: expected a number from 0, found -1"):
        VerifyOptions(first_keys=-1)


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
    found = judgement(seen(4), 7, LogRange(2, 10, 12), spec(1))
    assert found == VerifyRow(
        application="app",
        store="s",
        task="0_1",
        status=Status.LAGGING,
        action=Action.TAIL,
        detail="offsets 5 to 9 are to be read; first record at 7",
        topic_id="id",
        store_topic_id="id",
        advice=advice(Situation.BEHIND, Target("app", "s", "0_1")),
        committed=4,
        start=2,
        end=10,
        lag=3,
        sealed=True,
        loss=Loss.LIKELY,
        loss_detail="its changelog begins at offset 2",
        loss_cause=Status.TRUNCATED,
    )
    missing = judgement(DiskFacts(present=False), 7, LogRange(0, 10, 12), spec(1))
    assert (missing.status, missing.detail) == (Status.MISSING, "/state/app/0_1/rocksdb/s does not exist")
    assert (missing.committed, missing.start, missing.end, missing.lag, missing.sealed) == (None, 0, 10, 3, None)
    empty = judgement(DiskFacts(present=False))
    assert (empty.status, empty.detail) == (Status.EMPTY, "nothing logged yet")


def test_where_no_record_was_looked_for_the_lag_is_not_known():
    assert judged(seen(10)) == (Status.AHEAD, Action.BY_HAND, None)
    assert judged(seen(None)) == (Status.LAGGING, Action.FULL, None)


def test_a_store_with_nothing_in_it_lags_from_the_first_record_on():
    assert judged(seen(None, empty=True), first=0) == (Status.LAGGING, Action.TAIL, 10)
    assert judged(seen(None, empty=True, record=None), first=3) == (Status.LAGGING, Action.TAIL, 7)


def test_a_store_without_rows_that_has_an_offset_is_no_empty_one():
    assert judged(seen(9, empty=True)) == (Status.OK, Action.NONE, 0)
    assert judged(seen(None, empty=True), log=LogRange(0, 0, 0)) == (Status.EMPTY, Action.NONE, 0)


def test_an_older_format_is_told_with_how_its_rows_are_read():
    found = judgement(seen(9, upgrade_pending=True))
    assert (found.status, found.action, found.lag) == (Status.OLD_FORMAT, Action.NONE, 0)
    assert judged(seen(4, upgrade_pending=True), first=7) == (Status.LAGGING, Action.TAIL, 3)
    assert found.detail == "rows still have an older format; they are read as timestamped, and migrate when written"
    for committed in (9, 4):  # all of the log, or all but what is no record
        assert judgement(seen(committed)).detail == ""


def test_a_topic_that_was_recreated_or_is_not_compacted_is_judged_as_such():
    other = RECORD.model_copy(update={"topic_id": "other"})
    assert judged(seen(9, record=other)) == (Status.REPLACED, Action.BY_HAND, None)
    row = judgement(seen(9, record=other))
    assert (row.advice.situation, row.store_topic_id) == (Situation.RECREATED_WITH_RECORDS, "other")
    for record in (other, None):
        row = judgement(seen(9, record=record), log=NO_LOG)
        assert "nothing was ever logged to it" in row.detail
        assert row.advice.situation == Situation.CHANGELOG_RECREATED
    assert judged(seen(9, record=None)) == (Status.OK, Action.NONE, 0)
    assert judged(seen(4, record=None), first=7) == (Status.LAGGING, Action.FULL, 3)
    keeps_all = spec().changelog.model_copy(update={"compacted": False})
    found = judgement(seen(4, record=None), 7, LOG, spec().model_copy(update={"changelog": keeps_all}))
    assert found.action is Action.TAIL


def test_how_long_tombstones_are_kept_is_the_changelogs():
    just_within = RECORD.model_copy(update={"caught_up_ms": NOW_MS - 999})
    just_outside = RECORD.model_copy(update={"caught_up_ms": NOW_MS - 1_000})
    assert judged(seen(4, record=just_within), first=7)[1] is Action.TAIL
    assert judged(seen(4, record=just_outside), first=7)[1] is Action.FULL
    versioned = spec().model_copy(update={"store": StoreDefinition(name="s", kind="versioned", retention_ms=60_000)})
    found = judgement(seen(4, record=just_outside), 7, spec_=versioned)
    assert found.action is Action.TAIL  # compaction does not leave what it has
    assert "keys whose deletes are gone from the log stay in the store" in found.detail


def test_a_record_of_a_store_that_was_further_says_nothing_of_one_that_is_behind():
    assert judged(seen(3), first=7) == (Status.LAGGING, Action.FULL, 3)  # RECORD speaks of offset 4


# -- what a rebuild would lose ----------------------------------------------------------------------------------------

WHOLE = StoreRecord(topic_id="id", caught_up_ms=1, committed=9, end=11, needed_from=2)
BEGUN = StoreRecord(topic_id="id", caught_up_ms=0, end=0, needed_from=0)
ADOPTED = BEGUN.model_copy(update={"adopted": True})
HOUR_MS = 3_600_000
CHANGELOG = store_partition().changelog


def loss(known, log, *, changelog=CHANGELOG, retention_ms=None, now_ms=NOW_MS, **more):
    found = rebuild_loss(known, LogFacts(changelog, log, **more), retention_ms=retention_ms, now_ms=now_ms)
    return found.loss, found.status


NONE, UNPROVEN = (Loss.NONE, Status.OK), (Loss.UNPROVEN, Status.OK)


@pytest.mark.parametrize(
    ("known", "log", "more", "expected"),
    [
        (LastKnown(True, 9, WHOLE), LogRange(0, 11, 11), {}, NONE),
        (LastKnown(True, 9, WHOLE), LogRange(2, 20, 20), {}, NONE),  # the deleted records were not needed
        (LastKnown(False), LogRange(0, 3, 3), {}, NONE),
        (LastKnown(False), LogRange(3, 3, 3), {}, (Loss.LIKELY, Status.TRUNCATED)),  # it had records
        (LastKnown(True, 9, WHOLE), LogRange(0, 11, 11), {"lacks_versions": True}, UNPROVEN),
        (LastKnown(False), LogRange(0, 0, 0), {"changelog": None}, NONE),
        (LastKnown(True, 9, WHOLE), LogRange(0, 0, 0), {"changelog": None}, (Loss.LIKELY, Status.REPLACED)),
        (LastKnown(True, 9, WHOLE.model_copy(update={"topic_id": "x"})), LOG, {}, (Loss.LIKELY, Status.REPLACED)),
        (LastKnown(True, 9, WHOLE), LogRange(0, 9, 9), {}, (Loss.LIKELY, Status.AHEAD)),
        (LastKnown(True, 9, WHOLE), LogRange(0, 10, 10), {}, (Loss.LIKELY, Status.AHEAD)),  # the marker was there, too
        (LastKnown(True, 9, WHOLE), LogRange(0, 30, 30), {"cut_at": 7}, (Loss.LIKELY, Status.AHEAD)),
        (LastKnown(True, 9, WHOLE), LogRange(3, 20, 20), {}, (Loss.LIKELY, Status.TRUNCATED)),
        (LastKnown(True, 9), LogRange(0, 11, 11), {}, UNPROVEN),
        (LastKnown(True, 9), LogRange(1, 11, 11), {}, (Loss.LIKELY, Status.TRUNCATED)),
        (LastKnown(True, 9, WHOLE.model_copy(update={"adopted": True})), LogRange(0, 11, 11), {}, UNPROVEN),
        (LastKnown(True), LogRange(0, 11, 11), {}, UNPROVEN),
        (LastKnown(True), LogRange(0, 0, 0), {}, (Loss.LIKELY, Status.AHEAD)),
        (LastKnown(True, None, BEGUN, uncommitted=True), LogRange(0, 0, 0), {}, UNPROVEN),
        (
            LastKnown(True, None, BEGUN),
            LogRange(0, 0, 0),
            {},
            (Loss.LIKELY, Status.AHEAD),
        ),  # how far it was cannot be read
        (LastKnown(True, None, ADOPTED, uncommitted=True), LogRange(0, 0, 0), {}, (Loss.LIKELY, Status.AHEAD)),
        (LastKnown(True, uncommitted=True), LogRange(0, 0, 0), {}, (Loss.LIKELY, Status.AHEAD)),
        (LastKnown(True, None, WHOLE, uncommitted=True), LogRange(0, 0, 0), {}, (Loss.LIKELY, Status.AHEAD)),
        (LastKnown(False, foreign=True), LogRange(0, 11, 11), {}, UNPROVEN),
        (LastKnown(True, 9, WHOLE, foreign=True), LogRange(0, 11, 11), {}, UNPROVEN),
        (LastKnown(True, 9, WHOLE, foreign=True), LogRange(0, 5, 5), {}, (Loss.LIKELY, Status.AHEAD)),
    ],
)
def test_what_a_rebuild_would_lose_follows_from_the_best_evidence(known, log, more, expected):
    assert loss(known, log, **more) == expected


@pytest.mark.parametrize(
    ("known", "log", "more", "why"),
    [
        (LastKnown(True, 9, WHOLE), LogRange(0, 11, 11), {}, ""),
        (LastKnown(True, 9, WHOLE), LogRange(0, 0, 0), {"changelog": None}, "its changelog topic does not exist"),
        (
            LastKnown(True, 9, WHOLE.model_copy(update={"topic_id": "x"})),
            LogRange(0, 11, 11),
            {},
            "its changelog was topic x and is now topic id",
        ),
        (LastKnown(True, 9, WHOLE), LogRange(0, 10, 10), {}, "it had offsets up to 10, but its changelog ends at 10"),
        (LastKnown(True, 9), LogRange(0, 9, 9), {}, "it had offsets up to 9, but its changelog ends at 9"),
        (
            LastKnown(True, 9, WHOLE),
            LogRange(0, 30, 30),
            {"cut_at": 7},
            "its changelog was cut at offset 7 and has other records from there on",
        ),
        (
            LastKnown(True, 9, WHOLE),
            LogRange(3, 20, 20),
            {},
            "its changelog begins at offset 3, but is needed from 2 on",
        ),
        (LastKnown(True, 9), LogRange(3, 20, 20), {}, "its changelog begins at offset 3"),
        (
            LastKnown(True, None, BEGUN, uncommitted=True),
            LogRange(0, 0, 0),
            {},
            "its changelog was empty when it was begun, and nothing in it was committed",
        ),
        (LastKnown(True), LogRange(0, 0, 0), {}, "its changelog is empty"),
        (LastKnown(True, None, WHOLE), LogRange(0, 11, 11), {}, "its position in its changelog is unknown"),
        (LastKnown(True, 9), LogRange(0, 11, 11), {}, "the topic that its offsets belong to was never recorded"),
        (
            LastKnown(True, 9, WHOLE.model_copy(update={"adopted": True})),
            LogRange(0, 11, 11),
            {},
            "it existed before its first record, and may contain rows of an earlier log",
        ),
        (LastKnown(True, 9, WHOLE), LogRange(0, 11, 11), {"lacks_versions": True}, LACKS_VERSIONS),
        (
            LastKnown(False),
            LogRange(3, 20, 20),
            {"stream_time": 100, "first_time": 4},
            "its changelog begins at offset 3, and what was before seems to have expired",
        ),
        (
            LastKnown(False, foreign=True),
            LogRange(0, 11, 11),
            {},
            "in its place is the store of another store partition, perhaps its only copy",
        ),
    ],
)
def test_the_reason_names_what_shows_the_loss(known, log, more, why):
    facts = LogFacts(**{"changelog": CHANGELOG, "log": log, **more})
    assert rebuild_loss(known, facts, retention_ms=5, now_ms=NOW_MS).why == why


def test_a_log_whose_records_were_all_deleted_is_not_one_that_was_always_empty():
    known = LastKnown(True, 9, WHOLE.model_copy(update={"needed_from": 11}))
    assert loss(known, LogRange(11, 11, 11)) == NONE
    assert loss(known._replace(committed=None), LogRange(11, 11, 11)) == UNPROVEN


def test_rows_past_their_retention_at_the_logs_stream_time_are_no_loss():
    log, hour = LogRange(5, 20, 20), {"retention_ms": HOUR_MS}
    known = LastKnown(True, 9, WHOLE.model_copy(update={"stream_time": 10 * HOUR_MS}))
    assert loss(known, log, stream_time=11 * HOUR_MS + 1, **hour) == NONE
    assert loss(known, log, stream_time=11 * HOUR_MS, **hour) == (Loss.LIKELY, Status.TRUNCATED)
    assert loss(known, log, stream_time=None, **hour) == (Loss.LIKELY, Status.TRUNCATED)
    assert loss(known, log, stream_time=99 * HOUR_MS) == (Loss.LIKELY, Status.TRUNCATED)  # rows that do not expire


def test_a_record_says_nothing_of_rows_that_were_logged_after_it():
    known = LastKnown(True, 9, WHOLE.model_copy(update={"stream_time": 10 * HOUR_MS}))
    given = {"retention_ms": HOUR_MS, "stream_time": 99 * HOUR_MS}
    assert loss(known, LogRange(11, 20, 20), **given) == NONE
    assert loss(known, LogRange(12, 20, 20), **given) == (Loss.LIKELY, Status.TRUNCATED)


@pytest.mark.parametrize(
    "known", [LastKnown(True, 9), LastKnown(True, 9, WHOLE), LastKnown(False), LastKnown(False, record=BEGUN)]
)
def test_what_was_before_first_rows_that_have_expired_has_expired_too(known):
    log, given = LogRange(5, 20, 20), {"retention_ms": HOUR_MS, "stream_time": 11 * HOUR_MS}
    expired = NONE if known.record is WHOLE else UNPROVEN
    assert loss(known, log, first_time=10 * HOUR_MS - 1, **given) == expired
    assert loss(known, log, first_time=10 * HOUR_MS, **given) == (Loss.LIKELY, Status.TRUNCATED)
    assert loss(known, log, first_time=None, **given) == (Loss.LIKELY, Status.TRUNCATED)
    assert loss(known, log, first_time=0, stream_time=99 * HOUR_MS) == (Loss.LIKELY, Status.TRUNCATED)  # none expire


def test_what_kafka_deletes_by_age_is_a_loss_unless_the_store_is_in_memory():
    log, by_age = LogRange(5, 5, 5), CHANGELOG.model_copy(update={"deleted_after_ms": 25 * HOUR_MS})
    given = {"changelog": by_age, "now_ms": 100 * HOUR_MS, "retention_ms": HOUR_MS}
    likely, in_memory = (Loss.LIKELY, Status.TRUNCATED), LastKnown(False, in_memory=True)
    assert loss(LastKnown(False), log, **given) == likely
    assert loss(in_memory, log, **given) == UNPROVEN
    assert loss(in_memory, log, **{**given, "retention_ms": None}) == likely
    assert loss(in_memory, log, **{**given, "changelog": CHANGELOG}) == likely
    for latest_ms, expected in ((76 * HOUR_MS + 600_000, NONE), (76 * HOUR_MS + 600_001, likely)):
        # Records of 75 h are the youngest that Kafka has deleted by now, if its clock is right.
        record = WHOLE.model_copy(update={"stream_time": latest_ms, "committed": 4, "end": 5})
        assert loss(in_memory._replace(anything=True, committed=4, record=record), log, **given) == expected
        unknown = UNPROVEN if expected is NONE else expected
        assert loss(in_memory._replace(record=record), log, **given) == unknown


def test_a_store_is_judged_by_the_age_of_what_kafka_deleted():
    by_age = CHANGELOG.model_copy(update={"deleted_after_ms": 25 * HOUR_MS})
    store = spec().model_copy(update={"store": WINDOW, "changelog": by_age})
    record = RECORD.model_copy(update={"stream_time": 70 * HOUR_MS})
    found = seen(4, record=record)._replace(known=LastKnown(True, 4, record, in_memory=True))
    for now_ms, expected in ((100 * HOUR_MS, Loss.NONE), (90 * HOUR_MS, Loss.LIKELY)):
        assert judge_row(store, found, LogFacts(by_age, LogRange(5, 5, 5)), None, now_ms).loss is expected


def test_a_record_from_before_its_store_was_created_is_no_evidence():
    known = LastKnown(False, record=BEGUN.model_copy(update={"needed_from": 5}))
    assert known.is_unknown
    assert loss(known, LogRange(5, 9, 9)) == (Loss.LIKELY, Status.TRUNCATED)
    accepted = known._replace(record=known.record.model_copy(update={"restored_by": "restore"}))
    assert not accepted.is_unknown
    assert loss(accepted, LogRange(5, 9, 9)) == NONE
    assert loss(accepted, LogRange(6, 9, 9)) == (Loss.LIKELY, Status.TRUNCATED)
    of_another_log = accepted._replace(record=accepted.record.model_copy(update={"topic_id": "another"}))
    assert loss(of_another_log, LogRange(5, 9, 9)) == (Loss.LIKELY, Status.TRUNCATED)


def test_only_a_record_of_the_log_says_from_where_on_it_is_needed():
    assert needed_from(WHOLE, CHANGELOG) == 2
    for record, changelog in (
        (None, CHANGELOG),
        (WHOLE, None),
        (WHOLE.model_copy(update={"topic_id": "another"}), CHANGELOG),
        (BEGUN.model_copy(update={"needed_from": 2}), CHANGELOG),
    ):
        assert needed_from(record, changelog) is None


def test_a_store_in_trouble_keeps_its_status_and_is_for_a_person_where_a_rebuild_would_lose_something():
    trouble = Trouble(Status.CORRUPT, "no CURRENT")
    row = judgement(seen(4, trouble=trouble))
    assert (row.status, row.action, row.detail, row.loss) == (Status.CORRUPT, Action.FULL, "no CURRENT", Loss.NONE)
    row = judgement(seen(4, trouble=trouble), log=LogRange(0, 3, 3))
    assert (row.status, row.action, row.loss) == (Status.CORRUPT, Action.BY_HAND, Loss.LIKELY)
    assert row.detail == "no CURRENT; a rebuild would lose data: it had offsets up to 4, but its changelog ends at 3"


def test_a_store_that_is_gone_is_missing_where_its_log_cannot_give_it_again():
    gone = DiskFacts(present=False, record=RECORD, known=LastKnown(True, 4, RECORD))
    assert judged(gone, log=LogRange(0, 3, 3))[:2] == (Status.MISSING, Action.BY_HAND)
    assert judged(gone, first=0)[:2] == (Status.MISSING, Action.FULL)


def test_given_a_log_that_was_cut_then_a_store_is_ahead_of_it_at_any_offset():
    store = spec()
    row = judge_row(store, seen(9), LogFacts(store.changelog, LOG, cut_at=0), None, NOW_MS)
    assert (row.status, row.action, row.loss) == (Status.AHEAD, Action.BY_HAND, Loss.LIKELY)
    assert row.detail == (
        "the changelog was cut at offset 0; a rebuild would lose data: its changelog was cut at offset 0 and has "
        "other records from there on"
    )
    gone = DiskFacts(present=False, record=RECORD, known=LastKnown(True, 9, RECORD))
    assert judge_row(store, gone, LogFacts(store.changelog, LOG, cut_at=0), None, NOW_MS).status is Status.MISSING
    nothing = DiskFacts(present=True, record=RECORD)  # nothing was in it, so nothing can be lost
    row = judge_row(store, nothing, LogFacts(store.changelog, LOG, cut_at=3), 0, NOW_MS)
    assert (row.status, row.action, row.detail) == (Status.AHEAD, Action.FULL, "the changelog was cut at offset 3")


def test_rows_expire_by_the_retention_of_their_store_and_the_given_time():
    window = StoreDefinition(name="s", kind="window", retention_ms=HOUR_MS, window_size_ms=60_000)
    forgets = spec().model_copy(update={"store": window})
    old = DiskFacts(present=True, committed=9, empty=False, known=LastKnown(True, 9))
    for first_time, found in ((76 * HOUR_MS - 1, Loss.UNPROVEN), (76 * HOUR_MS, Loss.LIKELY)):
        log = LogFacts(forgets.changelog, LogRange(5, 20, 20), stream_time=77 * HOUR_MS, first_time=first_time)
        assert judge_row(forgets, old, log, None, 100 * HOUR_MS).loss is found


def test_a_store_with_nothing_is_not_filled_from_a_log_that_has_lost_its_start():
    log = LogRange(2, 10, 10)
    row = judgement(DiskFacts(present=False), 7, log)
    assert (row.status, row.action, row.loss_cause) == (Status.MISSING, Action.BY_HAND, Status.TRUNCATED)
    for first in (7, None):
        row = judgement(DiskFacts(present=True), first, log)
        assert (row.status, row.action, row.loss_cause) == (Status.TRUNCATED, Action.BY_HAND, Status.TRUNCATED)
    assert row.detail == (
        "it has nothing of its changelog; a rebuild would lose data: its changelog begins at offset 2"
    )
    assert judged(DiskFacts(present=True), log=LogRange(0, 10, 10))[0] is Status.EMPTY


def test_given_a_damaged_store_then_the_row_names_its_file_and_no_log_is_read():
    trouble = Trouble(Status.CORRUPT, "no CURRENT")
    damaged = seen(4, trouble=trouble, file="/state/000012.sst")
    assert judgement(damaged).file == "/state/000012.sst"
    assert unread_of(spec(), damaged, LOG) is None
    assert unread_of(spec(), DiskFacts(present=False, trouble=trouble), LOG) is None
    assert unread_of(spec().model_copy(update={"changelog": None}), DiskFacts(present=False), LOG) is None


def test_given_damage_found_by_reading_rows_then_the_store_is_rebuilt_unless_that_loses_something():
    whole = verdict_of(seen(9))
    row = read_with_error(whole, "block 7", "/state/000012.sst")
    assert (row.status, row.action, row.detail, row.file) == (
        Status.CORRUPT,
        Action.FULL,
        "block 7",
        "/state/000012.sst",
    )
    assert (row.loss, row.loss_detail) == (Loss.NONE, "")
    assert read_with_error(whole, "block 7").file is None
    unjudged = whole._replace(loss=None)
    assert read_with_error(unjudged, "block 7").loss is Loss.UNPROVEN
    likely = whole._replace(loss=RebuildLoss(Loss.LIKELY, "its changelog is empty"))
    row = read_with_error(likely, "block 7")
    assert (row.action, row.loss, row.loss_detail) == (Action.BY_HAND, Loss.LIKELY, "its changelog is empty")
    assert row.detail == "block 7; a rebuild would lose data: its changelog is empty"
    assert read_with_error(likely, "").detail == "a rebuild would lose data: its changelog is empty"


@pytest.mark.parametrize("cause", [Status.OK, Status.TRUNCATED])
def test_the_cause_of_a_loss_stays_known_whatever_is_found_next(cause):
    likely = verdict_of(seen(9))._replace(loss=RebuildLoss(Loss.LIKELY, "", cause))
    assert read_with_error(likely, "block 7").loss_cause is cause
    assert row_of(with_loss(likely, RebuildLoss(Loss.UNPROVEN))).loss_cause is None
    assert row_of(with_loss(likely, RebuildLoss(Loss.LIKELY, "", Status.AHEAD))).loss_cause is Status.AHEAD


FOR_A_PERSON = Verdict(Status.CORRUPT, loss=RebuildLoss(Loss.LIKELY), log=LOG)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": Status.OK},
        {"catches_up": True},
        {"status": Status.LOCKED},
        {"loss": RebuildLoss(Loss.UNPROVEN)},
        {"loss": None},
        {"status": Status.UNKNOWN_FORMAT, "rebuildable": False},
        {"status": Status.REPARTITIONED, "rebuildable": False},
        {"log": None},
    ],
)
def test_given_a_store_that_a_rebuild_cannot_repair_then_accepting_the_loss_does_not_help(changes):
    assert advised(FOR_A_PERSON) is Action.BY_HAND
    assert FOR_A_PERSON.waits_for_loss
    assert not FOR_A_PERSON._replace(**changes).waits_for_loss


def test_given_a_recorded_log_end_then_the_offsets_before_it_are_not_read_again():
    # They are the markers of the store's last transaction.
    known = RECORD.model_copy(update={"end": 8})
    assert unread_of(spec(), seen(4, record=known), LOG) == (8, 10)
    assert unread_of(spec(), seen(4, record=known), LogRange(0, 8, 8)) is None
    assert unread_of(spec(), seen(3, record=known), LOG) == (4, 10)
    assert unread_of(spec(), seen(4, record=None), LOG) == (5, 10)
    assert judgement(seen(4, record=known), 9).detail == "offsets 8 to 9 are to be read; first record at 9"


# -- what the log is asked --------------------------------------------------------------------------------------------


def test_only_the_log_of_the_record_is_compared_by_its_end():
    changelog = spec().changelog
    known = RECORD.model_copy(update={"end": 7, "epoch": 0})
    assert log_end(known, changelog) == LogEnd(7, 0)
    assert log_end(None, changelog) is None
    assert log_end(known, None) is None
    assert log_end(known.model_copy(update={"topic_id": "another"}), changelog) is None
    assert log_end(known.model_copy(update={"end": None}), changelog) is None
    assert log_end(known.model_copy(update={"epoch": None}), changelog) is None


@pytest.mark.parametrize(
    ("comparison", "found"),
    [
        (None, None),
        (LogComparison(Continuity.INTACT), None),
        (LogComparison(Continuity.UNKNOWN, 3), None),
        (LogComparison(Continuity.CUT, 3), 3),
        (LogComparison(Continuity.CUT), 0),
    ],
)
def test_only_a_log_that_is_certain_to_be_cut_is_cut(comparison, found):
    assert cut_at(comparison) == found


def test_stream_time_matters_where_a_store_that_forgets_needs_what_is_gone():
    forgets = spec().model_copy(update={"store": WINDOW})
    needed = RECORD.model_copy(update={"needed_from": 3})
    assert needs_stream_time(forgets, needed, LogRange(4, 10, 10))
    assert not needs_stream_time(forgets, needed, LogRange(3, 10, 10))
    assert needs_stream_time(forgets, RECORD, LogRange(1, 10, 10))
    assert needs_stream_time(forgets, None, LogRange(1, 10, 10))
    assert not needs_stream_time(forgets, None, LogRange(0, 10, 10))
    assert not needs_stream_time(spec(), needed, LogRange(4, 10, 10))


@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_built_beside_a_store_is_opened_in_its_own_place(read_only):
    found, paths = staged_context(spec(), read_only=read_only), spec().paths
    assert (found.application, found.task, found.read_only) == ("app", TaskId(0, 0), read_only)
    assert found.directories == {"s": paths.staging("s")}
    assert found.task_directory == paths.staging("s").parent
    assert found.own_directory == paths.staged_own
    assert found.changelogs == {"s": spec().partitions}
    assert found.exactly_once is False, "what was left open here is built anew"


def test_a_store_that_cannot_be_looked_at_now_is_looked_at_later_and_says_why():
    found = row_of(locked(LockedError("another process has it")))
    assert (found.application, found.store, found.task) == ("app", "s", "0_0")
    assert (found.status, found.action, found.detail) == (Status.LOCKED, Action.LATER, "another process has it")
