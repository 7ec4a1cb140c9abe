"""The changelogs of `make bench-restore`: what they hold, how they are filled, and what a store of theirs holds.

Each key has exactly as many records as the shape says, in random order, the same in every run. They are produced
without transactions, and no broker compacts or deletes any of them: what is restored is what was written.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.process_input import BATCH, batching_producer
from demo.processes import ServiceError, wait_until
from statestore.changelog.topic_settings import changelog_config
from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.model import StoreFormat, TopicPartition, changelog_topic

STORE = "s"
KEY_BYTES = 16
WINDOW_MS = 60_000
#: A window store keeps rows for longer than its log spans, so that none of them has expired.
_WINDOWS = 50
_RETENTION_MS = 60 * WINDOW_MS
_FIRST_WINDOW_MS = 1_749_999_600_000  # a segment begins there, too
_WINDOW_SUFFIX = struct.Struct(">qi")
_POOL_BYTES = 1 << 20
_FLUSH_S = 300
_TRANSACTION = 50_000
_NEVER_COMPACTED = {"min.compaction.lag.ms": str(1 << 62), "retention.ms": "-1"}

Indexes = npt.NDArray[np.int64]


def input_of(application: str) -> str:
    """Name of an application's input topic."""
    return f"{application}-in"


class LogShape(NamedTuple):
    """What a changelog holds.

    Attributes
    ----------
    per_key
        Records of each key; where keys are skewed, on average.
    compression
        Of record batches, as producers name it.
    transactions
        Whether the records come in transactions.
    tombstones
        How many in a hundred records are deletes.
    skew
        Exponent of the keys' frequencies (Zipf); 0: all keys are equally frequent.
    """

    records: int
    per_key: int = 4
    value_bytes: int = 100
    kind: Literal["key-value", "window"] = "key-value"
    partitions: int = 4
    compression: str = "none"
    transactions: bool = False
    tombstones: int = 0
    skew: float = 0.0

    @property
    def parts(self) -> list[str]:
        """What makes it, in words; empty where it is as always."""
        return [
            f"{self.records / 1e6:g} M records",
            f"{self.per_key} per key",
            f"{KEY_BYTES + self.value_bytes:,} bytes",
            self.kind,
            f"{self.partitions} partition{'s' if self.partitions > 1 else ''}",
            self.compression if self.compression != "none" else "",
            "transactions" if self.transactions else "",
            f"{self.tombstones} % tombstones" if self.tombstones else "",
            f"keys skewed by {self.skew}" if self.skew else "",
        ]

    @property
    def store(self) -> StoreDefinition:
        """The store that logged it."""
        if self.kind == "key-value":
            return StoreDefinition(name=STORE, format=StoreFormat.PLAIN)
        return StoreDefinition(
            name=STORE, kind="window", format=StoreFormat.PLAIN, retention_ms=_RETENTION_MS, window_size_ms=WINDOW_MS
        )


class Log(NamedTuple):
    """A changelog topic with all its records, and what a restored store has to hold.

    Attributes
    ----------
    input
        The application's input: empty, with as many partitions.
    rows, digest
        Number and `rows_digest` of the last records of all keys.
    """

    servers: str
    application: str
    shape: LogShape
    rows: int
    digest: int

    @property
    def input(self) -> str:
        return input_of(self.application)

    @property
    def topic(self) -> str:
        """Name of the changelog topic."""
        return changelog_topic(self.application, STORE)


