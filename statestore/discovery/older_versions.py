"""Versions of Kafka Streams, by the layout of their stores: those from 3.9 to 4.2, and 4.3.

Since 4.3 the offsets of a store are in it, in a column family of its own (KIP-1035). Versions before keep them in a
file `.checkpoint` beside the stores, and do not open a database with a family that they do not know. So a restore must
know for which of the two it builds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from statestore.discovery.directories import stores_in, tasks_in
from statestore.discovery.options_file import families_in_options_file
from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import InputError, StoreCorruptedError, unreadable_is_damaged
from statestore.formats import offsets
from statestore.statedir.paths import TaskPaths
from statestore.stores.rocksdb import column_families, exists

_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(\.\d{1,3})?")
_OLDEST, _FIRST_WITH_OFFSETS, _NEWEST = (3, 9), (4, 3), (4, 4)


class ShownLayout(NamedTuple):
    """Evidence of an application's version in a state directory.

    Attributes
    ----------
    beside, inside
        What shows that it has its offsets beside its stores, or in them; None: nothing does.
    checkpoint
        A file that either may have left: 4.3 writes it, too, if `upgrade.from` tells it that an older version may come
        back, and takes it over when it starts.
    """

    beside: str | None
    inside: str | None
    checkpoint: str | None

    @property
    def offsets_beside(self) -> bool | None:
        """Whether the application has its offsets beside its stores; None: that cannot be told."""
        if self.beside is not None and self.inside is not None:
            return None
        if self.beside is not None or self.inside is not None:
            return self.beside is not None
        return None

    def __str__(self) -> str:
        found = [shown for shown in self if shown is not None]
        return "; ".join(found) or "neither a store nor a .checkpoint is left"


def shown_layout(state_dir: Path, application: str) -> ShownLayout:
    """Look at the stores of an application, and for its checkpoint files.

    Raises
    ------
    InputError
        If a directory is a symbolic link.
    """
    checkpoints = (TaskPaths(state_dir, application, task).checkpoint for task in tasks_in(state_dir, application))
    found = next((path for path in checkpoints if path.exists()), None)
    beside = inside = None
    for store in stores_in(state_dir, application)[0]:
        for database in _databases(store):
            with suppress(StoreCorruptedError), unreadable_is_damaged():  # another one tells
                if offsets.COLUMN_FAMILY in column_families(database):
                    inside = inside or f"{database} has the column family {offsets.COLUMN_FAMILY}"
                elif _never_had_offsets(database):
                    beside = beside or f"{database} has no column family {offsets.COLUMN_FAMILY}"
    return ShownLayout(beside, inside, None if found is None else f"{found} is there")


def has_offsets_beside(version: str) -> bool:
    """Tell whether a version of Kafka Streams, such as `4.2.0`, has its offsets beside its stores.

    Raises
    ------
    InputError
        If it is none whose layout is known.
    """
    found = _VERSION.fullmatch(version)
    number = (int(found[1]), int(found[2])) if found else None
    if number is None or not _OLDEST <= number <= _NEWEST:
        raise InputError(f"--kafka-streams: expected a version from 3.9 to 4.4, such as 4.2.0, found {version!r}")
    return number < _FIRST_WITH_OFFSETS


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
