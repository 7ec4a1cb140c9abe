"""Writes to a store as the data source does them, without Spark: rows are given, and no suite is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statestore import clock
from statestore.config import Settings
from statestore.discovery.partitions import store_partition_specs
from statestore.formats.timestamped_value import encode
from statestore.kafka.cluster import Cluster
from statestore.metastore.adoption import adoption_hooks
from statestore.metastore.metastore import Metastore
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import WriteRow
from statestore.rewrite.overwrite import OverwriteSpec, overwrite
from statestore.rewrite.row_stage import ROW_SCHEMA, AttemptWriter, RowStage, writes_of
from statestore.rewrite.staged_stores import Rewritten
from statestore.rewrite.upsert import TRANSACTION_BYTES, UpsertSpec, upsert
from statestore.rewrite.version_rows import OPEN, version_rows
from tests.integration.broker import T0


class Overwriting(NamedTuple):
    """What is written.

    Attributes
    ----------
    rows
        Values of a timestamped key-value store by their keys; a list: as many rows as it has pairs.
    versions
        Of a versioned store: key, from when and until when (None: until now) it is valid, and value.
    """

    servers: str
    service_id: str
    application: str
    store: str
    state_dir: Path
    rows: Mapping[bytes, bytes | None] | Sequence[tuple[bytes, bytes | None]]
    at: int = T0
    versions: Sequence[tuple[bytes, int, int | None, bytes | None]] = ()

    @property
    def metastore(self) -> Metastore:
        return Metastore(Cluster(self.servers, 60), self.service_id)

    def specs(self) -> list[StorePartitionSpec]:
        definition = self.metastore.view().catalogue.entry(self.application).definition
        settings = Settings(
            bootstrap_servers=self.servers,
            state_dir=self.state_dir,
            reports_dir=self.state_dir.with_name("reports"),
            data_docs_dir=self.state_dir.with_name("data_docs"),
        )
        return store_partition_specs(settings, Cluster(self.servers, 60).topics, [definition], [self.store])

    def staged(self) -> RowStage:
        stage = writes_of(self.state_dir, self.application, self.store) / f"write-{clock.now_ms()}"
        if self.versions:
            keys, begins, ends, values = (list(column) for column in zip(*self.versions, strict=True))
            users_keys, plain = (pa.array(column, pa.binary()) for column in (keys, values))
            until = np.array([OPEN if end is None else end for end in ends])
            with AttemptWriter(stage, len(self.specs())) as attempt:
                attempt.add(users_keys, version_rows(users_keys, plain, np.array(begins), until))
            return RowStage(stage, [attempt.staged])
        pairs = list(self.rows.items()) if isinstance(self.rows, Mapping) else list(self.rows)
        keys = pa.array([key for key, _ in pairs], pa.binary())
        stored = pa.array([None if value is None else encode(value, self.at) for _, value in pairs], pa.binary())
        with AttemptWriter(stage, len(self.specs())) as attempt:
            attempt.add(keys, pa.RecordBatch.from_arrays([keys, stored], schema=ROW_SCHEMA))
        return RowStage(stage, [attempt.staged])

    def carry_out(self, judge: Callable[[Sequence[StorePartitionSpec]], None] = lambda _: None) -> list[Rewritten]:
        stage = self.staged()
        try:
            spec = OverwriteSpec(self.specs(), stage, 1 << 24, clock.now_ms())
            with overwrite(spec, adoption_hooks(self.metastore, self.application, judge)) as work:
                return work.carry_out()
        finally:
            stage.clear()


class Upserting(NamedTuple):
    """Rows that are put, and deleted where they have no value."""

    write: Overwriting
    transaction_bytes: int = TRANSACTION_BYTES
    quarantine_s: float = 1e9

    def carry_out(self) -> list[WriteRow]:
        stage = self.write.staged()
        try:
            spec = UpsertSpec(self.write.specs(), stage, 1 << 24, self.transaction_bytes, T0 + 10, self.quarantine_s)
            return upsert(spec)
        finally:
            stage.clear()


def run_write(work: Overwriting | Upserting) -> None:
    """Do it; in a child process that is killed."""
    work.carry_out()
