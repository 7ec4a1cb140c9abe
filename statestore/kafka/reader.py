"""The one reader of Kafka logs: bounded, columnar, read-committed unless asked otherwise.

Restore, verification, validation, processing and the Spark source all read through here. Long ranges are fetched
undecoded and decoded by compiled loops; short ones, and those read message by message, come through librdkafka.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Self, TypeVar

import pyarrow as pa
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from statestore.errors import KafkaUnavailableError, StateStoreError
from statestore.kafka.client import translate
from statestore.kafka.cluster import Cluster
from statestore.kafka.deadline import close_consumer
from statestore.kafka.first_offsets import FirstOffsets
from statestore.kafka.partition_fetcher import PartitionFetcher, gone
from statestore.kafka.record_batch import OldFormatError, damaged, delivered, split, with_outcomes
from statestore.kafka.record_columns import DecodedRecords, decode, to_batch
from statestore.kafka.record_headers import RecordsWithHeaders, with_headers
from statestore.kafka.rights import is_about_unused_group, on_topics
from statestore.kafka.stall import Stall
from statestore.model import TopicPartition

T = TypeVar("T")

_MAX_MESSAGES = 100_000
_POLL_S = 0.05
#: When for so long nothing came through librdkafka, the brokers are asked whether there is anything.
_QUIET_S = 1.0
#: Fewer are read through librdkafka before numba is imported and its loops are loaded.
_FEW = 200_000
#: Offsets at the end of a log that tell whether its records are compressed.
_LATEST = 1_000


class LogReader:
    """Reads ranges of one topic partition.

    Parameters
    ----------
    read_committed
        Deliver only records of committed transactions; else all records.

    Notes
    -----
    It gives up when neither a record nor the end of the log has come within the deadline, waits for a quota excluded.
    librdkafka's default fetch settings starve a fast reader; the ones here were measured at six times the rate.
    """

    def __init__(self, cluster: Cluster, partition: TopicPartition, *, read_committed: bool = True) -> None:
        self.partition = partition
        self._cluster = cluster
        self._read_committed = read_committed
        self._stall = Stall(cluster.timeout_s)
        self._append_times = False
        self._markers: list[int] = []
        self._made: Consumer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def append_times(self) -> bool:
        """True if any record that `read` has delivered has its broker's time in the place of its own."""
        return self._append_times

    @property
    def markers(self) -> Sequence[int]:
        """Offsets of the transaction markers that were passed while aborted records were read, too, in order.

        Empty where the brokers cannot be asked for record batches (`can_fetch`).
        """
        return self._markers

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records with `start <= offset < end` as batches with `SCHEMA`.

        The range is done when the reader's position has passed it: transaction markers, aborted records and
        compaction holes take offsets and are never delivered.

        Raises
        ------
        StoreBehindLogStartError
            If records from `start` on are no longer in the log.
        LogCorruptedError
            If a batch of records fails its checksum.
        TopicMismatchError
            If there is no such partition.
        KafkaUnavailableError
            If nothing came within the deadline.
        """
        yield from self._read(start, end, lambda decoded: (decoded.columns,), to_batch)

    def read_records(self, start: int, end: int) -> Iterator[RecordsWithHeaders]:
        """Yield the same records as batches with their headers; see `read`."""
        yield from self._read(
            start, end, lambda decoded: (RecordsWithHeaders.of_decoded(decoded, self.partition),), with_headers
        )

    def _read(
        self,
        start: int,
        end: int,
        of_decoded: Callable[[DecodedRecords], Iterable[T]],
        of_messages: Callable[[list[Message]], T],
    ) -> Iterator[T]:
        if start >= end:
            return
        few = end - start < _FEW and "numba" not in sys.modules
        if few or not self._cluster.can_fetch:
            yield from self._read_messages(start, end, of_messages)
        else:
            yield from self._fetch(start, end, of_decoded, of_messages)

    def _fetch(
        self,
        start: int,
        end: int,
        of_decoded: Callable[[DecodedRecords], Iterable[T]],
        of_messages: Callable[[list[Message]], T],
        *,
        aborted: bool = False,
    ) -> Iterator[T]:
        fetcher = PartitionFetcher(self._cluster, self.partition, read_committed=self._read_committed)
        try:
            while start < end:
                fetched = fetcher.fetch(start, end)
                if not len(fetched.records):
                    return
                try:
                    batches = list(split(fetched.records, self.partition))
                except OldFormatError:  # librdkafka knows it
                    yield from self._read_messages(start, end, of_messages)
                    return
                next_offset = batches[-1].last_offset + 1
                if next_offset <= start:
                    raise damaged(self.partition, batches[0].base_offset, f"it came for offset {start}")
                if next_offset < end:
                    fetcher.ask_ahead(next_offset)
                if aborted:
                    self._markers += [batch.base_offset for batch in batches if batch.is_marker]
                outcomes = with_outcomes(batches, fetched.aborted)
                wanted = [found for found in outcomes if found[0].base_offset < end and (found[1] or aborted)]
                self._append_times |= any(batch.append_time >= 0 for batch, _ in wanted)
                for committed, some in groupby(wanted, itemgetter(1)):
                    for decoded in decode((found[0] for found in some), fetched.records, start, end, self.partition):
                        self._note_decoded(decoded)
                        yield from of_decoded(decoded._replace(committed=committed))
                start = next_offset
        finally:
            fetcher.close()

    def _note_decoded(self, decoded: DecodedRecords) -> None:
        """Look at records before they are delivered, for a derived reader."""

    def _note_messages(self, messages: list[Message]) -> None:
        """Do the same with records that came through librdkafka."""

    def _read_messages(self, start: int, end: int, of_messages: Callable[[list[Message]], T]) -> Iterator[T]:
        for messages in self.read_messages(start, end):
            self._note_messages(messages)
            self._append_times |= any(found.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME for found in messages)
            yield of_messages(messages)

    def read_messages(self, start: int, end: int) -> Iterator[list[Message]]:
        """Yield the same records as lists of messages, for callers that go record by record."""
        if start >= end:
            return
        topic, partition = self.partition
        consumer, stall = self._consumer(), self._stall
        consumer.assign([KafkaTopicPartition(topic, partition, start)])
        stall.progressed()
        position, ask_at = start, time.monotonic() + _QUIET_S
        while True:
            try:
                arrived = consumer.consume(_MAX_MESSAGES, _POLL_S)
            except KafkaException as error:
                raise self._refused(error) from error
            if not arrived:
                if stall.left_s <= 0:
                    raise KafkaUnavailableError(
                        f"reading {self.partition} from offset {start} to {end}: {stall.told()}; check that the "
                        "brokers are up, then run again"
                    )
                if time.monotonic() > ask_at:
                    if self._has_none(position, end):
                        return
                    ask_at = time.monotonic() + _QUIET_S
                continue
            messages, finished = self._sort_out(arrived, start, end)
            if messages:
                position = messages[-1].offset() + 1
                yield messages
            if finished:
                return
            stall.progressed()
            ask_at = time.monotonic() + _QUIET_S

    def _has_none(self, start: int, end: int) -> bool:
        """True if the brokers say that no record is left in a range.

        librdkafka tells the end of the log only where it has read up to it: not behind a compaction hole that is
        followed by an open transaction.
        """
        if not self._read_committed or not self._cluster.can_fetch:
            return False
        try:
            return first_offset(self._cluster.within(_QUIET_S), self.partition, start, end) is None
        except StateStoreError:  # what is in the way, librdkafka tells, or the stall
            return False

    def _sort_out(self, arrived: list[Message], start: int, end: int) -> tuple[list[Message], bool]:
        """Split records below `end` from events; True if the range is done."""
        messages = [message for message in arrived if message.error() is None]
        finished = False
        if len(messages) < len(arrived):
            for error, offset in ((found.error(), found.offset()) for found in arrived):
                if error is None or is_about_unused_group(error):
                    continue
                if error.code() == KafkaError._PARTITION_EOF:
                    finished = finished or offset >= end
                elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    raise gone(self.partition, start)
                elif error.code() == KafkaError._BAD_MSG:
                    raise damaged(self.partition, offset, error.str())
                else:
                    raise self._refused(error)
        if messages and messages[-1].offset() >= end - 1:
            finished = True
            while messages and messages[-1].offset() >= end:
                messages.pop()
        return messages, finished

    def _refused(self, error: KafkaException | KafkaError) -> StateStoreError:
        return translate(error, f"reading {self.partition}", *on_topics("READ", self.partition.topic))

    def _consumer(self) -> Consumer:
        if self._made is None:
            self._made = self._cluster.client(
                Consumer,
                **{
                    "group.id": "statestore-log-reader",  # librdkafka asks for one; nothing is committed to it
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed" if self._read_committed else "read_uncommitted",
                    "throttle_cb": self._stall.note,
                    "check.crcs": True,
                    "fetch.queue.backoff.ms": 1,
                    # The answer to a fetch without records shows the end of the log: request it at once.
                    "fetch.wait.max.ms": 10,
                    "queued.min.messages": 1_000_000,
                    "queued.max.messages.kbytes": 65_536,
                    "fetch.max.bytes": 64 * 1024 * 1024,
                    "max.partition.fetch.bytes": 8 * 1024 * 1024,
                },
            )
        return self._made

    def close(self) -> None:
        """Leave Kafka."""
        if self._made is not None:
            close_consumer(self._made)


def first_offset(cluster: Cluster, partition: TopicPartition, start: int, end: int) -> int | None:
    """Offset of the first record that a read-committed consumer gets with `start <= offset < end`; None if none.

    Offsets alone do not tell: markers, aborted records and compaction holes take some, too.
    """
    return first_offsets(cluster, {partition: (start, end)})[partition]


def first_offsets(
    cluster: Cluster, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int | None]:
    """Return what `first_offset` does for a range of each partition: thousands in one go.

    Parameters
    ----------
    ranges
        First offset and end, exclusive, by partition.

    Raises
    ------
    StoreBehindLogStartError
        If one of the logs no longer has the offset that its range starts with.
    TopicMismatchError
        If there is no such partition.
    KafkaUnavailableError
        If nothing came within the deadline.
    """

    def read_messages(partition: TopicPartition, start: int, end: int) -> int | None:
        with LogReader(cluster, partition) as reader:
            for messages in reader.read_messages(start, end):
                offset: int = messages[0].offset()
                return offset
        return None

    if cluster.can_fetch:
        return FirstOffsets(cluster, ranges, read_messages).find()
    return {partition: read_messages(partition, *range_) for partition, range_ in ranges.items()}


def is_compressed(cluster: Cluster, partition: TopicPartition, start: int, end: int) -> bool | None:
    """Return whether the last records of a log are compressed; None if none of the last ones tells.

    Parameters
    ----------
    start, end
        Where the log starts, and where it ends for a read-committed consumer.

    Raises
    ------
    KafkaUnavailableError
        If no records came within the deadline.
    """
    at, found = max(start, end - _LATEST), None
    if not cluster.can_fetch:
        return None
    fetcher = PartitionFetcher(cluster, partition, read_committed=True)
    try:
        while at < end:
            fetched = fetcher.fetch(at, end)
            if not len(fetched.records):
                break
            batches = list(split(fetched.records, partition))
            for batch in delivered(batches, fetched.aborted):
                found = batch.compressed
            at = batches[-1].last_offset + 1
    except OldFormatError:
        return None
    finally:
        fetcher.close()
    return found
