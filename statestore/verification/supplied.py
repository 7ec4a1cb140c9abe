"""The rows of a supplier's store, read through its own methods because the format of its files is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import pyarrow as pa

from statestore.definitions.store import StoreDefinition
from statestore.kafka.record_columns import SCHEMA
from statestore.stores.scan import STORED_SCHEMA
from statestore.stores.storage import storage_of
from statestore.stores.typed import AnyStore

_BATCH_ROWS = 10_000


def count(store: AnyStore, definition: StoreDefinition, give_way: Callable[[], None]) -> int:
    """Read every row; return how many there are.

    Parameters
    ----------
    give_way
        Called now and then.
    """
    return sum(batch.num_rows for batch in batches(store, definition, give_way))


def batches(store: AnyStore, definition: StoreDefinition, give_way: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """Yield all rows with `changelog.reader.SCHEMA`, in any order, as `bulk.runs.RunWriter` sorts them.

    Their values are as they are stored, their timestamps nothing, and their offsets count them.
    """
    rows, at = storage_of(definition).rows(store.inner), 0
    while part := list(islice(rows, _BATCH_ROWS)):
        give_way()
        keys, values = zip(*part, strict=True)
        columns = keys, values, [0] * len(part), range(at, at + len(part))
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        at += len(part)


def as_stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return such rows with `scan.STORED_SCHEMA`."""
    return pa.RecordBatch.from_arrays(batch.columns[: len(STORED_SCHEMA)], schema=STORED_SCHEMA)
