"""Changing some rows of a store: one transaction a partition, as its task commits, and the store brought behind it.

    locks of all tasks -> all that speaks against it -> for each partition: earlier processes fenced, its records in one
    transaction -> locks given back -> each store catches up, as in a restore

A transaction is there or it is not, and only its changelog counts: killed behind it, a store is LAGGING, and catches up
when its task next opens it. Rows that were written are the same when they are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from statestore import kill_switch
from statestore.changelog.last_records import last_position
from statestore.changelog.topic_settings import append_time_refused
from statestore.errors import InputError, RetryError, StateStoreError
from statestore.kafka.writer import TransactionalWriter
from statestore.model import TopicPartition, transactional_id
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import Verdict
from statestore.recovery.restore import restore
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Failure, Status, WriteRow
from statestore.requests.restore import RestoreRequest
from statestore.rewrite.changelog_writing import logged_position, produce
from statestore.rewrite.examination import known_position, require_rewritable
from statestore.rewrite.row_stage import RowStage, remove_abandoned, require_rows
from statestore.rewrite.rows import Records, form_of, require_single_keys
from statestore.statedir.swap import locked_task
from statestore.verification.check import examine
from statestore.verification.options import VerifyOptions

#: Below `transaction.max.timeout.ms` of brokers, which is 15 minutes by default.
_TRANSACTION_TIMEOUT_MS = 10 * 60 * 1000
#: Bytes of a transaction; what a task stages of one it keeps in memory, too.
TRANSACTION_BYTES = 256 * 1024 * 1024
_NOT_REACHED = Failure.of(RetryError("not reached: a partition before it failed. Write the same rows again"))
_USABLE = (Status.OK, Status.EMPTY, Status.LAGGING, Status.MISSING)


class UpsertSpec(NamedTuple):
    """Rows to write.

    Attributes
    ----------
    stores
        All partitions of the store.
    rows
        What is put, and of rows without a value, what is deleted.
    run_bytes
        Bound of a sorted run in memory.
    transaction_bytes
        Bound of what one partition gets.
    started_ms
        Now, ms since the epoch: timestamp of deletes, and of records whose rows tell none.
    quarantine_s
        Age in seconds at which replaced stores are removed, as after a restore.
    """

    stores: Sequence[StorePartitionSpec]
    rows: RowStage
    run_bytes: int
    transaction_bytes: int
    started_ms: int
    quarantine_s: float


def require_upsertable(stores: Sequence[StorePartitionSpec]) -> None:
    """Refuse stores of which single rows cannot be written.

    Raises
    ------
    InputError
        With the reason.
    """
    require_rewritable(stores, versions=True)
    store = stores[0]
    name = f"{store.application}/{store.store.name}"
    if store.changelog is None:
        raise InputError(f"{name}: its changelog {store.partition.topic} does not exist. Run `statestore drift`")
    if store.changelog.log_append_time:
        raise InputError(append_time_refused(store.changelog.topic))


def upsert(spec: UpsertSpec, report: Callable[[WriteRow], None] = lambda _: None) -> list[WriteRow]:
    """Write rows, and bring the stores behind them.

    Parameters
    ----------
    report
        Called with what became of each store partition that gets rows, once something may have been written. A store
        that did not catch up is named there alone: its changelog has the rows.

    Raises
    ------
    InputError, LockedError
        If something speaks against it. Nothing was written.
    StateStoreError
        If a partition could not be written; the message names those that were.
    """
    require_upsertable(spec.stores)
    chosen = [store for store in spec.stores if spec.rows.rows(store.task.partition)]
    written: dict[int, WriteRow] = {}
    with ExitStack() as locks:
        for store in spec.stores:
            locks.enter_context(locked_task(store.paths, store.lock_wait_s))
        remove_abandoned(spec.rows.directory.parent, spec.rows.directory)
        _require_writable(spec, chosen)
        form = form_of(spec.stores[0].store)
        spec = spec._replace(rows=form.ordered(spec.rows, spec.stores, spec.run_bytes, whole=False))
        for store in chosen:
            try:
                written[store.task.partition] = _write(spec, store)
            except StateStoreError as error:
                done = ", ".join(map(str, written)) or "none"
                for left in chosen[len(written) :]:
                    written[left.task.partition] = _row(
                        left, failure=Failure.of(error) if left is store else _NOT_REACHED
                    )
                for row in written.values():
                    report(row)
                raise type(error)(
                    f"{store.store_partition}: {error}. Partitions written before it: {done}. Write the same rows "
                    "again: that changes nothing in those"
                ) from error
            kill_switch.reached("upsert, partition written")
    result = []
    for store in chosen:
        request, label = RestoreRequest(mode="auto"), f"upsert-{spec.started_ms}"
        caught_up = restore(RestoreSpec(store, request, label, spec.run_bytes, quarantine_s=spec.quarantine_s))
        kill_switch.reached("upsert, store caught up")
        result.append(written[store.task.partition].model_copy(update={"caught_up": caught_up}))
        report(result[-1])
    return result


def _require_writable(spec: UpsertSpec, chosen: Sequence[StorePartitionSpec]) -> None:
    store = spec.stores[0]
    store.cluster.topics.require_no_members(store.application)
    require_rows(spec.rows)
    for store in chosen:
        require_single_keys(spec.rows, store)
        if (size := spec.rows.size(store.task.partition)) > spec.transaction_bytes:
            raise InputError(
                f"{store.store_partition} would get {size} bytes in one transaction; expected {spec.transaction_bytes} "
                "at most. Write fewer rows at a time, raise option transaction_bytes, or overwrite the store. Nothing "
                "was written"
            )
        _require_deletes(spec, store)
        _, found = examine(store, VerifyOptions("offsets"))
        if found.status not in _USABLE:
            raise InputError(_restore_first(store, found))
        if store.store.store_kind.has_times:
            if not found.status.healthy and found.log is not None and found.log.last_stable:
                raise InputError(_restore_first(store, found))
            _require_live(spec, store)


def _restore_first(store: StorePartitionSpec, found: Verdict) -> str:
    return f"{store.store_partition} is {found.status}: {found.detail}. Restore it first. Nothing was written"


def _require_deletes(spec: UpsertSpec, store: StorePartitionSpec) -> None:
    """Refuse deletes of a store that knows none: a null value of a key's duplicates is ignored."""
    if store.store.retain_duplicates and any(batch.column(1).null_count for batch in _batches(spec, store)):
        raise InputError(
            f"{store.store_partition} retains duplicates, and in its changelog a record without a value deletes "
            "nothing: expected a value in each row. Nothing was written"
        )


