"""The interface of a state store (KIP-844, KIP-1035, and KIP-258), for built-in and custom stores.

Stores behind this interface contain bytes; typed stores with change logging wrap them (`typed.py`). A custom store
derives from the protocol of its kind here, and a supplier returns it (`suppliers.py`). Methods that have a default in
the KIPs have the same default here. Optional abilities of a store are in `abilities.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from statestore.formats import session_key, window_key
from statestore.formats.headers_value import NO_HEADERS
from statestore.formats.timestamped_value import UNKNOWN_TIMESTAMP, encode
from statestore.kinds.kind import StoreKind
from statestore.model import StoreFormat, StorePartition, TaskId, TopicPartition
from statestore.stores.abilities import StreamTimeStore, UpgradableStore
from statestore.stores.rocksdb_options import ConfigSetter
from statestore.stores.table import Row

K = TypeVar("K")
UNCOMMITTED_MAX_BYTES = 64 * 1024 * 1024
Offsets = Mapping[TopicPartition, int]


class Windowed(NamedTuple, Generic[K]):
    """A key with a window (`end` exclusive) or a session (`end` inclusive); times in ms."""

    key: K
    start: int
    end: int


@dataclass(frozen=True)
class StoreContext:
    """Location of a store, and its guarantees.

    Attributes
    ----------
    application, task
        Owner of the store.
    task_directory
        Kafka Streams' directory of the task; only store files go there.
    own_directory
        The task's directory below `.statestore`, on the same file system. It records how stores on disk were last used.
    changelogs
        Changelog partitions of stores that do not have the default one. An empty tuple: the store is not logged. None:
        unknown, so a store can have offsets of any changelog.
    exactly_once
        `processing.guarantee`. False means at least once.
    logged
        Whether the stores have changelogs. A store without one keeps each commit in a file until its rows are on disk.
    directories
        Directories of stores outside the task's directory, such as a store that is being restored.
    opening
        Called with a store's name once the store is allowed to be opened, before it is changed.
    read_only
        Open stores for reading, and change nothing.
    without_left_over_segments
        Kafka Streams writes the stores: leave out segments that it no longer uses after a change of the retention.
    recording_level
        `metrics.recording.level`. DEBUG and TRACE record the metrics of each store.
    """

    application: str
    task: TaskId
    task_directory: Path
    own_directory: Path
    changelogs: Mapping[str, tuple[TopicPartition, ...]] | None = field(default_factory=dict)
    exactly_once: bool = True
    logged: bool = True
    directories: Mapping[str, Path] = field(default_factory=dict)
    uncommitted_max_bytes: int = UNCOMMITTED_MAX_BYTES
    config_setter: ConfigSetter | None = None
    opening: Callable[[str], None] | None = None
    read_only: bool = False
    without_left_over_segments: bool = False
    recording_level: str = "INFO"

    def about_to_open(self, store: str) -> None:
        """Call `opening`, because a store is about to be opened for writing."""
        if self.opening is not None and not self.read_only:
            self.opening(store)

    def changelog_of(self, store: str) -> tuple[TopicPartition, ...] | None:
        """Changelog partitions of a store; None if they are not known."""
        if self.changelogs is None:
            return None
        default = (StorePartition(self.application, store, self.task).changelog,)
        return self.changelogs.get(store, default)

    def directory_of(self, store: str, kind: StoreKind) -> Path:
        """Directory of a store of a kind: its database, or all of its segments."""
        return self.directories.get(store) or kind.directory(self.task_directory, store)


class StateStore(Protocol):
    """A state store as its task sees it."""

    name: str
    #: Whether writes become part of the store only by `commit` (KIP-844).
    transactional: bool = False
    #: Whether contents survive the process.
    persistent: bool = False
    #: Whether the store keeps the offsets given to `commit` (KIP-1035).
    manages_offsets: bool = False
    #: Whether a timestamped store gives back the timestamps that were put in; one with a proxy does not (KIP-258).
    keeps_timestamps: bool = True
    #: Whether a store with headers gives back the headers that were put in, likewise (KIP-1271).
    keeps_headers: bool = True

    @property
    def is_open(self) -> bool:
        """True between `init` and `close`."""

    def init(self, context: StoreContext) -> None:
        """Open the store."""

    def close(self, *, clean: bool = True) -> None:
        """Close the store and discard uncommitted writes. Pass `clean=False` after a failure."""

    def commit(self, offsets: Offsets, position: Offsets | None = None) -> None:
        """Commit all writes, with the changelog offsets of the last records written (KIP-1035).

        A persistent store that does not manage offsets must have its rows on disk when this or `close` returns, because
        its checkpoint file then claims them.

        Parameters
        ----------
        offsets
            Changelog partition -> offset of the last record applied. Other partitions keep their offsets, so an empty
            commit changes no offset.
        position
            Input partition -> offset of the last record processed. It is merged into the store's position. None:
            unknown. If offsets advance without a position, the store's position becomes unknown, because its rows are
            ahead of it.
        """
        if self.transactional:
            raise NotImplementedError(f"transactional store {self.name} must implement commit")
        self.flush()

    def recover(self, changelog_offset: int | None) -> bool:
        """Discard writes that are not in the changelog; return whether the store has its state at an offset (KIP-844).

        Parameters
        ----------
        changelog_offset
            Checkpointed offset: the rows must be at this offset of the changelog or above it. None: no offset is known.

        Returns
        -------
        bool
            False if the rows are below the offset, or if they cannot be brought to a committed state. The task then
            rebuilds the store.
        """
        if self.transactional:
            raise NotImplementedError(f"transactional store {self.name} must implement recover")
        return False

    def restore(self, rows: Iterable[tuple[bytes, bytes | None]]) -> int:
        """Apply changelog rows (store keys, values in the store's layout); return how many had expired."""
        raise NotImplementedError(f"store {self.name} must implement restore")

    def rollback(self) -> None:
        """Discard the writes since the last commit, if the store is transactional."""

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Last committed offset of a changelog partition. None if there is none, or if offsets are not managed."""
        return None

    def clear_offsets(self) -> None:
        """Forget committed offsets and position."""

    def flush(self) -> None:
        """Deprecated by KIP-1035: does nothing. A commit makes writes durable, when RocksDB flushes."""

    def position(self) -> dict[TopicPartition, int]:
        """Input offsets that the committed rows reflect; empty if unknown."""
        return {}

    def sync(self) -> None:
        """Wait until all committed rows are on disk. By default, they are on disk after a commit."""

    @property
    def staged_bytes(self) -> int:
        """Memory of uncommitted rows, in bytes; 0 if the store does not report it."""
        return 0


def flush_is_deprecated(store: str) -> None:
    """Warn a caller of `flush`."""
    warnings.warn(
        f"store {store}: flush does nothing and is deprecated (KIP-1035); a commit of the task is what you want",
        DeprecationWarning,
        stacklevel=3,
    )


class BytesStore(StateStore, UpgradableStore, StreamTimeStore, Protocol):
    """A store of bytes of any kind, with the defaults of optional abilities."""

    #: Format of the values, if the store itself tells; None: see `TimestampedBytesStore` and `HeadersBytesStore`.
    format: StoreFormat | None = None

    def restore(self, rows: Iterable[tuple[bytes, bytes | None]]) -> int:
        """Apply changelog rows (their keys, values in the store's layout); return how many had expired."""
        batch = list(rows)
        return len(self.put_rows([key for key, _ in batch], [value for _, value in batch]))

    def put_back(self, row_key: bytes, value: bytes | None) -> None:
        """Undo a write: put a row back as it was stored; None deletes it."""
        self.restore([(row_key, value)])


class KeyValueBytesStore(BytesStore, Protocol):
    """A key-value store of bytes. Values are in the layout of the store's format."""

    def get(self, key: bytes) -> bytes | None:
        """Read a value."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a value; None deletes."""

    def delete(self, key: bytes) -> bytes | None:
        """Delete a key and return its previous value."""
        found = self.get(key)
        self.put(key, None)
        return found

    def scan(self, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows with `start <= key < stop` in key order, or in reverse."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many values, in the order of their keys."""
        return [self.get(key) for key in keys]

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete all rows with `start <= key < stop`."""
        for key, _ in list(self.scan(start, stop)):
            self.put(key, None)

    def get_rows(self, row_keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows by their keys in the changelog, which equal the store's keys."""
        return self.get_many(row_keys)

    def put_rows(self, row_keys: Sequence[bytes], values: Sequence[bytes | None]) -> Sequence[int]:
        """Write many rows; None deletes. None of them can have expired."""
        for key, value in zip(row_keys, values, strict=True):
            self.put(key, value)
        return []


class WindowBytesStore(BytesStore, Protocol):
    """A window store of bytes: rows by key and window start (ms)."""

    window_size_ms: int
    retention_ms: int
    retain_duplicates: bool
    #: Number of the duplicate put last, in a store that retains duplicates.
    sequence: int = 0

    def put(self, key: bytes, value: bytes | None, window_start: int) -> bool:
        """Write a window's value; None deletes. Return False if it was dropped because it had expired."""

    def fetch(self, key: bytes, window_start: int) -> bytes | None:
        """Read one window's value."""

    def fetch_range(
        self, key_from: bytes | None, key_to: bytes | None, time_from: int, time_to: int, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, int, bytes]]:
        """(key, window start, value) for keys and window starts in the ranges, both ends inclusive; None is open."""

    def get_rows(self, row_keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows, keyed as in formats/window_key.py."""
        return [self.fetch(key, start) for key, start, _ in map(window_key.decode, row_keys)]

    def put_rows(self, row_keys: Sequence[bytes], values: Sequence[bytes | None]) -> Sequence[int]:
        """Write many rows in their order; None deletes. Return the indexes of those that had expired."""
        windows = zip(map(window_key.decode, row_keys), values, strict=True)
        return [at for at, ((key, start, _), value) in enumerate(windows) if not self.put(key, value, start)]


class SessionBytesStore(BytesStore, Protocol):
    """A session store of bytes: rows by key, session start, and session end (ms)."""

    retention_ms: int

    def put(self, key: bytes, start: int, end: int, value: bytes | None) -> bool:
        """Write a session's value; None deletes. Return False if it was dropped because it had expired."""

    def fetch_session(self, key: bytes, start: int, end: int) -> bytes | None:
        """Read one session's value."""

    def find_sessions(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        earliest_end: int,
        latest_start: int,
        *,
        reverse: bool = False,
    ) -> Iterator[tuple[Windowed[bytes], bytes]]:
        """Sessions of a range of keys that end at `earliest_end` or later and start at `latest_start` or earlier."""

    def get_rows(self, row_keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows, keyed as in formats/session_key.py."""
        return [self.fetch_session(*session_key.decode(row_key)) for row_key in row_keys]

    def put_rows(self, row_keys: Sequence[bytes], values: Sequence[bytes | None]) -> Sequence[int]:
        """Write many rows in their order; None deletes. Return the indexes of those that had expired."""
        sessions = zip(map(session_key.decode, row_keys), values, strict=True)
        return [at for at, (session, value) in enumerate(sessions) if not self.put(*session, value)]


@runtime_checkable
class TimestampedBytesStore(Protocol):
    """Marker of a custom store that keeps values in the timestamped layout, so that it needs no proxy (KIP-258)."""

    def convert_to_timestamped_format(self, plain: bytes) -> bytes:
        """Turn a plain value into one with an unknown timestamp."""
        return encode(plain, UNKNOWN_TIMESTAMP)


@runtime_checkable
class HeadersBytesStore(Protocol):
    """Marker of a custom store that keeps values with their headers, so that it needs no proxy (KIP-1271)."""

    def convert_to_header_format(self, stored: bytes) -> bytes:
        """Turn a value of the previous format into one without headers."""
        return NO_HEADERS + stored
