"""A state directory that Kafka Streams and our stores take turns in, and what both are to find in it.

Owns how our stores are opened on Kafka Streams' directories, and how their entries are told in the words of its
interactive queries, so that a test compares lists of rows.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kafka_streams import Command, KafkaStreams, Row, Store, StorePartition

from demo.processes import wait_until
from statestore.changelog.reader import ChangelogReader
from statestore.definitions.store import StoreDefinition
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.formats.value_format import COLUMN_FAMILIES
from statestore.kafka.cluster import Cluster
from statestore.kafka.writer import TransactionalWriter
from statestore.model import StoreFormat, TaskId, TopicPartition, changelog_topic
from statestore.partition.replay import replay
from statestore.statedir.paths import TaskPaths
from statestore.stores.api import StoreContext
from statestore.stores.open import build_store
from statestore.stores.rocksdb import RocksDB
from statestore.stores.typed import AnyStore, KeyValueStore
from tests.integration import broker

_KINDS = {"kv": "key-value", "window": "window", "session": "session"}
#: Time of the first record, in ms; Kafka refuses records from more than an hour ahead.
T0 = 1_700_000_000_000
KEYS = [b"", b"\x00", b"\x00\x00", b"a", b"ab", b"\xff", b"\xff\xff", b"k" * 300, *(b"key-%d" % i for i in range(40))]
#: How long the time is that random commands go through: four times the default retention, so that segments expire.
SPAN_MS = 4 * 3_600_000
#: Headers of all sorts.
NOTES: list[tuple[tuple[str, bytes | None], ...]] = [
    (),
    (("trace", b"1"),),
    (("null", None), ("empty", b""), ("trace", b"\xff" * 70)),
    (("twice", b"1"), ("twice", b"2"), ("", b"no name")),
    (("über-größe ☃", b"wert"), ("v", b"mine"), ("c", b"mine, too")),
    (("v", b"\0"),),
]


@dataclass(frozen=True)
class SharedState:
    """One state directory of an application of Kafka Streams."""

    app: KafkaStreams
    state_dir: Path
    stores: Sequence[Store]

    @property
    def parts(self) -> list[StorePartition]:
        """Every store of every task."""
        return [StorePartition(store.name, task) for store in self.stores for task in range(self.app.partitions)]

    def copy(self, state_dir: Path) -> SharedState:
        """Copy the directory, so that the copy can be written to."""
        shutil.copytree(self.state_dir, state_dir)
        return replace(self, state_dir=state_dir)

    def elsewhere(self, state_dir: Path) -> SharedState:
        """The same application on another directory, empty as yet."""
        return replace(self, state_dir=state_dir)

    # -- where things are -----------------------------------------------------------------------------------------

    def store(self, name: str) -> Store:
        """The store of that name."""
        return next(store for store in self.stores if store.name == name)

    def paths(self, partition: int) -> TaskPaths:
        """Paths of a task."""
        return TaskPaths(self.state_dir, self.app.application_id, TaskId(0, partition))

    def input(self, partition: int) -> TopicPartition:
        """The input of a task."""
        return TopicPartition(self.app.input_topic, partition)

    def changelog(self, part: StorePartition) -> TopicPartition:
        """Where a store partition's changes are logged."""
        return TopicPartition(changelog_topic(self.app.application_id, part.store), part.partition)

    def databases(self, part: StorePartition) -> list[Path]:
        """Directories of RocksDB: the store's, or one for each segment in order of time."""
        paths = self.paths(part.partition)
        if self.store(part.store).kind == "kv":
            return [paths.store(part.store)]
        found = (paths.task_dir / part.store).iterdir()
        return sorted(found, key=lambda path: int(path.name.rpartition(".")[2]))

    # -- our stores -----------------------------------------------------------------------------------------------

    def context(self, partition: int, *, read_only: bool = False) -> StoreContext:
        """How our stores are opened here: under exactly once, as in Kafka Streams."""
        paths = self.paths(partition)
        return StoreContext(
            application=paths.application,
            task=paths.task,
            task_directory=paths.task_dir,
            own_directory=paths.own_dir,
            read_only=read_only,
        )

    def build(self, part: StorePartition, *, transactional: bool = True) -> AnyStore:
        """Return our store for these bytes, not yet open."""
        store = self.store(part.store)
        windowed = {} if store.kind == "kv" else {"retention_ms": store.retention_ms}
        if store.kind == "window":
            windowed |= {"window_size_ms": store.window_ms, "retain_duplicates": store.duplicates}
        engine = "txn_rocksDB" if transactional else "rocksDB"
        fields: dict[str, Any] = {"name": store.name, "kind": _KINDS[store.kind], "format": store.format, **windowed}
        return build_store(StoreDefinition(engine=engine, **fields))

    @contextmanager
    def opened(self, part: StorePartition, *, read_only: bool = False, transactional: bool = True) -> Iterator[Any]:
        """Open our store, and close it cleanly."""
        store = self.build(part, transactional=transactional)
        store.init(self.context(part.partition, read_only=read_only))
        try:
            yield store
        except BaseException:
            store.close(clean=False)
            raise
        store.close()

    def rows(self, part: StorePartition) -> list[Row]:
        """Every entry as our store reads it, without a trace."""
        with self.opened(part, read_only=True) as store:
            return rows_of(store)

    def restore(self, part: StorePartition) -> None:
        """Build our store from its changelog."""
        changelog = self.changelog(part)
        servers = self.app.bootstrap_servers
        log = Cluster(servers).topics.log_ranges([changelog])[changelog]
        with self.opened(part) as store, ChangelogReader(Cluster(servers), changelog) as reader:
            replay(store, reader, log.start, log.last_stable)

    def change(self, part: StorePartition, changes: Callable[[Any], None], timestamp: int, position: int) -> None:
        """Change our store exactly once, as a task does: log in a transaction, commit that, then the store.

        Parameters
        ----------
        timestamp
            Of the record that is being processed (ms).
        position
            Input offset up to which the store will say that it was written.
        """
        changelog = self.changelog(part)
        writer = TransactionalWriter(self.app.cluster, f"{changelog}-writer")
        writer.init()
        writer.begin()
        with self.opened(part) as store:
            store.log_changes_to(
                lambda key, value, time, headers=(): writer.produce(
                    changelog.topic, key, value, timestamp if time is None else time, changelog.partition, headers
                )
            )
            changes(store)
            delivered = writer.flush()
            writer.commit()
            # Kafka confirms a commit before the marker is in the log.
            wait_until(lambda: self._is_stable(changelog), 120, f"the transaction's marker in {changelog}")
            store.commit(delivered, {self.input(part.partition): position})

    def last_logged(self, part: StorePartition) -> int:
        """Offset of the last record of a changelog, without the markers that follow."""
        return self._logged_offsets(part)[-1]

    def records(self, part: StorePartition) -> int:
        """Number of records in a changelog."""
        return len(self._logged_offsets(part))

    def _logged_offsets(self, part: StorePartition) -> list[int]:
        changelog = self.changelog(part)
        log = self.app.cluster.topics.log_ranges([changelog])[changelog]
        with ChangelogReader(self.app.cluster, changelog) as reader:
            batches = reader.read(log.start, log.last_stable)
            return [offset for batch in batches for offset in batch.column("offset").to_pylist()]

    def _is_stable(self, changelog: TopicPartition) -> bool:
        log = self.app.cluster.topics.log_ranges([changelog])[changelog]
        return log.last_stable == log.high_watermark

    # -- below our stores -----------------------------------------------------------------------------------------

    def statuses(self, part: StorePartition) -> list[int | None]:
        """Status of each database."""
        return [database.status() for database in self._tables(part)]

    def raw_keys(self, part: StorePartition, family: str) -> list[bytes]:
        """Keys that lie in a column family, over all databases."""
        return [key for database in self._tables(part) for key, _ in database.scan(family)]

    def _tables(self, part: StorePartition) -> Iterator[RocksDB]:
        for directory in self.databases(part):
            database = RocksDB(directory, COLUMN_FAMILIES, read_only=True)
            try:
                yield database
            finally:
                database.close()


