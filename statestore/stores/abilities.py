"""What a store of bytes may be able to do besides: each ability is a protocol.

A store that lacks an ability has the default instead, here or in the protocol of its kind (`api.py`). So nobody has to
ask whether it is there when the store is used. That a store has all of an ability or nothing of it is checked when it
is built (`store_check.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

NO_STREAM_TIME = -1


class BatchWritingStore(Protocol):
    """Reads and writes many rows at once, by their keys in the changelog. The default of each kind goes row by row."""

    def get_rows(self, row_keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows, in the order of their keys."""
        raise NotImplementedError

    def put_rows(self, row_keys: Sequence[bytes], values: Sequence[bytes | None]) -> Sequence[int]:
        """Write many rows in their order, None deletes; return the indexes of those that had expired."""
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
    """Lets rows expire by the largest timestamp that was written. The default keeps none."""

    @property
    def stream_time(self) -> int:
        """Largest timestamp (ms) written since the store was opened; -1 before the first."""
        return NO_STREAM_TIME

    def advance_stream_time(self, timestamp: int) -> None:
        """Let stream time reach a timestamp known from elsewhere, such as the application's; a rollback keeps it."""
        return

    def set_back_stream_time(self, timestamp: int) -> None:
        """Have stream time be what it was before writes that are undone."""
        return
