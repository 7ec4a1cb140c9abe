"""One face for the stores of all compositions.

The contract is written against slots: slot 3 is a key, a window or a session, as the kind has it, and its value is a
text, with a timestamp where the format has one. Slots are in the order of their rows, and those of a windowed store
lie in two segments, so that what the contract says of one database it says of several.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statestore.discovery.opening import close_all, open_databases
from statestore.discovery.store_directory import LiveStore
from statestore.errors import StoreCorruptedError
from statestore.formats import session_key, window_key
from statestore.formats.headers_value import AggregationWithHeaders, ValueTimestampHeaders
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import TaskId
from statestore.stores.api import StoreContext, Windowed
from statestore.stores.readers import IsolationLevel
from statestore.stores.rocksdb import RocksDB
from statestore.stores.views import read_only
from tests.compositions import CHANGELOG, HOUR_MS, STORE, Composition

APPLICATION = "app"
TASK = TaskId(0, 0)
#: Slots 0 to 5 lie in the first segment, 6 to 11 in the second.
SLOT_MS = HOUR_MS // 2


_COMPACTING_S = 60.0


@dataclass
class Home:
    """A task's directories, and how its stores are opened."""

    root: Path
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def task_directory(self) -> Path:
        """Kafka Streams' directory of the task."""
        return self.root / APPLICATION / str(TASK)

    @property
    def own_directory(self) -> Path:
        """Ours."""
        return self.root / ".statestore" / APPLICATION / str(TASK)

    def context_of(self, task: TaskId) -> StoreContext:
        """A context of another task that has this one's directories."""
        return StoreContext(APPLICATION, task, self.task_directory, self.own_directory)

    def context(self, **changes: Any) -> StoreContext:
        """A context; the changes are to its defaults."""
        return StoreContext(APPLICATION, TASK, self.task_directory, self.own_directory, **(self.settings | changes))

    def databases(self, kind: str, store: str = STORE) -> list[Path]:
        """Directories of a store's RocksDBs, in order of time."""
        if kind == "key-value":
            return [self.task_directory / "rocksdb" / store]
        found = (self.task_directory / store).glob(f"{store}.*")
        return sorted(found, key=lambda path: int(path.name.rpartition(".")[2]))


def commits(home: Home) -> list[Path]:
    """Files of commits that a store's databases may have in part."""
    return sorted(path for path in (home.own_directory / "commits").rglob("*") if path.is_file())


def read_by_links(composition: Composition, home: Home, texts: Iterable[str]) -> tuple[int | None, dict[int, str]]:
    """Committed offset and, by slot, which of the texts it has, as a reader of the store's files sees them."""
    segmented = composition.kind != "key-value"
    directory = home.task_directory / STORE if segmented else home.task_directory / "rocksdb" / STORE
    store = LiveStore(STORE, segmented, directory, APPLICATION, TASK, home.root)
    opened = open_databases(store, composition.layout)
    try:
        offsets = [one.database.committed_offset(CHANGELOG) for one in opened]
        rows = [
            row
            for one in opened
            for batch in one.rows()
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        ]
    finally:
        close_all(opened)
    slots = {int(key.partition(b"k")[2][:2]): value for key, value in rows}
    found = {slot: next(text for text in texts if value.endswith(text.encode())) for slot, value in slots.items()}
    return (min(offsets) if offsets and None not in offsets else None), found


class Elsewhere(Home):
    """The same directories for somebody else, such as Kafka Streams, who knows nothing of what we keep."""

    @property
    def own_directory(self) -> Path:
        """Ours, out of the way."""
        return self.root / "elsewhere"


