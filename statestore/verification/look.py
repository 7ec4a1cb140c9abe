"""A look into one store partition: what its databases tell of its format, its kind and its changelog.

The row keys of window and session stores have times in them. Which of the two a store is, and whether it is one of
those that have the times in front (formats/time_ordered_key.py), is told by which reading of its keys puts every row
into the segment that it lies in; a sample of rows decides. A versioned store is told by the segment ids in front of
its row keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from statestore.errors import StoreCorruptedError, UnknownFormatError
from statestore.formats import session_key, time_ordered_key, window_key
from statestore.formats.time_ordered_key import Kind
from statestore.model import StoreFormat, TopicPartition
from statestore.stores.accessor import DATA_COLUMN_FAMILIES, TIMESTAMPED_COLUMN_FAMILY
from statestore.stores.rocksdb import DEFAULT_COLUMN_FAMILY, RocksDB, column_families, exists
from statestore.verification.directories import segments_in
from statestore.verification.noted_families import noted_families

_FAMILIES = DATA_COLUMN_FAMILIES[StoreFormat.TIMESTAMPED]
_ROWS = 64
_SEGMENTS = 3
#: Of a versioned store (KIP-889): the segment in front of a row key, -1 for latest values, and a value's time (ms).
_SEGMENT_ID = _TIME = Struct(">q")
_LATEST = -1
#: Time and size of one of several values; size -1 is a delete.
_VERSION = Struct(">qi")


class Look(NamedTuple):
    """What the databases of a store partition tell.

    Attributes
    ----------
    families
        Column families of all databases together.
    offsets
        Changelog partitions that the store has offsets of.
    rows
        Rows of segments that were looked at.
    starts
        Starts (ms) of the segments.
    spread_ms
        By kind whose reading of the keys fits: how far rows lie behind their segment's start, at most.
    duplicates
        Whether a window's row key has a sequence number.
    time_ordered_ms
        As `spread_ms`, by kind whose time-ordered reading fits.
    indexed
        Whether a time-ordered row was found with its index, which no other store has.
    applied
        By changelog partition: the largest offset in a database.
    directory
        What was looked into.
    """

    families: frozenset[str]
    offsets: frozenset[TopicPartition]
    rows: int = 0
    starts: tuple[int, ...] = ()
    spread_ms: dict[str, int] = {}  # noqa: RUF012 - replaced, never changed
    duplicates: bool = False
    time_ordered_ms: dict[str, int] = {}  # noqa: RUF012 - likewise
    indexed: bool = False
    applied: Mapping[TopicPartition, int] = {}
    directory: Path | None = None


class _Sampled(NamedTuple):
    """A row that was looked at, and the bounds (ms) of its segment; the last segment's end is not known here."""

    start: int
    end: int
    key: bytes
    value: bytes


def look_at_key_value(directory: Path) -> Look:
    """Look at a key-value store; the caller holds the task's lock.

    Raises
    ------
    StoreCorruptedError
        If it cannot be opened.
    UnknownFormatError
        If it has a column family that we do not know, or is a versioned store.
    """
    with _Database(directory) as database:
        try:
            rows = database.sample()
        except StoreCorruptedError:
            rows = []  # verification tells the damage; format and changelog do not depend on rows
        if TIMESTAMPED_COLUMN_FAMILY not in database.families and _are_versioned(rows):
            raise UnknownFormatError(
                f"{directory} has row keys that begin with segment ids, {rows[-1][0][:8].hex(' ')} for latest values, "
                "as those of versioned stores; these are unknown here, and it is left alone: Kafka Streams restores it"
            )
        offsets = database.offsets()
        return Look(database.families, frozenset(offsets), applied=_known(offsets.items()), directory=directory)


def look_at_segments(directory: Path) -> Look:
    """Look at a window or session store; the caller holds the task's lock.

    Raises
    ------
    StoreCorruptedError
        If a segment cannot be opened.
    UnknownFormatError
        If it has a column family that we do not know.
    """
    segments = segments_in(directory)
    starts = tuple(start for start, _ in segments)
    families: set[str] = set()
    offsets: list[tuple[TopicPartition, int | None]] = []
    sample: list[_Sampled] = []
    indexed = False
    for index, (start, path) in enumerate(segments):
        if not exists(path):
            continue
        with _Database(path) as database:
            families |= database.families
            offsets += database.offsets().items()
            if index < _SEGMENTS:
                end = starts[index + 1] if index + 1 < len(starts) else 1 << 62
                found = [_Sampled(start, end, key, value) for key, value in database.sample()]
                indexed = indexed or any(database.has_index_of(row) for row in found)
                sample += found
    spread = _fitting(_TIMES, sample)
    # Time-ordered stores have one column family alone.
    in_front = {} if TIMESTAMPED_COLUMN_FAMILY in families else _fitting(_TIMES_IN_FRONT, sample)
    keyed = [kind for kind in _TIMES_IN_FRONT if any(_has_key_behind(kind, row) for row in sample)]
    duplicates = "window" in spread and any(window_key.decode(row.key)[2] for row in sample)
    return Look(
        frozenset(families),
        frozenset(partition for partition, _ in offsets),
        len(sample),
        starts,
        spread,
        duplicates,
        {kind: in_front[kind] for kind in keyed if kind in in_front},
        indexed,
        _known(offsets),
        directory,
    )


