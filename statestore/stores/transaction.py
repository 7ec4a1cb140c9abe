"""Uncommitted writes, staged outside the database (KIP-844's transactional store, in KIP-892's shape).

Reads see staged rows merged over committed ones, in key order. `commit` applies everything with its offsets in one
atomic write; `rollback`, or the end of the process, leaves the database as it was.

The staging area is in memory. Its owner commits when `staged_bytes` reaches the configured bound, so it stays small;
spilling a single larger transaction to disk is not part of it yet.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from statestore.model import TopicPartition
from statestore.stores.rocksdb import RocksDB

#: What one staged row costs beyond its key and value, measured for CPython's dict and bytes objects.
_ROW_OVERHEAD_BYTES = 170


class StagedRows:
    """Rows of the data column families: committed in the database, staged in memory.

    Parameters
    ----------
    database
        The open database; it is written only by `commit`.
    """

    def __init__(self, database: RocksDB) -> None:
        self.database = database
        self._staged: dict[str, dict[bytes, bytes | None]] = {}
        self._sorted_keys: dict[str, list[bytes]] = {}
        self.staged_bytes = 0

    def get(self, family: str, key: bytes) -> bytes | None:
        """Read a row as the owner of the transaction sees it."""
        staged = self._staged.get(family)
        if staged is not None and key in staged:
            return staged[key]
        return self.database.get(family, key)

    def put(self, family: str, key: bytes, value: bytes | None) -> None:
        """Stage a row; None deletes."""
        staged = self._staged.setdefault(family, {})
        size = 0 if value is None else len(value)
        if key in staged:
            before = staged[key]
            self.staged_bytes += size - (0 if before is None else len(before))
        else:
            self.staged_bytes += size + len(key) + _ROW_OVERHEAD_BYTES
            self._sorted_keys.pop(family, None)
        staged[key] = value

    def scan(self, family: str, start: bytes | None = None, stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Rows with `start <= key < stop`, staged over committed, in key order; stable against later writes."""
        committed = self.database.scan(family, start, stop)
        staged = self._staged.get(family)
        if not staged:
            return committed
        if family not in self._sorted_keys:
            self._sorted_keys[family] = sorted(staged)
        keys = self._sorted_keys[family]
        first = 0 if start is None else bisect_left(keys, start)
        last = len(keys) if stop is None else bisect_left(keys, stop)
        return _merge([(key, staged[key]) for key in keys[first:last]], committed)

    def commit(self, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int]) -> None:
        """Apply what is staged, with its offsets and position, in one atomic write."""
        self.database.write(self._staged, offsets, position)
        self.rollback()

    def rollback(self) -> None:
        """Forget what is staged."""
        self._staged = {}
        self._sorted_keys = {}
        self.staged_bytes = 0


def _merge(
    staged: list[tuple[bytes, bytes | None]], committed: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes]]:
    """Merge two sorted sequences; of equal keys the staged row wins, and a staged None hides the committed row."""
    rows = heapq.merge(
        ((key, 0, value) for key, value in staged),
        ((key, 1, value) for key, value in committed),
        key=lambda row: row[:2],
    )
    previous: bytes | None = None
    for key, _, value in rows:
        if key != previous and value is not None:
            yield key, value
        previous = key
