"""Verifying a global store: one database with all partitions of a topic that belongs to somebody else.

It differs from a task's store in three ways, as in Kafka Streams 4.3. The offset that it keeps for a partition is the
next to read, not the last applied. Records to read are no damage: others write the topic, and Kafka Streams reads on at
its next start. And a global store that is lost is filled from the topic then, so restoring it is not needed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from statestore.changelog.reader import first_offset
from statestore.changelog.topics import LogRange, Topics
from statestore.discovery.changelogs import log_ranges
from statestore.errors import (
    LockedError,
    StoreCorruptedError,
    UnknownFormatError,
    WrongStoreError,
    of_os_error,
    unreadable_is_damaged,
)
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Action, Status, VerifyRow
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.lock import locked
from statestore.stores.open import build_store

_REFILLED = "remove its directory, and Kafka Streams fills it from the topic at its next start"


def verify_global(spec: StorePartitionSpec) -> VerifyRow:
    """Lock the global stores, read every row, and compare the offsets with the topic's. Nothing is changed.

    Raises
    ------
    KafkaUnavailableError
        If Kafka cannot be asked: that says nothing about the store.
    """
    started = time.monotonic()
    try:
        with locked(spec.paths, spec.lock_wait_s), unreadable_is_damaged():
            row = _check(spec)
    except LockedError as error:
        row = _row(spec, Status.LOCKED, Action.LATER, str(error))
    except UnknownFormatError as error:
        row = _row(spec, Status.UNKNOWN_FORMAT, Action.BY_HAND, str(error))
    except (StoreCorruptedError, WrongStoreError) as error:
        row = _row(spec, Status.CORRUPT, Action.BY_HAND, f"{error}; {_REFILLED}")
    except OSError as error:
        raise of_os_error(error) from error
    return row.model_copy(update={"seconds": round(time.monotonic() - started, 3)})


def _check(spec: StorePartitionSpec) -> VerifyRow:
    if spec.changelog is None:
        return _row(spec, Status.REPLACED, Action.BY_HAND, f"topic {spec.partition.topic} does not exist")
    topic_id = spec.changelog.topic_id
    logs = log_ranges(Topics(spec.bootstrap_servers, spec.kafka_timeout_s), [spec])
    if not spec.live.exists():
        left = _left(spec, logs, {})
        status = Status.MISSING if left else Status.EMPTY
        return _row(spec, status, Action.NONE, f"{spec.live} does not exist: Kafka Streams fills it at its next start")
    # No transaction of the application writes a global store, so one that was left open has nothing uncommitted.
    spec = spec.model_copy(update={"exactly_once": False})
    store = build_store(spec.store)
    store.init(spec.context(read_only=True))
    try:
        keys = sum(1 for _ in store.all())
        committed = {partition: store.committed_offset(partition) for partition in spec.partitions}
        legacy = legacy_offsets(spec.paths)
    finally:
        store.close(clean=False)
    next_offsets = {partition: legacy.get(partition, offset) for partition, offset in committed.items()}
    return _judged(spec, logs, next_offsets).model_copy(update={"keys": keys, "topic_id": topic_id})


def _judged(
    spec: StorePartitionSpec, logs: Mapping[TopicPartition, LogRange], next_offsets: Mapping[TopicPartition, int | None]
) -> VerifyRow:
    for partition, offset in next_offsets.items():
        log = logs[partition]
        if offset is not None and offset > log.high_watermark:
            detail = f"{partition}: the store goes on at {offset}, the log ends at {log.high_watermark}; {_REFILLED}"
            return _row(spec, Status.AHEAD, Action.BY_HAND, detail)
        if offset is not None and offset < log.start:
            detail = f"{partition}: the store goes on at {offset}, the log begins at {log.start}; {_REFILLED}"
            return _row(spec, Status.TRUNCATED, Action.BY_HAND, detail)
    left = _left(spec, logs, next_offsets)
    if not left:
        return _row(spec, Status.OK, Action.NONE, "")
    detail = f"records are to be read from {', '.join(left)}: Kafka Streams reads them at its next start"
    return _row(spec, Status.LAGGING, Action.NONE, detail)


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


def _row(spec: StorePartitionSpec, status: Status, action: Action, detail: str) -> VerifyRow:
    return VerifyRow(
        application=spec.application,
        store=spec.store.name,
        task=str(spec.task),
        status=status,
        action=action,
        detail=detail,
    )
