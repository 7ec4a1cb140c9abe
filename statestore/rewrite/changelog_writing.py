"""Creates changelogs without an owner, and writes rows to them as records, after earlier processes were fenced."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa

from statestore import kill_switch
from statestore.bulk.digest import Digest
from statestore.errors import InputError
from statestore.kafka.cluster import Cluster
from statestore.kafka.produce import ColumnProducer
from statestore.kafka.reader import is_compressed
from statestore.kafka.topics import LogRange, Topic, Topics
from statestore.kafka.writer import AtLeastOnceWriter, RecordWriter, TransactionalWriter
from statestore.kinds.versioned import COMPACTION_LAG
from statestore.model import TaskId, TopicPartition, transactional_id
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.journal import RewriteJournal
from statestore.rewrite.rows import Records, bytes_of, form_of

#: The largest of Kafka's times.
_FOREVER_MS = str((1 << 63) - 1)
#: Bytes that are produced before it is waited until they are acknowledged.
_UNACKNOWLEDGED_BYTES = 16 * 1024 * 1024
#: Tasks that are fenced at a time: most of what that takes is waiting.
_FENCED_BESIDE = 16


def kept_settings(topics: Topics, name: str) -> dict[str, str]:
    """Return the settings that a changelog has of its own, which one in its place keeps; of none, none."""
    return {} if topics.find(name) is None else topics.own_settings([name])[name]


def final_settings(config: Mapping[str, str]) -> dict[str, str]:
    """Return those settings of a changelog that it gets once it is written."""
    return {key: config[key] for key in ("cleanup.policy", COMPACTION_LAG) if key in config}


def make_changelog(topics: Topics, name: str, partitions: int, config: Mapping[str, str]) -> Topic:
    """Make a changelog that is to be written: nothing is removed from it, however old.

    Without `delete`, no record expires, and compaction leaves the last one of a key. Where all of a key count, nothing
    is compacted.

    Raises
    ------
    InputError
        If somebody else has made it meanwhile.
    """
    config = {**config, "cleanup.policy": "compact"}
    if COMPACTION_LAG in config:
        config[COMPACTION_LAG] = config.get("max.compaction.lag.ms", _FOREVER_MS)
    made = topics.create(name, partitions, config)
    topic = topics.appeared(name)
    if made:
        return topic
    there = topics.topic_configs([name])[name]
    wrong = [key for key, value in config.items() if there.get(key) != value]
    if topic.partitions != partitions or wrong or surplus(topics, topic, [0] * partitions):
        raise InputError(
            f"another process created topic {name} in the meantime: find what starts the application, and run again"
        )
    return topic


def compresses(topics: Topics, stores: Sequence[StorePartitionSpec]) -> bool:
    """Return whether the records of a store's changelog are compressed: those of one in its place are likewise.

    Tasks of ours compress theirs; Kafka Streams does not, unless it is told to. A changelog without records is to be
    compressed.
    """
    logs = topics.log_ranges(store.partition for store in stores)
    for where, log in logs.items():
        found = is_compressed(stores[0].cluster, where, log.start, log.last_stable)
        if found is not None:
            return found
    return True


class Surplus(NamedTuple):
    """A partition of a changelog that has more records than were written to it, or has lost some."""

    partition: TopicPartition
    log: LogRange
    records: int


def surplus(topics: Topics, topic: Topic, records: Sequence[int]) -> Surplus | None:
    """Find out whether somebody else has written to a changelog, or removed anything.

    Parameters
    ----------
    records
        By partition, how many a rewrite writes.
    """
    logs = topics.log_ranges([TopicPartition(topic.name, number) for number in range(topic.partitions)])
    for where, log in sorted(logs.items()):
        most = records[where.partition] if where.partition < len(records) else 0
        if log.start or log.high_watermark > most:
            return Surplus(where, log, most)
    return None


def require_written(topics: Topics, journal: RewriteJournal) -> None:
    """Make sure that new changelogs have what was written, and nothing else.

    Raises
    ------
    InputError
        Naming the first that has not.
    """
    counts = {
        TopicPartition(name, number): count
        for name, topic in journal.topics.items()
        for number, count in enumerate(topic.records)
    }
    for where, log in topics.log_ranges(counts).items():
        if (log.start, log.last_stable, log.high_watermark) != (0, counts[where], counts[where]):
            raise InputError(
                f"{where} has the offsets {log.start} to {log.high_watermark}, expected 0 to {counts[where]}: another "
                f"process writes to it, or deletes from it. Stop {journal.application} wherever it runs, then run "
                "again"
            )


class NewChangelogWriter:
    """Writes the rows of one store as records of a changelog, some of them ahead of what is acknowledged.

    Records with headers, and those for brokers that only librdkafka can speak to, are written one by one.
    Call `flush` or `end` last.

    Parameters
    ----------
    max_batch_bytes
        `max.message.bytes` of the topic.
    started_ms
        Timestamp (ms) of records whose rows tell none.
    compress
        Compress records, as tasks do.
    ending
        Partitions whose last record is held back: `end` writes it, or `last` returns it.
    """

    def __init__(
        self,
        store: StorePartitionSpec,
        topic: str,
        max_batch_bytes: int,
        started_ms: int,
        *,
        compress: bool = True,
        ending: Collection[int] = (),
    ) -> None:
        self._store, self._topic, self._started_ms = store, topic, started_ms
        self._max_batch_bytes, self._ending = max_batch_bytes, ending
        self._columns: ColumnProducer | None = None
        self._single: AtLeastOnceWriter | None = None
        if store.cluster.can_fetch and not store.store.values.keeps_headers:
            self._columns = ColumnProducer(store.cluster, topic, max_batch_bytes, compress=compress)
        self._held: dict[int, Records] = {}
        self._unacknowledged = 0

    def write(self, partition: int, rows: pa.RecordBatch, digest: Digest) -> None:
        """Write rows to a partition, and add to a digest those that a store has which is restored from it.

        Raises
        ------
        StateStoreError
            If a record is not taken, or one before was not.
        """
        form = form_of(self._store.store)
        records = form.records(self._store, rows, self._started_ms)
        form.add_expected(digest, self._store, rows, records)
        self._unacknowledged += bytes_of(rows)
        if partition in self._ending and len(records.keys):
            if (before := self._held.get(partition)) is not None:
                self._produce(partition, before)
            self._held[partition] = records
        else:
            self._produce(partition, records)
        if self._unacknowledged >= _UNACKNOWLEDGED_BYTES:
            self.flush()

    def _produce(self, partition: int, records: Records) -> None:
        if self._columns is not None and records.headers is None:
            self._columns.produce(partition, records.keys, records.values, records.timestamps)
        else:
            produce(self._writer, self._topic, partition, records)

    @property
    def _writer(self) -> AtLeastOnceWriter:
        if self._single is None:
            store, name = self._store, f"rewrite of {self._store.application}/{self._store.store.name}"
            self._single = AtLeastOnceWriter(store.cluster, name, self._max_batch_bytes)
            self._single.begin()
        return self._single

    def last(self, partition: int) -> Records | None:
        """Write the records of a partition that are held back, except the last one, and return it, if there is one."""
        if (records := self._held.pop(partition, None)) is None:
            return None
        others, last = records.cut(len(records.keys) - 1)
        self._produce(partition, others)
        return last

    def end(self, partition: int, position: Mapping[TopicPartition, int]) -> None:
        """Write the records of a partition that are held back, and wait for all; the last one gets a position.

        Parameters
        ----------
        position
            Input offsets that the rows of the partition reflect. Empty: unknown.
        """
        last = self.last(partition)
        self.flush()
        if last is not None:
            self._produce(partition, last.with_position(position))
            self.flush()

    def flush(self) -> None:
        """Wait until all are acknowledged, except those that are held back."""
        if self._columns is not None:
            self._columns.flush()
        if self._single is not None:
            self._single.flush()
        self._unacknowledged = 0

    def close(self) -> None:
        """Give back what it holds."""
        if self._single is not None:
            self._single.close()


class ChangelogPart(NamedTuple):
    """Rows of a store partition, and the input offsets that they reflect; empty: unknown."""

    store: StorePartitionSpec
    rows: Iterable[pa.RecordBatch]
    position: Mapping[TopicPartition, int]


def logged_position(store: StorePartitionSpec, position: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    """Return the position that a store's changelog can carry: none if its rows would get it (`Outgoing`)."""
    return {} if store.store.values.keeps_headers else position


