"""The shape of a store partition: format, kind, changelog and offsets, as its databases show them.

A sample of rows decides (row_keys.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

from statestore.discovery.links import linked, undisturbed
from statestore.discovery.options_file import families_in_options_file
from statestore.discovery.row_keys import (
    SampledRow,
    VersionedRows,
    are_buffered,
    are_time_ordered_windows,
    has_index_rows,
    has_sequence_numbers,
    indexes_of,
    spread_ms,
    time_ordered_spread_ms,
    versioned_rows,
)
from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import LockedError, RetryError, StateStoreError, StoreCorruptedError
from statestore.formats.value_format import (
    COLUMN_FAMILIES,
    HEADERS_COLUMN_FAMILY,
    TIMESTAMPED_COLUMN_FAMILY,
    newest_format,
)
from statestore.kinds.known import BUILT_IN
from statestore.model import StoreFormat, TopicPartition
from statestore.stores.rocksdb import RocksDB, column_families, exists

S = TypeVar("S", bound=StoreDirectory)

_FAMILIES = COLUMN_FAMILIES
#: Column families that neither time-ordered nor versioned stores have.
_ORDINARY = {TIMESTAMPED_COLUMN_FAMILY, HEADERS_COLUMN_FAMILY}
#: Rows at both ends of each family: enough to have the times of a segment, whose rows are in the order of keys.
_ROWS = 500
_SEGMENTS = 4
#: Where the end of the last segment is not known: how much farther off times are that were made of other bytes.
_FAR = 1_000
_SHORTEST_SEGMENT_MS = 60_000


class StoreShape(NamedTuple):
    """Facts that the databases of a store partition show.

    Attributes
    ----------
    directory
        The store partition's.
    families
        Column families of all databases together.
    offsets
        By changelog partition that the store has an offset of: the largest in a database; None: not known.
    rows
        Rows of segments in the sample.
    starts
        Starts (ms) of the segments.
    spread_ms
        By kind whose reading of the keys fits: how far rows lie behind their segment's start, at most.
    duplicates
        Whether a window's row key has a sequence number.
    time_ordered_ms
        As `spread_ms`, by kind whose time-ordered reading fits.
    indexed
        Kinds by whose reading a time-ordered row was found with its index, which no other store has.
    index_rows
        Whether a row may be that of an index.
    closed_windows
        Whether time-ordered rows are as those of windows that are emitted when they close.
    buffered
        Whether rows are those of a join's buffer, in the only segment there is.
    versions
        What rows tell that can all be those of a versioned store; None: one cannot, or none could be read.
    unread
        Why no row of a key-value store could be read; empty if they could.
    overlapping
        Whether segments have several lengths: one has rows of the time after the start of the next one, or of more time
        than lies between two others.
    segment_offsets
        By start of a segment: the offset in it, if it is known.
    segment_spreads_ms
        By start of a segment in the sample: as `spread_ms` or `time_ordered_ms`, for its rows alone.
    """

    directory: Path
    families: frozenset[str]
    offsets: Mapping[TopicPartition, int | None]
    rows: int = 0
    starts: tuple[int, ...] = ()
    spread_ms: dict[str, int] = {}  # noqa: RUF012 - replaced, never changed
    duplicates: bool = False
    time_ordered_ms: dict[str, int] = {}  # noqa: RUF012 - likewise
    indexed: frozenset[str] = frozenset()
    index_rows: bool = False
    closed_windows: bool = False
    buffered: bool = False
    versions: VersionedRows | None = None
    unread: str = ""
    overlapping: bool = False
    segment_offsets: Mapping[int, int] = {}
    segment_spreads_ms: Mapping[int, Mapping[str, int]] = {}

    @property
    def versioned(self) -> bool:
        """True if its rows tell that it is a versioned store."""
        return self.versions is not None and self.versions.told

    @property
    def format(self) -> StoreFormat:
        """The newer format if any database has it: rows of the older one are still read."""
        return newest_format(self.families)

    @property
    def longest_segment_ms(self) -> int | None:
        """Length that no segment exceeds, as all starts are multiples of it; None where one start alone tells none."""
        return math.gcd(*self.starts) if len(self.starts) > 1 and not self.overlapping else None

    @property
    def likely_limit_ms(self) -> int | None:
        """Where no retention tells how long segments are: how far behind its segment's start a row's time may lie."""
        # The wrong reading makes times of other bytes, which are far off if they fit at all.
        nearest = min((self.spread_ms or self.time_ordered_ms).values(), default=None)
        return None if nearest is None else _FAR * max(nearest, _SHORTEST_SEGMENT_MS)

    def are_left_over(self, starts: Collection[int]) -> bool:
        """Return whether segments were left over when the retention was changed, and are no longer used.

        Kafka Streams 4.3 commits the same offsets into all segments that it uses. Before, only rows show it.
        """
        newest = max(self.segment_offsets.values(), default=None)
        if len(starts) == len(self.starts) or newest is None:
            return self.overlapping and len(starts) < len(self.starts)
        return all(self.segment_offsets.get(start, newest) < newest for start in starts)

    def spread_of(self, kind: str) -> int | None:
        """How far rows lie behind their segment's start at most (ms), read as those of a kind; None: they are none."""
        known = BUILT_IN.get(kind)
        if known is not None and known.layout is not None:
            return self.time_ordered_ms.get(known.ordinary_kin)
        return self.spread_ms.get(kind)

    def unexpired_in_longer(self, kind: str, retention_ms: int, interval_ms: int) -> list[int] | None:
        """Return the segments that were made longer than an interval, and may have rows that have not expired.

        None if no segment is known to be shorter than the others, so that the interval may be wrong.
        """
        known = BUILT_IN.get(kind)
        name = known.ordinary_kin if known is not None and known.layout is not None else kind
        found = {start: of[name] for start, of in self.segment_spreads_ms.items() if name in of}
        longer = [start for start, spread in found.items() if spread >= interval_ms]
        newest = max(self.starts)
        if not self.overlapping or not longer or newest in longer or newest not in found:
            return None
        # A segment that was not sampled, and is older than a longer one, may be as long.
        shorter = {*found}.difference(longer)
        older = [start for start in self.starts if start <= max(longer) and start not in shorter]
        first_live_ms = newest - retention_ms - max(found.values())
        return [start for start in older if start >= first_live_ms]

    def certain_limit_ms(self, interval_ms: int | None) -> int | None:
        """Farther behind its segment's start than that no row's time lies, whether or not `interval_ms` is right.

        What is known of a retention may be wrong: Kafka Streams adds to a changelog's what its application says.
        """
        found = [] if interval_ms is None else [_FAR * interval_ms]
        return min([*found, *([] if not self.longest_segment_ms else [self.longest_segment_ms])], default=None)


