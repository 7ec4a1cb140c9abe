"""An application that writes a store and its changelog, is killed, and leaves what its store has on disk.

At each put, the process notes the sequence number of the database. The largest one in the files of the database, by its
MANIFEST, then tells which puts are on disk, without reading a row. Nothing of this uses the proof.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from confluent_kafka import Producer

from statestore.bulk.routing import routing_of
from statestore.definitions.store import StoreDefinition
from statestore.formats import session_key, window_key
from statestore.formats.headers_value import encode as encode_with_headers
from statestore.formats.offsets import STATUS_OPEN
from statestore.formats.timestamped_value import encode
from statestore.formats.versioned_put import put
from statestore.formats.versioned_row import (
    LATEST,
    SegmentRow,
    Version,
    bounds,
    decode_latest,
    decode_segment_row,
    default_segment_interval_ms,
    encode_latest,
    encode_segment_row,
    row_key,
)
from statestore.kafka.topics import LogRange
from statestore.partition.spec import StorePartitionSpec
from statestore.stores.manifest import flushed_sequences
from statestore.stores.rocksdb import RocksDB
from statestore.stores.rocksdb_options import Memory
from statestore.verification.contents import databases
from tests.integration.broker import T0, WAIT_S, consume, wait_for
from tests.integration.dying import start_process

MINUTE = 60_000
_NOTE = struct.Struct(">qq")
_KEYS = 400
_COMMIT_EVERY = 120
_FLUSH_EVERY = 40
#: RocksDB's least: some hundred puts fill a memtable.
_MEMORY = Memory(write_buffer_bytes=64 << 10)


class Put(NamedTuple):
    """A put of the application: its place in the changelog, its timestamp (ms), which no other has, and its row."""

    number: int
    timestamp: int
    key: bytes
    value: bytes | None


def puts(store: StoreDefinition, seed: int, begin_ms: int) -> Iterable[Put]:
    """Yield puts from a time on, without an end: each value differs from all others, and some are deletes."""
    chance, number = random.Random(seed), 0
    while True:
        key = b"key-%03d" % chance.randrange(_KEYS)
        start = begin_ms - begin_ms % MINUTE + chance.randrange(3) * MINUTE
        if store.kind == "window":
            key = window_key.encode(key, start, 0)
        elif store.kind == "session":
            key = session_key.encode(key, start, start + zlib.crc32(b"%s %d" % (key, start)) % MINUTE)
        value = None if chance.random() < 0.15 else b"%d " % number + chance.randbytes(chance.randrange(20, 300))
        yield Put(number, begin_ms + number, key, value)
        number += 1


class _VersionRows:
    """Rows of a key of a versioned store, each written by itself, as Kafka Streams writes them."""

    def __init__(self, database: RocksDB, key: bytes, newest: int) -> None:
        self._database, self._key, self._newest = database, key, newest

    def latest(self) -> Version | None:
        raw = self._database.get("default", row_key(LATEST, self._key))
        if raw is None:
            return None
        timestamp, value = decode_latest(raw)
        return Version(timestamp, value)

    def set_latest(self, version: Version) -> None:
        raw = None if version.value is None else encode_latest(version.value, version.timestamp)
        self._database.write({"default": {row_key(LATEST, self._key): raw}})

    def segments_from(self, segment: int) -> Iterable[int]:
        newest = self._newest
        return [at for at in range(newest, segment - 1, -1) if self.row(at) is not None]

    def bounds(self, segment: int) -> tuple[int, int] | None:
        raw = self._database.get("default", row_key(segment, self._key))
        return None if raw is None else bounds(raw)

    def row(self, segment: int) -> SegmentRow | None:
        raw = self._database.get("default", row_key(segment, self._key))
        return None if raw is None else decode_segment_row(raw)

    def set_row(self, segment: int, row: SegmentRow) -> None:
        self._database.write({"default": {row_key(segment, self._key): encode_segment_row(row)}})


class _Databases:
    """The databases that the application writes, by the starts (ms) of their segments."""

    def __init__(self, spec: StorePartitionSpec) -> None:
        self._spec, self._routing = spec, routing_of(spec.store)
        self._open: dict[int, RocksDB] = {}

    def put(self, one: Put) -> tuple[int, int]:
        """Put a row; return its segment, and the sequence number of the database after it."""
        store = self._spec.store
        segment = self._routing.place(one.key)[0]
        if segment not in self._open:
            name = f"{store.name}.{segment}" if store.segmented else ""
            directory = self._spec.live / name
            database = RocksDB(directory, store.values.column_families, memory=_MEMORY)
            database.write({}, status=STATUS_OPEN)
            database.sync()
            self._open[segment] = database
        database = self._open[segment]
        if store.store_kind.has_history:
            interval_ms = default_segment_interval_ms(store.retention_ms or 0)
            rows = _VersionRows(database, one.key, one.timestamp // interval_ms)
            put(rows, Version(one.timestamp, one.value), interval_ms, 0, 0)
        else:
            database.write({store.values.column_families[0]: {one.key: stored(store, one)}})
        return segment, database.last_write


def stored(store: StoreDefinition, one: Put) -> bytes | None:
    """Return a put as the store has it."""
    if one.value is None or not store.values.timestamped:
        return one.value
    if store.values.keeps_headers:
        return encode_with_headers(one.value, one.timestamp, ())
    return encode(one.value, one.timestamp)


def _work(spec: StorePartitionSpec, seed: int, begin_ms: int, transactional_id: str | None, notes: Path) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": spec.cluster.servers, "linger.ms": 5, "enable.idempotence": True}
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
    producer, rows = Producer(settings), _Databases(spec)
    if transactional_id is not None:
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
    noted = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for one in puts(spec.store, seed, begin_ms):
        os.write(noted, _NOTE.pack(*rows.put(one)))
        producer.produce(spec.partition.topic, value=one.value, key=one.key, partition=0, timestamp=one.timestamp)
        if one.number % _FLUSH_EVERY == 0:
            producer.flush(WAIT_S)
        if transactional_id is not None and one.number % _COMMIT_EVERY == 0:
            producer.commit_transaction(WAIT_S)
            producer.begin_transaction()


class Killed(NamedTuple):
    """Puts of an application that was killed.

    Attributes
    ----------
    puts
        Its puts, in order.
    segments, sequences
        For each put: its segment, and the sequence number after it.
    offsets
        Changelog offsets of the puts that were logged.
    """

    puts: list[Put]
    segments: list[int]
    sequences: list[int]
    offsets: list[int]


def run_until_killed(
    spec: StorePartitionSpec, seed: int, directory: Path, *, exactly_once: bool, fence: bool
) -> Killed:
    """Have an application write, and kill it at a random put.

    Parameters
    ----------
    fence
        Abort the transaction that it leaves open, as its next start does.
    """
    notes, transactional_id = directory / "notes", uuid4().hex if exactly_once else None
    enough = random.Random(seed).randrange(800, 3_000) * _NOTE.size
    process = start_process(_work, spec, seed, T0, transactional_id, notes)
    wait_for(lambda: not process.is_alive() or (notes.exists() and notes.stat().st_size >= enough), "enough puts")
    assert process.is_alive()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    if transactional_id is not None and fence:
        Producer({"bootstrap.servers": spec.cluster.servers, "transactional.id": transactional_id}).init_transactions(
            WAIT_S
        )
    raw = notes.read_bytes()
    found = list(_NOTE.iter_unpack(raw[: len(raw) - len(raw) % _NOTE.size]))
    logged, _ = consume(spec.cluster.servers, spec.partition.topic, read_committed=False)
    made = [one for one, _ in zip(puts(spec.store, seed, T0), range(max(len(found), len(logged))), strict=False)]
    assert [(one.key, one.value) for one in made[: len(logged)]] == [(one.key, one.value) for one in logged]
    return Killed(made[: len(found)], *map(list, zip(*found, strict=True)), [one.offset for one in logged])


class Expected(NamedTuple):
    """The expected result of a proof of one database.

    Attributes
    ----------
    offset
        Offset of the last put on disk; None: it was never logged.
    first, last
        The range of offsets around it at which no record changes a row.
    """

    offset: int | None
    first: int
    last: int


def expected(killed: Killed, spec: StorePartitionSpec, required: Mapping[int, bool], end: int) -> dict[int, Expected]:
    """Return the expected result for each database, by its segment.

    Parameters
    ----------
    required
        By offset of a record: its transaction is committed.
    end
        Offset after the last record.
    """
    return {
        segment: expected_at(killed, segment, max(flushed_sequences(directory).values(), default=0), required, end)
        for segment, directory in databases(spec).items()
    }


def expected_at(killed: Killed, segment: int, flushed: int, required: Mapping[int, bool], end: int) -> Expected:
    """Return the expected result for a database that has the writes up to a sequence number on disk."""
    own = [one for one, of in zip(killed.puts, killed.segments, strict=True) if of == segment]
    sequences = [at for at, of in zip(killed.sequences, killed.segments, strict=True) if of == segment]
    rows: dict[bytes, int] = {}
    position: int | None = -1
    first = -1
    later: list[Put] = []
    for one, sequence in zip(own, sequences, strict=True):
        if sequence > flushed:
            later.append(one)
            continue
        position = killed.offsets[one.number] if one.number < len(killed.offsets) else None
        if one.value is not None:
            rows[one.key] = one.number
        elif rows.pop(one.key, None) is None:
            continue
        first = position if position is not None else first
    for one in later:
        if one.number >= len(killed.offsets):
            break
        offset = killed.offsets[one.number]
        if required.get(offset) and (one.value is not None or one.key in rows):
            return Expected(position, first, offset - 1)
    return Expected(position, first, end - 1)


def log_of(spec: StorePartitionSpec) -> tuple[LogRange, dict[int, bool]]:
    """Return the range of the changelog, and which of its records are committed."""
    log = spec.cluster.topics.log_ranges([spec.partition])[spec.partition]
    committed, _ = consume(spec.cluster.servers, spec.partition.topic)
    return log, {one.offset: True for one in committed}
