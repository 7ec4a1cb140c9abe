"""The kind of a store: all differences between key-value, window, and session stores, except for their methods.

A row key is the user's key, followed by numbers of a fixed length. A kind with such numbers keeps its rows in time
segments with one database each. The first number is the time that selects the segment, and so the row's expiry.

0           n
+-----------+---------+---------+---
| key bytes | number  | number  | ...     big-endian, signed, of 4 or 8 bytes; the first has 8
+-----------+---------+---------+---
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from struct import unpack
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from statestore.errors import StoreCorruptedError
from statestore.formats.key_bounds import upper_bound
from statestore.formats.time_ordered_key import ROWS_WITHOUT_INDEX, KeyLayout, ordinary
from statestore.formats.value_format import ValueFormat, value_format
from statestore.kinds.segment_directories import segments_in
from statestore.model import KEY_VALUE_DIRECTORY, StoreFormat, check_name

T = TypeVar("T")
_TIME_BYTES = 8
_TIMES, _OPTIONAL_TIMES = ("retention_ms", "window_size_ms"), ("segment_interval_ms",)
_LARGEST_TIME = (1 << 63) - 1
#: Kafka Streams' `windowstore.changelog.additional.retention.ms`: event time may lag behind the brokers' clock.
ADDITIONAL_RETENTION_MS = 24 * 60 * 60 * 1000


class RowForm(StrEnum):
    """How rows of a store correspond to records of its changelog: the key of a room's table of strategies.

    RECORDS
        A row equals the last record of its key.
    TIME_ORDERED
        As RECORDS, but the row keys on disk begin with the times (`StoreKind.layout`).
    VERSIONS
        A row combines several records.
    SUPPLIED
        As RECORDS, but only a user's supplier can read the files.
    """

    RECORDS = "records"
    TIME_ORDERED = "time_ordered"
    VERSIONS = "versions"
    SUPPLIED = "supplied"


def by_form(records: T, **others: T) -> Mapping[RowForm, T]:
    """Return a room's table of strategies.

    Parameters
    ----------
    records
        The strategy for rows that are records, and for all other forms without an entry.
    others
        Strategies by the values of `RowForm`.
    """
    return {**dict.fromkeys(RowForm, records), **{RowForm(form): strategy for form, strategy in others.items()}}


class Number(NamedTuple):
    """A number after the key of a row, or a column that shows one: its name, and its size of 4 or 8 bytes."""

    name: str
    bytes: int = 8


class RowLayout(NamedTuple):
    """Layout of row keys that differ from the changelog's: times precede the key, with or without index rows."""

    key: KeyLayout
    indexed: bool


class StoreSettings(Protocol):
    """The settings of a store's definition that a kind reads (`definitions/store.py`)."""

    @property
    def name(self) -> str:
        """Name of the store."""

    @property
    def format(self) -> StoreFormat:
        """Format of values on disk."""

    @property
    def retention_ms(self) -> int | None:
        """How long rows are kept."""

    @property
    def window_size_ms(self) -> int | None:
        """Length of a window."""

    @property
    def segment_interval_ms(self) -> int | None:
        """Length of a versioned store's segments."""

    @property
    def retain_duplicates(self) -> bool:
        """Whether a put adds a value."""


