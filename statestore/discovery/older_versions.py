"""Applications of Kafka Streams from before 4.3: they cannot start on the stores that a restore writes.

Since 4.3 the offsets of a store are in it, in a column family of its own (KIP-1035). Versions before keep them in a
file `.checkpoint` beside the stores, and do not open a database with a family that they do not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from statestore.discovery.directories import stores_in, tasks_in
from statestore.discovery.options_file import families_in_options_file
from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import StoreCorruptedError, unreadable_is_damaged
from statestore.formats import offsets
from statestore.statedir.paths import TaskPaths
from statestore.stores.rocksdb import column_families, exists


def older_version(state_dir: Path, application: str) -> str | None:
    """Say what shows that an application is from before 4.3; None if nothing does.

    Nothing can where neither a store nor a `.checkpoint` is left. Kafka Streams 4.3 takes such a file over and removes
    it when it starts, and writes one again if `upgrade.from` tells it that an older version may come back.

    Raises
    ------
    InputError
        If a directory is a symbolic link.
    """
    for task in tasks_in(state_dir, application):
        checkpoint = TaskPaths(state_dir, application, task).checkpoint
        if checkpoint.exists():
            return f"{checkpoint} is there, in which such versions keep offsets"
    for store in stores_in(state_dir, application)[0]:
        for database in _databases(store):
            with suppress(StoreCorruptedError), unreadable_is_damaged():  # another one tells
                if _never_had_offsets(database):
                    return f"{database} has no column family {offsets.COLUMN_FAMILY}"
    return None


def _never_had_offsets(database: Path) -> bool:
    noted = families_in_options_file(database)
    return (
        offsets.COLUMN_FAMILY not in column_families(database)
        and noted is not None
        and offsets.COLUMN_FAMILY not in noted
    )


def _databases(store: StoreDirectory) -> Iterator[Path]:
    """A store's database; of one with segments the newest, as whoever opens a store opens all of them."""
    return (path for path in list(store.databases().values())[-1:] if exists(path))
