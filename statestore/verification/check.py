"""Verifying one store partition: can it be read, and does it have all of its changelog?

Run under the task's lock, so that neither the store nor its log moves meanwhile. Nothing is changed.
"""

from __future__ import annotations

import time

from statestore.changelog.reader import first_offset
from statestore.changelog.standing import standing
from statestore.changelog.topics import LogRange, Topics
from statestore.errors import (
    LockedError,
    StoreCorruptedError,
    StoreUncleanError,
    UnknownFormatError,
    WrongStoreError,
    of_os_error,
)
from statestore.reports import Action, Status, VerifyRow
from statestore.statedir.context import store_context
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.lock import locked
from statestore.statedir.record import read_record
from statestore.statedir.seal import check_seal
from statestore.statedir.swap import finish_swaps
from statestore.stores.open import build_store
from statestore.stores.typed import AnyStore
from statestore.tasks.spec import StorePartitionSpec


def verify(spec: StorePartitionSpec) -> VerifyRow:
    """Lock the task and check the store partition.

    Raises
    ------
    KafkaUnavailableError
        If Kafka cannot be asked: that says nothing about the store.
    """
    try:
        with locked(spec.paths, spec.lock_wait_s):
            finish_swaps(spec.paths)
            return check(spec)
    except LockedError as error:
        return _row(spec, Status.LOCKED, Action.LATER, str(error))
    except OSError as error:
        raise of_os_error(error) from error


def check(spec: StorePartitionSpec) -> VerifyRow:
    """Check the store partition; the caller holds the task's lock.

    The store is read in full, which finds every data block that fails its checksum.
    """
    started = time.monotonic()
    row = _check(spec)
    if spec.store.kind != "key-value" and row.action in (Action.TAIL, Action.FULL):
        # Restoring knows key-value stores only; a task replays or rebuilds the others when it opens them.
        row = row.model_copy(update={"action": Action.LATER, "detail": f"{row.detail}; the next run rebuilds it"})
    topic_id = spec.changelog.topic_id if spec.changelog else None
    return row.model_copy(update={"seconds": round(time.monotonic() - started, 3), "topic_id": topic_id})


def _check(spec: StorePartitionSpec) -> VerifyRow:
    if spec.changelog is None:
        if not spec.live.exists():
            return _row(spec, Status.EMPTY, Action.NONE, "neither the store nor its changelog topic exists yet")
        detail = f"changelog topic {spec.partition.topic} does not exist: there is nothing to rebuild the store from"
        return _row(spec, Status.REPLACED, Action.BY_HAND, detail)
    topics = Topics(spec.bootstrap_servers, spec.kafka_timeout_s)
    if not spec.live.exists():
        log = topics.log_ranges([spec.partition])[spec.partition]
        if _first_record(spec, log.start, log) is None:
            return _row(spec, Status.EMPTY, Action.NONE, "nothing logged yet", log)
        return _row(spec, Status.MISSING, Action.FULL, f"{spec.live} does not exist", log)
    try:
        if spec.store.kind == "key-value":
            check_seal(spec.paths, spec.store.name, contents=True)
        store = build_store(spec.store)
        store.init(store_context(spec.paths, [spec.store.name], read_only=True, exactly_once=spec.exactly_once))
    except UnknownFormatError as error:
        return _row(spec, Status.DOWNGRADED, Action.FULL, f"{error}; its definition asks for {spec.store.format}")
    except StoreUncleanError as error:
        return _row(spec, Status.UNCLEAN, Action.FULL, str(error))
    except (StoreCorruptedError, WrongStoreError) as error:
        return _row(spec, Status.CORRUPT, Action.FULL, str(error))
    try:
        keys = sum(1 for _ in store.all())
        return _check_offsets(spec, store, keys, topics.log_ranges([spec.partition])[spec.partition])
    except StoreCorruptedError as error:
        return _row(spec, Status.CORRUPT, Action.FULL, str(error))
    finally:
        store.close(clean=False)


def _check_offsets(spec: StorePartitionSpec, store: AnyStore, keys: int, log: LogRange) -> VerifyRow:
    assert spec.changelog is not None
    record = read_record(spec.paths, spec.store.name)
    committed = store.committed_offset(spec.partition)
    if keys:
        legacy = legacy_offsets(spec.paths).get(spec.partition)
        committed = committed if legacy is None else legacy
    status, action, detail = standing(
        committed,
        log,
        empty=keys == 0,
        topic_id=spec.changelog.topic_id,
        recorded_topic_id=record.topic_id if record else None,
        caught_up_ms=record.whole_ms(committed) if record else None,
        delete_retention_ms=spec.changelog.delete_retention_ms,
        now_ms=int(time.time() * 1000),
    )
    if status is Status.LAGGING and (committed is not None or keys == 0):
        # Markers, aborted records and compaction holes take offsets, too: only a record delivered is lag.
        first = _first_record(spec, log.start if committed is None else committed + 1, log)
        if first is None:
            status, action, detail = Status.OK, Action.NONE, ""
        else:
            detail = f"{detail}; first record at {first}"
    if status is Status.OK and keys == 0 and committed is None:
        status = Status.EMPTY
    return _row(spec, status, action, detail, log).model_copy(update={"committed": committed, "keys": keys})


def _first_record(spec: StorePartitionSpec, start: int, log: LogRange) -> int | None:
    return first_offset(spec.bootstrap_servers, spec.partition, start, log.last_stable, spec.kafka_timeout_s)


def _row(
    spec: StorePartitionSpec, status: Status, action: Action, detail: str, log: LogRange | None = None
) -> VerifyRow:
    return VerifyRow(
        application=spec.application,
        store=spec.store.name,
        task=str(spec.task),
        status=status,
        action=action,
        detail=detail,
        start=log.start if log else None,
        end=log.last_stable if log else None,
    )
