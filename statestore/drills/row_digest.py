"""A SHA-256 of all rows of a store, in their order.

    digest = SHA-256(keys || lengths of keys || values || lengths of values), each of the four itself a SHA-256
    keys, values    the bytes as they are stored, in the order of the store, without separators
    lengths         uint32, little-endian

The databases of segments follow each other in order of their names.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from statestore.kinds.segment_directories import segment_start
from statestore.partition.spec import StorePartitionSpec
from statestore.stores.scan import ScannedDatabase
from statestore.verification.row_reading import reading_of


def rows_sha256(store: StorePartitionSpec) -> str:
    """Return the digest of the live store of a partition; empty for a supplier's store, whose files are not known."""
    if not store.store.files_are_known:
        return ""
    columns = [_Column(), _Column()]
    for directory in store.store.store_kind.databases(store.live):
        with ScannedDatabase(directory, store.store.values) as database:
            for batch in reading_of(store.store).rows(database, segment_start(directory.name) or 0):
                for number, column in enumerate(columns):
                    column.add(batch.column(number))
    return hashlib.sha256(b"".join(column.digest() for column in columns)).hexdigest()


class _Column:
    """Digests of the bytes of a column and of their lengths, whatever the batches are."""

    def __init__(self) -> None:
        self._bytes, self._lengths = hashlib.sha256(), hashlib.sha256()

    def add(self, column: pa.Array) -> None:
        array = column.cast(pa.large_binary())
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        if len(array):
            self._lengths.update(np.diff(ends).astype("<u4").tobytes())
            if data is not None:
                self._bytes.update(memoryview(data)[int(ends[0]) : int(ends[-1])])

    def digest(self) -> bytes:
        return self._bytes.digest() + self._lengths.digest()
