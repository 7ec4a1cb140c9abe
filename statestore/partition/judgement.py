"""The one judgement of a store partition, for tasks, verification, restore, quarantine and validation. Pure.

It is two judgements. What is wrong with the store itself: its status. And what its log can still give: what a rebuild
would lose, whatever the status is. A store that is damaged is rebuilt only if its log can give all that it had; and one
that is well may be the only copy of something.
"""

from __future__ import annotations

from typing import NamedTuple

from statestore import clock
from statestore.changelog.epochs import Continuity, LogComparison, LogEnd
from statestore.changelog.standing import Standing, next_offset, standing
from statestore.changelog.topics import LogRange
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.reports import Action, Contents, Loss, Status, VerifyRow
from statestore.statedir.record import StoreRecord


class Had(NamedTuple):
    """Known content of a store partition, now or when it could last be used.

    From the best evidence there is: the store, its seal, our record; also where the store is gone.

    Attributes
    ----------
    anything
        It has, or had, anything of its log.
    committed
        Offset of the last changelog record in it; None if unknown.
    record
        What our own directory says of it; None where there is none.
    foreign
        What lies in its place is the store of another partition, of whose log nothing is known here.
    uncommitted
        It could be read, and no commit has ever reached it.
    in_memory
        It is kept in memory: between two runs, its log is all there is of it.
    """

    anything: bool
    committed: int | None = None
    record: StoreRecord | None = None
    foreign: bool = False
    uncommitted: bool = False
    in_memory: bool = False

    @property
    def is_unknown(self) -> bool:
        """True if neither the store nor a record shows what it had, not even that it had nothing.

        A task that was killed before its first commit may have left a store that it had only begun.
        """
        return (not self.anything or self.uncommitted) and (self.record is None or self.record.is_begun)


class Supply(NamedTuple):
    """Facts about a log.

    Attributes
    ----------
    changelog
        Its topic; None: it does not exist.
    log
        Its offsets.
    cut_at
        From where on its records are others than those that were seen before, as after an unclean leader election;
        None: it was not cut, or that cannot be told.
    stream_time
        Rows with a smaller time (ms), less their store's retention, have expired; None: not asked.
    first_time
        Largest time (ms) of the first rows that the log still has; None: not asked, or it has none.
    lacks_versions
        As `replacement.may_lack_versions` says of what the store had.
    """

    changelog: ChangelogSpec | None
    log: LogRange
    cut_at: int | None = None
    stream_time: int | None = None
    lacks_versions: bool = False
    first_time: int | None = None


class Lost(NamedTuple):
    """Loss of a full rebuild, its evidence, and the status of a store that is otherwise healthy."""

    loss: Loss
    why: str = ""
    status: Status = Status.OK


_NOTHING = Lost(Loss.NONE)
NO_LOG = LogRange(0, 0, 0)
LACKS_VERSIONS = (
    "its changelog was compacted: earlier versions may be missing from it, and so may the latest version of a key if "
    "an earlier one was logged after it"
)