class StoreUnderTest:
    """A store of one composition, used by slots."""

    def __init__(self, composition: Composition, home: Home, *, supplier: Any = None, **settings: Any) -> None:
        self.composition = composition
        self.home = home
        self.supplier = supplier or composition.supplier()
        self.store: Any = None
        self.open(**settings)

    def open(self, **settings: Any) -> None:
        """Open it, or open it again."""
        store = self.composition.build(self.supplier)
        store.init(self.home.context(**settings))
        self.store = store

    def reopen(self, *, clean: bool = True, **settings: Any) -> None:
        """Close and open it."""
        self.store.close(clean=clean)
        self.open(**settings)

    # -- slots ----------------------------------------------------------------------------------------------------

    def value(self, text: str | None) -> Any:
        """A value as the format has it."""
        layout, headers = self.composition.layout, (("of", b"slots"), ("null", None), ("of", b""))
        if text is None:
            return None
        if layout.keeps_headers:
            headers = headers if len(text) % 2 else ()
            if not layout.timestamped:
                return AggregationWithHeaders(text, headers)
            return ValueTimestampHeaders(text, 1_000 + len(text), headers)
        return ValueAndTimestamp(text, 1_000 + len(text)) if layout.timestamped else text

    def key(self, slot: int) -> Any:
        """Key or session of a slot; a window's key, which goes with `time_of`."""
        key = f"k{slot:02d}"
        return Windowed(key, time_of(slot), time_of(slot) + 1) if self.composition.kind == "session" else key

    def put(self, slot: int, text: str | None) -> None:
        """Write a slot; None deletes."""
        at = (time_of(slot),) if self.composition.kind == "window" else ()
        self.store.put(self.key(slot), self.value(text), *at)

    def get(self, slot: int) -> str | None:
        """Read a slot."""
        return self.get_from(self.store, slot)

    def get_from(self, reader: Any, slot: int) -> str | None:
        """Read a slot of a read-only store."""
        if self.composition.kind == "key-value":
            return self.text(reader.get(self.key(slot)))
        if self.composition.kind == "window":
            return self.text(reader.fetch(self.key(slot), time_of(slot)))
        return self.text(reader.fetch_session(*self.key(slot)))

    def text(self, value: Any) -> str | None:
        """The text of a value, whose timestamp and headers must be those that `value` gives it."""
        layout = self.composition.layout
        if value is None or not (layout.timestamped or layout.keeps_headers):
            return value
        text = value[0]
        expected = self.value(text)
        if layout.keeps_headers and not value.headers:  # what is written many rows at once has none
            expected = expected._replace(headers=())
        assert value == expected
        return text

    def scan(self, reader: Any = None, *, backward: bool = False) -> Iterator[tuple[int, str]]:
        """(slot, text) of all rows, in order or in reverse, as of the call."""
        reader = reader or self.store
        if self.composition.kind == "key-value":
            rows = reader.reverse_all() if backward else reader.all()
            return ((int(key[1:]), self.text(value)) for key, value in rows)
        return ((int(key.key[1:]), self.text(value)) for key, value in reader.all(backward=backward))

    def rows(self, reader: Any = None) -> dict[int, str]:
        """All rows by slot."""
        return dict(self.scan(reader))

    def fill(self, slots: Iterable[int], text: str) -> None:
        """Write one text into slots."""
        for slot in slots:
            self.put(slot, text)

    # -- the rest -------------------------------------------------------------------------------------------------

    def reader(self, isolation: IsolationLevel, *, timestamps: bool = True) -> Any:
        """A read-only store."""
        return read_only(self.store, isolation, timestamps=timestamps)

    def row_key(self, slot: int) -> bytes:
        """Key of a slot's row in the store and in the changelog."""
        key = f"k{slot:02d}".encode()
        return {
            "key-value": key,
            "window": window_key.encode(key, time_of(slot)),
            "session": session_key.encode(key, time_of(slot), time_of(slot) + 1),
        }[self.composition.kind]

    def replay(self, changes: Iterable[tuple[int, str | None]]) -> int:
        """Apply (slot, text) changes as they come from the changelog."""
        keys, values, timestamps = [], [], []
        layout = self.composition.layout
        for slot, text in changes:
            keys.append(self.row_key(slot))
            timestamps.append(1_000 + len(text or ""))
            plain = None if text is None else text.encode()
            if plain is not None and layout.keeps_headers:
                plain = layout.stored(plain, timestamps[-1], self.value(text).headers)
            values.append(plain)
        return self.store.apply_changelog(keys, values, timestamps)

    def close(self, *, clean: bool = True) -> None:
        """Close it."""
        self.store.close(clean=clean)

    def statuses(self) -> set[int | None]:
        """Status of each database, as it is on disk."""
        return {self._status(directory) for directory in self.directories}

    def _status(self, directory: Path) -> int | None:
        deadline = time.monotonic() + _COMPACTING_S
        while True:
            try:
                return looked_at(directory, self.composition, RocksDB.status)
            except StoreCorruptedError:
                # An open database may compact just then: a file that its MANIFEST has named is gone.
                if not self.store.is_open or time.monotonic() > deadline:
                    raise

    @property
    def directories(self) -> list[Path]:
        """Its databases on disk."""
        return self.home.databases(self.composition.kind)


def time_of(slot: int) -> int:
    """Window start, session start, of a slot (ms); a session ends one ms later."""
    return slot * SLOT_MS


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below the directory with its bytes."""
    return {
        str(file.relative_to(directory)): file.read_bytes() for file in sorted(directory.rglob("*")) if file.is_file()
    }


def looked_at(
    directory: Path, composition: Composition, what: Callable[[RocksDB], Any], *, read_only: bool = True
) -> Any:
    """Look into a database of a closed store, or change it."""
    database = RocksDB(directory, composition.layout.column_families, read_only=read_only)
    try:
        return what(database)
    finally:
        database.close()