def rows_of(store: AnyStore) -> list[Row]:
    """Entries of an open store, as an interactive query tells them."""
    entries = store.all()
    found = []
    for key, value in entries:
        plain, timestamp = value if isinstance(value, ValueAndTimestamp) else (value, None)
        if isinstance(store, KeyValueStore):
            found.append(Row(key, plain, timestamp))
        else:
            found.append(Row(key.key, plain, timestamp, key.start, key.end))
    return found


def described(stores: Sequence[Store]) -> list[str]:
    """Say what an empty directory does not tell: what each store was."""
    kinds = {store.name: _KINDS[store.kind] for store in stores}
    times = {store.name: "" if store.kind == "kv" else f",retention_ms={store.retention_ms}" for store in stores}
    return [
        f"{store.name}:kind={kinds[store.name]},format={store.format.value},subtopology=0{times[store.name]}"
        for store in stores
    ]


def recent(commands: Sequence[Command]) -> list[Command]:
    """Move the records' times to now: Kafka Streams' own changelog settings delete what is old."""

    def moved(number: int, command: Command) -> Command:
        command = command._replace(timestamp=broker.T0 + number)
        if command.start is None or command.value_timestamp is None:  # changelogs of windows alone delete by time
            return command
        return command._replace(value_timestamp=broker.T0 - (T0 - command.value_timestamp) % 10_000)

    return [moved(number, command) for number, command in enumerate(commands)]


