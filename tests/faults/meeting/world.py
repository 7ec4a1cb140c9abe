"""One task, what it runs on, and everything that can befall them from outside: faults of disk, log and clock."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from demo.processes import ServiceError
from statestore.archive.archive import ArchiveSpec, archive_spec
from statestore.definitions.fields import Engine, Guarantee
from statestore.errors import InvalidStateError, StoreCorruptedError
from statestore.formats.offsets import STATUS_OPEN
from statestore.formats.value_format import value_format
from statestore.kafka.cluster import Cluster
from statestore.metastore.metastore import Metastore
from statestore.model import StoreFormat, changelog_topic, input_offsets_topic
from statestore.partition.quarantine import quarantined
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Loss
from statestore.statedir.sidecar import beside_quarantined
from statestore.stores.rocksdb import RocksDB
from statestore.tasks.spec import TaskSpec
from statestore.verification.options import Depth
from tests.faults.meeting.counting import COUNTS, DEFINED, HOURLY, RETENTION_MS, STORES, WINDOW_MS, Rows
from tests.faults.meeting.mortal import shift_clock
from tests.faults.meeting.places import Log, Salvage
from tests.faults.meeting.rewrites import Append, Overwrite
from tests.integration import broker
from tests.integration.broker import WAIT_S, Logged, consume, produce, settle, unique, wait_for
from tests.integration.support import Application, partitions_of, put
from tests.interop.kafka_streams import Command, Driver, KafkaStreams, Store
from tests.oracle.rows import fold, unexpired

#: The logs lose records only where a step has it so.
_LOG_CONFIG = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
_STREAMS_STORES = [
    Store(COUNTS, format=StoreFormat.TIMESTAMPED),
    Store(HOURLY, "window", StoreFormat.TIMESTAMPED, RETENTION_MS, WINDOW_MS),
]
#: So that a broker aborts what a halted JVM has left open within seconds.
_SOON_ABORTED = {"commit.interval.ms": "5000", "producer.transaction.timeout.ms": "10000"}
#: So that its consumer is soon taken for gone.
_SOON_GONE = {"session.timeout.ms": "6000"}
_DAY_MS = 24 * 3_600_000
#: For so long a delete is kept where compaction is not to be waited for.
_SOON_MS = 1_000
_COMPACTED_SOON = {"segment_ms": "200", "min_cleanable_dirty_ratio": "0.001", "max_compaction_lag_ms": "500"}
_COMPACTED_LATE = {"segment_ms": str(7 * _DAY_MS), "min_cleanable_dirty_ratio": "0.5"}
_FAMILIES = value_format(StoreFormat.TIMESTAMPED).column_families


class Held(NamedTuple):
    """Where rows of a store are.

    Attributes
    ----------
    live
        None: what is there cannot be read.
    present
        Whether there is a live store.
    quarantined
        By label; None: what is there cannot be read.
    """

    live: Rows | None
    present: bool
    quarantined: dict[str, Rows | None]
    logged: Rows

    def has(self, key: bytes, row: tuple[bytes, int]) -> bool:
        """Whether a row is anywhere."""
        return bool(self.where(key, row))

    def where(self, key: bytes, row: tuple[bytes, int]) -> list[str]:
        """Places that a row is in."""
        places = {"live": self.live, "log": self.logged, **self.quarantined}
        return [name for name, place in places.items() if place is not None and place.get(key) == row]


#: What a damage is called that only our own directory tells of, or a replay.
SEGMENT_LOST = "segment lost"


class Damage(NamedTuple):
    """Damage to a live store.

    Attributes
    ----------
    sealed, unsealed
        The least depth that promises to see it, where there is a seal, and where there is none.
    still
        Whether it is still there.
    """

    name: str
    sealed: Depth
    unsealed: Depth
    still: Callable[[], bool]


class _Application(Application):
    """The application, whose snapshots are kept while there is an archive."""

    archive: ArchiveSpec | None = None

    def task_spec(self, partition: int = 0, **changes: Any) -> TaskSpec:
        """Plan a task up to the present end of the input."""
        return super().task_spec(partition, **{"archive": self.archive, **changes})

    def store_spec(self, partition: int = 0, store: str | None = None, **changes: Any) -> StorePartitionSpec:
        """Plan a store partition."""
        return super().store_spec(partition, store, **{"archive": self.archive, **changes})


class Bucket(NamedTuple):
    """Directory of an archive, and of its backup."""

    directory: Path
    backup: Path

    def back_up(self) -> None:
        """Keep a copy of all that is there."""
        shutil.copytree(self.directory, self.backup)

    def bring_back(self) -> None:
        """Replace the directory with its copy."""
        shutil.rmtree(self.directory)
        self.backup.rename(self.directory)


class World:
    """One task with its topics and its state directory.

    Attributes
    ----------
    inputs
        All records of the input topic.
    ahead_s
        How far our clock is ahead.

    Parameters
    ----------
    driver
        Of Kafka Streams, which then can take the application over.
    """

    def __init__(self, servers: str, directory: Path, driver: Driver | None = None) -> None:
        self.servers = servers
        self.directory = directory
        self.application = _Application(servers, directory, stores=STORES, changelog_config=_LOG_CONFIG).defined(
            processor="tests.faults.meeting.counting:count", uncommitted_max_bytes=1 << 24
        )
        self.logs = {store.name: Log(servers, changelog_topic(self.application.name, store.name)) for store in STORES}
        self.inputs: list[Logged] = []
        self.ahead_s = 0.0
        self._driver = driver
        self._streams: KafkaStreams | None = None
        self._now = broker.T0 - 2 * _DAY_MS  # brokers refuse records from the future, and steps move time on
        self._salvage = Salvage()
        self._service_id: str | None = None
        self._former: list[str] = []
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "log_level": 2})

    def close(self) -> None:
        """Delete all topics, and the state."""
        del self._producer
        for log in self.logs.values():
            log.close()
        names = [self.application.input, self.application.output, *(log.topic for log in self.logs.values())]
        names += [input_offsets_topic(self.application.name), *self._former]
        names += [] if self._streams is None else [self._streams.input_topic]
        admin = AdminClient({"bootstrap.servers": self.servers})
        for done in admin.delete_topics(names).values():
            done.result(WAIT_S)
        shutil.rmtree(self.directory)

    # -- what is there ------------------------------------------------------------------------------------------------

    def look(self) -> tuple[dict[str, Held], dict[str, list[Logged]]]:
        """Find out where rows are, by store, and what is new in the logs."""
        new = {name: log.read() for name, log in self.logs.items()}
        return {name: self._held(name) for name in self.logs}, new

    def _held(self, name: str) -> Held:
        spec = self.application.store_spec(store=name)
        return Held(
            live=self._salvage.rows(spec.live),
            present=spec.live.exists(),
            quarantined={path.name: self._salvage.rows(path) for path in quarantined(spec.paths, name)},
            logged=fold(self.logs[name].records),
        )

    def loss(self, name: str, label: str) -> Loss | None:
        """What was judged to be lost when a store was replaced; None: that is not known."""
        try:
            return beside_quarantined(self.application.store_spec().paths, name, label).loss
        except InvalidStateError:
            return None

    @property
    def stream_time(self) -> int:
        """Time (ms) of the latest input."""
        return self.inputs[-1].timestamp if self.inputs else -1

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Let our clock be ahead."""
        real = time.time, time.time_ns
        shift_clock(self.ahead_s)  # no real clock, as nobody may set the machine's
        try:
            yield
        finally:
            time.time, time.time_ns = real

    # -- input --------------------------------------------------------------------------------------------------------

    def send(self, rows: Sequence[tuple[bytes, bytes | None]], later_ms: int) -> None:
        """Produce input, so much later than the last."""
        self._now += later_ms
        errors: list[Any] = []
        for key, value in rows:
            self._now += 1
            self._producer.produce(
                self.application.input,
                value=value,
                key=key,
                partition=0,
                timestamp=self._now,
                on_delivery=lambda error, _: errors.append(error),
            )
            self.inputs.append(Logged(len(self.inputs), key, value, self._now))
        assert self._producer.flush(WAIT_S) == 0
        assert not any(errors), f"the input was refused: {errors}"

    # -- Kafka Streams ------------------------------------------------------------------------------------------------

    def take_over(self, keys: Sequence[bytes], how: Literal["write", "crash", "die"]) -> None:
        """Let Kafka Streams put something under keys, in both stores; it ends well, or its JVM halts."""
        assert self._driver is not None
        if self._streams is None:
            self._streams = KafkaStreams(self._driver, self.servers)
            self._streams.application_id = self.application.name
        self._now += 1
        start = self._now - self._now % WINDOW_MS
        rows: dict[str, Any] = {"value": b"50", "timestamp": self._now}
        if how == "die":
            rows["value"] += b" " * 10_000  # so that some of it reaches the disk
        commands = [Command(COUNTS, key, **rows) for key in keys] + [
            Command(HOURLY, key, start=start, **rows) for key in keys
        ]
        commands *= 30 if how == "die" else 1
        run: dict[str, Any] = {"state_dir": self.application.state_dir, "stores": _STREAMS_STORES, "commands": commands}
        try:
            if how == "die":
                self._streams.die(**run, config={**_SOON_ABORTED, **_SOON_GONE})
            else:
                self._streams.write(**run, crash=how == "crash", config=_SOON_GONE)
        except ServiceError:  # stores that are damaged or open may keep it from starting
            pass
        settle(self.servers, *(log.topic for log in self.logs.values()))
        if not self.exactly_once:
            self._alone()

    def _alone(self) -> None:
        """Wait until the group has no members: only then does Kafka accept offsets outside of transactions."""
        if self._streams is not None:
            admin = AdminClient({"bootstrap.servers": self.servers})
            group = self.application.name
            wait_for(
                lambda: not admin.describe_consumer_groups([group])[group].result(WAIT_S).members,
                f"the end of the last member of {group}",
                WAIT_S,
            )

    # -- rewrites -----------------------------------------------------------------------------------------------------

    def append(self, rows: Mapping[bytes, bytes | None]) -> Append:
        """Plan to put and delete rows of the counts."""
        self._now += 1
        return Append(self.application.store_spec(store=COUNTS), rows, self._now)

    def overwrite(self, rows: Mapping[bytes, bytes | None]) -> Overwrite:
        """Plan to give the counts other rows; the first time, the definition is put into a catalogue."""
        if self._service_id is None:
            self._service_id = unique("service")
            definition = self.application.definition  # its changelogs let records be deleted
            metastore = Metastore(Cluster(self.servers, 60), self._service_id)
            put(metastore, definition, partitions_of(definition, 1))
        self._now += 1
        return Overwrite(self._service_id, self.application.store_spec(store=COUNTS), rows, self._now)

    def adopt(self) -> bool:
        """Use the changelog that the catalogue names for the counts; return whether it is another one."""
        assert self._service_id is not None
        catalogue = Metastore(Cluster(self.servers, 60), self._service_id).require_running().catalogue
        name = catalogue.entry(self.application.name).definition.store(COUNTS).changelog_of(self.application.name)
        log = self.logs[COUNTS]
        if name == log.topic:
            return False
        self.application.definition = self.application.definition.with_changelog(COUNTS, name)
        log.close()
        self._former.append(log.topic)
        self.logs[COUNTS] = Log(self.servers, name)
        broker.set_topic_config(self.servers, name, cleanup_policy="compact,delete", retention_ms="-1")
        return True

    # -- changes of the definition ------------------------------------------------------------------------------------

    @property
    def exactly_once(self) -> bool:
        """Whether the application commits with transactions."""
        return self.application.definition.processing_guarantee == "exactly_once_v2"

    def engine(self, name: str) -> Engine:
        """Engine of a store."""
        return self.application.definition.store(name).engine

    def rest(self) -> None:
        """Lose the group's offsets, as Kafka deletes them a week after their last commit."""
        with suppress(KafkaException):  # it has none
            self.application.forget_group()

    def skip_input(self) -> None:
        """Set the group's offset to the end of the input, as a person does with Kafka's tools."""
        self._alone()
        self.application.set_group_offset(len(self.inputs))

    def change_engine(self, name: str) -> None:
        """Keep a store with transactions from here on, or without."""
        engine: Engine = "rocksDB" if self.engine(name) == "txn_rocksDB" else "txn_rocksDB"
        stores = self.application.definition.stores
        changed = tuple(
            store.model_copy(update={"engine": engine}) if store.name == name else store for store in stores
        )
        self.application.defined(stores=changed)

    def change_options(self, setter: str | None) -> None:
        """Open stores with other options of RocksDB from here on."""
        self.application.defined(rocksdb_config_setter=setter)

    def change_guarantee(self) -> None:
        """Process at least once from here on, or exactly once."""
        guarantee: Guarantee = "at_least_once" if self.exactly_once else "exactly_once_v2"
        self.application.defined(processing_guarantee=guarantee)
        if not self.exactly_once:
            self._alone()

    # -- faults of the disk -------------------------------------------------------------------------------------------

    def databases(self, name: str) -> list[Path]:
        """Directories of RocksDB, of those that are whole enough to be damaged."""
        live = self.application.store_spec(store=name).live
        found = [live, *(live.iterdir() if live.exists() else [])]
        return sorted(path for path in found if (path / "CURRENT").exists())

    def leave_open(self, name: str) -> Damage:
        """Leave a store as use without transactions leaves it when it is killed; whoever does so breaks the seal."""
        (*_, database) = self.databases(name)
        self._open_anew(database, status=STATUS_OPEN)
        return self._damage(name, "left open", "offsets", "offsets", lambda: self._status(database) == STATUS_OPEN)

    def tamper(self, name: str) -> Damage | None:
        """Change a row behind everybody's back; None where there is none whose change the log would show."""
        held = self._held(name)
        rows = {key: row for key, row in (held.live or {}).items() if held.logged.get(key) == row}
        databases = [
            path for path in self.databases(name) if any(key in (self._salvage.rows(path) or {}) for key in rows)
        ]
        if not databases:
            return None
        in_it = self._salvage.rows(databases[-1]) or {}
        key = max(key for key in rows if key in in_it)
        value, timestamp = rows[key]
        wrong = b"7" + value
        database = RocksDB(databases[-1], _FAMILIES)
        database.write({_FAMILIES[0]: {key: timestamp.to_bytes(8, "big") + wrong}})
        database.sync()
        database.close()

        def still() -> bool:
            now = self._held(name)
            return (now.live or {}).get(key) == (wrong, timestamp) and now.logged.get(key) == (value, timestamp)

        return self._damage(name, "tampered with", "deep", "deep", still)

    def lose_current(self, name: str) -> Damage:
        """Lose the file that RocksDB begins with."""
        lost = self.databases(name)[-1] / "CURRENT"
        lost.unlink()
        return self._damage(name, "CURRENT lost", "offsets", "offsets", lambda: not lost.exists())

    def lose_table(self, name: str) -> Damage | None:
        """Lose a file of rows; None where there is none."""
        return self._lose_largest(name, "*.sst")

    def lose_blob(self, name: str) -> Damage | None:
        """Lose a file of values; None if no value is in one."""
        return self._lose_largest(name, "*.blob")

    def _lose_largest(self, name: str, pattern: str) -> Damage | None:
        found = [path for database in self.databases(name) for path in database.glob(pattern)]
        if not found:
            return None
        lost = max(found, key=lambda path: path.stat().st_size)
        lost.unlink()
        return self._damage(name, f"{lost.name} lost", "offsets", "offsets", lambda: not lost.exists())

    def flip(self, name: str) -> Damage | None:
        """Falsify a byte in a file of rows, another time to another value; None where there is none."""
        tables = [path for database in self.databases(name) for path in database.glob("*.sst")]
        if not tables:
            return None
        flipped = max(tables, key=lambda path: path.stat().st_size)
        content = bytearray(flipped.read_bytes())
        content[0] = (content[0] + 1) % 256  # of the first data block
        flipped.write_bytes(content)
        return self._damage(
            name,
            f"{flipped.name} flipped",
            "scan",
            "scan",
            lambda: flipped.exists() and flipped.read_bytes() == content,
        )

    def lose_segment(self, name: str) -> Damage | None:
        """Lose a segment with rows that the log has, too, and that have not expired; None where there is none."""
        for lost in self.databases(name) if name == HOURLY else []:
            rows = unexpired(DEFINED[name], self._salvage.rows(lost) or {}, self.stream_time)
            if rows and rows.items() <= self._held(name).logged.items():
                shutil.rmtree(lost)
                unsealed: Depth = "offsets" if self._is_recorded(name, lost.name) else "deep"
                return self._damage(name, SEGMENT_LOST, "offsets", unsealed, partial(self._lacks, name, rows))
        return None

    def _is_recorded(self, name: str, lost: str) -> bool:
        """Whether our record of the run that left a store open names a segment, and the others are still as it says."""
        record = self.application.store_spec(store=name).paths.mode(name)
        recorded = json.loads(record.read_bytes())["databases"] if record.exists() else {}
        return lost in recorded and all(
            path.name in recorded
            and (path / "CURRENT").read_text() == f"MANIFEST-{recorded[path.name]['manifest']:06}\n"
            for path in self.databases(name)
        )

    def _lacks(self, name: str, rows: Rows) -> bool:
        held = self._held(name)
        owed = unexpired(DEFINED[name], rows, self.stream_time)
        return any((held.live or {}).get(key) is None and held.logged.get(key) == row for key, row in owed.items())

    def lose_store(self, name: str) -> Damage:
        """Lose the whole live store."""
        live = self.application.store_spec(store=name).live
        shutil.rmtree(live)
        return self._damage(name, "lost", "offsets", "offsets", lambda: True)

    def lose_disk(self) -> None:
        """Lose all stores of the application."""
        shutil.rmtree(self.application.state_dir / self.application.name, ignore_errors=True)

    def forget(self) -> None:
        """Lose all that we know beyond the stores themselves, and all that is in quarantine."""
        shutil.rmtree(self.application.state_dir / ".statestore", ignore_errors=True)

    def _damage(self, name: str, what: str, sealed: Depth, unsealed: Depth, still: Callable[[], bool]) -> Damage:
        live = self.application.store_spec(store=name).live
        inode = live.stat().st_ino if live.exists() else None

        def there() -> bool:
            now = live.stat().st_ino if live.exists() else None
            return now == inode and still()

        return Damage(what, sealed, unsealed, there)

    def _open_anew(self, directory: Path, status: int) -> None:
        database = RocksDB(directory, _FAMILIES)
        database.write({}, status=status)
        database.sync()
        database.close()

    def _status(self, directory: Path) -> int | None:
        try:
            with closing(RocksDB(directory, _FAMILIES, read_only=True)) as database:
                return database.status()
        except StoreCorruptedError:  # it was left open, and has been damaged since
            return STATUS_OPEN if directory.exists() else None

    # -- the archive --------------------------------------------------------------------------------------------------

    @contextmanager
    def archived(self) -> Iterator[Bucket]:
        """Keep snapshots of the application in an archive, which goes afterwards."""
        directory = self.directory / "archive"
        self.application.archive = archive_spec(f"file://{directory}", WAIT_S, Cluster(self.servers, WAIT_S).topics)
        yield Bucket(directory, directory.with_name("backup"))
        self.application.archive = None
        shutil.rmtree(directory)

    # -- compaction ---------------------------------------------------------------------------------------------------

    @contextmanager
    def compacting(self) -> Iterator[Callable[[bytes], None]]:
        """Compact the log of the counts at once, and yield a function that waits until a key's delete is gone."""
        topic, kept_ms = self.logs[COUNTS].topic, self.application.delete_retention_ms
        self.application.delete_retention_ms = _SOON_MS
        broker.set_topic_config(self.servers, topic, **_COMPACTED_SOON, delete_retention_ms=str(_SOON_MS))

        def forget(key: bytes) -> None:
            def is_gone() -> bool:
                produce(self.servers, topic, [(b"z", b"1")], timestamp=int(time.time() * 1000))
                time.sleep(0.3)  # the newest segment is never compacted, so others must follow it
                return all(record.key != key for record in consume(self.servers, topic)[0])

            wait_for(is_gone, f"the delete of {key!r} to be compacted away", 2 * WAIT_S)

        yield forget
        self.application.delete_retention_ms = kept_ms
        broker.set_topic_config(self.servers, topic, **_COMPACTED_LATE, delete_retention_ms=str(kept_ms))

    # -- faults of the log --------------------------------------------------------------------------------------------

    def cut(self, name: str, records: int) -> None:
        """Delete so many of a log's records from its start."""
        log = self.logs[name]
        kept = log.records[records:]
        before = kept[0].offset if kept else log.end
        broker.delete_records(self.servers, log.topic, before)
        log.cut(before)

    def recreate(self, name: str, records: int) -> None:
        """Make a log anew, with so many records of somebody else."""
        log = self.logs[name]
        log.close()
        broker.delete_topic(self.servers, log.topic)
        broker.create_topic(self.servers, log.topic, 1, _LOG_CONFIG)
        produce(self.servers, log.topic, [(b"z", b"1")] * records)
        log.begin_anew()
