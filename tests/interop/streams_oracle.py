"""Kafka Streams writes stores of all kinds, and notes the sequence number of the database at each put.

The largest sequence number in the files of a database, by its MANIFEST, then tells which puts are on disk, while the
application runs and after it was killed. Nothing of this uses the proof (proof_oracle.py).

An application can be started several times, and have several instances. A put that was never committed is then done
again by the next run. In the changelog, the timestamp of a record tells which command it is of.
"""

from __future__ import annotations

import json
import random
import threading
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import Producer
from kafka_streams import Command, Driver, KafkaStreams, Store
from stopped import Stopped

from demo.processes import ServiceProcess
from statestore.cli.selection import PartitionSelection, Where, choose
from statestore.kafka.topics import LogRange
from statestore.model import StoreFormat, changelog_topic
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import VerifyRow
from statestore.stores.manifest import flushed_sequences
from statestore.verification.contents import databases
from statestore.verification.live.verify import _Watched
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.prefix import Prefix
from tests.faults.proof_oracle import Expected, Killed, Put, expected_at
from tests.integration.broker import T0, WAIT_S, Logged, consume, wait_for
from tests.interop.compatibility import TRANSACTIONAL, VERSIONS, Column

MINUTE = 60_000
_RETENTION_MS = 2 * MINUTE
_KEYS = 400
#: Stream time between two commands (ms): a new segment begins after some seconds of writing.
_STEP_MS = 10
#: Ages of windows, in segments. The last one has expired.
_AGES = (*[0] * 12, *[1] * 3, 2, 3)
#: Commands in one batch of the input, and the time between two batches (s).
_BATCH, _PAUSE_S = 60, 0.05
_NOTE_BYTES = 24
#: Sequence number of a put that never came to the disk.
NEVER = 1 << 62
#: Commands before the first look.
_FIRST = 3_000
_HEADERS_SINCE = "4.3.1"
SETTINGS = {
    "rocksdb.config.setter": "SmallMemtables",
    "commit.interval.ms": "300",
    "producer.transaction.timeout.ms": "120000",  # a test decides when a transaction is aborted
}
_STORES = [
    Store("plain"),
    Store("timestamped", format=StoreFormat.TIMESTAMPED),
    Store("window", "window", StoreFormat.TIMESTAMPED, retention_ms=_RETENTION_MS),
    Store("session", "session", retention_ms=_RETENTION_MS),
    Store("versioned", layout="versioned"),
    Store("time-ordered", "window", layout="time-ordered", retention_ms=_RETENTION_MS),
    Store("sliding", "window", layout="sliding", retention_ms=_RETENTION_MS),
    Store("headers", format=StoreFormat.HEADERS),
]
#: A store may be gone for a minute: its application replaces it.
OPTIONS = VerifyOptions("deep", confirm_within_s=120)


def stores_of(version: str) -> list[Store]:
    """Return the stores that a version has."""
    with_headers = VERSIONS.index(version) >= VERSIONS.index(_HEADERS_SINCE)
    return [store for store in _STORES if with_headers or store.name != "headers"]


class Note(NamedTuple):
    """The note of an instance after a command: identity and sequence number of the database that it was for."""

    identity: int
    sequence: int


