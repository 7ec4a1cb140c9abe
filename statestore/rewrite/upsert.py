"""Changing some rows of a store: one transaction a partition, as its task commits, and the store brought behind it.

    locks of all tasks -> all that speaks against it -> for each partition: earlier processes fenced, its records in one
    transaction -> locks given back -> each store catches up, as in a restore

A transaction is there or it is not, and only its changelog counts: killed behind it, a store is LAGGING, and catches up
when its task next opens it. Rows that were written are the same when they are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from statestore import kill_switch
from statestore.changelog.topics import Topics, append_time_refused
from statestore.changelog.writer import TransactionalWriter
from statestore.errors import InputError, StateStoreError
from statestore.model import transactional_id
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import restore
from statestore.recovery.spec import RestoreSpec
from statestore.reports import RestoreRow, Status
from statestore.requests.restore import RestoreRequest
from statestore.rewrite.changelog_writing import produce
from statestore.rewrite.examination import require_rewritable
from statestore.rewrite.row_stage import RowStage, remove_abandoned, require_rows, require_single_keys
from statestore.rewrite.rows import records_of
from statestore.statedir.swap import locked_task
from statestore.verification.check import check
from statestore.verification.options import VerifyOptions

#: Below `transaction.max.timeout.ms` of brokers, which is 15 minutes by default.
_TRANSACTION_TIMEOUT_MS = 10 * 60 * 1000
#: Bytes of a transaction; what a task stages of one it keeps in memory, too.
TRANSACTION_BYTES = 256 * 1024 * 1024
_USABLE = (Status.OK, Status.EMPTY, Status.LAGGING, Status.MISSING)


class UpsertSpec(NamedTuple):
    """What is to be written.

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
    """

    stores: Sequence[StorePartitionSpec]
    rows: RowStage
    run_bytes: int
    transaction_bytes: int
    started_ms: int


class Upserted(NamedTuple):
    """One store partition whose changelog has the rows.

    Attributes
    ----------
    last
        Offset of its last record.
    caught_up
        What became of the store.
    """

    store: StorePartitionSpec
    rows: int
    last: int
    caught_up: RestoreRow


def require_upsertable(stores: Sequence[StorePartitionSpec]) -> None:
    """Refuse stores of which single rows cannot be written.

    Raises
    ------
    InputError
        With the reason.
    """
    require_rewritable(stores)
    store = stores[0]
    name = f"{store.application}/{store.store.name}"
    if store.store.store_kind.numbers:
        raise InputError(
            f"{name} is a {store.store.kind} store, whose rows expire with the time of its records: single rows cannot "
            "be written. Overwrite all of them"
        )
    if store.changelog is None:
        raise InputError(f"{name}: its changelog {store.partition.topic} does not exist. Run `statestore drift`")
    if store.changelog.log_append_time:
        raise InputError(append_time_refused(store.changelog.topic))


def upsert(spec: UpsertSpec, report: Callable[[Upserted], None] = lambda _: None) -> list[Upserted]:
    """Write rows, and bring the stores behind them.

    Parameters
    ----------
    report
        Called with each store partition that is done.

    Raises
    ------
    InputError, LockedError
        If something speaks against it. Nothing was written.
    StateStoreError
        If a partition could not be written; the message names those that were.
    """
    require_upsertable(spec.stores)
    chosen = [store for store in spec.stores if spec.rows.rows(store.task.partition)]
    offsets: dict[int, int] = {}
    with ExitStack() as locks:
        for store in spec.stores:
            locks.enter_context(locked_task(store.paths, store.lock_wait_s))
        remove_abandoned(spec.rows.directory.parent, spec.rows.directory)
        _require_writable(spec, chosen)
        for store in chosen:
            try:
                offsets[store.task.partition] = _write(spec, store)
            except StateStoreError as error:
                done = ", ".join(map(str, offsets)) or "none"
                raise type(error)(
                    f"{store.store_partition}: {error}. Partitions written before it: {done}. Write the same rows "
                    "again: that changes nothing in those"
                ) from error
            kill_switch.reached("upsert, partition written")
    result = []
    for store in chosen:
        request = RestoreRequest(mode="auto")
        caught_up = restore(RestoreSpec(store, request, f"upsert-{spec.started_ms}", spec.run_bytes))
        kill_switch.reached("upsert, store caught up")
        number = store.task.partition
        result.append(Upserted(store, spec.rows.rows(number), offsets[number], caught_up))
        report(result[-1])
    return result


def _require_writable(spec: UpsertSpec, chosen: Sequence[StorePartitionSpec]) -> None:
    store = spec.stores[0]
    Topics(store.bootstrap_servers, store.kafka_timeout_s).require_no_members(store.application)
    require_rows(spec.rows)
    for store in chosen:
        require_single_keys(spec.rows, store)
        if (size := spec.rows.size(store.task.partition)) > spec.transaction_bytes:
            raise InputError(
                f"{store.store_partition} would get {size} bytes in one transaction; expected {spec.transaction_bytes} "
                "at most. Write fewer rows at a time, raise option transaction_bytes, or overwrite the store. Nothing "
                "was written"
            )
        found = check(store, VerifyOptions("offsets"))
        if found.status not in _USABLE:
            raise InputError(
                f"{store.store_partition} is {found.status}: {found.detail}. Restore it first. Nothing was written"
            )


def _write(spec: UpsertSpec, store: StorePartitionSpec) -> int:
    """Write one partition's rows in one transaction; return the offset of the last one."""
    topics = Topics(store.bootstrap_servers, store.kafka_timeout_s)
    topic = store.partition.topic
    writer = TransactionalWriter(
        store.bootstrap_servers,
        transactional_id(store.application, store.task),
        store.kafka_timeout_s,
        _TRANSACTION_TIMEOUT_MS,
        int(topics.topic_configs([topic])[topic]["max.message.bytes"]),
    )
    try:
        writer.init()
        writer.begin()
        for batch in spec.rows.batches(store.task.partition):
            _produce(spec, store, writer, batch)
            kill_switch.reached("upsert, batch sent")
        last = writer.flush()[store.partition]
        writer.commit()
        kill_switch.reached("upsert, committed")
    except StateStoreError:
        writer.abort()
        raise
    finally:
        writer.close()
    topics.wait_until_stable([topic])
    return last


def _produce(spec: UpsertSpec, store: StorePartitionSpec, writer: TransactionalWriter, batch: pa.RecordBatch) -> None:
    topic, number = store.partition
    puts, deleted = batch.filter(pc.is_valid(batch.column(1))), batch.column(0).filter(pc.is_null(batch.column(1)))
    if puts.num_rows:
        records = records_of(store, puts, spec.started_ms)
        produce(writer, topic, number, records)
    if count := len(deleted):
        writer.produce_many(topic, number, deleted.to_pylist(), [None] * count, [spec.started_ms] * count)