def fill(
    servers: str,
    application: str,
    shape: LogShape,
    topic: str | None = None,
    headers: Mapping[str, bytes] | None = None,
    midway: tuple[int, Callable[[Log], None]] | None = None,
) -> Log:
    """Make an application's topics and fill its changelog.

    Parameters
    ----------
    topic
        Name of the changelog where it is not ours to choose.
    headers
        Of every record; none if not said.
    midway
        A number of records, and what is done when the changelog holds so many.

    Raises
    ------
    ServiceError
        If the changelog does not hold all records afterwards.
    """
    rows = _Rows(shape)
    last = rows.last()
    log = Log(servers, application, shape, len(last), 0)
    topics, name = Cluster(servers).topics, topic or log.topic
    config = {**changelog_config(shape.store), **_NEVER_COMPACTED}
    for made, settings in ((log.input, {"retention.ms": "-1"}), (name, config)):
        topics.create(made, shape.partitions, settings)
        wait_until(lambda made=made: topics.describe([made]), 30, f"topic {made} to be there")  # type: ignore[misc]
    transactional = {"transactional_id": f"fill-{application}"} if shape.transactions else {}
    producer = batching_producer(servers, compression_type=shape.compression, **transactional)
    if shape.transactions:
        producer.init_transactions()
        producer.begin_transaction()
    further = {} if headers is None else {"headers": list(headers.items())}
    for number, (key, value, timestamp) in enumerate(rows.at(np.arange(shape.records)), start=1):
        producer.produce(name, value, key, timestamp=timestamp, **further)
        if shape.transactions and number % _TRANSACTION == 0:
            producer.commit_transaction()
            producer.begin_transaction()
        if midway is not None and number == midway[0]:
            producer.flush(_FLUSH_S)
            midway[1](log)
        if number % BATCH == 0:
            wait_until(
                lambda: producer.poll(0) >= 0 and len(producer) <= 10 * BATCH, _FLUSH_S, "the broker", poll_s=0.01
            )
    producer.flush(_FLUSH_S)
    if shape.transactions:
        producer.commit_transaction()
        topics.wait_until_stable([name])
    partitions = [TopicPartition(name, partition) for partition in range(shape.partitions)]
    held = sum(found.high_watermark for found in topics.log_ranges(partitions).values())
    if held != shape.records and not (shape.transactions and held > shape.records):  # markers take offsets, too
        raise ServiceError(f"topic {name} was to hold {shape.records:,} records and holds {held:,}")
    os.sync()  # the disk is to be idle when somebody is measured
    return log._replace(digest=rows_digest((key, value or b"") for key, value, _ in rows.at(last)))


def rows_digest(rows: Iterable[tuple[bytes, bytes]]) -> int:
    """Return a digest of a store's rows that does not depend on their order."""
    total = 0
    for key, value in rows:
        # No separator is needed: all keys of a store have one length.
        total += int.from_bytes(blake2b(key + value, digest_size=8).digest())
    return total % (1 << 64)


def window_key(key: bytes, start: int) -> bytes:
    """Return the key of a window's row, in the store and in the log."""
    return key + _WINDOW_SUFFIX.pack(start, 0)


class _Rows:
    """The records of a shape: arrays of numbers, made into bytes where they are asked for."""

    def __init__(self, shape: LogShape) -> None:
        self._shape = shape
        source, numbers = random.Random(7), np.random.default_rng(7)
        windows = _WINDOWS if shape.kind == "window" else 1
        each = shape.records // windows
        self._keys = each // shape.per_key
        if self._keys * shape.per_key * windows != shape.records:
            raise ValueError(f"{shape.records} records are not {windows} times whole keys of {shape.per_key} records")
        self._pool = source.randbytes(_POOL_BYTES)
        self._names = source.randbytes(KEY_BYTES * self._keys)
        if shape.skew:
            frequencies = np.cumsum(np.arange(1, self._keys + 1) ** -shape.skew)
            drawn = numbers.random(shape.records) * frequencies[-1]
            self._key: Indexes = np.searchsorted(frequencies, drawn)
        else:
            self._key = np.concatenate([numbers.permutation(each) % self._keys for _ in range(windows)])
        self._window: Indexes = np.repeat(np.arange(windows), each)
        self._value_at: Indexes = numbers.integers(0, _POOL_BYTES - shape.value_bytes, shape.records)
        self._deleted = numbers.integers(0, 100, shape.records) < shape.tombstones

    def at(self, records: Indexes) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield the key, value (None: a delete) and timestamp of these records."""
        names, pool, size = self._names, self._pool, self._shape.value_bytes
        windowed = self._shape.kind == "window"
        for start in range(0, len(records), BATCH):
            chosen = records[start : start + BATCH]
            columns = (self._key, self._window, self._value_at, self._deleted)
            for number, window, at, deleted in zip(*(column[chosen].tolist() for column in columns), strict=True):
                key, time_ms = names[number * KEY_BYTES : (number + 1) * KEY_BYTES], _FIRST_WINDOW_MS
                if windowed:
                    time_ms += window * WINDOW_MS
                    key = window_key(key, time_ms)
                yield key, None if deleted else pool[at : at + size], time_ms

    def last(self) -> Indexes:
        """Return the last record of each key that is not deleted by it."""
        reversed_ids = (self._window * self._keys + self._key)[::-1]
        first: Indexes = np.unique(reversed_ids, return_index=True)[1]
        last: Indexes = len(reversed_ids) - 1 - first
        return last[~self._deleted[last]]
