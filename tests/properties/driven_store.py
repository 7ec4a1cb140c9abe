"""The store that a machine drives: where it lives, and how its process is thrown away.

Memtables are as small as RocksDB allows, so that it flushes by itself in the middle of things and the image of a
crashed process is somewhere between two commits, not always at the last clean close.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from statestore.model import TaskId, TopicPartition
from statestore.stores.api import StoreContext
from statestore.stores.serdes import BYTES
from tests.compositions import CHANGELOG, Composition

WINDOW_SIZE_MS = 1_000
UNBOUNDED = 64 * 1024 * 1024
_MEMTABLE_BYTES = 64 * 1024
_COPY_TIMEOUT_S = 120


def new_store(composition: Composition, retention_ms: int, retain_duplicates: bool) -> Any:
    """A store, not yet open, from the supplier and the builder that a user would take."""
    supplier = composition.supplier(
        retention=timedelta(milliseconds=retention_ms),
        window=timedelta(milliseconds=WINDOW_SIZE_MS),
        duplicates=retain_duplicates,
    )
    return composition.build(supplier, BYTES, BYTES)


@dataclass(frozen=True)
class Home:
    """A state directory of one task with one store."""

    root: Path
    exactly_once: bool
    uncommitted_max_bytes: int

    @classmethod
    def make(cls, exactly_once: bool, uncommitted_max_bytes: int) -> Home:
        return cls(Path(tempfile.mkdtemp(prefix="property-")), exactly_once, uncommitted_max_bytes)

    def context(self) -> StoreContext:
        return StoreContext(
            "app",
            TaskId(0, 0),
            self.root / "app" / "0_0",
            self.root / ".statestore" / "app" / "0_0",
            exactly_once=self.exactly_once,
            uncommitted_max_bytes=self.uncommitted_max_bytes,
            config_setter=_small_memtables,
        )

    @property
    def spilled(self) -> bool:
        """True while the secondary database of a transaction is there, also if only an iterator still needs it."""
        return any(path.name == "db" for path in (self.root / ".statestore").rglob("db"))

    @property
    def has_database(self) -> bool:
        return any((self.root / "app").rglob("CURRENT"))

    def image(self) -> Home:
        """Copy the files as a process that is killed now would leave them: what RocksDB has in memory is not there."""
        deadline = time.monotonic() + _COPY_TIMEOUT_S
        while True:
            copy = Path(tempfile.mkdtemp(prefix="property-"))
            try:
                before = self._files()
                shutil.copytree(self.root, copy, dirs_exist_ok=True)
                if before == self._files():
                    return replace(self, root=copy)
            except (shutil.Error, FileNotFoundError):
                pass  # RocksDB removed a file meanwhile
            shutil.rmtree(copy)
            assert time.monotonic() < deadline, f"{self.root} does not come to rest"

    def remove_task(self) -> None:
        shutil.rmtree(self.root / "app", ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self.root)

    def _files(self) -> list[tuple[str, int, int]]:
        # Files only grow or are replaced. RocksDB flushes in the background: a copy counts if nothing moved during it.
        found = [(path, path.stat()) for path in sorted(self.root.rglob("*")) if not path.name.startswith("LOG")]
        return [(str(path), status.st_ino, status.st_size) for path, status in found if path.is_file()]


class CrashingOffsets(dict[TopicPartition, int]):
    """Offsets for a commit, whose process is thrown away at one of the writes that they are part of.

    A store reads the offsets for each atomic write that carries them: once, after the chunks of a spilled transaction,
    and once per segment in a windowed store.
    """

    def __init__(self, offset: int, home: Home, at_write: int) -> None:
        super().__init__({CHANGELOG: offset})
        self._home = home
        self._writes_left = at_write
        self.image: Home | None = None

    def items(self) -> Any:
        if self._writes_left == 0:
            self.image = self._home.image()
        self._writes_left -= 1
        return super().items()


def _small_memtables(store: str, options: Any) -> None:
    options.set_write_buffer_size(_MEMTABLE_BYTES)