def write_changelog(topics: Topics, topic: str, started_ms: int, parts: Iterable[ChangelogPart]) -> list[Digest]:
    """Write the rows of store partitions, each to the partition of its number; return the digests of what they give.

    The last record of each partition has the position in its headers, as the last change of a task's commit.

    Raises
    ------
    StateStoreError
        If a record is not taken, or rows cannot be read.
    """
    parts = list(parts)
    limit = int(topics.topic_configs([topic])[topic]["max.message.bytes"])
    ending = {part.store.task.partition for part in parts if logged_position(part.store, part.position)}
    writer = NewChangelogWriter(parts[0].store, topic, limit, started_ms, ending=ending)
    digests = []
    with closing(writer):
        for store, batches, position in parts:
            digest = Digest(store.store.values)
            for batch in batches:
                writer.write(store.task.partition, batch, digest)
                kill_switch.reached("rewrite, batch sent")
            writer.end(store.task.partition, position)
            kill_switch.reached("rewrite, partition written")
            digests.append(digest)
    return digests


def produce(writer: RecordWriter, topic: str, partition: int, records: Records) -> None:
    """Hand records to a producer."""
    writer.produce_many(
        topic,
        partition,
        records.keys.to_pylist(),
        records.values.to_pylist(),
        records.timestamps.tolist(),
        records.headers,
    )


def fence(stores: Iterable[StorePartitionSpec]) -> None:
    """Keep processes that still take the tasks of our own applications for theirs from committing."""
    fenced = [store for store in stores if store.origin.is_fenced and store.exactly_once]
    if fenced:
        fence_tasks(fenced[0].cluster, fenced[0].application, {store.task for store in fenced})


def fence_tasks(cluster: Cluster, application: str, tasks: Iterable[TaskId]) -> None:
    """Keep processes that still take tasks of an exactly-once application for theirs from committing."""
    with ThreadPoolExecutor(_FENCED_BESIDE) as threads:
        for fenced in [threads.submit(_fence, cluster, transactional_id(application, task)) for task in tasks]:
            fenced.result()


def _fence(cluster: Cluster, name: str) -> None:
    writer = TransactionalWriter(cluster, name)
    try:
        writer.init()
    finally:
        writer.close()