def store_format(look: Look) -> StoreFormat:
    """Return the newer format if any database has it: rows of the older one are still read."""
    return StoreFormat.TIMESTAMPED if TIMESTAMPED_COLUMN_FAMILY in look.families else StoreFormat.PLAIN


def _known(offsets: Iterable[tuple[TopicPartition, int | None]]) -> dict[TopicPartition, int]:
    known: dict[TopicPartition, int] = {}
    for partition, offset in offsets:
        if offset is not None:
            known[partition] = max(offset, known.get(partition, offset))
    return known


class _Database:
    """A database that is looked into."""

    def __init__(self, directory: Path) -> None:
        self.families = frozenset(column_families(directory))
        if lost := (noted_families(directory) or frozenset()) - self.families:
            raise StoreCorruptedError(
                f"{directory} had the column families {', '.join(sorted(lost))}, which its MANIFEST no longer has"
            )
        self._open = RocksDB(directory, _FAMILIES, read_only=True)

    def __enter__(self) -> _Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def sample(self) -> list[tuple[bytes, bytes]]:
        """First and last rows of each column family."""
        rows: list[tuple[bytes, bytes]] = []
        for family in _FAMILIES:
            rows += islice(self._open.scan(family), _ROWS)
            rows += reversed(list(islice(self._open.scan(family, reverse=True), _ROWS)))
        return rows

    def offsets(self) -> dict[TopicPartition, int | None]:
        """Changelog partitions and offsets in the database; None: not known."""
        return {partition: self._offset(partition) for partition in self._open.offset_partitions()}

    def _offset(self, partition: TopicPartition) -> int | None:
        try:
            return self._open.committed_offset(partition)
        except StoreCorruptedError:  # verification tells the damage
            return None

    def has_index_of(self, row: _Sampled) -> bool:
        """True if this is a time-ordered row, and its index is there, too."""
        for kind, time_of in _TIMES_IN_FRONT.items():
            ordinary = time_ordered_key.ordinary(row.key, kind)
            if ordinary is None or time_ordered_key.is_index(row.key) or not time_ordered_key.has_key(ordinary, kind):
                continue
            time = time_of(row)
            if time is None or not row.start <= time < row.end:
                continue
            if self._open.get(DEFAULT_COLUMN_FAMILY, time_ordered_key.index(ordinary)) == b"":
                return True
        return False


# -- readings of row keys ---------------------------------------------------------------------------------------------


def _window_start(row_key: bytes) -> int | None:
    try:
        _, start, sequence = window_key.decode(row_key)
    except StoreCorruptedError:
        return None
    return start if sequence >= 0 else None


def _session_end(row_key: bytes) -> int | None:
    try:
        _, start, end = session_key.decode(row_key)
    except StoreCorruptedError:
        return None
    return end if 0 <= start <= end else None


_Readings = Mapping[Kind, Callable[[_Sampled], int | None]]


def _in_front(kind: Kind) -> Callable[[_Sampled], int | None]:
    def time(row: _Sampled) -> int | None:
        ordinary = time_ordered_key.ordinary(row.key, kind)
        if ordinary is None or (row.value and time_ordered_key.is_index(row.key)):
            return None
        return _TIME_OF[kind](ordinary)

    return time


_TIME_OF: Mapping[Kind, Callable[[bytes], int | None]] = {"window": _window_start, "session": _session_end}
_TIMES: _Readings = {"window": lambda row: _window_start(row.key), "session": lambda row: _session_end(row.key)}
_TIMES_IN_FRONT: _Readings = {"window": _in_front("window"), "session": _in_front("session")}


def _fitting(readings: _Readings, sample: Sequence[_Sampled]) -> dict[str, int]:
    """Largest distance (ms) of a row from its segment's start, by the readings that put none elsewhere."""
    spread = {kind: _spread(time_of, sample) for kind, time_of in readings.items()}
    return {kind: widest for kind, widest in spread.items() if widest is not None}


def _spread(time_of: Callable[[_Sampled], int | None], sample: Iterable[_Sampled]) -> int | None:
    widest = 0
    for row in sample:
        time = time_of(row)
        if time is None or not row.start <= time < row.end:
            return None
        widest = max(widest, time - row.start)
    return widest


def _has_key_behind(kind: Kind, row: _Sampled) -> bool:
    ordinary = time_ordered_key.ordinary(row.key, kind)
    return ordinary is not None and time_ordered_key.has_key(ordinary, kind)


def _are_versioned(rows: Sequence[tuple[bytes, bytes]]) -> bool:
    """True if all rows are laid out as a versioned store's, and latest values of keys are among them."""
    latest = False
    for key, value in rows:
        if len(key) < _SEGMENT_ID.size:
            return False
        (segment,) = _SEGMENT_ID.unpack_from(key)
        if segment < _LATEST or not (len(value) >= _TIME.size if segment == _LATEST else _are_versions(value)):
            return False
        latest = latest or (segment == _LATEST and len(key) > _SEGMENT_ID.size)
    return latest


def _are_versions(value: bytes) -> bool:
    """True if a value is a list of earlier ones: two times, a time and a size of each, and their bytes."""
    entries, left = 2 * _TIME.size, len(value) - 2 * _TIME.size
    while left >= _VERSION.size:
        _, size = _VERSION.unpack_from(value, entries)
        entries, left = entries + _VERSION.size, left - _VERSION.size - max(size, 0)
        if left == 0:
            return True
    return False
