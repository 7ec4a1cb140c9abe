"""The start of a log as evidence, over combinations: a loss never looks smaller because a record was lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from samples import store_partition

from statestore.kafka.topics import LogRange
from statestore.partition.facts import LastKnown, LogFacts
from statestore.partition.verdict import rebuild_loss
from statestore.reports import Loss, Status
from statestore.statedir.record import StoreRecord

CHANGELOG = store_partition().changelog
ORDER = (Loss.NONE, Loss.UNPROVEN, Loss.LIKELY)
END, RETENTION_MS, NOW_MS = 12, 5, 100
OFFSETS, TIMES = st.integers(0, END), st.none() | st.integers(0, 20)
RETENTIONS = st.sampled_from([None, RETENTION_MS])
BEGUN = StoreRecord(topic_id="id", caught_up_ms=0, end=END)


@st.composite
def recorded(draw):
    """A store of the log, now or when it was recorded, that has seen no more than the log has had."""
    seen = draw(OFFSETS)
    committed = draw(st.none() | st.integers(0, seen - 1)) if seen else None
    record = StoreRecord(
        topic_id="id",
        caught_up_ms=1,
        committed=committed,
        end=draw(st.sampled_from([None, seen])),
        needed_from=draw(st.none() | st.integers(0, seen)),
        stream_time=draw(TIMES),
        adopted=draw(st.booleans()),
    )
    anything = committed is not None or draw(st.booleans())
    return LastKnown(anything, committed, record, uncommitted=draw(st.booleans()) and committed is None)


@st.composite
def logs(draw, start=OFFSETS):
    times = {"stream_time": draw(TIMES), "first_time": draw(TIMES), "lacks_versions": draw(st.booleans())}
    return LogFacts(CHANGELOG, LogRange(draw(start), END, END), **times)


def loss(known, log, retention_ms):
    return rebuild_loss(known, log, retention_ms=retention_ms, now_ms=NOW_MS)


def order(*found):
    return ORDER.index(loss(*found).loss)


@given(recorded(), logs(st.integers(1, END)), RETENTIONS)
def test_without_its_record_a_store_never_seems_to_lose_less_of_a_log_that_lost_its_start(known, log, retention_ms):
    """Unless it is in memory, or the record shows another topic, or a later end: the log's start shows neither."""
    with_record = order(known, log, retention_ms)
    for without in (LastKnown(known.anything, known.committed), LastKnown(False), LastKnown(False, record=BEGUN)):
        assert order(without, log, retention_ms) >= with_record


@given(recorded(), logs(st.integers(0, END - 1)), RETENTIONS)
def test_a_log_that_begins_later_never_loses_less(known, log, retention_ms):
    later = log._replace(log=log.log._replace(start=log.log.start + 1))
    for one in (known, LastKnown(known.anything, known.committed), LastKnown(False)):
        assert order(one, later, retention_ms) >= order(one, log, retention_ms)


@given(logs(st.integers(1, END)))
def test_a_log_that_lost_its_start_is_evidence_by_itself(log):
    found = loss(LastKnown(False), log, None)
    assert (found.loss, found.status) == (Loss.LIKELY, Status.TRUNCATED)


@given(logs(st.just(0)), RETENTIONS)
def test_a_log_that_begins_at_0_gives_an_unknown_store_all_there_was(log, retention_ms):
    assert loss(LastKnown(False), log, retention_ms).loss is Loss.NONE


@given(recorded(), logs(), RETENTIONS)
def test_accepting_a_loss_is_remembered(known, log, retention_ms):
    start = log.log.start
    accepted = known.record.model_copy(update={"needed_from": start, "committed": None, "restored_by": "restore"})
    assert loss(LastKnown(False, record=accepted), log, retention_ms).loss is Loss.NONE