def rebuild_loss(had: Had, supply: Supply, *, retention_ms: int | None, now_ms: int) -> Lost:
    """Say what a full rebuild from the log would lose of what the store had.

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
    judge_store = _rebuild_loss if had.anything else _loss_of_unknown
    found = judge_store(had, supply, retention_ms, now_ms)
    if had.foreign and found.loss is not Loss.LIKELY:
        return Lost(Loss.UNPROVEN, "in its place is the store of another store partition, perhaps its only copy")
    return found


def _loss_of_unknown(had: Had, supply: Supply, retention_ms: int | None, now_ms: int) -> Lost:
    """Return what a rebuild would lose of an unknown store: only its log shows it."""
    if supply.changelog is None or supply.log.start <= (needed_from(had.record, supply.changelog) or 0):
        return _NOTHING
    seems_expired = f"its changelog begins at offset {supply.log.start}, and what was before seems to have expired"
    return _lost_start(had, supply, retention_ms, now_ms) or Lost(Loss.UNPROVEN, seems_expired)


def _lost_start(had: Had, supply: Supply, retention_ms: int | None, now_ms: int) -> Lost | None:
    """Return the loss of records at the start of the log; None if the store needs none of them."""
    needed, start = needed_from(had.record, supply.changelog), supply.log.start
    if start <= (needed or 0) or _has_expired(had, supply, retention_ms):
        return None
    if had.in_memory and _has_gone_by_age(had, supply, retention_ms, now_ms):
        return None
    known = "" if needed is None else f", but is needed from {needed} on"
    return Lost(Loss.LIKELY, f"its changelog begins at offset {start}{known}", Status.TRUNCATED)


def _rebuild_loss(had: Had, supply: Supply, retention_ms: int | None, now_ms: int) -> Lost:
    record, log = had.record, supply.log
    if supply.changelog is None:
        return Lost(Loss.LIKELY, "its changelog topic does not exist", Status.REPLACED)
    if record is not None and record.topic_id != supply.changelog.topic_id:
        why = f"its changelog was topic {record.topic_id} and is now topic {supply.changelog.topic_id}"
        return Lost(Loss.LIKELY, why, Status.REPLACED)
    seen = _seen(had)
    if seen > log.high_watermark:
        why = f"it had offsets up to {seen - 1}, but its changelog ends at {log.high_watermark}"
        return Lost(Loss.LIKELY, why, Status.AHEAD)
    if supply.cut_at is not None:
        why = f"its changelog was cut at offset {supply.cut_at} and has other records from there on"
        return Lost(Loss.LIKELY, why, Status.AHEAD)
    if (lost := _lost_start(had, supply, retention_ms, now_ms)) is not None:
        return lost
    if log.start >= log.high_watermark and not log.start:
        if had.uncommitted and record is not None and record.end == 0 and not record.adopted:
            return Lost(Loss.UNPROVEN, "its changelog was empty when it was begun, and nothing in it was committed")
        return Lost(Loss.LIKELY, "its changelog is empty", Status.AHEAD)
    if had.committed is None:
        return Lost(Loss.UNPROVEN, "its position in its changelog is unknown")
    if record is None:
        return Lost(Loss.UNPROVEN, "the topic that its offsets belong to was never recorded")
    if record.adopted:
        return Lost(Loss.UNPROVEN, "it existed before its first record, and may contain rows of an earlier log")
    if supply.lacks_versions:
        return Lost(Loss.UNPROVEN, LACKS_VERSIONS)
    return _NOTHING


def needs_stream_time(spec: StorePartitionSpec, record: StoreRecord | None, log: LogRange) -> bool:
    """True where only the log's stream time can tell whether what it has lost at its start has expired."""
    return spec.store.row_retention_ms is not None and log.start > (needed_from(record, spec.changelog) or 0)


def needed_from(record: StoreRecord | None, changelog: ChangelogSpec | None) -> int | None:
    """Return the first offset of the log that a rebuild needs, by a record of a store with that log; None: unknown."""
    if record is None or record.is_begun or changelog is None or record.topic_id != changelog.topic_id:
        return None
    return record.needed_from


def _seen(had: Had) -> int:
    """Return the offset before which the store has seen all of its log."""
    if had.committed is None:
        return 0
    return next_offset(had.committed, had.record.seen_end(had.committed) if had.record else None)


def _has_expired(had: Had, supply: Supply, retention_ms: int | None) -> bool:
    """True if all that the log has lost at its start is past the store's retention."""
    if retention_ms is None or supply.stream_time is None:
        return False
    oldest = supply.stream_time - retention_ms
    if supply.first_time is not None and supply.first_time < oldest:
        return True
    latest = had.record.stream_time if had.record else None
    return latest is not None and latest < oldest and supply.log.start <= _seen(had)


def _has_gone_by_age(had: Had, supply: Supply, retention_ms: int | None, now_ms: int) -> bool:
    """True if Kafka may have deleted by age all that the log has lost at its start."""
    deleted_ms = supply.changelog.deleted_after_ms if supply.changelog else None
    if retention_ms is None or deleted_ms is None:
        return False
    latest = had.record.stream_time if had.record else None
    return latest is None or latest - retention_ms <= now_ms - deleted_ms + clock.BROKERS_DIFFER_MS


class Inspection(NamedTuple):
    """Observed facts about a store partition.

    Attributes
    ----------
    present
        The store has a directory.
    committed
        Offset of the last changelog record in it; None if unknown.
    empty
        It has no rows.
    record
        What our own directory says of it.
    sealed
        It is as it was sealed; None where that was not found out.
    upgrade_pending
        It has rows in an older format.
    trouble
        Why the store cannot be used; None: it can.
    file
        The file that is damaged.
    had
        What is known of what it has, or had.
    """

    present: bool
    committed: int | None = None
    empty: bool = True
    record: StoreRecord | None = None
    sealed: bool | None = None
    upgrade_pending: bool = False
    trouble: Standing | None = None
    file: str | None = None
    had: Had = Had(anything=False)

    @property
    def holds_nothing(self) -> bool:
        """True if the store does not exist, or has neither a row nor an offset."""
        return not self.present or (self.committed is None and self.empty and self.trouble is None)