def contents_of(directory: Path) -> dict[str, str]:
    """Digest of every file below a directory: equal before and after means left alone."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def random_commands(
    stores: Sequence[Store], count: int, seed: int, begin_ms: int = broker.T0 - SPAN_MS
) -> Iterator[Command]:
    """Puts, deletes and reads of all stores: few keys, so that most come again, and times that let some expire.

    Versions of versioned stores are of `begin_ms` and later, windows and sessions of times near zero.
    """
    rng = random.Random(seed)
    for number in range(count):
        store = rng.choice(stores)
        key = rng.choice(KEYS)
        value = rng.choice([b"", b"\x00" * 8, b"%d" % number, b"%d " % number * 500, rng.randbytes(20)])
        command = Command(store.name, key, value, T0 + number)
        has_headers = store.format is StoreFormat.HEADERS or (store.layout or "").endswith("headers")
        if store.format is not StoreFormat.PLAIN or has_headers:
            command = command._replace(value_timestamp=rng.choice([0, T0 - rng.randrange(10_000), None]))
        if has_headers:
            command = command._replace(headers=rng.choice(NOTES))
        delayed = max(0, number * SPAN_MS // count - rng.choice([0, 0, rng.randrange(2 * store.retention_ms)]))
        if store.layout == "versioned":
            op = rng.choice(["put"] * 5 + ["delete"])
            command = command._replace(value_timestamp=begin_ms + delayed)
        elif store.kind == "kv":
            op = rng.choice(["put"] * 5 + ["put_if_absent", "delete", "get"])
        elif store.kind == "window":
            op = rng.choice(["put"] * 5 + ["delete"])
            command = command._replace(start=delayed - delayed % store.window_ms)
            for again in range(rng.randrange(3) if store.duplicates and op == "put" else 0):
                yield command._replace(op=op, value=b"%d of %d" % (again, number))
        else:
            op = rng.choice(["put"] * 5 + ["delete"])
            command = command._replace(start=delayed - rng.randrange(min(delayed, 600_000) + 1), end=delayed)
        yield command._replace(op=op, value=None if op == "delete" else command.value)
