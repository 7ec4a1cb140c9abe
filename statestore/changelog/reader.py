"""The one reader of Kafka logs: bounded, columnar, read-committed unless asked otherwise.

Restore, verification, validation, processing and the Spark source all read through here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from statestore.changelog.client import client_config, translate
from statestore.errors import KafkaUnavailableError, StoreBehindLogStartError
from statestore.model import TopicPartition

#: Columns of every batch; timestamps are milliseconds since the epoch, a null value is a delete.
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
    ]
)
_MAX_MESSAGES = 100_000
_POLL_S = 0.05


class LogReader:
    """Reads ranges of one topic partition.

    Parameters
    ----------
    bootstrap_servers
        Kafka brokers.
    partition
        What to read.
    read_committed
        Deliver only records of committed transactions; else all records.
    stall_timeout_s
        Give up when for so long neither a record nor the end of the log has come.

    Notes
    -----
    librdkafka's default fetch settings starve a fast reader; the ones here were measured at six times the rate.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        partition: TopicPartition,
        *,
        read_committed: bool = True,
        stall_timeout_s: float = 30.0,
    ) -> None:
        self.partition = partition
        self._stall_timeout_s = stall_timeout_s
        self._consumer = Consumer(
            client_config(
                bootstrap_servers,
                **{
                    "group.id": "statestore-log-reader",  # librdkafka asks for one; nothing is ever committed to it
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed" if read_committed else "read_uncommitted",
                    "fetch.queue.backoff.ms": 1,
                    # The end of the log is told by the answer to a fetch that found nothing: have it answered at once.
                    "fetch.wait.max.ms": 10,
                    "queued.min.messages": 1_000_000,
                    "queued.max.messages.kbytes": 65_536,
                    "fetch.max.bytes": 64 * 1024 * 1024,
                    "max.partition.fetch.bytes": 8 * 1024 * 1024,
                },
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records with `start <= offset < end` as batches with `SCHEMA`.

        The range is done when the reader's position has passed it: transaction markers, aborted records and
        compaction holes take offsets and are never delivered.

        Raises
        ------
        StoreBehindLogStartError
            If records from `start` on are no longer in the log.
        KafkaUnavailableError
            If nothing came for `stall_timeout_s`.
        """
        for messages in self.read_messages(start, end):
            yield to_batch(messages)

    def read_messages(self, start: int, end: int) -> Iterator[list[Message]]:
        """Yield the same records as lists of messages, for callers that go record by record."""
        if start >= end:
            return
        topic, partition = self.partition
        self._consumer.assign([KafkaTopicPartition(topic, partition, start)])
        deadline = time.monotonic() + self._stall_timeout_s
        while True:
            try:
                arrived = self._consumer.consume(_MAX_MESSAGES, _POLL_S)
            except KafkaException as error:
                raise translate(error, f"reading {self.partition}") from error
            if not arrived:
                if time.monotonic() > deadline:
                    raise KafkaUnavailableError(
                        f"reading {self.partition} from offset {start} to {end}: nothing came for "
                        f"{self._stall_timeout_s:g} s; check that the brokers are up, then run again"
                    )
                continue
            deadline = time.monotonic() + self._stall_timeout_s
            messages, finished = self._sort_out(arrived, start, end)
            if messages:
                yield messages
            if finished:
                return

    def _sort_out(self, arrived: list[Message], start: int, end: int) -> tuple[list[Message], bool]:
        """Split records below `end` from events; True if the range is done."""
        messages = [message for message in arrived if message.error() is None]
        finished = False
        if len(messages) < len(arrived):
            for error, offset in ((found.error(), found.offset()) for found in arrived):
                if error is None:
                    continue
                if error.code() == KafkaError._PARTITION_EOF:
                    finished = finished or offset >= end
                elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    raise StoreBehindLogStartError(
                        f"{self.partition} no longer has offset {start}, which was to be read next: {error.str()}"
                    )
                else:
                    raise translate(error, f"reading {self.partition}")
        if messages and messages[-1].offset() >= end - 1:
            finished = True
            while messages and messages[-1].offset() >= end:
                messages.pop()
        return messages, finished

    def close(self) -> None:
        """Leave Kafka."""
        self._consumer.close()


def to_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """Return messages as a batch with `SCHEMA`."""
    return pa.record_batch(
        [
            _binary([message.key() for message in messages]),
            _binary([message.value() for message in messages]),
            _int64([message.timestamp()[1] for message in messages]),
            _int64([message.offset() for message in messages]),
        ],
        schema=SCHEMA,
    )


def _binary(values: list[bytes | None]) -> pa.Array:
    # From buffers: twice as fast as from a list, for which pyarrow also imports pandas.
    lengths = np.fromiter((-1 if value is None else len(value) for value in values), np.int64, len(values))
    valid = lengths >= 0
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.where(valid, lengths, 0), out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        return pa.array(values, pa.binary())
    whole = bool(valid.all())
    data = b"".join(values if whole else (value or b"" for value in values))  # type: ignore[arg-type]
    bitmap = None if whole else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(values), [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    )


def _int64(values: list[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.array(values, np.int64))])


def first_offset(
    bootstrap_servers: str, partition: TopicPartition, start: int, end: int, stall_timeout_s: float
) -> int | None:
    """Offset of the first record that a read-committed consumer gets with `start <= offset < end`; None if none.

    Offsets alone do not tell: markers, aborted records and compaction holes take some, too.
    """
    with LogReader(bootstrap_servers, partition, stall_timeout_s=stall_timeout_s) as reader:
        for messages in reader.read_messages(start, end):
            offset: int = messages[0].offset()
            return offset
    return None
