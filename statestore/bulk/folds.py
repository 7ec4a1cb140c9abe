"""How records of a log become rows of a store: a strategy for each form of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from statestore.bulk.routing import routing_of
from statestore.bulk.runs import Runs, RunWriter, merged, stream_time
from statestore.bulk.versions import RecordRows, stored_rows
from statestore.definitions.store import StoreDefinition
from statestore.durable import remove_tree
from statestore.formats.versioned_row import segment_of
from statestore.kinds.kind import RowForm
from statestore.kinds.versioned import VERSIONED


class RecordFold:
    """Rows are the last records of their keys."""

    def __init__(self, store: StoreDefinition) -> None:
        self._store = store

    def of(self, batch: pa.RecordBatch, chosen: pa.RecordBatch | None = None) -> pa.RecordBatch:
        """Return what the sorted runs get of a batch of `changelog.reader.SCHEMA`, in the same schema.

        Parameters
        ----------
        chosen
            Those records of it that become rows; None: all.
        """
        return batch if chosen is None else chosen

    def rows(self, runs: Sequence[Runs], directory: Path, run_bytes: int) -> Sequence[Runs]:
        """Return the rows of the store, of the sorted runs of its log.

        Parameters
        ----------
        directory
            For further runs; the caller removes it.
        run_bytes
            Bound of a run in memory.
        """
        return runs

    def stream_time(self, runs: Sequence[Runs]) -> int | None:
        """Return the stream time (ms) of the sorted runs; None if the rows have no times."""
        latest = stream_time(runs)
        return latest if self._store.retention_ms is not None and latest >= 0 else None


class VersionFold(RecordFold):
    """Each record becomes a row of the runs. All records of a key are folded into its rows, in the order of the log."""

    def __init__(self, store: StoreDefinition) -> None:
        super().__init__(store)
        self._made = RecordRows(store.retention_ms or 0)

    @property
    def newest(self) -> int:
        """Largest timestamp (ms) so far; -1 before the first."""
        return self._made.stream_time

    def of(self, batch: pa.RecordBatch, chosen: pa.RecordBatch | None = None) -> pa.RecordBatch:
        """Return a row for each record. Stream time follows all records, also those that are not chosen."""
        return self._made.of(batch, chosen)

    def rows(self, runs: Sequence[Runs], directory: Path, run_bytes: int) -> Sequence[Runs]:
        """Return the rows of the store, sorted as the store has them."""
        remove_tree(directory)
        store = self._store
        interval_ms, retention_ms = VERSIONED.segment_interval_ms(store), store.retention_ms or 0
        live_from = segment_of(self.newest - retention_ms, interval_ms)
        writer = RunWriter(directory, routing_of(store), run_bytes, start=0)
        count = 0
        for batch in stored_rows(merged(runs, routing_of(store)), interval_ms, live_from):
            writer.add(batch)
            count += batch.num_rows
        return [writer.finish(count)]

    def stream_time(self, runs: Sequence[Runs]) -> int:
        """Return the largest timestamp (ms); 0 if there is no record."""
        return max(self.newest, 0)


def fold_of(store: StoreDefinition) -> RecordFold:
    """Return how the log of a store is folded, to be used for one pass over it."""
    return _FOLDS[store.store_kind.row_form](store)


_FOLDS: Mapping[RowForm, Callable[[StoreDefinition], RecordFold]] = {
    RowForm.RECORDS: RecordFold,
    RowForm.TIME_ORDERED: RecordFold,
    RowForm.VERSIONS: VersionFold,
}
