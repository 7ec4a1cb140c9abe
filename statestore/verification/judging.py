"""From what was seen of a store partition and of its log to a row of the report. Pure: no files, no Kafka."""

from __future__ import annotations

from typing import NamedTuple

from statestore.changelog.standing import Standing, standing
from statestore.changelog.topics import LogRange
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Action, Contents, Status, VerifyRow
from statestore.statedir.record import StoreRecord


class Seen(NamedTuple):
    """What was seen of a store that can be opened, or is not there.

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
        It is as it was sealed; None where it is not there.
    upgrade_pending
        It has rows in an older format.
    """

    present: bool
    committed: int | None = None
    empty: bool = True
    record: StoreRecord | None = None
    sealed: bool | None = None
    upgrade_pending: bool = False


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


def without_log(spec: StorePartitionSpec, *, present: bool) -> VerifyRow | None:
    """Judge a store partition whose changelog topic does not exist; None if it does."""
    if spec.changelog is not None:
        return None
    if not present:
        return row(spec, Status.EMPTY, Action.NONE, "neither the store nor its changelog topic exists yet")
    detail = f"changelog topic {spec.partition.topic} does not exist: there is nothing to rebuild the store from"
    return row(spec, Status.REPLACED, Action.BY_HAND, detail)


def repartitioned(spec: StorePartitionSpec, tasks: int | None) -> VerifyRow | None:
    """Judge a store partition whose changelog has not one partition for each task (conformance R10); None if it has.

    Parameters
    ----------
    tasks
        How many tasks have the store; None if unknown: then the changelog needs one for this task at least.
    """
    found = spec.changelog.partitions if spec.changelog else None
    if found is None or (found == tasks if tasks is not None else spec.partition.partition < found):
        return None
    expected = f"at least {spec.partition.partition + 1}" if tasks is None else str(tasks)
    detail = (
        f"changelog topic {spec.partition.topic} has {found} partitions, expected {expected}, one for each task: keys "
        "are not where the tasks look for them; give the topics the numbers of partitions that they had, or process "
        "the input again under a new application name"
    )
    return row(spec, Status.REPARTITIONED, Action.BY_HAND, detail)


def unread(spec: StorePartitionSpec, seen: Seen, log: LogRange, now_ms: int) -> tuple[int, int] | None:
    """Offsets (start, exclusive end) in which a record decides, as markers, aborted records and holes are no lag.

    None if none does.
    """
    if not seen.present or (seen.committed is None and seen.empty):
        start = log.start
    elif seen.committed is not None and _standing(spec, seen, log, now_ms).status is Status.LAGGING:
        start = seen.committed + 1
    else:
        return None
    return (start, log.last_stable) if start < log.last_stable else None


def judge(spec: StorePartitionSpec, seen: Seen, log: LogRange, first: int | None, now_ms: int) -> VerifyRow:
    """Say how a store stands against its log.

    Parameters
    ----------
    first
        Offset of the first record in the range that `unread` named; None: none, or there is no such range.
    """
    if not seen.present and first is None:
        found = Standing(Status.EMPTY, Action.NONE, "nothing logged yet")
    elif not seen.present:
        found = Standing(Status.MISSING, Action.FULL, f"{spec.live} does not exist")
    else:
        found = _of_present(spec, seen, log, first, now_ms)
    lag = 0 if found.action is Action.NONE else None if first is None else log.last_stable - first
    return row(spec, *found).model_copy(
        update={
            "committed": seen.committed,
            "start": log.start,
            "end": log.last_stable,
            "lag": lag,
            "sealed": seen.sealed,
        }
    )


def _of_present(spec: StorePartitionSpec, seen: Seen, log: LogRange, first: int | None, now_ms: int) -> Standing:
    found = _standing(spec, seen, log, now_ms)
    if found.status is Status.LAGGING and (seen.committed is not None or seen.empty):
        if first is not None:
            return found._replace(detail=f"{found.detail}; first record at {first}")
        found = Standing(Status.OK, Action.NONE, "")
    if found.status is not Status.OK:
        return found
    if seen.empty and seen.committed is None:
        return found._replace(status=Status.EMPTY)
    if seen.upgrade_pending:
        detail = f"rows in an older format are left; they are read as {spec.store.format}, and move when written to"
        return Standing(Status.OLD_FORMAT, Action.NONE, detail)
    return found


def _standing(spec: StorePartitionSpec, seen: Seen, log: LogRange, now_ms: int) -> Standing:
    assert spec.changelog is not None
    return standing(
        seen.committed,
        log,
        empty=seen.empty,
        topic_id=spec.changelog.topic_id,
        recorded_topic_id=seen.record.topic_id if seen.record else None,
        caught_up_ms=seen.record.whole_ms(seen.committed) if seen.record else None,
        delete_retention_ms=spec.changelog.delete_retention_ms,
        now_ms=now_ms,
        compacted=spec.changelog.compacted,
    )


def with_contents(found: VerifyRow, contents: Contents) -> VerifyRow:
    """Add what deep verification compared to a row; rows that differ make the store DIVERGED."""
    keys = contents.store_rows if contents.sample is None else None
    found = found.model_copy(update={"contents": contents, "keys": keys})
    if not contents.differing:
        return found
    said = (
        f"{contents.differing} rows are not what the changelog gives: {contents.other_value} have another value, "
        f"{contents.only_in_store} are only in the store, {contents.only_in_log} only in the log"
    )
    action = Action.FULL
    if contents.only_in_store and found.start:
        action = Action.BY_HAND
        said += "; the log no longer begins at 0, so a rebuild could lose what only the store has"
    return found.model_copy(update={"status": Status.DIVERGED, "action": action, "detail": said})
