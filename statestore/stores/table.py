"""The interface of a storage engine: sorted rows of bytes in named column families, written in atomic batches.

Two engines exist, RocksDB (`rocksdb.py`) and memory (`memory.py`). Transactions, formats, segments and store kinds are
written against this protocol alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from statestore.model import TopicPartition

Row = tuple[bytes, bytes]
#: What is written to one column family: None deletes.
Changes = Mapping[bytes, bytes | None]


class DeletedRange(NamedTuple):
    """The keys with `start <= key < stop`, whose rows are deleted."""

    start: bytes
    stop: bytes


class Rows(Protocol):
    """Rows of one column family, or of several in one format. Iterators see the rows as of the call that made them."""

    def get(self, key: bytes) -> bytes | None:
        """Read one value."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of many keys, in their order."""

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows with `start <= key < stop` in key order, or in reverse."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write one row; None deletes."""

    def put_many(self, changes: Changes) -> None:
        """Write many rows; None deletes."""

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete the rows with `start <= key < stop`."""


class Table(Protocol):
    """An open engine."""

    @property
    def persistent(self) -> bool:
        """True if rows survive the process."""

    @property
    def being_read(self) -> bool:
        """True while an iterator is open."""

    @property
    def closed(self) -> bool:
        """True after close."""

    def require_open(self) -> None:
        """Raise InvalidStateError, saying which one, if it is closed."""

    def has(self, family: str) -> bool:
        """True if the column family exists."""

    def family(self, name: str) -> Rows:
        """Return the rows of a column family: each write is at once in the table."""

    def write(
        self,
        changes: Mapping[str, Changes],
        offsets: Mapping[TopicPartition, int] | None = None,
        position: Mapping[TopicPartition, int] | None = None,
        status: int | None = None,
        ranges: Mapping[str, Sequence[DeletedRange]] | None = None,
    ) -> None:
        """Apply range deletes, then changes, offsets, position and status, in one atomic write."""

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Offset last written for a changelog partition."""

    def offset_partitions(self) -> list[TopicPartition]:
        """Changelog partitions that offsets were written for."""

    def clear_offsets(self) -> None:
        """Forget offsets and position; the status stays."""

    def position(self) -> dict[TopicPartition, int]:
        """Input offsets last written."""

    def sync(self) -> None:
        """Wait until everything written is on disk."""

    def close(self) -> None:
        """Give up the engine and every iterator."""
