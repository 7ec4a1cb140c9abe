"""Optional abilities of a store of bytes: each ability is a protocol.

A store without an ability has its default, here or in the protocol of its kind (`api.py`), so its users do not have to
check for the ability. A store must have all methods of an ability or none; this is checked when it is built
(`store_check.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

NO_STREAM_TIME = -1


class BatchWritingStore(Protocol):
    """Reads and writes many rows at once, by their keys in the changelog. The default of each kind is row by row."""

    def get_rows(self, row_keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows, in the order of their keys."""
        raise NotImplementedError

    def put_rows(self, row_keys: Sequence[bytes], values: Sequence[bytes | None]) -> Sequence[int]:
        """Write many rows in their order; None deletes. Return the indexes of those that had expired."""
        raise NotImplementedError


class UpgradableStore(BatchWritingStore, Protocol):
    """Migrates rows in an older format when they are read (KIP-258's lazy migration)."""

    @property
    def upgrade_pending(self) -> bool:
        """True if rows in an older format were found when the store was opened."""
        return False

    def stored_row(self, row_key: bytes) -> bytes | None:
        """Read a row as it is stored, by its key in the changelog; nothing is migrated."""
        return self.get_rows([row_key])[0]


class StreamTimeStore(Protocol):
    """Expires rows by the largest timestamp that was written. The default keeps no stream time."""

    @property
    def stream_time(self) -> int:
        """Largest timestamp (ms) written since the store was opened; -1 before the first."""
        return NO_STREAM_TIME

    def advance_stream_time(self, timestamp: int) -> None:
        """Advance stream time to a timestamp from another source, such as the application's. A rollback keeps it."""
        return

    def set_back_stream_time(self, timestamp: int) -> None:
        """Set stream time back to its value before writes that are undone."""
        return
