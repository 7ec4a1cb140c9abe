"""Determines the kind of a store from its row keys.

The row keys of window and session stores have times in them. Which of the two a store is, and whether it is one of
those that have the times in front (formats/time_ordered_key.py), is told by which reading of its keys puts every row
into the segment that it lies in. A versioned store is told by the segment ids in front of its row keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from statestore.errors import StoreCorruptedError
from statestore.formats import session_key, time_ordered_key, versioned_row, window_key
from statestore.formats.timestamped_value import UNKNOWN_TIMESTAMP
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY, value_format
from statestore.kinds.session import SESSION
from statestore.kinds.window import WINDOW
from statestore.model import StoreFormat

_TIME = Struct(">q")
_NO_SEQUENCE = bytes(window_key.SEQUENCE_BYTES)
_LONGEST_MS = (1 << 63) - 1


class SampledRow(NamedTuple):
    """A row and its column family, and the bounds (ms) of its segment; the last segment's end is not known here."""

    start: int
    end: int
    key: bytes
    value: bytes
    family: str = DEFAULT_COLUMN_FAMILY


def spread_ms(sample: Sequence[SampledRow]) -> dict[str, int]:
    """Return how far rows lie behind their segment's start at most (ms), by kind whose reading puts none elsewhere."""
    return _spread(lambda kind, row: kind.time_of(row.key), sample)


def time_ordered_spread_ms(sample: Sequence[SampledRow]) -> dict[str, int]:
    """As `spread_ms`, by kind whose time-ordered reading fits, if a row has a key behind its times."""
    fitting = _spread(_time_in_front, sample)
    return {kind: fitting[kind] for kind in fitting if any(_has_key_behind(_KINDS[kind], row) for row in sample)}


def has_sequence_numbers(sample: Sequence[SampledRow]) -> bool:
    """True if a window's row key has a sequence number, as where duplicates are retained."""
    return any(window_key.decode(row.key)[2] for row in sample)


def indexes_of(row: SampledRow) -> Iterator[tuple[str, bytes]]:
    """Yield the row keys that its index would have, if this is a time-ordered row, with the kind read so."""
    for name, kind in _KINDS.items():
        ordinary = time_ordered_key.ordinary(row.key, kind.layout)
        if ordinary is None or time_ordered_key.is_index(row.key) or not _has_key_behind(kind, row):
            continue
        time = kind.time_of(ordinary)
        if time is not None and row.start <= time < row.end:
            yield name, time_ordered_key.index(ordinary)


def has_index_rows(sample: Sequence[SampledRow]) -> bool:
    """True if a row may be that of an index."""
    return any(time_ordered_key.is_index(row.key) and not row.value for row in sample)


def are_time_ordered_windows(sample: Sequence[SampledRow]) -> bool:
    """True if time-ordered rows are as the DSL makes those of windows: none has a number, each value a timestamp."""
    rows = [row for row in sample if not time_ordered_key.is_index(row.key)]
    return bool(rows) and all(row.key.endswith(_NO_SEQUENCE) and _has_timestamp(row) for row in rows)


def _has_timestamp(row: SampledRow) -> bool:
    store_format = StoreFormat.TIMESTAMPED_IN_DEFAULT if row.family == DEFAULT_COLUMN_FAMILY else StoreFormat.HEADERS
    try:
        at = value_format(store_format).timestamp_at(row.value)
    except StoreCorruptedError:
        return False
    timestamp: int = _TIME.unpack_from(row.value, at)[0]
    return timestamp >= UNKNOWN_TIMESTAMP


def are_buffered(sample: Sequence[SampledRow]) -> bool:
    """True if rows are a join's buffered records: each has its time in front, which begins its value, too."""
    return bool(sample) and all(
        len(row.key) >= time_ordered_key.PREFIX_BYTES + sum(time_ordered_key.WINDOW)
        and row.key[0] == time_ordered_key.ROW
        and row.key[time_ordered_key.PREFIX_BYTES :][: _TIME.size] == row.value[: _TIME.size]
        for row in sample
    )


class VersionedRows(NamedTuple):
    """Conclusions from rows that all have the layout of a versioned store.

    Attributes
    ----------
    told
        Whether latest values of keys are among them; without any, only a changelog topic tells such a store.
    shortest_ms, longest_ms
        How long its segments are: between these (ms), by the numbers of segments and the times of their rows.
    rows
        How many there are.
    """

    told: bool
    shortest_ms: int
    longest_ms: int
    rows: int


def versioned_rows(rows: Sequence[tuple[bytes, bytes]]) -> VersionedRows | None:
    """Return what rows tell of a versioned store; None if they are not its.

    Where some of its values are damaged, its rows alone do not tell it. Whoever reads it is told of the damage.
    """
    told, shortest, longest, damaged = False, 1, _LONGEST_MS, 0
    for raw_key, raw in rows:
        try:
            segment, key = versioned_row.decode_row_key(raw_key)
        except StoreCorruptedError:
            return None
        try:
            if segment == versioned_row.LATEST:
                versioned_row.decode_latest(raw)
                told = told or bool(key)
                continue
            ended = versioned_row.decode_segment_row(raw).next_timestamp
        except StoreCorruptedError:
            damaged += 1
            continue
        shortest = max(shortest, ended // (segment + 1) + 1)
        longest = min(longest, ended // segment) if segment else longest
    return None if 2 * damaged > len(rows) else VersionedRows(told and not damaged, shortest, longest, len(rows))


def are_versioned(rows: Sequence[tuple[bytes, bytes]]) -> bool:
    """True if all rows are laid out as a versioned store's, and latest values of keys are among them."""
    found = versioned_rows(rows)
    return found is not None and found.told


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


class _KeyReading(NamedTuple):
    """How row keys are read as those of a kind: the time of an ordinary one, and the layout of a time-ordered one."""

    time_of: Callable[[bytes], int | None]
    layout: time_ordered_key.KeyLayout


_KINDS = {
    WINDOW.name: _KeyReading(_window_start, time_ordered_key.WINDOW),
    SESSION.name: _KeyReading(_session_end, time_ordered_key.SESSION),
}


def _time_in_front(kind: _KeyReading, row: SampledRow) -> int | None:
    ordinary = time_ordered_key.ordinary(row.key, kind.layout)
    if ordinary is None or (row.value and time_ordered_key.is_index(row.key)):
        return None
    return kind.time_of(ordinary)


def _spread(time_of: Callable[[_KeyReading, SampledRow], int | None], sample: Sequence[SampledRow]) -> dict[str, int]:
    spread: dict[str, int] = {}
    for name, kind in _KINDS.items():
        times = [(row, time_of(kind, row)) for row in sample]
        if all(time is not None and row.start <= time < row.end for row, time in times):
            spread[name] = max((time - row.start for row, time in times if time is not None), default=0)
    return spread


def _has_key_behind(kind: _KeyReading, row: SampledRow) -> bool:
    ordinary = time_ordered_key.ordinary(row.key, kind.layout)
    return ordinary is not None and time_ordered_key.has_key(ordinary, kind.layout)
