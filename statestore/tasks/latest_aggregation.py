"""The latest value by key, or by key and window: chosen in columns, without Python for each record."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.tasks import grouping, sums
from statestore.tasks.folding import stored_result
from statestore.tasks.keyed_aggregation import RowAggregation


class LatestRows(RowAggregation):
    """Keeps the record with the largest timestamp; if several have it, the last one wins."""

    def _fold(self) -> None:
        if not self._pending:
            return
        records = grouping.joined(self._pending)
        rows, index = sums.rows_of(records, self._windows, np.zeros(len(records), np.int64))
        encoded = rows.row_keys.dictionary_encode()
        order = np.argsort(rows.newest, kind="stable")  # if an index is assigned several times, the last value stays
        latest = np.zeros(len(encoded.dictionary), np.int64)
        latest[encoded.indices.to_numpy()[order]] = order
        # By time, so that what expires in the store does not depend on keys, then by key.
        ranked = latest[pc.sort_indices(encoded.dictionary).to_numpy()]
        ranked = ranked[np.argsort(rows.starts[ranked], kind="stable")]
        row_keys, newest = rows.row_keys.take(pa.array(ranked)).to_pylist(), rows.newest[ranked]
        stored, layout = self._results.store.get_rows(row_keys), self._results.layout
        before = np.array([stored_result(found, layout).timestamp for found in stored], np.int64)
        wins = np.flatnonzero(newest >= before).tolist()
        values = records.values.take(pa.array(ranked if index is None else index[ranked])).to_pylist()
        times = newest.tolist()
        chosen = [times[row] for row in wins]
        self._results.write([row_keys[row] for row in wins], [values[row] for row in wins], chosen, chosen)
