"""Opens stores for reading while they are in use, or under the lock of their task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

from statestore.discovery.opening import Opened, Wanted, close_all, open_databases
from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import InputError
from statestore.formats.value_format import AnyFormat
from statestore.statedir.lock import locked

Mode = Literal["live", "locked", "snapshot"]


@contextmanager
def reading(
    store: StoreDirectory, store_format: AnyFormat, mode: Mode, lock_wait_s: float, wanted: Wanted | None = None
) -> Iterator[list[Opened]]:
    """Have the databases of a store open, in order of time, while the context lasts.

    Parameters
    ----------
    mode
        `live`: as they are on disk, whoever uses them. `locked`: under the lock of the store's task, which nobody can
        write to then. `snapshot`: opened under that lock and read without it.
    wanted
        Which segments; None: all.

    Raises
    ------
    LockedError
        If somebody else holds the lock for so long.
    StoreCorruptedError
        If RocksDB cannot open one.
    """
    with ExitStack() as lock:
        if mode != "live":
            if store.paths is None:
                raise InputError(
                    f"option read: {store.directory} is not live in a state directory, so it has no task to lock; "
                    "read it as live"
                )
            lock.enter_context(locked(store.paths, lock_wait_s, reading=True))
        databases = open_databases(store, store_format, wanted)
        try:
            if mode == "snapshot":
                lock.close()
            yield databases
        finally:
            close_all(databases)