class StoreKind:
    """A kind of store. The defaults are those of a kind without numbers, such as a key-value store.

    Attributes
    ----------
    name
        Name of the kind in a definition.
    storage
        `module:attribute` of its `stores.storage.Storage`: the classes that implement its stores.
    times
        Required durations of its definitions: `retention_ms` if there are segments, and `window_size_ms`. Other
        durations are refused.
    optional_times
        Optional durations of its definitions.
    compaction_keeps_rows
        Whether compaction of the changelog leaves a record for each row. If not, it may have dropped records of rows
        that a store has.
    log_may_be_split
        Whether ranges of the changelog can be read and sorted separately. If not, its records are replayed in order.
    has_history
        Whether a store keeps earlier values of a key, each with the time from which it is valid.
    may_have_ttl, may_be_supplied, may_retain_duplicates
        Whether a definition can have `ttl_ms`, `supplier`, or `retain_duplicates`.
    may_be_global_table
        Whether a global table of Kafka Streams' DSL can have such a store, and its rows are the records of its topic.
    numbers
        The numbers after the user's key in a row key.
    first_time, last_time
        Names of the numbers between which a row is valid (ms, both inclusive).
    only_format
        Format of a definition that does not name one. None: timestamped.
    formats
        Formats that a definition can name, oldest first. Empty: all.
    layout
        Layout of row keys that differ from those of the changelog. None: they are equal.
    logged_values_end_with
        Bytes at the end of a value in the changelog that the store does not have.
    offsets_are_beside
        Whether every version of Kafka Streams keeps the offsets of such stores in a separate file.
    ordinary_kin
        For a kind that only Kafka Streams' DSL creates: the ordinary kind with the same rows for a reader. Such stores
        can be verified, read, and restored, but tasks of this project do not use them. Empty for all other kinds.
    suite
        Suite for all stores of the kind: the name of a suite in expectations/suites, or the absolute path of a file.
    """

    name: ClassVar[str]
    storage: ClassVar[str]
    times: ClassVar[tuple[str, ...]] = ()
    optional_times: ClassVar[tuple[str, ...]] = ()
    compaction_keeps_rows: ClassVar[bool] = True
    log_may_be_split: ClassVar[bool] = True
    has_history: ClassVar[bool] = False
    may_have_ttl: ClassVar[bool] = False
    may_be_global_table: ClassVar[bool] = False
    may_be_supplied: ClassVar[bool] = True
    may_retain_duplicates: ClassVar[bool] = False
    numbers: ClassVar[tuple[Number, ...]] = ()
    first_time: ClassVar[str] = ""
    last_time: ClassVar[str] = ""
    only_format: ClassVar[StoreFormat | None] = None
    formats: ClassVar[tuple[StoreFormat, ...]] = ()
    layout: ClassVar[RowLayout | None] = None
    logged_values_end_with: ClassVar[bytes] = b""
    offsets_are_beside: ClassVar[bool] = False
    ordinary_kin: ClassVar[str] = ""
    suite: ClassVar[str]

    @property
    def segmented(self) -> bool:
        """True if rows are stored in time segments."""
        return bool(self.numbers)

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of the settings that only some kinds have, in the order of a store's parameters."""
        return (*self.times, *self.optional_times, *(("retain_duplicates",) if self.may_retain_duplicates else ()))

    @property
    def has_times(self) -> bool:
        """True if rows can be selected by time."""
        return bool(self.numbers)

    @property
    def row_form(self) -> RowForm:
        """How rows correspond to records."""
        return RowForm.RECORDS if self.layout is None else RowForm.TIME_ORDERED

    @property
    def keys_are_logged(self) -> bool:
        """True if row keys on disk equal those of the changelog."""
        return self.layout is None

    def replayed_from(self, stream_time: int | None) -> int | None:
        """Return the stream time (ms) that a replay of a tail needs, given the recorded one; None: the rows tell it."""
        return None

    def rows_in(self, entries: int) -> int:
        """Return the rows of a database with so many entries in its files."""
        return entries // 2 if self.layout is not None and self.layout.indexed else entries

    def segment_interval_ms(self, store: StoreSettings) -> int | None:
        """Return the length (ms) of the segments inside the database of a store; None if it has none."""
        return None

    # -- definitions --------------------------------------------------------------------------------------------------

    def check(self, store: StoreSettings) -> None:
        """Refuse a definition without the settings that the kind requires.

        Raises
        ------
        ValueError
            With the expected and the found settings.
        """
        said = [name for name in (*_TIMES, *_OPTIONAL_TIMES) if getattr(store, name, None) is not None]
        found = [name for name in said if name not in self.optional_times]
        if found != [*self.times] or (store.retain_duplicates and not self.may_retain_duplicates):
            raise ValueError(
                f"a {self.name} store has {', '.join(self.times) or 'neither retention nor window'}"
                f"{' and may have retain_duplicates' if self.may_retain_duplicates else ', and no retain_duplicates'}; "
                f"found {', '.join(said) or 'none'}, retain_duplicates {store.retain_duplicates}"
            )
        if self.formats and store.format not in self.formats:
            raise ValueError(f"a {self.name} store has the format {' or '.join(self.formats)}, found {store.format}")
        if self.segmented and store.name == KEY_VALUE_DIRECTORY:
            raise ValueError(
                f"a {self.name} store cannot be called {store.name}, as the directory of a task's key-value stores is; "
                "choose another name"
            )

    def changelog_config(self, store: StoreSettings) -> dict[str, str]:
        """Return Kafka Streams' settings of the changelog topic of a store."""
        if store.retention_ms is None:
            return {"cleanup.policy": "compact"}
        return {"cleanup.policy": "compact,delete", "retention.ms": str(store.retention_ms + ADDITIONAL_RETENTION_MS)}

    # -- directories --------------------------------------------------------------------------------------------------

    def directory(self, task_directory: Path, store: str) -> Path:
        """Directory of a store: its database, or all of its segments."""
        return task_directory / check_name(store) if self.segmented else task_directory / KEY_VALUE_DIRECTORY / store

    def databases(self, directory: Path) -> list[Path]:
        """Directories of the databases in a store's directory, by name."""
        if not self.segmented:
            return [directory]
        return sorted(path for path in directory.iterdir() if path.is_dir()) if directory.exists() else []

    def bounds_on_disk(self, bounds: tuple[bytes | None, bytes | None]) -> tuple[bytes | None, bytes | None]:
        """Return the row keys on disk between which all rows lie that are between these row keys of the changelog."""
        return bounds if self.layout is None else ROWS_WITHOUT_INDEX

    def logged_key(self, row_key: bytes) -> bytes:
        """Return the row key that the changelog has for one on disk.

        Raises
        ------
        StoreCorruptedError
            If this is not a row key of the kind.
        """
        found = row_key if self.layout is None else ordinary(row_key, self.layout.key)
        if found is None:
            raise StoreCorruptedError(
                f"row key {row_key.hex()} (hexadecimal) is not a key of a {self.name} store; restore the store"
            )
        return found

    def segments(self, directory: Path) -> dict[int, Path]:
        """Return the databases in a store's directory by segment start (ms), in order; an only one is at 0.

        Raises
        ------
        InputError
            If there is another directory among the segments.
        """
        return segments_in(directory) if self.segmented else {0: directory}

    def database(self, directory: Path, store: str, start_ms: int) -> Path:
        """Directory of the database whose segment starts at a time, or the only database without segments."""
        return directory / f"{store}.{start_ms}" if self.segmented else directory

    # -- values -------------------------------------------------------------------------------------------------------

    def value_format(self, store_format: StoreFormat) -> ValueFormat:
        """Return the layout of the values of a store in a format."""
        return value_format(store_format)

    # -- row keys -----------------------------------------------------------------------------------------------------

    @cached_property
    def suffix_bytes(self) -> int:
        """Bytes of a row key after the user's key."""
        return sum(number.bytes for number in self.numbers)

    @cached_property
    def first_time_bytes(self) -> int:
        """Bytes from the start of the first time to the end of the row key."""
        names = [number.name for number in self.numbers]
        return sum(number.bytes for number in self.numbers[names.index(self.first_time) :])

    @property
    def segment_time(self) -> str:
        """Name of the number that selects a row's segment."""
        return self.numbers[0].name

    def row_time(self, row_key: bytes) -> int:
        """Time (ms) that selects the segment of a row.

        Raises
        ------
        StoreCorruptedError
            If this is not a row key of the kind.
        """
        size = self.suffix_bytes
        if len(row_key) < size:
            raise StoreCorruptedError(f"a {self.name} store's row key has at least {size} bytes, found {len(row_key)}")
        at = len(row_key) - size
        return int.from_bytes(row_key[at : at + _TIME_BYTES], "big", signed=True)

    def split(self, row_key: bytes) -> tuple[bytes, dict[str, int]]:
        """Return the user's key of a row key of the changelog, and the numbers after it.

        Raises
        ------
        StoreCorruptedError
            If this is not a row key of the kind.
        """
        if not self.numbers:
            return row_key, {}
        self.row_time(row_key)  # refuses what is too short
        numbers, at = {}, len(row_key) - self.suffix_bytes
        key = row_key[:at]
        for number in self.numbers:
            numbers[number.name] = int.from_bytes(row_key[at : at + number.bytes], "big", signed=True)
            at += number.bytes
        return key, numbers

    def row_times(self, row_keys: Sequence[bytes]) -> Sequence[int]:
        """`row_time` of many rows at once."""
        size = self.suffix_bytes
        if min(map(len, row_keys), default=size) < size:
            return [self.row_time(row_key) for row_key in row_keys]  # which refuses the one that is too short
        packed = b"".join([row_key[-size : _TIME_BYTES - size or None] for row_key in row_keys])
        return unpack(f">{len(row_keys)}q", packed)

    def key_bounds(self, key: bytes, time_from: int, time_to: int) -> tuple[bytes, bytes]:
        """Row keys `start <= row key < stop` that include all rows of a key in a time range (ms)."""
        if not self.numbers:
            return key, key + b"\0"
        largest, at = self._largest_suffix, self.suffix_bytes - self.first_time_bytes
        # From the second number on, smaller ones may stand behind a larger first one.
        first = max(time_from, 0) if self.numbers[0].name == self.last_time else 0
        last = min(max(time_to, 0), _LARGEST_TIME)
        return (
            key + first.to_bytes(_TIME_BYTES, "big") + bytes(self.suffix_bytes - _TIME_BYTES),
            key + largest[:at] + last.to_bytes(_TIME_BYTES, "big") + largest[at + _TIME_BYTES :] + b"\0",
        )

    def range_bounds(self, key_from: bytes | None, key_to: bytes | None) -> tuple[bytes | None, bytes | None]:
        """Row keys `start <= row key < stop` that include all rows of a range of keys; None is an open end.

        `key_to` is inclusive if numbers follow it, as in Kafka Streams.
        """
        if not self.numbers or key_to is None:
            return key_from, key_to
        return key_from, upper_bound(key_to, self._largest_suffix) + b"\0"

    def may_be_in_segment(self, start_ms: int, time_to: int) -> bool:
        """Whether a row that begins before a time (ms) can be in the segment that starts at `start_ms`."""
        # A session lies in the segment of its end, and may have begun long before.
        return self.first_time != self.segment_time or start_ms < time_to

    @cached_property
    def _largest_suffix(self) -> bytes:
        return b"".join(b"\x7f".ljust(number.bytes, b"\xff") for number in self.numbers)

    # -- columns ------------------------------------------------------------------------------------------------------

    def columns(self, store: StoreSettings) -> tuple[Number, ...]:
        """Columns of a row besides partition, key, value, and timestamp, including those that identify the row."""
        return self.numbers

    def shown(self, numbers: Mapping[str, Any], store: StoreSettings) -> Mapping[str, Any]:
        """Return these columns, of arrays of numbers by their names (numpy, int64 or int32)."""
        return numbers
