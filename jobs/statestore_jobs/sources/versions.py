"""Versions of a versioned store's keys, a row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow as pa

from statestore.discovery.opening import Opened
from statestore.discovery.row_range import RowRange

VERSIONS_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("valid_from", pa.int64()),
        pa.field("valid_to", pa.int64()),
    ]
)
_BATCH_ROWS = 4096
_Version = tuple[bytes, bytes, int, int | None]


def version_batches(databases: Sequence[Opened], wanted: RowRange) -> Iterator[pa.RecordBatch]:
    """Yield the versions of a range as batches with `VERSIONS_SCHEMA`, by key and of each key the oldest first.

    Raises
    ------
    StoreCorruptedError
        If a row cannot be read.
    """
    rows = (version for opened in databases for version in _versions(opened, wanted))
    while some := list(islice(rows, _BATCH_ROWS)):
        columns = zip(*some, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, VERSIONS_SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=VERSIONS_SCHEMA)


def _versions(opened: Opened, wanted: RowRange) -> Iterator[_Version]:
    for key, versions in opened.versions(*wanted.keys()):
        for value, valid_from, valid_to in versions:
            if value is not None and wanted.has_version(valid_from, valid_to):
                yield key, value, valid_from, valid_to
