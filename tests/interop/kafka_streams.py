"""The real Kafka Streams 4.3.1, under a test's hand: it writes stores, and reads back what it or we have written.

Owns its jars (pinned in `kafka_streams_jars.sha256`), the compiling of the driver in `java/`, and the runs of it. A run
is one JVM that starts on a state directory, does its work, and ends; all applications process exactly once, log their
stores, do not cache, and have one sub-topology, so that partition `p` of the input is task `0_p`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from confluent_kafka import KafkaError, Message, Producer

from demo.kafka_jars import KAFKA_VERSION, JarSet, fetch_jars
from demo.processes import Processes, ServiceError, ServiceProcess, wait_until
from statestore.kafka.client import client_config
from statestore.kafka.cluster import Cluster
from statestore.model import StoreFormat, TopicPartition

_HERE = Path(__file__).parent
_SHAPES = _HERE.parent.parent / "java" / "StoreShapes.java"
_RUN_S = 180
_EXIT_S = 45  # above the run's own deadline, which names what it waited for: closing takes up to 30 s

KAFKA_STREAMS_JARS = JarSet(
    title=f"Kafka Streams {KAFKA_VERSION} and a Java compiler",
    directory=f"kafka-streams-{KAFKA_VERSION}",
    coordinates=(
        f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",
        "org.eclipse.jdt:ecj:3.41.0",  # a Java runtime has no compiler, and no more than a runtime is asked for
    ),
    checksums=_HERE / "kafka_streams_jars.sha256",
    megabytes=99,
)

#: Versions whose stores have their offsets beside them. The driver is compiled for the newest, and runs with these.
OLDER_VERSIONS = ("3.9.1", "4.0.1", "4.1.1", "4.2.0")
#: Versions that are newer than the one that the driver is compiled for, and than that of the broker.
NEWER_VERSIONS = ("4.4.0",)
#: The one that has transactional stores (KIP-892), and what turns them on.
TRANSACTIONAL_VERSION = "4.4.0"
TRANSACTIONAL_STORES = {"enable.transactional.statestores": "true"}


def jars_of(version: str) -> JarSet:
    """The jars of another Kafka Streams."""
    return JarSet(
        title=f"Kafka Streams {version}",
        directory=f"kafka-streams-{version}",
        coordinates=(f"org.apache.kafka:kafka-streams:{version}", "org.slf4j:slf4j-simple:1.7.36"),
        checksums=_HERE / f"kafka_streams_{version}_jars.sha256",
        megabytes=97,
    )


#: Tests choose their timestamps, so Kafka must not delete or compact what looks old (see spark/conftest.py).
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}
#: Streams that an application with joins has, and stores of commands that are their records.
STREAMS = ("left", "right")

Layout = Literal[
    "time-ordered", "sliding", "headers", "time-ordered-headers", "sliding-headers", "versioned", "in-memory", "lists"
]


@dataclass(frozen=True)
class Store:
    """A store as Kafka Streams is to open it; its segments span half of `retention_ms`, at least a minute.

    Attributes
    ----------
    layout
        One that the kind and the format do not say; see `Format` in `java/StoreSpec.java`.
    keys
        Those that a versioned store is asked for, also at the end of a run that writes: of each its history with the
        times from and until which a value is valid, its latest value without, and what it had as of given times.
    """

    name: str
    kind: Literal["kv", "window", "session"] = "kv"
    format: StoreFormat = StoreFormat.PLAIN
    retention_ms: int = 3_600_000
    window_ms: int = 60_000
    duplicates: bool = False
    layout: Layout | None = None
    keys: tuple[bytes, ...] = ()

    def __str__(self) -> str:
        layout = self.layout or self.format.value
        parts = self.name, self.kind, layout, self.retention_ms, self.window_ms, self.duplicates
        asked = [",".join(key.hex() for key in self.keys)] if self.keys else []
        return ":".join([*(str(part) for part in parts), *asked])


#: One of every kind, in both formats where Kafka Streams has both.
EVERY_KIND = [
    Store("plain-kv"),
    Store("ts-kv", format=StoreFormat.TIMESTAMPED),
    Store("window", "window"),
    Store("ts-window", "window", StoreFormat.TIMESTAMPED),
    Store("twice", "window", duplicates=True),
    Store("session", "session"),
]


class Command(NamedTuple):
    """One input record, and what it makes Kafka Streams do to a store; or a record of one of the `STREAMS`.

    Attributes
    ----------
    value
        None deletes.
    timestamp
        The record's, in ms: the time that a plain store's change is logged with.
    value_timestamp
        The value's, in ms, for a timestamped store; the record's if None.
    start, end
        Of a window (start only) or of a session, in ms; both inclusive.
    op
        `get` reads and drops the answer, for the migration that it causes; `put_if_absent` is for key-value stores;
        `halt` is for `KafkaStreams.die`.
    headers
        The record's: what a store with headers keeps.
    unlogged
        The value is put as it is stored, without the changelog; not into a versioned store.
    """

    store: str
    key: bytes
    value: bytes | None = None
    timestamp: int = 0
    value_timestamp: int | None = None
    start: int | None = None
    end: int | None = None
    op: Literal["put", "put_if_absent", "delete", "get", "halt"] = "put"
    partition: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    unlogged: bool = False


class StorePartition(NamedTuple):
    """One store of one task."""

    store: str
    partition: int = 0


class Row(NamedTuple):
    """An entry as an interactive query returned it; the times that a store of its kind does not have are None."""

    key: bytes
    value: bytes
    timestamp: int | None = None
    start: int | None = None
    end: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Contents:
    """What a run reported, by store partition.

    Attributes
    ----------
    restored
        Number of changelog records that Kafka Streams had to restore.
    rows
        Every entry, in the order of the query.
    positions
        Input offsets up to which the store says that it was written.
    """

    restored: Mapping[StorePartition, int]
    rows: Mapping[StorePartition, list[Row]]
    positions: Mapping[StorePartition, dict[TopicPartition, int]]


@dataclass(frozen=True)
class Driver:
    """The compiled driver, and all that is needed to run it."""

    processes: Processes
    java: str
    classpath: str
    directory: Path

    def run(self, arguments: Sequence[str]) -> None:
        """Run it to its end, which must be a good one; its output is in a log of its own."""
        with self.running(arguments):
            pass

    def run_several(self, runs: Sequence[Sequence[str]]) -> list[list[str]]:
        """Run it several times in one JVM, and return the topics that each run has made."""
        name = uuid4().hex
        asked, made = self.directory / f"{name}.runs", self.directory / f"{name}.topics"
        asked.write_text("".join("\t".join([*run, "--timeout-s", str(_RUN_S)]) + "\n" for run in runs))
        with self.running([str(asked), str(made)], main="Several", deadline_s=_RUN_S * len(runs)):
            pass
        return [line.split("\t") if line else [] for line in made.read_text().splitlines()]

    @contextmanager
    def running(
        self, arguments: Sequence[str], *, main: str = "Driver", deadline_s: float = _RUN_S, killed: bool = False
    ) -> Iterator[ServiceProcess]:
        """Start it, and wait at the end of the block for its own, which must be a good one; or kill it there.

        The first run leaves an archive of the classes that it has loaded: the later ones take half as long to start.
        """
        name = f"kafka-streams-{uuid4().hex[:8]}"
        archive, partial = self.directory / "classes.jsa", self.directory / f"{name}.jsa"
        options = [
            f"-XX:SharedArchiveFile={archive}" if archive.exists() else f"-XX:ArchiveClassesAtExit={partial}",
            # Else what the JVM says of the archive hides what the driver says.
            *("-Xlog:disable", "-Xlog:all=error:stderr"),
            *("-Xmx512m", f"-Djava.io.tmpdir={self.directory}"),  # where RocksDB unpacks its library
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"),
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.streams.processor=info",
        ]
        argv = [self.java, *options, "-cp", self.classpath, main, *arguments]
        argv += ["--timeout-s", str(_RUN_S)] if main == "Driver" else []
        log = self.directory / f"{name}.log"
        with _running(self.processes, name, argv, log, deadline_s + _EXIT_S, killed=killed) as service:
            yield service
        if partial.exists():
            partial.replace(archive)


def build_driver(processes: Processes, java: str, directory: Path) -> Driver:
    """Fetch the jars where needed, and compile the driver into `directory`."""
    jars = fetch_jars(processes, java, directory / "ivy.log", jar_set=KAFKA_STREAMS_JARS)
    classes = directory / "classes"
    (compiler,) = jars.glob("ecj-*.jar")
    classpath = ":".join(str(jar) for jar in sorted(jars.glob("*.jar")))
    argv = [
        *(java, "-jar", str(compiler), "-source", "17", "-target", "17", "-proc:none"),
        *("-cp", classpath, "-d", str(classes), str(_HERE / "java"), str(_SHAPES)),
    ]
    with _running(processes, "ecj", argv, directory / "ecj.log", 120):
        pass
    archive = shutil.make_archive(str(directory / "driver"), "zip", classes)  # classes are shared from archives alone
    return Driver(processes, java, f"{archive}:{classpath}", directory)


def other_driver(driver: Driver, version: str, directory: Path) -> Driver:
    """Return the driver as it runs with another Kafka Streams."""
    jars = fetch_jars(driver.processes, driver.java, directory / "ivy.log", jar_set=jars_of(version))
    compiled, _, _ = driver.classpath.partition(":")
    classpath = ":".join([compiled, *(str(jar) for jar in sorted(jars.glob("*.jar")))])
    return replace(driver, classpath=classpath, directory=directory)


class KafkaStreams:
    """One application: an input topic, a consumer group, changelogs, and as many state directories as a test wants.

    Parameters
    ----------
    partitions
        Of the input, and so of every store.
    changelog_config
        Topic settings of changelogs that Kafka Streams creates, over its own.
    tables, global_tables, global_processors
        By store: the topic that fills it, so that no other changelog is needed. Their stores are timestamped, and each
        table is a sub-topology of its own; these come first. What processors make of records: `java/GlobalStores.java`.
    dsl
        Topics of the stream and of the table that `java/DslTopology.java` works on, both with as many partitions; they
        are a sub-topology of their own.
    joins
        Whether it has two streams of its own, and their joins (`java/JoinTopology.java`) as a sub-topology before that
        of the stores. Kafka Streams names their stores itself (`joined_streams.py`).
    """

    def __init__(
        self,
        driver: Driver,
        bootstrap_servers: str,
        partitions: int = 1,
        changelog_config: Mapping[str, str] = KEPT,
        tables: Mapping[str, str] | None = None,
        global_tables: Mapping[str, str] | None = None,
        global_processors: Mapping[str, str] | None = None,
        dsl: tuple[str, str] | None = None,
        joins: bool = False,
    ) -> None:
        self._driver = driver
        self._dsl = dsl or ()
        self._tables = {
            "--table": tables or {},
            "--global-table": global_tables or {},
            "--global-processor": global_processors or {},
        }
        self.bootstrap_servers = bootstrap_servers
        self.application_id = f"streams-{uuid4().hex[:8]}"
        self.input_topic = f"{self.application_id}-input"
        self._streams = {name: f"{self.application_id}-{name}" for name in STREAMS} if joins else {}
        self.partitions = partitions
        self._changelog_config = changelog_config
        self.cluster = Cluster(bootstrap_servers)
        topics = self.cluster.topics
        for topic in (self.input_topic, *self._streams.values()):
            topics.create(topic, partitions, KEPT)
            wait_until(lambda topic=topic: topics.describe([topic]), 120, f"topic {topic} to be there")  # type: ignore[misc]

    def write(
        self,
        state_dir: Path,
        stores: Sequence[Store],
        commands: Iterable[Command],
        *,
        crash: bool = False,
        config: Mapping[str, str] | None = None,
        as_of: Sequence[int] = (),
    ) -> Contents:
        """Do the commands in order, commit, and close; return what was restored at the start.

        Of rows, there are only those of versioned stores that have `keys`.

        Parameters
        ----------
        crash
            Halt the JVM after the commit instead of closing anything.
        config
            Further settings of Kafka Streams.
        as_of
            Times (ms) for which versioned stores are asked.

        Raises
        ------
        ServiceError
            If the run fails; the message ends with the last lines of its log.
        """
        self.send(commands)
        return self._run("crash" if crash else "write", state_dir, stores, config, as_of)

    def die(
        self,
        state_dir: Path,
        stores: Sequence[Store],
        commands: Sequence[Command],
        *,
        config: Mapping[str, str] | None = None,
        once: Path | None = None,
    ) -> None:
        """Do the commands in order and halt the JVM, nothing committed, with what was written mostly on disk.

        Parameters
        ----------
        once
            File to create: later runs, which process the same input, do not halt. None: they do.
        config
            Further settings of Kafka Streams.
        """
        settings = {
            "commit.interval.ms": "600000",
            "producer.transaction.timeout.ms": "600000",  # the shortest that goes with such an interval
            "rocksdb.config.setter": "SmallMemtables",
        }
        halt = commands[-1]._replace(op="halt", value=None)
        if once is not None:
            once.touch()
            halt = halt._replace(value=str(once).encode())
        self.write(state_dir, stores, [*commands, halt], config={**settings, **(config or {})})

    def read(
        self,
        state_dir: Path,
        stores: Sequence[Store],
        commands: Iterable[Command] = (),
        *,
        config: Mapping[str, str] | None = None,
        as_of: Sequence[int] = (),
    ) -> Contents:
        """Start on the state directory, do the commands, query everything, and close.

        Parameters
        ----------
        config, as_of
            As of `write`.

        Raises
        ------
        ServiceError
            If the run fails; the message ends with the last lines of its log.
        """
        self.send(commands)
        return self._run("read", state_dir, stores, config, as_of)

    def writing(
        self,
        state_dir: Path,
        stores: Sequence[Store],
        commands: Iterable[Command],
        config: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Send the commands, and return the arguments of a run that does them, for `Driver.run_several`."""
        self.send(commands)
        return self._arguments("write", state_dir, stores, config)[0]

    @contextmanager
    def running(
        self,
        state_dir: Path,
        stores: Sequence[Store],
        commands: Iterable[Command],
        *,
        config: Mapping[str, str] | None = None,
        notes: Path | None = None,
        killed: bool = False,
        joins: bool = False,
    ) -> Iterator[ServiceProcess]:
        """Do the commands in order and commit, and run on in the block; at its end all input is processed.

        Parameters
        ----------
        config
            Further settings of Kafka Streams.
        notes
            File for the sequence number of the database after each command (`java/Notes.java`).
        killed
            Kill the JVM (SIGKILL) at the end of the block.
        joins
            Other instances run, too: none of the input need be processed at the beginning or the end.

        Raises
        ------
        ServiceError
            If the run fails; the message ends with the last lines of its log.
        """
        self.send(commands)
        done = self._driver.directory / f"{uuid4().hex}.done"
        arguments, _ = self._arguments("write", state_dir, stores, config)
        arguments += ["--while", str(done), *(["--notes", str(notes)] if notes else [])]
        arguments += ["--joins", "true"] if joins else []
        with self._driver.running(arguments, killed=killed) as service:
            wait_until(done.exists, _RUN_S, f"{service.name} to do its work", service)
            yield service
            if not killed:
                done.unlink()

    def shapes(self, stores: Sequence[Store], *, driver: Driver | None = None) -> str:
        """Return what `java/StoreShapes.java` prints of the application's topology."""
        arguments, output = self._arguments("read", Path("nowhere"), stores, None)
        flags = "\n".join(arguments)
        driver = driver or self._driver
        argv = [driver.java, "-cp", driver.classpath, "StoreShapes", self.application_id, "Driver::topology"]
        log = output.with_suffix(".log")
        done = subprocess.run([*argv, f"flags={flags}"], capture_output=True, text=True, timeout=_RUN_S, check=False)
        log.write_text(done.stderr)
        if done.returncode:
            raise ServiceError(f"StoreShapes ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def send(self, commands: Iterable[Command]) -> None:
        """Write commands into the input, and records into their streams, for a run that there is or will be."""
        _produce(self.bootstrap_servers, self.input_topic, self._streams, commands)

    def _run(
        self,
        command: str,
        state_dir: Path,
        stores: Sequence[Store],
        config: Mapping[str, str] | None,
        as_of: Sequence[int] = (),
    ) -> Contents:
        arguments, output = self._arguments(command, state_dir, stores, config)
        self._driver.run([*arguments, *(part for time in as_of for part in ("--as-of", str(time)))])
        return _parse(output.read_text(encoding="utf-8").splitlines())

    def _arguments(
        self, command: str, state_dir: Path, stores: Sequence[Store], config: Mapping[str, str] | None
    ) -> tuple[list[str], Path]:
        """Return the driver's arguments, and the file for what it reports."""
        output = self._driver.directory / f"{uuid4().hex}.jsonl"
        arguments = [
            *(command, "--bootstrap-servers", self.bootstrap_servers, "--application", self.application_id),
            *("--input", self.input_topic, "--state-dir", str(state_dir), "--output", str(output)),
            *(part for store in stores for part in ("--store", str(store))),
            *(part for item in (config or {}).items() for part in ("--config", "=".join(item))),
            *(part for flag, of in self._tables.items() for item in of.items() for part in (flag, "=".join(item))),
            *(part for topic in self._dsl for part in ("--dsl", topic)),
            *(part for topic in self._streams.values() for part in ("--join", topic)),
            *(part for item in self._changelog_config.items() for part in ("--changelog-config", "=".join(item))),
        ]
        return arguments, output


@contextmanager
def _running(
    processes: Processes, name: str, argv: Sequence[str], log_path: Path, deadline_s: float, *, killed: bool = False
) -> Iterator[ServiceProcess]:
    service = processes.start(name, argv, os.environ, log_path)
    try:
        yield service
        if killed:
            service.kill()
            service.wait()
            return
        # Any other exit code is an error that shows the end of the log.
        wait_until(lambda: service.poll() == 0, deadline_s, f"{name} to do its work", service)
    finally:
        processes.stop_service(service)


def _produce(bootstrap_servers: str, input_topic: str, streams: Mapping[str, str], commands: Iterable[Command]) -> None:
    producer = Producer(client_config(bootstrap_servers, **{"enable.idempotence": True}))
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    for command in commands:
        if (stream := streams.get(command.store)) is not None:
            producer.produce(
                stream,
                key=command.key,
                value=command.value,
                partition=command.partition,
                timestamp=command.timestamp,
                on_delivery=delivered,
            )
            continue
        fields: dict[str, Any] = command._asdict()
        partition, timestamp, headers = fields.pop("partition"), fields.pop("timestamp"), fields.pop("headers")
        for name in ("key", "value"):
            fields[name] = None if fields[name] is None else fields[name].hex()
        producer.produce(
            input_topic,
            value=json.dumps(fields).encode(),
            partition=partition,
            timestamp=timestamp,
            headers=list(headers),
            on_delivery=delivered,
        )
        producer.poll(0)
    left = producer.flush(120)
    if errors or left:
        raise ServiceError(f"the input could not be written: {errors[:3]}, {left} records left after 120 s")


def _parse(lines: Iterable[str]) -> Contents:
    restored: dict[StorePartition, int] = {}
    rows: dict[StorePartition, list[Row]] = {}
    positions: dict[StorePartition, dict[TopicPartition, int]] = {}
    for line in lines:
        fields = json.loads(line)
        part = StorePartition(fields["store"], fields["partition"])
        match fields["type"]:
            case "restored":
                restored[part] = fields["records"]
            case "position":
                rows[part] = []
                positions[part] = {
                    TopicPartition(topic, int(partition)): offset
                    for topic, offsets in fields["offsets"].items()
                    for partition, offset in offsets.items()
                }
            case "row":
                key, value = bytes.fromhex(fields["key"]), bytes.fromhex(fields["value"])
                headers = [(name, None if of is None else bytes.fromhex(of)) for name, of in fields["headers"]]
                times = fields["timestamp"], fields["start"], fields["end"]
                rows[part].append(Row(key, value, *times, tuple(headers)))
    return Contents(restored, rows, positions)
