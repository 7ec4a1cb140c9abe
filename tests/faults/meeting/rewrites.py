"""Rewrites of a store with one partition, as the data source does them, also in a process that is killed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa

from statestore import clock
from statestore.formats.timestamped_value import encode
from statestore.metastore.adoption import adoption_hooks
from statestore.metastore.metastore import Metastore
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import WriteRow
from statestore.rewrite.overwrite import OverwriteSpec, overwrite
from statestore.rewrite.row_stage import ROW_SCHEMA, AttemptWriter, RowStage, writes_of
from statestore.rewrite.upsert import TRANSACTION_BYTES, UpsertSpec, upsert

_RUN_BYTES = 1 << 24
_KEPT_S = 1e9
#: Where they are killed.
APPEND = ["upsert, batch sent", "upsert, committed", "upsert, partition written", "upsert, store caught up"]
OVERWRITE = [
    "rewrite, topic not made",
    "rewrite, topic made, not in the journal",
    "rewrite, topic in the journal",
    "rewrite, store built",
    "rewrite, judged",
    "rewrite, adopted",
    "swap, old store in quarantine",
    "swap, new store live",
    "rewrite, store replaced",
    "rewrite, settings made",
    "rewrite, way back kept",
]


class Append(NamedTuple):
    """Puts rows of a timestamped key-value store, and deletes those without a value."""

    store: StorePartitionSpec
    rows: Mapping[bytes, bytes | None]
    at: int

    def carry_out(self) -> WriteRow:
        """Do it."""
        with _staged(self.store, self.rows, self.at) as stage:
            spec = UpsertSpec([self.store], stage, _RUN_BYTES, TRANSACTION_BYTES, self.at, _KEPT_S)
            (row,) = upsert(spec)
        return row


class Overwrite(NamedTuple):
    """Gives a timestamped key-value store other rows, and a changelog that the catalogue of a service names."""

    service_id: str
    store: StorePartitionSpec
    rows: Mapping[bytes, bytes | None]
    at: int

    def carry_out(self) -> WriteRow:
        """Do it; no suite is asked."""
        store = self.store
        metastore = Metastore(store.cluster, self.service_id)
        with _staged(store, self.rows, self.at) as stage:
            spec = OverwriteSpec([store], stage, _RUN_BYTES, clock.now_ms())
            with overwrite(spec, adoption_hooks(metastore, store.application, lambda _: None)) as work:
                (done,) = work.carry_out()
        return WriteRow(application=store.application, store=store.store.name, task=str(store.task), puts=done.rows)


@contextmanager
def _staged(store: StorePartitionSpec, rows: Mapping[bytes, bytes | None], at: int) -> Iterator[RowStage]:
    keys = pa.array(list(rows), pa.binary())
    values = pa.array([None if value is None else encode(value, at) for value in rows.values()], pa.binary())
    directory = writes_of(store.state_dir, store.application, store.store.name) / f"write-{clock.now_ms()}"
    with AttemptWriter(directory, 1) as attempt:
        attempt.add(keys, pa.RecordBatch.from_arrays([keys, values], schema=ROW_SCHEMA))
    stage = RowStage(directory, [attempt.staged])
    try:
        yield stage
    finally:
        stage.clear()