def _require_live(spec: UpsertSpec, store: StorePartitionSpec) -> None:
    """Refuse rows that have expired, and those that would have others expire; the store has all of its changelog."""
    form = form_of(store.store)
    given = np.concatenate([form.times(store, batch) for batch in _batches(spec, store)])
    latest = int(given.max())
    time, now, starts, oldest, before, takes = form.expiry(store, latest)
    if expired := int(np.count_nonzero(given < takes)):
        raise InputError(
            f"{store.store_partition}: {expired} rows are past the store's retention of {store.store.retention_ms} ms, "
            f"counted from {max(now, latest)}: the store would not keep them. Leave out rows of {time} "
            f"before {takes}. Nothing was written"
        )
    if lost := [start for start in starts if before <= start < oldest]:
        raise InputError(
            f"{store.store_partition}: a row of {time} {latest} would have all rows before {oldest} "
            f"expire, which are in {len(lost)} segments; the latest row there is of {now}. Overwrite the store if this "
            "is meant. Nothing was written"
        )


def _batches(spec: UpsertSpec, store: StorePartitionSpec) -> Iterator[pa.RecordBatch]:
    return spec.rows.batches(store.task.partition)


def _row(store: StorePartitionSpec, **figures: Any) -> WriteRow:
    return WriteRow(application=store.application, store=store.store.name, task=str(store.task), **figures)


def _write(spec: UpsertSpec, store: StorePartitionSpec) -> WriteRow:
    """Write one partition's rows in one transaction."""
    topics = store.cluster.topics
    topic = store.partition.topic
    writer = TransactionalWriter(
        store.cluster,
        transactional_id(store.application, store.task),
        _TRANSACTION_TIMEOUT_MS,
        int(topics.topic_configs([topic])[topic]["max.message.bytes"]),
    )
    deletes = 0
    try:
        writer.init()
        position = logged_position(store, _position(store))
        writer.begin()
        held: Records | None = None
        for batch in _batches(spec, store):
            for records in _records(spec, store, batch):
                if held is not None:
                    produce(writer, *store.partition, held)
                held = records
            deletes += batch.column(1).null_count
            kill_switch.reached("upsert, batch sent")
        assert held is not None, "a partition is chosen because it gets rows"
        if position:
            others, held = held.cut(len(held.keys) - 1)
            produce(writer, *store.partition, others)
        produce(writer, *store.partition, held.with_position(position))
        last = writer.flush()[store.partition]
        writer.commit()
        kill_switch.reached("upsert, committed")
    except StateStoreError:
        writer.abort()
        raise
    finally:
        writer.close()
    topics.wait_until_stable([topic])
    return _row(store, puts=spec.rows.rows(store.task.partition) - deletes, deletes=deletes, last=last)


def _records(spec: UpsertSpec, store: StorePartitionSpec, batch: pa.RecordBatch) -> Iterator[Records]:
    form = form_of(store.store)
    puts, deleted = form.split(batch)
    if puts.num_rows:
        yield form.records(store, puts, spec.started_ms)
    if count := len(deleted):
        yield Records(deleted, pa.nulls(count, pa.binary()), np.full(count, spec.started_ms), None, 0)


def _position(store: StorePartitionSpec) -> Mapping[TopicPartition, int]:
    """Return the input offsets that the changelog reflects: appended rows change nothing in them. Empty: unknown."""
    if examine(store, VerifyOptions("offsets"))[1].status.healthy:
        return known_position(store) or {}
    (log,) = store.cluster.topics.log_ranges([store.partition]).values()
    return last_position(store.cluster, store.partition, log)
