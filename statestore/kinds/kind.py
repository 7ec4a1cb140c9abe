"""What a kind of store is: all that key-value, window and session stores do differently, but for their methods.

A row key is the user's key and, behind it, numbers of a fixed length. A kind that has such numbers keeps its rows in
segments of time, a database each: the first number is the time that decides on the segment, and so on the row's expiry.

0           n
+-----------+---------+---------+---
| key bytes | number  | number  | ...     big-endian, signed, of 4 or 8 bytes; the first has 8
+-----------+---------+---------+---
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from struct import unpack
from typing import Any, ClassVar, NamedTuple, Protocol

from statestore.errors import StoreCorruptedError
from statestore.formats.key_bounds import upper_bound
from statestore.formats.time_ordered_key import KeyLayout
from statestore.formats.value_format import ValueFormat, value_format
from statestore.model import KEY_VALUE_DIRECTORY, StoreFormat, check_name

_TIME_BYTES = 8
_TIMES, _OPTIONAL_TIMES = ("retention_ms", "window_size_ms"), ("segment_interval_ms",)
_LARGEST_TIME = (1 << 63) - 1
#: Kafka Streams' `windowstore.changelog.additional.retention.ms`: event time may lag behind the brokers' clock.
ADDITIONAL_RETENTION_MS = 24 * 60 * 60 * 1000


class Number(NamedTuple):
    """A number behind the key of a row, or a column that shows one: its name, and 4 or 8 bytes."""

    name: str
    bytes: int = 8


class RowLayout(NamedTuple):
    """Row keys of a kind that differ from those of its changelog: times in front, and whether there are index rows."""

    key: KeyLayout
    indexed: bool


class StoreSettings(Protocol):
    """What a kind looks at in the definition of a store (`definitions/store.py`)."""

    @property
    def name(self) -> str:
        """Name of the store."""

    @property
    def format(self) -> StoreFormat:
        """How values lie on disk."""

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
    """A kind of store; one without numbers behind its keys, such as a key-value store, has no more to say.

    Attributes
    ----------
    name
        What a definition calls it.
    storage
        `module:attribute` of its `stores.storage.Storage`: what its stores are made of, and how they are used.
    times
        Lengths of time that its definitions must say: `retention_ms` where there are segments, and `window_size_ms`.
        They may say no other.
    optional_times
        Lengths of time that its definitions may say besides.
    rows_are_records
        Whether a row is what the last record of its key in the changelog says. If not, rows of a store cannot be
        compared with records, nor made from them one by one.
    may_retain_duplicates
        Whether a definition may have `retain_duplicates`.
    numbers
        What is behind the user's key in a row key.
    first_time, last_time
        Names of the numbers between which a row is of its time (ms, both inclusive).
    only_format
        Format that a definition means which says none; None: timestamped.
    formats
        Those that a definition may say, older ones first; empty: all.
    layout
        How row keys differ from those of the changelog; None: they are the same.
    logged_values_end_with
        Bytes that a value has at its end in the changelog, and not in the store.
    offsets_are_beside
        Whether Kafka Streams has the offsets of such stores in a file beside them, in every version.
    ordinary_kin
        Of a kind that only Kafka Streams' DSL makes: the kind that is like it for whoever reads it. Such stores are
        verified, read and restored, and not used by our own tasks. Empty: any other kind.
    suite
        The suite for all stores of the kind: the name of one in expectations/suites, or the absolute path of a file.
    """

    name: ClassVar[str]
    storage: ClassVar[str]
    times: ClassVar[tuple[str, ...]] = ()
    optional_times: ClassVar[tuple[str, ...]] = ()
    rows_are_records: ClassVar[bool] = True
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
        """True if rows lie in segments of time."""
        return bool(self.numbers)

    # -- definitions --------------------------------------------------------------------------------------------------

    def check(self, store: StoreSettings) -> None:
        """Refuse a definition that does not say what the kind needs.

        Raises
        ------
        ValueError
            With what was expected and found.
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

    def database(self, directory: Path, store: str, start_ms: int) -> Path:
        """Directory of the database whose segment starts at a time; without segments, of the only one."""
        return directory / f"{store}.{start_ms}" if self.segmented else directory

    # -- values -------------------------------------------------------------------------------------------------------

    def value_format(self, store_format: StoreFormat) -> ValueFormat:
        """Return the layout of the values of a store in a format."""
        return value_format(store_format)

    # -- row keys -----------------------------------------------------------------------------------------------------

    @cached_property
    def suffix_bytes(self) -> int:
        """Bytes of a row key behind the user's key."""
        return sum(number.bytes for number in self.numbers)

    @cached_property
    def first_time_bytes(self) -> int:
        """Bytes from the row key's end to where its first time begins."""
        names = [number.name for number in self.numbers]
        return sum(number.bytes for number in self.numbers[names.index(self.first_time) :])

    @property
    def segment_time(self) -> str:
        """Name of the number that decides on a row's segment."""
        return self.numbers[0].name

    def row_time(self, row_key: bytes) -> int:
        """Time (ms) that decides on the segment of a row.

        Raises
        ------
        StoreCorruptedError
            If this is no row key of the kind.
        """
        size = self.suffix_bytes
        if len(row_key) < size:
            raise StoreCorruptedError(f"a {self.name} store's row key has at least {size} bytes, found {len(row_key)}")
        at = len(row_key) - size
        return int.from_bytes(row_key[at : at + _TIME_BYTES], "big", signed=True)

    def row_times(self, row_keys: Sequence[bytes]) -> Sequence[int]:
        """`row_time` of many rows at once."""
        size = self.suffix_bytes
        if min(map(len, row_keys), default=size) < size:
            return [self.row_time(row_key) for row_key in row_keys]  # which refuses the one that is too short
        packed = b"".join([row_key[-size : _TIME_BYTES - size or None] for row_key in row_keys])
        return unpack(f">{len(row_keys)}q", packed)

    def key_bounds(self, key: bytes, time_from: int, time_to: int) -> tuple[bytes, bytes]:
        """Row keys `start <= row key < stop` between which all rows of a key that are of a time range (ms) lie."""
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
        """Row keys `start <= row key < stop` between which all rows of a range of keys lie; None is an open end.

        `key_to` is inclusive where there are numbers behind it, as in Kafka Streams.
        """
        if not self.numbers or key_to is None:
            return key_from, key_to
        return key_from, upper_bound(key_to, self._largest_suffix) + b"\0"

    def may_be_in_segment(self, start_ms: int, time_to: int) -> bool:
        """Whether a row that begins before a time (ms) may be in the segment that starts at `start_ms`."""
        # A session lies in the segment of its end, and may have begun long before.
        return self.first_time != self.segment_time or start_ms < time_to

    @cached_property
    def _largest_suffix(self) -> bytes:
        return b"".join(b"\x7f".ljust(number.bytes, b"\xff") for number in self.numbers)

    # -- columns ------------------------------------------------------------------------------------------------------

    def columns(self, store: StoreSettings) -> tuple[Number, ...]:
        """Columns that a row has besides partition, key, value and timestamp; those that tell rows apart among them."""
        return self.numbers

    def shown(self, numbers: Mapping[str, Any], store: StoreSettings) -> Mapping[str, Any]:
        """Return these columns, of arrays of numbers by their names (numpy, int64 or int32)."""
        return numbers