class Run(NamedTuple):
    """One start of an instance.

    Attributes
    ----------
    notes
        File with its notes; it does not exist if the instance never had a task.
    """

    state_dir: Path
    notes: Path

    def count(self) -> int:
        """Return how many commands it has done."""
        return self.notes.stat().st_size // _NOTE_BYTES if self.notes.exists() else 0

    def noted(self) -> list[tuple[int, Note]]:
        """Return the offset in the input of each command, and the note after it, in order."""
        raw = self.notes.read_bytes() if self.notes.exists() else b""
        found = np.frombuffer(raw[: len(raw) // _NOTE_BYTES * _NOTE_BYTES], ">i8").reshape(-1, 3).tolist()
        return [(offset, Note(identity, sequence)) for offset, identity, sequence in found]


class Period(NamedTuple):
    """Commands that a run has done in order. It ends when the run ends, or another instance gets the task.

    Attributes
    ----------
    first
        How many commands the run had done before.
    notes
        By the offset of a command in the input, the note after it.
    """

    run: int
    first: int
    notes: Mapping[int, Note]


class StoreLook(NamedTuple):
    """One look at a store.

    Attributes
    ----------
    before, after
        By segment: identity of the database, and the largest sequence number in its files, before and after the look.
    log
        Offsets of the changelog that the look has read.
    prefixes
        By segment: the offsets that the look found; empty without a proof.
    run
        Number of the last run that was started on its state directory.
    done
        How many commands this run had done before and after the look.
    committed
        Something was committed during the look.
    """

    row: VerifyRow
    before: Mapping[int, Note]
    after: Mapping[int, Note]
    log: LogRange
    prefixes: Mapping[int, Prefix]
    run: int
    done: tuple[int, int]
    committed: bool


@dataclass
class Life:
    """An application that writes, is looked at, and is killed.

    Attributes
    ----------
    seed
        Decides on the commands, and on the moment of the kill.
    retention_ms
        Retention of windows and sessions (ms): a segment expires after about so much stream time.
    settings
        Further settings of Kafka Streams.
    without
        Names of stores that the application does not have.
    runs
        All starts of its instances, in order.
    looks
        All looks, by store.
    """

    driver: Driver
    bootstrap_servers: str
    column: Column
    directory: Path
    seed: int
    retention_ms: int = _RETENTION_MS
    settings: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    runs: list[Run] = field(default_factory=list)
    looks: dict[str, list[StoreLook]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stores = [
            store if store.kind == "kv" else replace(store, retention_ms=self.retention_ms)
            for store in stores_of(self.column.version)
            if store.name not in self.without
        ]
        self._changes = changes(self.stores, self.seed)
        self._sent: list[Command] = []
        self._sending = threading.Lock()
        self._watched: dict[Path, _Watched] = {}
        app = KafkaStreams(self.driver, self.bootstrap_servers, changelog_config={})
        self.stopped = Stopped(
            app,
            self.directory / "state",
            self.column.guarantee,
            {**SETTINGS, **self.column.settings, **self.settings},
        )

    @contextmanager
    def running(self, *, killed: bool) -> Iterator[ServiceProcess]:
        """Run the application, and feed it until the end of the block; it is killed there, or processes all input."""
        stop = threading.Event()

        def feed() -> None:
            while not stop.wait(_PAUSE_S):
                self.send(_BATCH)

        feeding = threading.Thread(target=feed)
        self.send(_FIRST)
        try:
            with self._started(self.stopped, killed=killed) as service:
                feeding.start()
                yield service
                if not killed:
                    stop.set()
                    feeding.join()
        finally:
            stop.set()
            if feeding.ident is not None:
                feeding.join()

    @contextmanager
    def joined(self, name: str) -> Iterator[tuple[Stopped, ServiceProcess]]:
        """Run another instance with its own state directory in the block; it is killed there."""
        instance = self.stopped.at(self.directory / name)
        with self._started(instance, joins=True, killed=True) as service:
            yield instance, service

    @contextmanager
    def _started(self, instance: Stopped, **how: bool) -> Iterator[ServiceProcess]:
        run = Run(instance.state_dir, self.directory / f"notes-{len(self.runs)}")
        self.runs.append(run)
        config = instance.config
        with instance.app.running(run.state_dir, self.stores, (), config=config, notes=run.notes, **how) as service:
            yield service

    @property
    def time_ms(self) -> int:
        """The stream time, about: the timestamp of the next command (ms)."""
        return T0 + len(self._sent) * _STEP_MS

    def send(self, count: int, *others: Command) -> None:
        """Send the next commands, and then others; with others, there is no `puts`."""
        with self._sending:
            made = [*(next(self._changes) for _ in range(count)), *others]
            self.stopped.app.send(made)
            self._sent += made

    def specs(self, instance: Stopped | None = None) -> dict[str, StorePartitionSpec]:
        """Find the stores of an instance as `verify --live` does; by default, of the first one."""
        asked = PartitionSelection(
            Where(self.stopped.app.cluster, (instance or self.stopped).state_dir),
            applications=[self.stopped.app.application_id],
            guarantee=self.column.guarantee,
        )

        def found() -> list[StorePartitionSpec]:
            chosen = choose(asked, self.stopped.app.cluster.topics, without_lock="always")
            troubles[:] = [f"{store.name}: {store.problem}" for store in chosen.discovered if store.trouble]
            return [] if troubles or len(chosen.specs) < len(self.stores) else chosen.specs

        troubles: list[str] = []
        # Before its first rows are on disk, nothing shows the kind of a windowed store.
        try:
            return {spec.store.name: spec for spec in wait_for(found, "rows of each store on disk", 60)}
        except AssertionError as error:
            raise AssertionError(f"{error}: {troubles}") from None

    def look(self, spec: StorePartitionSpec) -> StoreLook:
        """Look at a store that is in use; the looks before this one count, too."""
        watched = self._watched.setdefault(spec.live, _Watched(spec, OPTIONS, spec.cluster))
        run = max(at for at, one in enumerate(self.runs) if one.state_dir == spec.state_dir)
        done, before = self.runs[run].count(), flushed(spec)
        watched.look()
        after, found = flushed(spec), watched._look
        proof = None if found is None else found.proof
        log = LogRange(0, 0, 0) if found is None else found.log
        look = StoreLook(
            watched.row(),
            before,
            after,
            log,
            {} if proof is None else proof.prefixes,
            run,
            (done, self.runs[run].count()),
            spec.cluster.topics.log_ranges([spec.partition])[spec.partition].last_stable > log.last_stable,
        )
        self.looks.setdefault(spec.store.name, []).append(look)
        return look

    @property
    def active(self) -> int:
        """Number of the run that has done the last command of the input so far."""
        return max(
            range(len(self.runs)), key=lambda at: max((offset for offset, _ in self.runs[at].noted()), default=-1)
        )

    def wait_for_disk(self, spec: StorePartitionSpec, segment: int) -> None:
        """Wait until a put that is done from now on is on disk in a segment (ms) of a store."""
        run, store = self.runs[-1], self.store(spec.store.name)
        begin = run.count()

        def is_on_disk() -> bool:
            on_disk = flushed(spec)[segment].sequence
            noted = [offset for offset, note in run.noted()[begin:] if 0 <= note.sequence < on_disk]
            # The application notes a command before `send` has added it.
            later = [self._sent[offset] for offset in noted if offset < len(self._sent)]
            return any(one.store == store.name and segment_of(store, one) == segment for one in later)

        wait_for(is_on_disk, f"store {store.name} to be written")

    def store(self, name: str) -> Store:
        """Return a store by its name."""
        return next(store for store in self.stores if store.name == name)

    def wait_for_kill(self) -> None:
        """Wait until the application has written as much as the seed says."""
        notes = self.runs[-1].notes
        enough = notes.stat().st_size + random.Random(self.seed).randrange(200, 6_000) * _NOTE_BYTES
        wait_for(lambda: notes.stat().st_size >= enough, "enough puts")

    def abort_transaction(self) -> None:
        """Abort the transaction that a killed application has left open, as its next start does."""
        if self.column.guarantee == "exactly_once_v2":
            identity = json.loads((self.stopped.directory / "kafka-streams-process-metadata").read_text())["processId"]
            name = f"{self.stopped.app.application_id}-{identity}-1"
            Producer({"bootstrap.servers": self.bootstrap_servers, "transactional.id": name}).init_transactions(WAIT_S)

    def periods(self) -> list[Period]:
        """Return who has done which commands, in the order in which they are logged."""
        found: list[Period] = []
        for number, run in enumerate(self.runs):
            noted = run.noted()
            cuts = [at for at in range(1, len(noted)) if noted[at][0] != noted[at - 1][0] + 1]
            for first, stop in pairwise((0, *cuts, len(noted))):
                found += [Period(number, first, dict(noted[first:stop]))] if first < stop else []
        return sorted(found, key=lambda period: (min(period.notes), period.run))

    def puts(self, store: Store, period: int = 0, identity: int | None = None) -> Killed:
        """Return the puts of a store, in order, as a database has them during a period.

        Puts that were committed before the period are on disk before its first put. Puts after it are never on disk.
        Puts into other databases than that of an identity, if there is one, count as written before.
        """
        logged, committed = self.logged(store), {one.offset: True for one in self.logged(store, read_committed=True)}
        periods = self.periods()
        own = [at for at, one in enumerate(self._sent) if one.store == store.name]
        numbers = [(one.timestamp - T0) // _STEP_MS for one in logged]
        assert [self._sent[at].value for at in numbers] == [one.value for one in logged]
        # A transactional store writes at the commit after a put, in the order of the puts.
        behind = 1 if self.column.version == TRANSACTIONAL else 0
        noted = {
            at: note.sequence + behind if note.sequence >= 0 else note.sequence
            for at, note in periods[period].notes.items()
            if identity in (None, note.identity)
        }
        found: list[tuple[int, int, int]] = []  # number in the log, command, sequence number
        for number, (at, writer) in enumerate(zip(numbers, _writers(numbers, own, periods), strict=True)):
            if writer == period and at in noted:
                found.append((number, at, noted[at]))
            elif writer > period or at > max(periods[period].notes):
                found.append((number, at, NEVER))
            elif logged[number].offset in committed:
                found.append((number, at, 0))
        unlogged = sorted({at for at in own if at in noted}.difference(at for _, at, sequence in found if sequence))
        found += [(len(logged) + number, at, noted[at]) for number, at in enumerate(unlogged)]
        commands = [self._sent[at] for _, at, _ in found]
        return Killed(
            [
                Put(number, one.timestamp, b"%b %a %a" % (one.key, one.start, one.end), one.value)
                for (number, _, _), one in zip(found, commands, strict=True)
            ],
            [-1 if of[2] < 0 else segment_of(store, one) for of, one in zip(found, commands, strict=True)],
            [sequence for _, _, sequence in found],
            [one.offset for one in logged],
        )

    def logged(self, store: Store, *, read_committed: bool = False) -> list[Logged]:
        """Return the records of a changelog."""
        topic = changelog_topic(self.stopped.app.application_id, store.name)
        return consume(self.bootstrap_servers, topic, read_committed=read_committed)[0]


def _writers(commands: Sequence[int], own: Sequence[int], periods: Sequence[Period]) -> list[int]:
    """Return in which period each record of a changelog was written.

    Parameters
    ----------
    commands
        For each record, the number of its command.
    own
        Numbers of the commands that are for the store.
    """
    begins = [next((at for at in own[bisect_left(own, min(period.notes)) :]), -1) for period in periods]
    lasts = [max(period.notes) for period in periods]
    found: list[int] = []
    writer, before = 0, -1
    for at in commands:
        if at <= before or at > lasts[writer]:
            later = range(writer + 1, len(periods))
            writer = next((number for number in later if begins[number] == at <= lasts[number]), writer)
        found.append(writer)
        before = at
    return found


def changes(stores: Sequence[Store], seed: int) -> Iterator[Command]:
    """Yield changes of stores without an end: values differ, some are deletes, and some windows have expired."""
    chance, number = random.Random(seed), 0
    while True:
        store = chance.choice(stores)
        time_ms = T0 + number * _STEP_MS
        start = time_ms - time_ms % MINUTE - MINUTE * chance.choice(_AGES)
        yield Command(
            store.name,
            b"key-%03d" % chance.randrange(_KEYS),
            None if chance.random() < 0.1 else b"%d " % number + chance.randbytes(400),
            time_ms,
            start=start if store.kind != "kv" else None,
            end=start + 1_000 * chance.randrange(1, 4) if store.kind == "session" else None,
            headers=(("number", b"%d" % number),) if store.name == "headers" else (),
        )
        number += 1


def flushed(spec: StorePartitionSpec) -> dict[int, Note]:
    """Return the identity of each database, and the largest sequence number in its files, by its segment."""
    found: dict[int, Note] = {}
    with suppress(FileNotFoundError):  # the application replaces the store
        for segment, directory in databases(spec).items():
            with suppress(FileNotFoundError):  # it changes its files, or has removed the segment
                identity = zlib.crc32((directory / "IDENTITY").read_bytes())
                found[segment] = Note(identity, max(flushed_sequences(directory).values(), default=0))
    return found


def expected(puts: Killed, segment: int, sequence: int, log: LogRange, *, committed: Mapping[int, bool]) -> Expected:
    """Return the expected result for a database that has the writes up to a sequence number on disk."""
    end = max(log.last_stable, log.high_watermark)
    required = {offset: True for offset in committed if offset < log.last_stable}
    return expected_at(puts, segment, sequence, required, end)


def segment_of(store: Store, one: Command) -> int:
    """Return the start (ms) of the segment that a command is for."""
    if store.kind == "kv":
        return 0
    time_ms = (one.end if store.kind == "session" else one.start) or 0
    return time_ms - time_ms % max(store.retention_ms // 2, MINUTE)
