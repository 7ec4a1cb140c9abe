"""Key-value stores: a format over staged rows over RocksDB, with a change log hook.

Keys are bytes. Values are bytes in a plain store and `ValueAndTimestamp` in a timestamped one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from statestore.errors import InvalidStateError
from statestore.formats import offsets as offsets_format
from statestore.formats import timestamped_value
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import StoreDefinition, StoreFormat, TopicPartition
from statestore.stores.accessor import DATA_COLUMN_FAMILIES, accessor
from statestore.stores.rocksdb import RocksDB
from statestore.stores.transaction import StagedRows

V = TypeVar("V")

#: Called for each change with key, plain value (None deletes) and the value's timestamp in ms (None: the record's).
ChangeLog = Callable[[bytes, bytes | None, int | None], None]


class KeyValueStore(Generic[V]):
    """A transactional key-value store that keeps its changelog offsets (KIP-844, KIP-1035).

    Made by `open_key_value_store`.
    """

    transactional = True
    persistent = True
    manages_offsets = True

    def __init__(self, name: str, database: RocksDB, definition: StoreDefinition, codec: _Codec[V]) -> None:
        self.name = name
        self._database = database
        self._rows = StagedRows(database)
        self._accessor = accessor(definition.format, self._rows)
        self._codec = codec
        self._log: ChangeLog | None = None

    # -- rows -----------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> V | None:
        """Read the value of a key, uncommitted changes of this owner included."""
        raw = self._accessor.get(_checked(key))
        return None if raw is None else self._codec.decode(raw)

    def put(self, key: bytes, value: V | None) -> None:
        """Stage a value and log the change; None deletes."""
        self._require_open()
        self._accessor.put(_checked(key), None if value is None else self._codec.encode(value))
        if self._log is not None:
            self._log(key, *self._codec.plain(value))

    def put_if_absent(self, key: bytes, value: V | None) -> V | None:
        """Stage the value if the key has none; return the value found before."""
        found = self.get(key)
        if found is None:
            self.put(key, value)
        return found

    def delete(self, key: bytes) -> V | None:
        """Stage a delete; return the value found before."""
        found = self.get(key)
        self.put(key, None)
        return found

    def range(self, start: bytes | None = None, stop: bytes | None = None) -> Iterator[tuple[bytes, V]]:
        """Rows with `start <= key <= stop` in key order, both ends inclusive as in Kafka Streams; None is open."""
        after_stop = None if stop is None else stop + b"\0"
        return ((key, self._codec.decode(raw)) for key, raw in self._accessor.scan(start, after_stop))

    # -- changelog ------------------------------------------------------------------------------------------------

    def log_changes_to(self, log: ChangeLog) -> None:
        """Have every later put and delete reported."""
        self._log = log

    def apply_changelog(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Stage a changelog record: plain value and record timestamp (ms). It is not logged again."""
        self._require_open()
        self._accessor.put(key, None if value is None else self._codec.restored(value, timestamp))

    # -- transaction and offsets ----------------------------------------------------------------------------------

    @property
    def staged_bytes(self) -> int:
        """Memory held by uncommitted changes."""
        return self._rows.staged_bytes

    def commit(
        self, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Apply the staged changes with their changelog offsets in one atomic write (KIP-1035).

        Parameters
        ----------
        offsets
            Changelog partition -> offset of the last record applied. Partitions not named keep theirs.
        position
            Input partition -> offset of the last record processed; merged into the store's position.

        Raises
        ------
        InvalidStateError
            If the store is closed.
        """
        self._require_open()
        merged = {**self._database.position(), **position} if position else {}
        self._rows.commit(offsets, merged)

    def flush(self) -> None:
        """Wait until all that was committed is on disk. A commit does not do so (KIP-1035)."""
        self._database.flush()

    def rollback(self) -> None:
        """Discard what is staged."""
        self._rows.rollback()

    def recover(self, changelog_offset: int | None) -> bool:
        """Bring the store to a committed state after a crash (KIP-844).

        Staged changes live in memory, so nothing uncommitted can have survived: the store is at a commit, at or
        before `changelog_offset`, and the changelog's tail does the rest.
        """
        self.rollback()
        return True

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Offset of the last changelog record in the store; None if none was ever committed."""
        return self._database.committed_offset(topic_partition)

    def position(self) -> dict[TopicPartition, int]:
        """Input offsets up to which the store was written and committed."""
        return self._database.position()

    def _require_open(self) -> None:
        if self._database.closed:
            raise InvalidStateError(f"store {self.name} is closed: {self._database.directory}")

    # -- closing --------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool = True) -> None:
        """Close the store; staged changes are discarded.

        A clean close marks the store closed and waits until all that was committed is on disk. After a failure it is
        closed with `clean=False`, which leaves the mark alone.
        """
        self.rollback()
        try:
            if clean and not self._database.closed:
                self._database.write({}, status=offsets_format.STATUS_CLOSED)
                self._database.flush()
        finally:
            self._database.close()


class _Codec(Generic[V]):
    """Between a value as the user sees it, as it is stored, and as it is logged."""

    def encode(self, value: V) -> bytes:
        raise NotImplementedError

    def decode(self, raw: bytes) -> V:
        raise NotImplementedError

    def plain(self, value: V | None) -> tuple[bytes | None, int | None]:
        raise NotImplementedError

    def restored(self, value: bytes, timestamp: int) -> bytes:
        raise NotImplementedError


class _PlainCodec(_Codec[bytes]):
    def encode(self, value: bytes) -> bytes:
        if not isinstance(value, bytes):
            raise TypeError(f"a plain store's value is bytes, found {type(value).__name__}: encode it first")
        return value

    def decode(self, raw: bytes) -> bytes:
        return raw

    def plain(self, value: bytes | None) -> tuple[bytes | None, int | None]:
        return value, None

    def restored(self, value: bytes, timestamp: int) -> bytes:
        return value


class _TimestampedCodec(_Codec[ValueAndTimestamp]):
    def encode(self, value: ValueAndTimestamp) -> bytes:
        if not isinstance(value, ValueAndTimestamp) or not isinstance(value.value, bytes):
            raise TypeError(f"a timestamped store's value is ValueAndTimestamp(bytes, ms), found {value!r:.80}")
        return timestamped_value.encode(*value)

    def decode(self, raw: bytes) -> ValueAndTimestamp:
        return timestamped_value.decode(raw)

    def plain(self, value: ValueAndTimestamp | None) -> tuple[bytes | None, int | None]:
        if value is None or value.timestamp == timestamped_value.UNKNOWN_TIMESTAMP:
            return (None if value is None else value.value), None
        return value.value, value.timestamp

    def restored(self, value: bytes, timestamp: int) -> bytes:
        return timestamped_value.encode(value, timestamp)


_CODECS: dict[StoreFormat, _Codec[bytes] | _Codec[ValueAndTimestamp]] = {
    StoreFormat.PLAIN: _PlainCodec(),
    StoreFormat.TIMESTAMPED: _TimestampedCodec(),
}


def stored_value(store_format: StoreFormat, plain: bytes, timestamp: int) -> bytes:
    """Lay out a changelog record's value (timestamp in ms) as a store of this format keeps it."""
    return _CODECS[store_format].restored(plain, timestamp)


#: A store of either format; the definition says which.
AnyKeyValueStore = KeyValueStore[bytes] | KeyValueStore[ValueAndTimestamp]


def open_key_value_store(definition: StoreDefinition, directory: Path, *, read_only: bool = False) -> AnyKeyValueStore:
    """Open, or make, the store in `directory` and mark it open.

    Parameters
    ----------
    read_only
        Open what is there, without RocksDB's lock and without marking it; close it with `clean=False`.

    Raises
    ------
    StoreCorruptedError
        If RocksDB cannot open it.
    UnknownFormatError
        If it was written in a format that this definition does not have.
    """
    database = RocksDB(directory, DATA_COLUMN_FAMILIES[definition.format], read_only=read_only)
    try:
        if not read_only:
            database.write({}, status=offsets_format.STATUS_OPEN)
            database.flush()  # the mark is for the next opening, after a crash of this one
        if definition.format is StoreFormat.PLAIN:
            return KeyValueStore(definition.name, database, definition, _PlainCodec())
        return KeyValueStore(definition.name, database, definition, _TimestampedCodec())
    except BaseException:
        database.close()
        raise


def _checked(key: bytes) -> bytes:
    if not isinstance(key, bytes):
        raise TypeError(f"a store's key is bytes, found {type(key).__name__}: encode it first")
    return key