def shape_of(store: StoreDirectory) -> StoreShape:
    """Look into a store, whoever uses it.

    Raises
    ------
    StoreCorruptedError
        If a database cannot be opened.
    UnknownFormatError
        If one has a column family that we do not know.
    """
    look = _shape_of_segments if store.segmented else _shape_of_key_value
    return undisturbed(store, lambda: look(store))


def telling_shape(
    stores: Iterable[S], look: Callable[[S], StoreShape], tells: Callable[[StoreShape], bool]
) -> StoreShape:
    """Look into partitions of a store until one tells enough; if none does, that of the one that tells most.

    Raises
    ------
    LockedError, RetryError, StoreCorruptedError
        If all are in use, changing or damaged.
    UnknownFormatError
        If a partition is not of a store that we know.
    """
    refused: list[StateStoreError] = []
    shapes: list[StoreShape] = []
    for store in stores:
        try:
            shape = look(store)
        except (LockedError, RetryError, StoreCorruptedError) as error:
            refused.append(error)  # another partition tells as much, and whoever reads this one is told of its damage
            continue
        if tells(shape):
            return shape
        shapes.append(shape)
    if not shapes:
        raise next((error for error in refused if isinstance(error, LockedError | RetryError)), refused[-1])
    # Rows tell the kind of a windowed store, offsets tell its changelog.
    return max(shapes, key=lambda shape: (shape.rows > 0, bool(shape.offsets), len(shape.families)))


def _shape_of_key_value(store: StoreDirectory) -> StoreShape:
    with linked(store.directory) as view, _Database(view, store.directory) as database:
        versions, unread = None, ""
        if not _ORDINARY & database.families:
            try:
                versions = versioned_rows([(key, value) for key, value, _ in database.sample()])
            except StoreCorruptedError as error:  # whoever reads it is told of the damage
                unread = str(error)
        return StoreShape(store.directory, database.families, database.offsets(), versions=versions, unread=unread)


