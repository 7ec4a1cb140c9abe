"""Stores as a user would write them, as small as the protocols allow: their rows lie in a JSON file, or in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from statestore.definitions.store import StoreDefinition
from statestore.model import TopicPartition
from statestore.stores.api import (
    KeyValueBytesStore,
    Offsets,
    SessionBytesStore,
    StateStore,
    StoreContext,
    TimestampedBytesStore,
    WindowBytesStore,
    Windowed,
)
from statestore.stores.suppliers import persistent_key_value_store


class Rows(StateStore):
    """Rows by keys of JSON, written whenever they are committed."""

    def __init__(self, definition: StoreDefinition, *, persistent: bool = True) -> None:
        self.name = definition.name
        self.persistent = persistent
        self.rows: dict[Any, bytes] = {}
        self._kind = definition.store_kind
        self._file: Path | None = None

    @property
    def is_open(self) -> bool:
        """True between init and close."""
        return self._file is not None

    def init(self, context: StoreContext) -> None:
        """Read the file."""
        self._file = context.directory_of(self.name, self._kind) / "rows.json"
        self.load()

    def load(self) -> None:
        """Read what the file has, if it is there."""
        if self._file.exists():
            self.rows = {tuple(key): bytes.fromhex(value) for key, value in json.loads(self._file.read_text())["rows"]}

    def close(self, *, clean: bool = True) -> None:
        """Let go of the rows."""
        self._file = None

    def flush(self) -> None:
        """Write the file."""
        self.save()

    def save(self, **more: Any) -> None:
        """Write the file, and something more in it."""
        assert self._file is not None
        if not self.persistent:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps({"rows": [(key, value.hex()) for key, value in self.rows.items()], **more}))
        partial.replace(self._file)

    def write(self, value: bytes | None, *key: Any) -> None:
        """Write a row; None deletes."""
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = value


class FileStore(Rows, KeyValueBytesStore):
    """A key-value store; of a timestamped definition it keeps the values alone."""

    def get(self, key: bytes) -> bytes | None:
        """Read a value."""
        return self.rows.get((key.hex(),))

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a value."""
        self.write(value, key.hex())

    def scan(self, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> Any:
        """Rows in order."""
        rows = sorted(((bytes.fromhex(key), value) for (key,), value in self.rows.items()), reverse=reverse)
        return iter([row for row in rows if (start or b"") <= row[0] and (stop is None or row[0] < stop)])


class TimestampedFileStore(FileStore, TimestampedBytesStore):
    """One that keeps timestamps, too."""


class TransactionalFileStore(TimestampedFileStore):
    """One with transactions that keeps its offsets with its rows."""

    transactional = True
    manages_offsets = True

    def __init__(self, definition: StoreDefinition) -> None:
        super().__init__(definition)
        self._offsets: dict[str, int] = {}

    def init(self, context: StoreContext) -> None:
        """Read the offsets, too."""
        super().init(context)
        if self._file.exists():
            self._offsets = json.loads(self._file.read_text())["offsets"]

    def commit(self, offsets: Offsets, position: Offsets | None = None) -> None:
        """Write rows and offsets together."""
        self._offsets.update({str(partition): offset for partition, offset in offsets.items()})
        self.save(offsets=self._offsets)

    def recover(self, changelog_offset: int | None) -> bool:
        """Nothing is to be done: what was not committed was in memory."""
        return True

    def rollback(self) -> None:
        """Read what was committed."""
        self.rows = {}
        self.load()

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Offset of a partition."""
        return self._offsets.get(str(topic_partition))

    def clear_offsets(self) -> None:
        """Forget them."""
        self._offsets = {}


class PlainWindowFileStore(Rows, WindowBytesStore):
    """A window store; of a timestamped definition it keeps the values alone."""

    def __init__(self, definition: StoreDefinition, *, persistent: bool = True) -> None:
        super().__init__(definition, persistent=persistent)
        self.window_size_ms = definition.window_size_ms or 0
        self.retention_ms = definition.retention_ms or 0
        self.retain_duplicates = False
        self._latest = -1

    def put(self, key: bytes, value: bytes | None, window_start: int) -> bool:
        """Write a window, and drop each that has expired."""
        self._latest = max(self._latest, window_start)
        if window_start <= self._latest - self.retention_ms:
            return False
        self.write(value, key.hex(), window_start)
        self.rows = {at: row for at, row in self.rows.items() if at[1] > self._latest - self.retention_ms}
        return True

    def fetch(self, key: bytes, window_start: int) -> bytes | None:
        """Read a window."""
        return self.rows.get((key.hex(), window_start))

    def fetch_range(
        self, key_from: bytes | None, key_to: bytes | None, time_from: int, time_to: int, *, reverse: bool = False
    ) -> Any:
        """Windows in order."""
        rows = sorted(((bytes.fromhex(key), at, value) for (key, at), value in self.rows.items()), reverse=reverse)
        return iter([row for row in rows if time_from <= row[1] <= time_to and _within(row[0], key_from, key_to)])


class WindowFileStore(PlainWindowFileStore, TimestampedBytesStore):
    """One that keeps timestamps, too."""


class SessionFileStore(Rows, SessionBytesStore):
    """A session store."""

    def __init__(self, definition: StoreDefinition, *, persistent: bool = True) -> None:
        super().__init__(definition, persistent=persistent)
        self.retention_ms = definition.retention_ms or 0

    def put(self, key: bytes, start: int, end: int, value: bytes | None) -> bool:
        """Write a session."""
        self.write(value, key.hex(), end, start)
        return True

    def fetch_session(self, key: bytes, start: int, end: int) -> bytes | None:
        """Read a session."""
        return self.rows.get((key.hex(), end, start))

    def find_sessions(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        earliest_end: int,
        latest_start: int,
        *,
        reverse: bool = False,
    ) -> Any:
        """Sessions in order."""
        return iter(
            [
                (Windowed(bytes.fromhex(key), start, end), value)
                for (key, end, start), value in sorted(self.rows.items(), reverse=reverse)
                if end >= earliest_end and start <= latest_start and _within(bytes.fromhex(key), key_from, key_to)
            ]
        )


class Supplier:
    """A supplier is any object with a name and `get`."""

    def __init__(self, name: str, make: Any) -> None:
        self.name = name
        self.get = make


def plain(definition: StoreDefinition) -> Supplier:
    """Supply a store of values alone."""
    return Supplier(definition.name, lambda: FileStore(definition))


def timestamped(definition: StoreDefinition) -> Supplier:
    """Supply one with timestamps."""
    return Supplier(definition.name, lambda: TimestampedFileStore(definition))


def transactional(definition: StoreDefinition) -> Supplier:
    """Supply one with transactions."""
    return Supplier(definition.name, lambda: TransactionalFileStore(definition))


def windows(definition: StoreDefinition) -> Supplier:
    """Supply a window store."""
    return Supplier(definition.name, lambda: WindowFileStore(definition))


def sessions(definition: StoreDefinition) -> Supplier:
    """Supply a session store."""
    return Supplier(definition.name, lambda: SessionFileStore(definition))


def in_memory(definition: StoreDefinition) -> Supplier:
    """Supply one in memory."""
    return Supplier(definition.name, lambda: FileStore(definition, persistent=False))


def ours_without_timestamps(definition: StoreDefinition) -> Any:
    """Supply our own plain store, whatever the definition's format."""
    return persistent_key_value_store(definition.name)


class LooselyTransactional(TransactionalFileStore):
    """One that keeps its offsets, but has no transactions."""

    transactional = False


def offsets_without_transactions(definition: StoreDefinition) -> Supplier:
    """Supply it: after a crash under exactly once, it is rebuilt."""
    return Supplier(definition.name, lambda: LooselyTransactional(definition))


class FailsLater(TimestampedFileStore):
    """A store that looks into its file only when it is read, as many engines do."""

    def init(self, context: StoreContext) -> None:
        """Read nothing."""
        self._file = context.directory_of(self.name, self._kind) / "rows.json"

    def get(self, key: bytes) -> bytes | None:
        """Read a value."""
        self._read_late()
        return super().get(key)

    def scan(self, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> Any:
        """Rows in order."""
        self._read_late()
        yield from super().scan(start, stop, reverse=reverse)

    def _read_late(self) -> None:
        if not self.rows:
            self.load()


def fails_later(definition: StoreDefinition) -> Supplier:
    """Supply it."""
    return Supplier(definition.name, lambda: FailsLater(definition))


class StagesOnDisk(TransactionalFileStore):
    """A store whose writes lie beside its rows until they are committed; a crash leaves them there."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write to disk at once."""
        super().put(key, value)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        content = [(at, row.hex()) for at, row in self.rows.items()]
        self._file.with_name("staged.json").write_text(json.dumps(content))

    def init(self, context: StoreContext) -> None:
        """Read what is staged, too."""
        super().init(context)
        staged = self._file.with_name("staged.json")
        if staged.exists():
            self.rows = {tuple(key): bytes.fromhex(value) for key, value in json.loads(staged.read_text())}

    def commit(self, offsets: Offsets, position: Offsets | None = None) -> None:
        """Make it part of the store."""
        super().commit(offsets, position)
        self._file.with_name("staged.json").unlink(missing_ok=True)

    def recover(self, changelog_offset: int | None) -> bool:
        """Forget what was staged."""
        self._file.with_name("staged.json").unlink(missing_ok=True)
        self.rollback()
        return True


def stages_on_disk(definition: StoreDefinition) -> Supplier:
    """Supply it."""
    return Supplier(definition.name, lambda: StagesOnDisk(definition))


def of_another_name(definition: StoreDefinition) -> Supplier:
    """Supply a store that is called otherwise."""
    return Supplier("other", lambda: FileStore(definition))


def nothing_like_a_store(definition: StoreDefinition) -> Supplier:
    """Supply what is no store at all."""
    return Supplier(definition.name, dict)


def failing(definition: StoreDefinition) -> Supplier:
    """Fail."""
    raise RuntimeError("no such engine")


def set_options(store: str, options: Any) -> None:
    """Have RocksDB begin a new file at each 64 KiB, and leave a mark of the store's name."""
    options.set_write_buffer_size(64 << 10)
    if store == "refused":
        raise ValueError("this store is not to be opened")


def _within(key: bytes, key_from: bytes | None, key_to: bytes | None) -> bool:
    return (key_from or b"") <= key and (key_to is None or key <= key_to)
