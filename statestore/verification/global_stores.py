"""Verifies a global store: one database with all partitions of a topic of another owner.

It differs from a task's store in three ways, as in Kafka Streams 4.3. The offset that it keeps for a partition is the
next to read, not the last applied. Records to read are no damage: others write the topic, and Kafka Streams reads on at
its next start. And a global store that is lost is filled from the topic then.

There are two sorts, and nothing in their directories tells them apart. A global table has the rows of its topic. A
global store with a processor of the application's has what that makes of them, so no comparison can tell whether it is
right, and no rebuild from bytes gives it (KAFKA-7663). Rows that are those of the topic show a table. Otherwise
somebody who knows the topology must say.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from statestore.changelog.reader import first_offset
from statestore.changelog.topics import LogRange, Topics
from statestore.discovery.changelogs import log_ranges
from statestore.errors import (
    InvalidStateError,
    LockedError,
    StoreBehindLogStartError,
    StoreCorruptedError,
    StoreUncleanError,
    UnknownFormatError,
    WrongStoreError,
    of_os_error,
    unreadable_is_damaged,
)
from statestore.model import TopicPartition
from statestore.partition.judgement import Lost, with_loss
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Action, Contents, Loss, Status, VerifyRow
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.lock import give_way
from statestore.statedir.record import read_record
from statestore.statedir.swap import locked_task
from statestore.stores.open import opened
from statestore.verification.global_contents import compare_global
from statestore.verification.options import VerifyOptions

_REFILLED = "remove its directory, and Kafka Streams fills it from the topic at its next start"
_SCAN = VerifyOptions()
_NOT_FROM_BYTES = "a processor of the application fills it, so its rows are not compared with its topic's"
_ATTEMPTS = 3


def what_decides(store: str) -> str:
    """Say how somebody tells whether a global store is a table."""
    return (
        f"if it is a global table (StreamsBuilder.globalTable), add --store {store}:global=table; if a processor fills "
        f"it (addGlobalStore), add --store {store}:global=processor"
    )


def verify_global(spec: StorePartitionSpec, options: VerifyOptions = _SCAN) -> VerifyRow:
    """Lock the global stores, read every row, and compare the offsets with the topic's. Nothing is changed.

    Depth `deep` compares the rows with the topic's, too, unless a processor fills the store.

    Raises
    ------
    KafkaUnavailableError
        If Kafka cannot be asked: that says nothing about the store.
    """
    try:
        with locked_task(spec.paths, spec.lock_wait_s, reading=True):
            return check_global(spec, replace(options, give_way=partial(give_way, spec.paths)))
    except LockedError as error:
        row = _row(spec, Status.LOCKED, Action.LATER, str(error))
    except InvalidStateError as error:  # a swap cannot be finished
        row = _row(spec, Status.CORRUPT, Action.BY_HAND, str(error))
    except OSError as error:
        raise of_os_error(error) from error
    return row.model_copy(update={"depth": options.depth})


def check_global(spec: StorePartitionSpec, options: VerifyOptions = _SCAN) -> VerifyRow:
    """Verify a global store; the caller holds its lock."""
    started = time.monotonic()
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            with unreadable_is_damaged():
                row = _check(spec, options)
            break
        except LockedError as error:
            row = _row(spec, Status.LOCKED, Action.LATER, str(error))
            break
        except UnknownFormatError as error:
            row = _row(spec, Status.UNKNOWN_FORMAT, Action.BY_HAND, str(error))
            break
        except StoreUncleanError as error:
            detail = f"{error}; if Kafka Streams 4.3 finds one so, it removes all global stores and fails to start"
            row = _unusable(spec, Status.UNCLEAN, detail, logs_of(spec))
            break
        except (StoreCorruptedError, WrongStoreError) as error:
            row = _unusable(spec, Status.CORRUPT, str(error), logs_of(spec))
            break
        except StoreBehindLogStartError as error:  # retention has moved the log's start since it was asked for
            if not attempts_left:
                row = _row(spec, Status.LOCKED, Action.LATER, f"{error}; the start of its topic moved at each attempt")
        except OSError as error:
            raise of_os_error(error) from error
    return row.model_copy(update={"seconds": round(time.monotonic() - started, 3), "depth": options.depth})


def logs_of(spec: StorePartitionSpec) -> Mapping[TopicPartition, LogRange]:
    """Return where the partitions of a global store's topic begin and end."""
    return log_ranges(Topics(spec.bootstrap_servers, spec.kafka_timeout_s), [spec])


