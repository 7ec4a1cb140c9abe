"""The one judgement of a store partition, for tasks, verification, restore, quarantine and validation. Pure.

It is two judgements: the status of the store itself, and what a rebuild from its log would lose, whatever the status
is. A damaged store is rebuilt only if its log can give all that it had, and a healthy one may be the only copy of
something. A verdict knows no requests and gives no advice: `plan.py` does.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from statestore import clock
from statestore.changelog.standing import Standing, next_offset, standing
from statestore.kafka.topics import LogRange
from statestore.partition.facts import (
    UNASKED,
    DiskFacts,
    Facts,
    LastKnown,
    LogFacts,
    Open,
    Question,
    RebuildLoss,
    Trouble,
    of_log,
)
from statestore.partition.replacement import may_follow
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.reports import Contents, Loss, Status
from statestore.statedir.record import StoreRecord, seen_end, topic_id_of, whole_ms


class Verdict(NamedTuple):
    """How a store partition is, with the evidence.

    Attributes
    ----------
    loss
        What a full rebuild from its log would lose; None if not determined.
    catches_up
        A replay of the rest of its log completes it.
    rebuildable
        A rebuild from its log would repair it, if its log has all of it.
    refills
        Its application fills it at the next start.
    committed
        Offset of the last changelog record in it.
    log
        Offsets of its log; None if there is none, or it was not asked.
    lag
        Offsets from the next record to the log's end; None if unknown.
    sealed, file
        As of `DiskFacts`.
    keys
        Rows read; None if not all were read.
    contents
        Comparison of its rows with its log.
    global_kind
        How a global store turned out to be filled.
    holds_nothing
        As of `DiskFacts`.
    store_topic_id
        Id of the changelog that the store was built from, by its record; None if unknown.
    """

    status: Status
    detail: str = ""
    loss: RebuildLoss | None = None
    catches_up: bool = False
    rebuildable: bool = True
    refills: bool = False
    committed: int | None = None
    log: LogRange | None = None
    lag: int | None = None
    sealed: bool | None = None
    file: str | None = None
    keys: int | None = None
    contents: Contents | None = None
    global_kind: Literal["table", "processor"] | None = None
    holds_nothing: bool = False
    store_topic_id: str | None = None

    @property
    def observed(self) -> bool:
        """True if the store could be looked at."""
        return self.status is not Status.LOCKED

    @property
    def is_settled(self) -> bool:
        """True if nothing needs to be done: it is healthy, or its application fills it."""
        return self.status.healthy or self.refills

    @property
    def loses(self) -> bool:
        """True if something indicates that a rebuild from the log would lose data."""
        return self.loss is not None and self.loss.loss is Loss.LIKELY

    @property
    def lost_its_start(self) -> bool:
        """True if a rebuild would lose only what the log has lost at its start.

        A snapshot of the same topic that the log still continues has that.
        """
        return self.loss is not None and self.loses and self.loss.status is Status.TRUNCATED

    @property
    def usable(self) -> bool:
        """True if its rows are those of its log up to its offset, as far as it was looked at."""
        return self.observed and (self.is_settled or self.catches_up)

    @property
    def waits_for_loss(self) -> bool:
        """True if a rebuild would repair it, and only what it would lose is in the way."""
        return self.would_be_rebuilt and self.loses and self.log is not None

    @property
    def would_be_rebuilt(self) -> bool:
        """True if a rebuild from its log would repair it, whatever it would lose."""
        return self.observed and not self.usable and self.rebuildable


def locked(error: Exception) -> Verdict:
    """Return the verdict on a store partition that could not be looked at now."""
    return Verdict(Status.LOCKED, str(error))


def damaged(verdict: Verdict, status: Status, detail: str, file: str | None = None) -> Verdict:
    """Return the verdict on a store whose rows turned out to be damaged or wrong when they were read."""
    return with_loss(
        verdict._replace(status=status, detail=detail, file=file, catches_up=False, rebuildable=True, refills=False),
        verdict.loss or RebuildLoss(Loss.UNPROVEN),
    )


def with_loss(verdict: Verdict, loss: RebuildLoss) -> Verdict:
    """Add what a rebuild would lose, and name it where a rebuild is what would repair the store."""
    found = verdict._replace(loss=loss)
    if not (found.would_be_rebuilt and found.loses):
        return found
    said = f"a rebuild would lose data: {loss.why}"
    return found if said in found.detail else found._replace(detail=f"{found.detail}; {said}".removeprefix("; "))


def repartitioned(spec: StorePartitionSpec, tasks: int | None) -> Verdict | None:
    """Judge a store partition whose changelog has not one partition for each task (conformance R10); None if it has.

    Parameters
    ----------
    tasks
        How many tasks have the store; None if unknown: then the changelog needs one for this task at least.
    """
    found = spec.changelog.partitions if spec.changelog else None
    if found is None or (spec.partition.partition < found and tasks in (None, found)):
        return None
    expected = f"at least {spec.partition.partition + 1}" if tasks in (None, found) else str(tasks)
    detail = (
        f"changelog topic {spec.partition.topic} has {found} partitions, expected {expected}, one for each task: "
        "keys are not in the partitions of their tasks"
    )
    return Verdict(Status.REPARTITIONED, detail, rebuildable=False)


# -- the judgement ----------------------------------------------------------------------------------------------------


def judge(facts: Facts, *, by_offsets: bool = False, if_unusable: bool = False) -> Verdict | Open:
    """Judge a store partition, and what a rebuild of it would lose; or return the questions that decide.

    Parameters
    ----------
    by_offsets
        Read the log for the loss only if a rebuild is about to be needed.
    if_unusable
        Read it only if the store cannot be used, not even with the rest of its log.
    """
    log = facts.log
    if facts.disk.known.is_unknown and not facts.elsewhere:
        return Open.of(Question.LAST_KNOWN)
    if log is UNASKED:
        return Open.of(Question.LOG)
    if facts.first is UNASKED and unread(facts) is not None:
        return Open.of(Question.FIRST_RECORD)
    facts = facts._replace(first=None if facts.first is UNASKED else facts.first)
    found = _judged(facts, log)
    if not by_offsets and _may_follow(facts, log, found):
        if log.tail_is_complete is None:
            return Open.of(Question.TAIL_IS_COMPLETE)
        if log.tail_is_complete:  # as in a log that is not compacted, all deletes are there
            found = _judged(*_uncompacted(facts, log))
    if if_unusable and found.usable:
        return found
    return _with_loss_known(facts, log, found, by_offsets=by_offsets)


def _with_loss_known(facts: Facts, log: LogFacts, found: Verdict, *, by_offsets: bool) -> Verdict | Open:
    """Return a verdict whose loss is determined, or the questions that determine it."""
    timed = needs_stream_time(facts.spec, facts.disk.record, log.log)
    versions = facts.disk.known.anything and not facts.spec.store.compaction_keeps_rows
    if log.changelog is None or not (timed or versions):
        return found
    if by_offsets and found.is_settled:  # no rebuild follows
        return found._replace(loss=None)
    open_ = {Question.LOG_TIMES} if timed and not log.times_known else set()
    if log.lacks_versions is None and versions:
        open_.add(Question.LACKS_VERSIONS)
    return Open(frozenset(open_)) if open_ else found


def unread(facts: Facts) -> tuple[int, int] | None:
    """Return the offsets (start, exclusive end) in which a record decides, as markers and holes are no lag.

    None if none does.
    """
    spec, disk, log = facts.spec, facts.disk, facts.log
    if log is UNASKED or spec.changelog is None or disk.trouble is not None:
        return None
    if disk.holds_nothing:
        start = log.log.start
    elif disk.committed is not None and _standing(facts, log).status is Status.LAGGING:
        start = next_offset(disk.committed, seen_end(disk.record, disk.committed))
    else:
        return None
    return (start, log.log.last_stable) if start < log.log.last_stable else None


def _judged(facts: Facts, log: LogFacts) -> Verdict:
    spec, disk, first = facts.spec, facts.disk, facts.first
    assert first is not UNASKED
    lost = rebuild_loss(disk.known, log, retention_ms=spec.store.row_retention_ms, now_ms=facts.now_ms)
    found = _status(facts, log, first, lost)
    lag = 0 if found.status.healthy else None if first is None else log.log.last_stable - first
    found = found._replace(
        committed=disk.committed,
        log=None if log.changelog is None else log.log,
        lag=lag,
        sealed=disk.sealed,
        file=disk.file,
        holds_nothing=disk.holds_nothing,
        store_topic_id=topic_id_of(disk.record),
    )
    return with_loss(found, lost)


def _status(facts: Facts, log: LogFacts, first: int | None, lost: RebuildLoss) -> Verdict:
    spec, disk = facts.spec, facts.disk
    if disk.trouble is not None:
        return _of_trouble(spec, disk.trouble)
    if log.changelog is None:
        return _without_log(spec, disk)
    if disk.present and log.cut_at is not None:
        return Verdict(Status.AHEAD, f"the changelog was cut at offset {log.cut_at}")
    if disk.present and disk.holds_nothing and lost.loss is Loss.LIKELY:
        return Verdict(lost.status, "it has nothing of its changelog")
    if disk.present:
        return _of_present(facts, log, first)
    if first is None and lost.loss is Loss.NONE:
        return Verdict(Status.EMPTY, "nothing logged yet")
    return Verdict(Status.MISSING, f"{spec.live} does not exist")


def _of_trouble(spec: StorePartitionSpec, trouble: Trouble) -> Verdict:
    if spec.changelog is None:
        detail = f"{trouble.detail}; changelog topic {spec.partition.topic} does not exist"
        return Verdict(trouble.status, detail, rebuildable=False)
    return Verdict(trouble.status, trouble.detail, rebuildable=trouble.rebuildable)


def _without_log(spec: StorePartitionSpec, disk: DiskFacts) -> Verdict:
    topic = spec.partition.topic
    if disk.present:
        detail = f"changelog topic {topic} does not exist: there is nothing to rebuild the store from"
        return Verdict(Status.REPLACED, detail, rebuildable=False)
    if not disk.known.anything:
        return Verdict(Status.EMPTY, "neither the store nor its changelog topic exists yet")
    detail = f"{spec.live} does not exist, and neither does changelog topic {topic}"
    return Verdict(Status.MISSING, detail, rebuildable=False)


def _of_present(facts: Facts, log: LogFacts, first: int | None) -> Verdict:
    disk, found = facts.disk, _standing(facts, log)
    if found.status in (Status.REPLACED, Status.AHEAD) and not log.log.high_watermark:
        return _of_standing(found._replace(detail=f"{found.detail}; nothing was ever logged to it"))
    if found.status is Status.LAGGING and (disk.committed is not None or disk.empty):
        if first is not None:
            return _of_standing(found._replace(detail=f"{found.detail}; first record at {first}"))
        found = Standing(Status.OK, "")
    if found.status is not Status.OK:
        return _of_standing(found)
    if disk.empty and disk.committed is None:
        return Verdict(Status.EMPTY, found.detail)
    if disk.upgrade_pending:
        ours = facts.spec.store.format
        detail = f"rows still have an older format; they are read as {ours}, and migrate when written"
        return Verdict(Status.OLD_FORMAT, detail)
    return _of_standing(found)


def _of_standing(found: Standing) -> Verdict:
    return Verdict(found.status, found.detail, catches_up=found.catches_up)


def _standing(facts: Facts, log: LogFacts) -> Standing:
    assert log.changelog is not None
    disk = facts.disk
    return standing_of(
        disk.committed,
        log.log,
        disk.record,
        log.changelog,
        empty=disk.empty,
        now_ms=facts.now_ms,
        may_be_rebuilt=facts.spec.store.compaction_keeps_rows,
    )


def standing_of(
    committed: int | None,
    log: LogRange,
    record: StoreRecord | None,
    changelog: ChangelogSpec,
    *,
    empty: bool,
    now_ms: int,
    may_be_rebuilt: bool,
) -> Standing:
    """Judge a store that can be used by its committed offset and its record; see `standing`.

    Parameters
    ----------
    may_be_rebuilt
        Compaction of its log leaves a record for each row (`StoreKind.compaction_keeps_rows`).
    """
    return standing(
        committed,
        log,
        empty=empty,
        topic_id=changelog.topic_id,
        recorded_topic_id=topic_id_of(record),
        caught_up_ms=whole_ms(record, committed, now_ms),
        delete_retention_ms=changelog.delete_retention_ms,
        now_ms=now_ms,
        compacted=changelog.compacted,
        seen_end=seen_end(record, committed),
        may_be_rebuilt=may_be_rebuilt,
    )


def _may_follow(facts: Facts, log: LogFacts, found: Verdict) -> bool:
    """Return whether a lagging store may be complete but for the rest of its log, and that is the smaller part."""
    committed, ends = facts.disk.committed, log.log
    if found.status is not Status.LAGGING or found.catches_up or committed is None:
        return False
    return 2 * (ends.last_stable - committed) <= ends.last_stable - ends.start and may_follow(facts.spec)


def _uncompacted(facts: Facts, log: LogFacts) -> tuple[Facts, LogFacts]:
    assert log.changelog is not None
    log = log._replace(changelog=log.changelog.model_copy(update={"compacted": False}))
    return facts._replace(log=log), log


def with_contents(verdict: Verdict, contents: Contents) -> Verdict:
    """Add what deep verification compared; rows that differ make the store DIVERGED.

    Rows that its log gives at other offsets make it WRONG_OFFSET.
    """
    keys = contents.store_rows if contents.sample is None else None
    found = verdict._replace(contents=contents, keys=keys)
    if contents.offsets and not any(first <= (found.committed or 0) <= last for first, last in contents.offsets):
        where = ", ".join(f"{first} to {last}" for first, last in contents.offsets[:3])
        said = f"its committed offset is {found.committed}, but its rows are those of its changelog at offsets {where}"
        return damaged(found, Status.WRONG_OFFSET, said)
    if not contents.differing:
        return found
    said = (
        f"{contents.differing} rows differ from the changelog: {contents.other_value} have another value, "
        f"{contents.only_in_store} are only in the store, {contents.only_in_log} only in the log"
    )
    return damaged(found, Status.DIVERGED, said)


# -- what a rebuild would lose ----------------------------------------------------------------------------------------

_NOTHING = RebuildLoss(Loss.NONE)
LACKS_VERSIONS = (
    "its changelog was compacted: earlier versions may be missing from it, and so may the latest version of a key if "
    "an earlier one was logged after it"
)


def rebuild_loss(known: LastKnown, facts: LogFacts, *, retention_ms: int | None, now_ms: int) -> RebuildLoss:
    """Return what a full rebuild from the log would lose of what the store had.

    Parameters
    ----------
    retention_ms
        Of a window or session store; None: rows do not expire.
    now_ms
        The brokers' time, ms since the epoch.

    Notes
    -----
    A log that does not begin at 0 once had records, so it is evidence even if nothing is known of the store. Rows that
    are past the store's own retention at the log's stream time are no loss. A log loses records in their order: if its
    first rows have expired, so have those before them. Nor does an in-memory store lose what Kafka deletes by age.
    """
    judge_store = _rebuild_loss if known.anything else _loss_of_unknown
    found = judge_store(known, facts, retention_ms, now_ms)
    if known.foreign and found.loss is not Loss.LIKELY:
        return RebuildLoss(Loss.UNPROVEN, "in its place is the store of another store partition, perhaps its only copy")
    return found


def _loss_of_unknown(known: LastKnown, facts: LogFacts, retention_ms: int | None, now_ms: int) -> RebuildLoss:
    """Return what a rebuild would lose of an unknown store: only its log shows it."""
    if facts.changelog is None or facts.log.start <= (needed_from(known.record, facts.changelog) or 0):
        return _NOTHING
    seems_expired = f"its changelog begins at offset {facts.log.start}, and what was before seems to have expired"
    return _lost_start(known, facts, retention_ms, now_ms) or RebuildLoss(Loss.UNPROVEN, seems_expired)


def _lost_start(known: LastKnown, facts: LogFacts, retention_ms: int | None, now_ms: int) -> RebuildLoss | None:
    """Return the loss of records at the start of the log; None if the store needs none of them."""
    needed, start = needed_from(known.record, facts.changelog), facts.log.start
    if start <= (needed or 0) or _has_expired(known, facts, retention_ms):
        return None
    if known.in_memory and _has_gone_by_age(known, facts, retention_ms, now_ms):
        return None
    but = "" if needed is None else f", but is needed from {needed} on"
    return RebuildLoss(Loss.LIKELY, f"its changelog begins at offset {start}{but}", Status.TRUNCATED)


def _rebuild_loss(known: LastKnown, facts: LogFacts, retention_ms: int | None, now_ms: int) -> RebuildLoss:
    record, log = known.record, facts.log
    if facts.changelog is None:
        return RebuildLoss(Loss.LIKELY, "its changelog topic does not exist", Status.REPLACED)
    if record is not None and record.topic_id != facts.changelog.topic_id:
        why = f"its changelog was topic {record.topic_id} and is now topic {facts.changelog.topic_id}"
        return RebuildLoss(Loss.LIKELY, why, Status.REPLACED)
    seen = _seen(known)
    if seen > log.high_watermark:
        why = f"it had offsets up to {seen - 1}, but its changelog ends at {log.high_watermark}"
        return RebuildLoss(Loss.LIKELY, why, Status.AHEAD)
    if facts.cut_at is not None:
        why = f"its changelog was cut at offset {facts.cut_at} and has other records from there on"
        return RebuildLoss(Loss.LIKELY, why, Status.AHEAD)
    if (lost := _lost_start(known, facts, retention_ms, now_ms)) is not None:
        return lost
    if log.start >= log.high_watermark and not log.start:
        if known.uncommitted and record is not None and record.end == 0 and not record.adopted:
            begun = "its changelog was empty when it was begun, and nothing in it was committed"
            return RebuildLoss(Loss.UNPROVEN, begun)
        return RebuildLoss(Loss.LIKELY, "its changelog is empty", Status.AHEAD)
    if known.committed is None:
        return RebuildLoss(Loss.UNPROVEN, "its position in its changelog is unknown")
    if record is None:
        return RebuildLoss(Loss.UNPROVEN, "the topic that its offsets belong to was never recorded")
    if record.adopted:
        return RebuildLoss(Loss.UNPROVEN, "it existed before its first record, and may contain rows of an earlier log")
    if facts.lacks_versions:
        return RebuildLoss(Loss.UNPROVEN, LACKS_VERSIONS)
    return _NOTHING


def needs_stream_time(spec: StorePartitionSpec, record: StoreRecord | None, log: LogRange) -> bool:
    """True where only the log's stream time can tell whether what it has lost at its start has expired."""
    return spec.store.row_retention_ms is not None and log.start > (needed_from(record, spec.changelog) or 0)


