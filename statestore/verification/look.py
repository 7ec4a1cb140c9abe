"""A look into one store partition: what its databases tell of its format, its kind and its changelog.

The row keys of window and session stores end in times. Which of the two a store is, is told by which reading of its
keys puts every row into the segment that it lies in; a sample of rows decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from statestore.errors import StoreCorruptedError
from statestore.formats import session_key, window_key
from statestore.model import StoreFormat, TopicPartition
from statestore.stores.accessor import DATA_COLUMN_FAMILIES, TIMESTAMPED_COLUMN_FAMILY
from statestore.stores.rocksdb import RocksDB, column_families, exists
from statestore.verification.directories import segments_in

_FAMILIES = DATA_COLUMN_FAMILIES[StoreFormat.TIMESTAMPED]
_ROWS = 64
_SEGMENTS = 3
_TIMES: dict[str, Callable[[bytes], int]] = {
    "window": lambda row_key: window_key.decode(row_key)[1],
    "session": lambda row_key: session_key.decode(row_key)[2],
}


class Look(NamedTuple):
    """What the databases of a store partition tell.

    Attributes
    ----------
    families
        Column families of all databases together.
    offsets
        Changelog partitions that the store has offsets of.
    rows
        Rows that were looked at.
    starts
        Starts (ms) of the segments.
    spread_ms
        By kind whose reading of the keys fits: how far rows lie behind their segment's start, at most.
    duplicates
        Whether a window's row key has a sequence number.
    """

    families: frozenset[str]
    offsets: frozenset[TopicPartition]
    rows: int = 0
    starts: tuple[int, ...] = ()
    spread_ms: dict[str, int] = {}  # noqa: RUF012 - replaced, never changed
    duplicates: bool = False


def look_at_key_value(directory: Path) -> Look:
    """Look at a key-value store; the caller holds the task's lock.

    Raises
    ------
    StoreCorruptedError
        If it cannot be opened.
    UnknownFormatError
        If it has a column family that we do not know.
    """
    found, offsets, _ = _open(directory, rows=0)
    return Look(found, offsets)


def look_at_segments(directory: Path) -> Look:
    """Look at a window or session store; the caller holds the task's lock. Raises as `look_at_key_value` does."""
    segments = segments_in(directory)
    starts = tuple(start for start, _ in segments)
    families: set[str] = set()
    offsets: set[TopicPartition] = set()
    sample: list[tuple[int, int, bytes]] = []
    for index, (start, path) in enumerate(segments):
        if not exists(path):
            continue
        found, known, keys = _open(path, rows=_ROWS if index < _SEGMENTS else 0)
        families |= found
        offsets |= known
        after = starts[index + 1] if index + 1 < len(starts) else 1 << 62
        sample += [(start, after, key) for key in keys]
    spread = {kind: widest for kind in _TIMES if (widest := _spread(kind, sample)) is not None}
    duplicates = "window" in spread and any(window_key.decode(key)[2] for _, _, key in sample)
    return Look(frozenset(families), frozenset(offsets), len(sample), starts, spread, duplicates)


def _open(directory: Path, rows: int) -> tuple[frozenset[str], frozenset[TopicPartition], list[bytes]]:
    names = frozenset(column_families(directory))
    database = RocksDB(directory, _FAMILIES, read_only=True)
    try:
        keys: list[bytes] = []
        for family in _FAMILIES:
            for backwards in (False, True):
                keys += [key for key, _ in islice(database.scan(family, reverse=backwards), rows)]
        return names, frozenset(database.offset_partitions()), keys
    finally:
        database.close()


def _spread(kind: str, sample: Iterable[tuple[int, int, bytes]]) -> int | None:
    """Largest distance (ms) of a row from its segment's start; None if this reading puts a row elsewhere."""
    widest = 0
    for start, after, key in sample:
        try:
            time = _TIMES[kind](key)
        except StoreCorruptedError:
            return None
        if not start <= time < after:
            return None
        widest = max(widest, time - start)
    return widest


def store_format(look: Look) -> StoreFormat:
    """Return the newer format if any database has it: rows of the older one are still read."""
    return StoreFormat.TIMESTAMPED if TIMESTAMPED_COLUMN_FAMILY in look.families else StoreFormat.PLAIN