def _shape_of_segments(store: StoreDirectory) -> StoreShape:
    segments = store.databases()
    ends = dict(pairwise([*segments, 1 << 62]))
    of_segments: dict[int, int] = {}
    families: set[str] = set()
    offsets: dict[TopicPartition, int | None] = {}
    sample: list[SampledRow] = []
    indexed: set[str] = set()
    sampled = 0
    # Those that were left over when the retention was changed are the oldest.
    for start in _from_both_ends(list(segments)):
        path = segments[start]
        if not exists(path):
            continue
        with linked(path) as view, _Database(view, path) as database:
            families |= database.families
            for partition, offset in database.offsets().items():
                if offset is not None:
                    of_segments[start] = max(of_segments.get(start, -1), offset)
                offsets[partition] = max(offsets.get(partition), offset, key=_first_unknown)
            if sampled < _SEGMENTS:
                found = [SampledRow(start, ends[start], *row) for row in database.sample()]
                if not indexed:
                    indexed |= next((kinds for row in found if (kinds := database.indexes_of(row))), set())
                sample += found
                sampled += bool(found)
    spread, overlapping = spread_ms(sample), False
    if sample and not spread and not time_ordered_spread_ms(sample):
        # Segments of several lengths, as after a change of the retention: the next one does not end a segment.
        far = _FAR * max(math.gcd(*segments), _SHORTEST_SEGMENT_MS)
        loose = [row._replace(end=row.start + far) for row in sample]
        if (spread := spread_ms(loose)) or time_ordered_spread_ms(loose):
            sample, overlapping = loose, True
    of_starts = {row.start: [other for other in sample if other.start == row.start] for row in sample}
    nearest = min((spread or time_ordered_spread_ms(sample)).values(), default=0)
    if len(segments) > 1 and nearest >= math.gcd(*segments):  # by each reading that fits
        overlapping = True
    return StoreShape(
        store.directory,
        frozenset(families),
        offsets,
        len(sample),
        tuple(segments),
        spread,
        any(BUILT_IN[kind].may_retain_duplicates for kind in spread) and has_sequence_numbers(sample),
        {} if _ORDINARY & families else time_ordered_spread_ms(sample),
        frozenset(indexed),
        has_index_rows(sample),
        are_time_ordered_windows(sample),
        tuple(segments) == (0,) and newest_format(families) is StoreFormat.PLAIN and are_buffered(sample),
        overlapping=overlapping,
        segment_offsets=of_segments,
        segment_spreads_ms={
            start: spread_ms(rows) or time_ordered_spread_ms(rows) for start, rows in of_starts.items()
        },
    )


def _from_both_ends(starts: Sequence[int]) -> list[int]:
    """Return the last, the first, the last but one, and so on."""
    pairs = zip(reversed(starts), starts, strict=True)
    return list(dict.fromkeys(start for pair in pairs for start in pair))


def _first_unknown(offset: int | None) -> int:
    return -1 if offset is None else offset


class _Database:
    """A database that is looked into by its links."""

    def __init__(self, view: Path, directory: Path) -> None:
        self.families = frozenset(column_families(view))
        if lost := (families_in_options_file(directory) or frozenset()) - self.families:
            raise StoreCorruptedError(
                f"{directory} had the column families {', '.join(sorted(lost))}, which its MANIFEST no longer has"
            )
        self._open = RocksDB(view, _FAMILIES, read_only=True)

    def __enter__(self) -> _Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def sample(self) -> list[tuple[bytes, bytes, str]]:
        """First and last rows of each column family, with its name."""
        rows: list[tuple[bytes, bytes, str]] = []
        for family in _FAMILIES:
            first = islice(self._open.scan(family), _ROWS)
            last = reversed(list(islice(self._open.scan(family, reverse=True), _ROWS)))
            rows += [(key, value, family) for found in (first, last) for key, value in found]
        return rows

    def offsets(self) -> dict[TopicPartition, int | None]:
        """Changelog partitions and offsets in the database; None: not known."""
        return {partition: self._offset(partition) for partition in self._open.offset_partitions()}

    def _offset(self, partition: TopicPartition) -> int | None:
        try:
            return self._open.committed_offset(partition)
        except StoreCorruptedError:  # verification tells the damage
            return None

    def indexes_of(self, row: SampledRow) -> set[str]:
        """Return the kinds by whose reading this is a time-ordered row, and its index is there, too."""
        return {kind for kind, key in indexes_of(row) if self._open.get(row.family, key) == b""}
