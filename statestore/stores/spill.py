"""The secondary RocksDB of a transaction that has outgrown its memory (KIP-844).

Value layout: one byte, 1 for a row and 0 for a delete, then the row's value. A delete must be told from a key that the
transaction has not touched, hence the byte. Rows arrive as sorted runs, which take no memtable; nothing here outlives
the transaction.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from statestore.stores.merge import Change
from statestore.stores.rocksdb import RocksDB
from statestore.stores.rocksdb_options import Memory
from statestore.stores.sorted_rows import ROW_OVERHEAD_BYTES
from statestore.stores.sst import write_sst

_PREFIX = "spill-"
_ROW = b"\1"
_DELETE = b"\0"


def spill_directory(own_directory: Path, store: str) -> Path:
    """Where transactions of a key-value store spill to."""
    return own_directory / "spill" / store


def segment_spill_directory(own_directory_of_store: Path, start: int) -> Path:
    """Where transactions of a segment spill to; it is named by its start (ms)."""
    return own_directory_of_store / f"{_PREFIX}{start}"


def remove_left_spills(own_directory: Path, store: str) -> None:
    """Remove what transactions of a store left when they were killed, whichever kind and engine it had then."""
    Spill.remove(spill_directory(own_directory, store))
    for left in (own_directory / "segments" / store).glob(f"{_PREFIX}*"):
        Spill.remove(left)


class Spill:
    """Rows and deletes of one transaction, on disk.

    Parameters
    ----------
    directory
        A directory of its own; it is made, and removed by `close`.
    max_bytes
        The transaction's memory bound, of which this takes a small part.
    """

    def __init__(self, directory: Path, families: Sequence[str], max_bytes: int) -> None:
        self._directory = directory
        self._families = families
        self._chunk_bytes = max(max_bytes // 16, 64 * 1024)
        part = max(max_bytes // 32, 64 * 1024)
        self._database = RocksDB(directory / "db", families, memory=Memory(write_buffer_bytes=part, cache_bytes=part))
        self._runs = 0

    def add(self, family: str, changes: Iterator[Change]) -> None:
        """Add changes (at least one) in key order; they win over those added before."""
        run = self._directory / f"run-{self._runs:06d}.sst"
        self._runs += 1
        write_sst(((key, _DELETE if value is None else _ROW + value) for key, value in changes), run)
        self._database.ingest(family, [run])

    def delete_range(self, family: str, start: bytes, stop: bytes) -> None:
        """Forget what was added for the keys with `start <= key < stop`."""
        self._database.delete_range(family, start, stop)

    def get(self, family: str, key: bytes) -> tuple[bool, bytes | None]:
        """Return whether the transaction has touched the key, and its value (None: deleted)."""
        raw = self._database.get(family, key)
        return (False, None) if raw is None else (True, _value(raw))

    def scan(self, family: str, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> Iterator[Change]:
        """Changes with `start <= key < stop` in key order, or in reverse."""
        return ((key, _value(raw)) for key, raw in self._database.scan(family, start, stop, reverse=reverse))

    def chunks(self) -> Iterator[tuple[str, dict[bytes, bytes | None]]]:
        """All changes by column family, cut so that each part stays small in memory."""
        for family in self._families:
            chunk: dict[bytes, bytes | None] = {}
            size = 0
            for key, value in self.scan(family, None, None):
                chunk[key] = value
                size += len(key) + (0 if value is None else len(value)) + ROW_OVERHEAD_BYTES
                if size >= self._chunk_bytes:
                    yield family, chunk
                    chunk, size = {}, 0
            if chunk:
                yield family, chunk

    @property
    def being_read(self) -> bool:
        """True while somebody walks it."""
        return self._database.being_read

    def close(self) -> None:
        """Close and remove it; iterators still open raise InvalidStateError."""
        self._database.close()
        self.remove(self._directory)

    @staticmethod
    def remove(directory: Path) -> None:
        """Remove what a transaction left, if anything."""
        if directory.exists():
            shutil.rmtree(directory)


def _value(raw: bytes) -> bytes | None:
    return raw[1:] if raw[:1] == _ROW else None