def _check(spec: StorePartitionSpec, options: VerifyOptions) -> VerifyRow:
    if spec.changelog is None:
        return _row(spec, Status.REPLACED, Action.BY_HAND, f"topic {spec.partition.topic} does not exist")
    topic_id = spec.changelog.topic_id
    logs = logs_of(spec)
    if not spec.live.exists():
        left = _left(spec, logs, {})
        status = Status.MISSING if left else Status.EMPTY
        return _row(spec, status, Action.NONE, f"{spec.live} does not exist: Kafka Streams fills it at its next start")
    record = read_record(spec.paths, spec.store.name)
    if record is not None and record.topic_id != topic_id:
        why = f"its topic was {record.topic_id} when it was restored and is {topic_id} now"
        return _row(spec, Status.REPLACED, Action.BY_HAND, f"{why}; {_REFILLED}")
    with opened(spec.store, spec.context(read_only=True)) as store:
        keys = sum(1 for _ in store.all())
        committed = {partition: store.committed_offset(partition) for partition in spec.partitions}
        legacy = legacy_offsets(spec.paths)
    next_offsets = {partition: legacy.get(partition, offset) for partition, offset in committed.items()}
    row = _judged(spec, logs, next_offsets).model_copy(update={"keys": keys})
    if options.depth != "deep" or row.status not in (Status.OK, Status.LAGGING):
        return row
    if spec.global_kind == "processor" or not spec.store.store_kind.may_be_global_table:
        return _with_detail(row, _NOT_FROM_BYTES)
    topics = Topics(spec.bootstrap_servers, spec.kafka_timeout_s)
    contents = compare_global(spec, next_offsets, logs, topics, options)
    return _compared(spec, row.model_copy(update={"contents": contents}), contents, logs)


def _judged(
    spec: StorePartitionSpec, logs: Mapping[TopicPartition, LogRange], next_offsets: Mapping[TopicPartition, int | None]
) -> VerifyRow:
    for partition, offset in next_offsets.items():
        log = logs[partition]
        if offset is not None and offset > log.high_watermark:
            detail = f"{partition}: the store resumes at {offset}, but the log ends at {log.high_watermark}"
            return _unusable(spec, Status.AHEAD, detail, logs, Lost(Loss.LIKELY, detail, Status.AHEAD))
        if offset is not None and offset < log.start:
            detail = f"{partition}: the store resumes at {offset}, but the log begins at {log.start}"
            return _unusable(spec, Status.TRUNCATED, detail, logs)
    left = _left(spec, logs, next_offsets)
    if not left:
        return _row(spec, Status.OK, Action.NONE, "")
    detail = f"records are to be read from {', '.join(left)}: Kafka Streams reads them at its next start"
    return _row(spec, Status.LAGGING, Action.NONE, detail)