def row(spec: StorePartitionSpec, status: Status, action: Action, detail: str) -> VerifyRow:
    """Make a row of the report."""
    return VerifyRow(
        application=spec.application,
        store=spec.store.name,
        task=str(spec.task),
        status=status,
        action=action,
        detail=detail,
        topic_id=spec.changelog.topic_id if spec.changelog else None,
    )


def not_now(spec: StorePartitionSpec, error: Exception) -> VerifyRow:
    """Make the row of a store partition that could not be looked at, and that is to be looked at later."""
    return row(spec, Status.LOCKED, Action.LATER, str(error))


def repartitioned(spec: StorePartitionSpec, tasks: int | None) -> VerifyRow | None:
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
        "keys are not in the partitions of their tasks; recreate the topics with their former number of "
        "partitions, or process the input again with a new application name"
    )
    return row(spec, Status.REPARTITIONED, Action.BY_HAND, detail)


def unread(spec: StorePartitionSpec, seen: Inspection, log: LogRange, now_ms: int) -> tuple[int, int] | None:
    """Offsets (start, exclusive end) in which a record decides, as markers, aborted records and holes are no lag.

    None if none does.
    """
    if spec.changelog is None or seen.trouble is not None:
        return None
    if seen.holds_nothing:
        start = log.start
    elif seen.committed is not None and _standing(spec, seen, log, now_ms).status is Status.LAGGING:
        start = next_offset(seen.committed, _seen_end(seen))
    else:
        return None
    return (start, log.last_stable) if start < log.last_stable else None


def log_end(record: StoreRecord | None, changelog: ChangelogSpec | None) -> LogEnd | None:
    """Return where the log was seen to end, if that can be compared with the log of now."""
    if record is None or changelog is None or record.topic_id != changelog.topic_id:
        return None
    return None if record.end is None or record.epoch is None else LogEnd(record.end, record.epoch)


def cut_at(comparison: LogComparison | None) -> int | None:
    """Return from where on a log is certain to have other records than were seen; None if it is not."""
    if comparison is None or comparison.continuity is not Continuity.CUT:
        return None
    return comparison.departs_by or 0


def judge(spec: StorePartitionSpec, seen: Inspection, supply: Supply, first: int | None, now_ms: int) -> VerifyRow:
    """Judge a store partition, and what a rebuild would lose.

    Parameters
    ----------
    first
        Offset of the first record in the range that `unread` named; None: none, or there is no such range.
    """
    log = supply.log
    lost = rebuild_loss(seen.had, supply, retention_ms=spec.store.row_retention_ms, now_ms=now_ms)
    if seen.trouble is not None:
        found = seen.trouble
    elif supply.changelog is None:
        found = _without_log(spec, seen)
    elif seen.present and supply.cut_at is not None:
        found = Standing(Status.AHEAD, Action.FULL, f"the changelog was cut at offset {supply.cut_at}")
    elif seen.present and seen.holds_nothing and lost.loss is Loss.LIKELY:
        found = Standing(lost.status, Action.FULL, "it has nothing of its changelog")
    elif seen.present:
        found = _of_present(spec, seen, log, first, now_ms)
    elif first is None and lost.loss is Loss.NONE:
        found = Standing(Status.EMPTY, Action.NONE, "nothing logged yet")
    else:
        found = Standing(Status.MISSING, Action.FULL, f"{spec.live} does not exist")
    judged = with_loss(row(spec, *found), lost)
    return judged.model_copy(
        update={
            "committed": seen.committed,
            "start": None if supply.changelog is None else log.start,
            "end": None if supply.changelog is None else log.last_stable,
            "lag": 0 if found.action is Action.NONE else None if first is None else log.last_stable - first,
            "sealed": seen.sealed,
            "file": seen.file,
        }
    )


def with_loss(found: VerifyRow, lost: Lost) -> VerifyRow:
    """Add what a rebuild would lose to a row; what would be lost is for a person to decide."""
    cause = lost.status if lost.loss is Loss.LIKELY else found.loss_cause
    found = found.model_copy(update={"loss": lost.loss, "loss_detail": lost.why, "loss_cause": cause})
    if lost.loss is not Loss.LIKELY or found.action is not Action.FULL:
        return found
    detail = f"{found.detail}; a rebuild would lose data: {lost.why}".removeprefix("; ")
    return found.model_copy(update={"action": Action.BY_HAND, "detail": detail})


