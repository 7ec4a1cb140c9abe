"""Kafka Streams writes stores of all kinds, and notes the sequence number of the database at each put.

The largest sequence number in the files of a database, by its MANIFEST, then tells which puts are on disk, while the
application runs and after it was killed. Nothing of this uses the proof (proof_oracle.py).
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import Producer
from kafka_streams import Command, Driver, KafkaStreams, Store
from stopped import Stopped

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
#: Span of a segment: half of the retention, and at least a minute.
_SEGMENT_MS = MINUTE
_KEYS = 400
#: Stream time between two commands (ms): a new segment begins after some seconds of writing.
_STEP_MS = 10
#: Ages of windows, in segments. The last one has expired.
_AGES = (*[0] * 12, *[1] * 3, 2, 3)
#: Commands in one batch of the input, and the time between two batches (s).
_BATCH, _PAUSE_S = 60, 0.05
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
ONE_LOOK = VerifyOptions("deep", confirm_within_s=0)


def stores_of(version: str) -> list[Store]:
    """Return the stores that a version has."""
    with_headers = VERSIONS.index(version) >= VERSIONS.index(_HEADERS_SINCE)
    return [store for store in _STORES if with_headers or store.name != "headers"]


class StoreLook(NamedTuple):
    """One look at a store.

    Attributes
    ----------
    before, after
        By segment: the largest sequence number in the files, before and after the look.
    log
        Offsets of the changelog that the look has read.
    prefixes
        By segment: the offsets that the look found; empty without a proof.
    """

    row: VerifyRow
    before: Mapping[int, int]
    after: Mapping[int, int]
    log: LogRange
    prefixes: Mapping[int, Prefix]


@dataclass
class Life:
    """An application that writes, is looked at, and is killed.

    Attributes
    ----------
    seed
        Decides on the commands, and on the moment of the kill.
    retention_ms
        Retention of windows and sessions (ms): a segment expires after about so much stream time.
    looks
        All looks, by store.
    """

    driver: Driver
    bootstrap_servers: str
    column: Column
    directory: Path
    seed: int
    retention_ms: int = _RETENTION_MS
    looks: dict[str, list[StoreLook]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stores = [
            store if store.kind == "kv" else replace(store, retention_ms=self.retention_ms)
            for store in stores_of(self.column.version)
        ]
        self._changes = changes(self.stores, self.seed)
        self._sent: list[Command] = []
        self._notes = self.directory / "notes"
        app = KafkaStreams(self.driver, self.bootstrap_servers, changelog_config={})
        self.stopped = Stopped(
            app, self.directory / "state", self.column.guarantee, {**SETTINGS, **self.column.settings}
        )

    @contextmanager
    def running(self, *, killed: bool) -> Iterator[None]:
        """Run the application, and feed it until the end of the block; it is killed there, or processes all input."""
        app, stop = self.stopped.app, threading.Event()

        def feed() -> None:
            while not stop.wait(_PAUSE_S):
                app.send(self._more(_BATCH))

        feeding = threading.Thread(target=feed)
        notes = {"notes": self._notes, "killed": killed}
        first = self._more(_FIRST)
        try:
            with app.running(self.stopped.state_dir, self.stores, first, config=self.stopped.config, **notes):
                feeding.start()
                yield
                if not killed:
                    stop.set()
                    feeding.join()
        finally:
            stop.set()
            if feeding.ident is not None:
                feeding.join()

    @property
    def time_ms(self) -> int:
        """The stream time, about: the timestamp of the next command (ms)."""
        return T0 + len(self._sent) * _STEP_MS

    def _more(self, count: int) -> list[Command]:
        made = [next(self._changes) for _ in range(count)]
        self._sent += made
        return made

    def specs(self) -> dict[str, StorePartitionSpec]:
        """Find the stores as `verify --live` does."""
        asked = PartitionSelection(
            Where(self.cluster, self.stopped.state_dir),
            applications=[self.stopped.app.application_id],
            guarantee=self.column.guarantee,
        )

        def found() -> list[StorePartitionSpec]:
            chosen = choose(asked, self.cluster.topics, without_lock="always")
            troubles[:] = [f"{store.name}: {store.problem}" for store in chosen.discovered if store.trouble]
            return [] if troubles else chosen.specs

        troubles: list[str] = []
        # Before its first rows are on disk, nothing shows the kind of a windowed store.
        try:
            return {spec.store.name: spec for spec in wait_for(found, "rows of each store on disk", 30)}
        except AssertionError as error:
            raise AssertionError(f"{error}: {troubles}") from None

    def look(self, spec: StorePartitionSpec) -> StoreLook:
        """Look once at a store that is in use."""
        watched = _Watched(spec, ONE_LOOK, spec.cluster)
        before = flushed(spec)
        watched.look()
        after, found = flushed(spec), watched._look
        proof = None if found is None else found.proof
        look = StoreLook(
            watched.row(),
            before,
            after,
            LogRange(0, 0, 0) if found is None else found.log,
            {} if proof is None else proof.prefixes,
        )
        self.looks.setdefault(spec.store.name, []).append(look)
        return look

    def wait_for_kill(self) -> None:
        """Wait until the application has written as much as the seed says."""
        more = random.Random(self.seed).randrange(200, 6_000) * 8
        enough = self._notes.stat().st_size + more
        wait_for(lambda: self._notes.stat().st_size >= enough, "enough puts")

    def abort_transaction(self) -> None:
        """Abort the transaction that a killed application has left open, as its next start does."""
        if self.column.guarantee == "exactly_once_v2":
            identity = json.loads((self.stopped.directory / "kafka-streams-process-metadata").read_text())["processId"]
            name = f"{self.stopped.app.application_id}-{identity}-1"
            Producer({"bootstrap.servers": self.bootstrap_servers, "transactional.id": name}).init_transactions(WAIT_S)

    def puts(self, store: Store) -> Killed:
        """Return the puts of a store, with the sequence numbers that the application has noted."""
        raw = self._notes.read_bytes()
        sequences = np.frombuffer(raw[: len(raw) // 8 * 8], ">i8").tolist()
        logged = self.logged(store)
        own = [(at, one) for at, one in enumerate(self._sent) if one.store == store.name]
        noted = [(one, sequences[at]) for at, one in own if at < len(sequences)]
        assert [one.value for _, one in own[: len(logged)]] == [self._value(one) for one in logged]
        # A transactional store writes at the commit after a put, in the order of the puts.
        behind = 1 if self.column.version == TRANSACTIONAL else 0
        return Killed(
            [
                Put(number, one.timestamp, b"%b %a %a" % (one.key, one.start, one.end), one.value)
                for number, (one, _) in enumerate(noted)
            ],
            [-1 if sequence < 0 else _segment(store, one) for one, sequence in noted],
            [sequence + behind for _, sequence in noted],
            [one.offset for one in logged],
        )

    def logged(self, store: Store, *, read_committed: bool = False) -> list[Logged]:
        """Return the records of a changelog."""
        topic = changelog_topic(self.stopped.app.application_id, store.name)
        return consume(self.bootstrap_servers, topic, read_committed=read_committed)[0]

    @staticmethod
    def _value(one: Logged) -> bytes | None:
        return one.value


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


def flushed(spec: StorePartitionSpec) -> dict[int, int]:
    """Return the largest sequence number in the files of each database, by its segment."""
    found: dict[int, int] = {}
    for segment, directory in databases(spec).items():
        with suppress(FileNotFoundError):  # the application changes its files, or has removed the segment
            found[segment] = max(flushed_sequences(directory).values(), default=0)
    return found


def expected(puts: Killed, segment: int, sequence: int, log: LogRange, *, committed: Mapping[int, bool]) -> Expected:
    """Return the expected result for a database that has the writes up to a sequence number on disk."""
    end = max(log.last_stable, log.high_watermark)
    required = {offset: True for offset in committed if offset < log.last_stable}
    return expected_at(puts, segment, sequence, required, end)


def _segment(store: Store, one: Command) -> int:
    """Return the start (ms) of the segment that a command is for."""
    if store.kind == "kv":
        return 0
    time_ms = (one.end if store.kind == "session" else one.start) or 0
    return time_ms - time_ms % _SEGMENT_MS