def _compared(
    spec: StorePartitionSpec, row: VerifyRow, contents: Contents, logs: Mapping[TopicPartition, LogRange]
) -> VerifyRow:
    """Judge a store by what its rows are beside those of its topic."""
    if not contents.differing:
        shown = contents.equal > 0 and 2 * contents.equal >= contents.store_rows
        return row.model_copy(update={"global_kind": "table"}) if shown else row
    figures = (
        f"{contents.equal} of its {contents.store_rows} rows match its topic; {contents.other_value} "
        f"have another value, {contents.only_in_store} are only in the store, and {contents.only_in_log} only in the "
        "topic"
    )
    if spec.global_kind is None:
        if not contents.equal:
            return _with_detail(row, f"{figures}: a processor seems to fill it; {what_decides(spec.store.name)}")
        detail = f"{figures}: it is a table with wrong rows, or a processor fills it; {what_decides(spec.store.name)}"
        return row.model_copy(update={"status": Status.UNKNOWN_FORMAT, "action": Action.BY_HAND, "detail": detail})
    if not spec.global_said:
        detail = f"{figures}; its rows once matched its topic: {what_decides(spec.store.name)}"
        return row.model_copy(update={"status": Status.DIVERGED, "action": Action.BY_HAND, "detail": detail})
    if contents.differing == contents.only_in_log:
        detail = (
            f"{figures}: it has lost rows, or the application has skipped their records (deserialization exception "
            "handler); if it skips none, restore it with --mode full --force"
        )
        return row.model_copy(update={"status": Status.DIVERGED, "action": Action.BY_HAND, "detail": detail})
    found = row.model_copy(update={"status": Status.DIVERGED, "action": Action.FULL, "detail": figures})
    return with_loss(found, loss_of_rebuild(spec, logs))


def _unusable(
    spec: StorePartitionSpec,
    status: Status,
    detail: str,
    logs: Mapping[TopicPartition, LogRange],
    lost: Lost | None = None,
) -> VerifyRow:
    """Make the row of a store that Kafka Streams cannot go on with: a table can be rebuilt, another one cannot."""
    if spec.global_kind != "table":
        return _row(spec, status, Action.BY_HAND, f"{detail}; {_REFILLED}")
    return with_loss(_row(spec, status, Action.FULL, detail), lost or loss_of_rebuild(spec, logs))


def loss_of_rebuild(spec: StorePartitionSpec, logs: Mapping[TopicPartition, LogRange]) -> Lost:
    """Say what a rebuild of a global table would lose of the one that is there."""
    if not spec.live.exists():
        return Lost(Loss.NONE)
    for partition, log in logs.items():
        if log.start > 0:
            return Lost(Loss.LIKELY, f"{partition} begins at offset {log.start}", Status.TRUNCATED)
    if not any(log.high_watermark for log in logs.values()):
        return Lost(Loss.LIKELY, "its topic is empty", Status.AHEAD)
    record = read_record(spec.paths, spec.store.name)
    if record is None:
        return Lost(Loss.UNPROVEN, "the topic that its offsets belong to was never recorded")
    if spec.changelog is None or record.topic_id != spec.changelog.topic_id:
        return Lost(Loss.LIKELY, f"its topic was {record.topic_id}, and is now another one", Status.REPLACED)
    return Lost(Loss.NONE)


def _left(
    spec: StorePartitionSpec, logs: Mapping[TopicPartition, LogRange], next_offsets: Mapping[TopicPartition, int | None]
) -> list[str]:
    """First record that is left to read of each partition that has one."""
    found = []
    for partition, log in logs.items():
        start = next_offsets.get(partition)
        start = log.start if start is None else start
        if start < log.last_stable:
            first = first_offset(spec.bootstrap_servers, partition, start, log.last_stable, spec.kafka_timeout_s)
            found += [] if first is None else [f"{partition} at {first}"]
    return found


def _with_detail(row: VerifyRow, detail: str) -> VerifyRow:
    return row.model_copy(update={"detail": "; ".join(filter(None, [row.detail, detail]))})


def _row(spec: StorePartitionSpec, status: Status, action: Action, detail: str) -> VerifyRow:
    return VerifyRow(
        application=spec.application,
        store=spec.store.name,
        task=str(spec.task),
        status=status,
        action=action,
        detail=detail,
        topic_id=spec.changelog.topic_id if spec.changelog else None,
        global_kind=spec.global_kind,
    )
