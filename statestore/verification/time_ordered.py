"""Rows that have their times in front, read for a comparison; and whether index and rows say the same.

Kafka Streams reads a window by its key from the index, so that a row without an index row is lost to it. The reverse is
no damage: a null value leaves the index row where it is, and Kafka Streams removes it when it next meets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from statestore.bulk.digest import Digest
from statestore.bulk.routing import Routing
from statestore.bulk.time_ordered import by_ordinary_keys, no_values
from statestore.errors import StoreCorruptedError
from statestore.formats import time_ordered_key
from statestore.kafka.record_columns import SCHEMA
from statestore.kinds.kind import RowLayout
from statestore.model import StoreFormat
from statestore.stores.scan import ScannedDatabase
from statestore.verification.kernels import numbers_in


def time_ordered_rows(
    database: ScannedDatabase, layout: RowLayout, segment: int, routing: Routing, give_way: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a segment (its start in ms) with `scan.STORED_SCHEMA` by their ordinary keys, in no such order.

    Raises
    ------
    StoreCorruptedError
        If a key is none of such a store or of another segment; or, by the end, if a row has no index row.
    """
    rows, index = Digest(StoreFormat.PLAIN), Digest(StoreFormat.PLAIN)
    for batch in database.rows():
        give_way()
        try:
            found = by_ordinary_keys(batch, layout.key)
        except StoreCorruptedError as error:
            raise StoreCorruptedError(f"{database.directory}: {error}") from error
        for keys in (found.rows.column(0), found.index):
            _require_segment(database, keys, segment, routing)
        if layout.indexed:
            _add_keys(rows, found.rows.column(0))
            _add_keys(index, found.index)
        elif len(found.index):
            raise StoreCorruptedError(
                f"{database.directory} has at least {len(found.index)} index rows, but a store of its kind has none"
            )
        yield found.rows
    if (rows.rows, rows.hexdigest()) != (index.rows, index.hexdigest()):
        _require_index(database, layout, give_way)


def as_changes(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Return rows with `changelog.reader.SCHEMA`, as `bulk.runs.RunWriter` sorts them, numbered from `first` on."""
    zeros = pa.array(np.zeros(batch.num_rows, np.int64))
    offsets = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([*batch.columns, zeros, offsets], schema=SCHEMA)


def _add_keys(digest: Digest, keys: pa.Array) -> None:
    digest.add_stored(keys, no_values(len(keys)))


def _require_segment(database: ScannedDatabase, keys: pa.Array, segment: int, routing: Routing) -> None:
    interval_ms = routing.interval_ms
    if interval_ms is None or not len(keys):
        return
    times = numbers_in(keys, back=routing.suffix_bytes)
    wrong = times - times % interval_ms != segment
    if wrong.any():
        raise StoreCorruptedError(
            f"{database.directory} has at least {int(wrong.sum())} rows of other segments, such as one of time "
            f"{int(times[wrong][0])}"
        )


def _require_index(database: ScannedDatabase, layout: RowLayout, give_way: Callable[[], None]) -> None:
    missing = 0
    for batch in database.rows(*time_ordered_key.ROWS_WITHOUT_INDEX):
        give_way()
        for key in by_ordinary_keys(batch, layout.key).rows.column(0).to_pylist():
            missing += database.row(time_ordered_key.index(key)) is None
    if missing:
        raise StoreCorruptedError(
            f"{database.directory} has {missing} rows without their index rows: Kafka Streams cannot find them by "
            f"key. Restore the store"
        )