def waits_for_loss(found: VerifyRow) -> bool:
    """True where a rebuild would mend the store, and is for a person only because of what it would lose."""
    never = (Status.UNKNOWN_FORMAT, Status.REPARTITIONED)
    return (
        found.action is Action.BY_HAND
        and found.loss is Loss.LIKELY
        and found.status not in never
        and found.topic_id is not None
    )


def may_be_archived(found: VerifyRow) -> bool:
    """True where all that a rebuild would lose is what the log has lost at its start.

    A snapshot of the same topic that the log still continues has that.
    """
    return found.loss is Loss.LIKELY and found.loss_cause is Status.TRUNCATED


#: What helps if the stores are the last copy of the state.
RESEED = "if the stores are intact, `statestore rewrite reseed` recreates the changelog from them"


def _without_log(spec: StorePartitionSpec, seen: Inspection) -> Standing:
    topic = spec.partition.topic
    if seen.present:
        detail = f"changelog topic {topic} does not exist: there is nothing to rebuild the store from; {RESEED}"
        return Standing(Status.REPLACED, Action.BY_HAND, detail)
    if not seen.had.anything:
        return Standing(Status.EMPTY, Action.NONE, "neither the store nor its changelog topic exists yet")
    detail = f"{spec.live} does not exist, and neither does changelog topic {topic}"
    return Standing(Status.MISSING, Action.BY_HAND, detail)


def _of_present(spec: StorePartitionSpec, seen: Inspection, log: LogRange, first: int | None, now_ms: int) -> Standing:
    found = _standing(spec, seen, log, now_ms)
    if found.status in (Status.REPLACED, Status.AHEAD) and not log.high_watermark:
        return found._replace(detail=f"{found.detail}; nothing was ever logged to it: {RESEED}")
    if found.status is Status.LAGGING and (seen.committed is not None or seen.empty):
        if first is not None:
            return found._replace(detail=f"{found.detail}; first record at {first}")
        found = Standing(Status.OK, Action.NONE, "")
    if found.status is not Status.OK:
        return found
    if seen.empty and seen.committed is None:
        return found._replace(status=Status.EMPTY)
    if seen.upgrade_pending:
        detail = f"rows still have an older format; they are read as {spec.store.format}, and migrate when written"
        return Standing(Status.OLD_FORMAT, Action.NONE, detail)
    return found


def _standing(spec: StorePartitionSpec, seen: Inspection, log: LogRange, now_ms: int) -> Standing:
    assert spec.changelog is not None
    return standing_of(
        seen.committed,
        log,
        seen.record,
        spec.changelog,
        empty=seen.empty,
        now_ms=now_ms,
        may_be_rebuilt=spec.store.compaction_keeps_rows,
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
    """Judge a store that can be used by its committed offset and our record of it; see `standing`.

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
        recorded_topic_id=record.topic_id if record else None,
        caught_up_ms=record.whole_ms(committed, now_ms) if record else None,
        delete_retention_ms=changelog.delete_retention_ms,
        now_ms=now_ms,
        compacted=changelog.compacted,
        seen_end=record.seen_end(committed) if record else None,
        may_be_rebuilt=may_be_rebuilt,
    )


def _seen_end(seen: Inspection) -> int | None:
    return seen.record.seen_end(seen.committed) if seen.record else None


def with_contents(found: VerifyRow, contents: Contents) -> VerifyRow:
    """Add what deep verification compared to a row; rows that differ make the store DIVERGED.

    Rows that its log gives at other offsets make it WRONG_OFFSET.
    """
    keys = contents.store_rows if contents.sample is None else None
    found = found.model_copy(update={"contents": contents, "keys": keys})
    if contents.offsets and not any(first <= (found.committed or 0) <= last for first, last in contents.offsets):
        where = ", ".join(f"{first} to {last}" for first, last in contents.offsets[:3])
        said = f"its committed offset is {found.committed}, but its rows are those of its changelog at offsets {where}"
        return in_trouble(found, Status.WRONG_OFFSET, said)
    if not contents.differing:
        return found
    said = (
        f"{contents.differing} rows differ from the changelog: {contents.other_value} have another value, "
        f"{contents.only_in_store} are only in the store, {contents.only_in_log} only in the log"
    )
    return in_trouble(found, Status.DIVERGED, said)


def in_trouble(found: VerifyRow, status: Status, detail: str, file: str | None = None) -> VerifyRow:
    """Say of a store that was judged by its offsets what reading its rows has shown."""
    found = found.model_copy(update={"status": status, "action": Action.FULL, "detail": detail, "file": file})
    return with_loss(found, Lost(found.loss or Loss.UNPROVEN, found.loss_detail, found.loss_cause or Status.OK))