def needed_from(record: StoreRecord | None, changelog: ChangelogSpec | None) -> int | None:
    """Return the first offset of the log that a rebuild needs, by a record of a store with that log; None: unknown."""
    found = of_log(record, changelog)
    return None if found is None or found.is_begun else found.needed_from


def _seen(known: LastKnown) -> int:
    """Return the offset before which the store has seen all of its log."""
    if known.committed is None:
        return 0
    return next_offset(known.committed, seen_end(known.record, known.committed))


def _has_expired(known: LastKnown, facts: LogFacts, retention_ms: int | None) -> bool:
    """True if all that the log has lost at its start is past the store's retention."""
    if retention_ms is None or facts.stream_time is None:
        return False
    oldest = facts.stream_time - retention_ms
    if facts.first_time is not None and facts.first_time < oldest:
        return True
    latest = known.stream_time
    return latest is not None and latest < oldest and facts.log.start <= _seen(known)


def _has_gone_by_age(known: LastKnown, facts: LogFacts, retention_ms: int | None, now_ms: int) -> bool:
    """True if Kafka may have deleted by age all that the log has lost at its start."""
    deleted_ms = facts.changelog.deleted_after_ms if facts.changelog else None
    if retention_ms is None or deleted_ms is None:
        return False
    latest = known.stream_time
    return latest is None or latest - retention_ms <= now_ms - deleted_ms + clock.BROKERS_DIFFER_MS
