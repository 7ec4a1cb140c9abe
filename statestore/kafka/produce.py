"""Producing columns of records on connections of our own, each record once: as an idempotent producer does (KIP-98).

librdkafka takes single messages, which costs more than all else that is done with a row. Versions that brokers since
Kafka 2.1 understand:

    InitProducerId 1  asks: transactional id (null) | i32 timeout (ms)
                      gets: i32 throttled (ms) | i16 error | i64 producer id | i16 producer epoch
    Produce 7         asks: transactional id (null) | i16 acks (-1: all) | i32 timeout (ms) | topics: name |
                            partitions: i32 partition | i32 length | one record batch
                      gets: topics: name | partitions: i32 partition | i16 error | i64 base offset |
                            i64 append time (ms) | i64 log start | then i32 throttled (ms)

What is around that is in connection.py, and the batches' layout in record_batch.py. A partition has one batch under way
at a time. If its answer does not come, the same batch is sent again, and its sequence number tells the broker whether
it has it already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import cramjam
import google_crc32c
import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError

from statestore import kill_switch
from statestore.compiled.batches import Int64s, address_of, int64_column, lengths
from statestore.errors import InputError
from statestore.kafka.cluster import Cluster
from statestore.kafka.compression import LZ4, NONE, Bytes
from statestore.kafka.connection import Connection, read_by_topic, topic_parts
from statestore.kafka.leader_requests import LeaderRounds, Left
from statestore.kafka.record_encoding import RECORD_BYTES, encode
from statestore.model import TopicPartition

_PRODUCE, _PRODUCE_VERSION = 0, 7
_INIT_PRODUCER_ID, _INIT_VERSION = 22, 1
_NO_TRANSACTION, _INT = Struct(">hi"), Struct(">i")
_PRODUCED, _PARTITION, _ANSWERED = Struct(">hhi"), Struct(">ii"), Struct(">ihqqq")
_PRODUCER = Struct(">ihqh")
#: Of a batch: what is before its checksum, and what the checksum is of, up to the records.
_BEFORE_CHECKSUM, _CHECKSUM, _CHECKED = Struct(">qiib"), Struct(">I"), Struct(">hiqqqhii")
_MAGIC, _ALL_REPLICAS = 2, -1
_LENGTH_COUNTS_FROM = 12
#: Bytes of a batch at most, before compression, unless one record has more; librdkafka's default.
_BATCH_BYTES = 1_000_000
_HEAD_BYTES = 61
#: Bytes of all batches of a request at most, unless one has more; below brokers' `socket.request.max.bytes`.
_REQUEST_BYTES = 32 * 1024 * 1024
_SEQUENCES = 1 << 31
#: An LZ4 frame of independent blocks of up to 4 MiB, without checksums; then each block behind its length, whose
#: highest bit says that the block is not compressed; a length of 0 ends the frame.
_LZ4_FRAME, _LZ4_BLOCK, _LZ4_PLAIN, _LZ4_LARGEST = bytes.fromhex("04224d18607073"), Struct("<I"), 1 << 31, 4 << 20
#: A batch is compressed if its first bytes get that much smaller at least.
_SAMPLE_BYTES, _WORTH_IT = 64 * 1024, 15 / 16


class _Producer(NamedTuple):
    """What a broker has given a producer."""

    id: int
    epoch: int


class _EncodedBatch(NamedTuple):
    """A batch that waits to be sent.

    Attributes
    ----------
    body, codec
        Records, and how they are compressed.
    base, latest
        Timestamps (ms) of the first record, and the largest.
    first_key
        Key of the first record.
    """

    body: bytes
    codec: int
    records: int
    base: int
    latest: int
    first_key: bytes

    def message(self, producer: _Producer, sequence: int) -> tuple[bytes, bytes]:
        """Return the batch as it is sent, in two parts."""
        checked = _CHECKED.pack(
            self.codec, self.records - 1, self.base, self.latest, producer.id, producer.epoch, sequence, self.records
        )
        checksum = google_crc32c.extend(google_crc32c.value(checked), self.body)
        length = _HEAD_BYTES - _LENGTH_COUNTS_FROM + len(self.body)
        return _BEFORE_CHECKSUM.pack(0, length, -1, _MAGIC) + _CHECKSUM.pack(checksum) + checked, self.body


class _ProduceConnection(Connection):
    """A connection for requests of a producer."""

    def new_producer(self, silence_s: float) -> _Producer | int:
        """Ask for a producer id; return it, or the code of an error."""
        self._send(_INIT_PRODUCER_ID, _INIT_VERSION, _NO_TRANSACTION.pack(-1, -1))

        def parse(data: Bytes) -> _Producer | int:
            _, error, number, epoch = _PRODUCER.unpack_from(data.data)
            return int(error) if error else _Producer(number, epoch)

        return self._answered(silence_s, parse)

    def produce(
        self, batches: Mapping[TopicPartition, Sequence[bytes]], silence_s: float
    ) -> tuple[dict[TopicPartition, int], float]:
        """Send a batch to each partition; return the code of its error, or 0, and how long (s) not to ask again."""
        asked = {
            where: [_PARTITION.pack(where.partition, sum(map(len, batch))), *batch] for where, batch in batches.items()
        }
        head = _PRODUCED.pack(-1, _ALL_REPLICAS, int(silence_s * 1000))
        self._send(_PRODUCE, _PRODUCE_VERSION, head, *topic_parts(asked))
        return self._answered(silence_s, _parse)


def _parse(data: Bytes) -> tuple[dict[TopicPartition, int], float]:
    answered: dict[TopicPartition, int] = {}
    end = 0

    def read(topic: str, at: int) -> int:
        nonlocal end
        partition, error, *_ = _ANSWERED.unpack_from(data.data, at)
        answered[TopicPartition(topic, partition)] = error
        end = at + _ANSWERED.size
        return end

    read_by_topic(data.data, 0, read)
    (throttled_ms,) = _INT.unpack_from(data.data, end)
    return answered, throttled_ms / 1000


class ColumnProducer:
    """Writes columns of records to one topic.

    Parameters
    ----------
    cluster
        One with `can_fetch`.
    max_batch_bytes
        `max.message.bytes` of the topic.
    compress
        Compress batches with LZ4, where that makes them smaller.
    """

    def __init__(self, cluster: Cluster, topic: str, max_batch_bytes: int, *, compress: bool = True) -> None:
        self._cluster, self._topic = cluster, topic
        self._max_batch_bytes, self._compress = max_batch_bytes, compress
        self._most = min(max_batch_bytes, _BATCH_BYTES) - _HEAD_BYTES - _LZ4_FRAME_BYTES
        self._producer: _Producer | None = None
        self._waiting: dict[TopicPartition, deque[_EncodedBatch]] = {}
        self._sequences: dict[TopicPartition, int] = {}
        #: Where records are encoded, and where they are compressed: memory anew for each batch costs more than that.
        self._plain, self._frame = np.empty(0, np.uint8), np.empty(0, np.uint8)

    def produce(self, partition: int, keys: pa.Array, values: pa.Array, timestamps: Int64s) -> None:
        """Encode records for a partition, in their order; `flush` sends them.

        Parameters
        ----------
        timestamps
            In ms, 0 or more.
        """
        times = int64_column(timestamps)
        place, row = address_of(pa.RecordBatch.from_arrays([keys, values, times, times], list("kvto"))), 0
        sizes = lengths(keys) + lengths(values)
        needed = max(self._most, int(sizes.max(initial=0)) + RECORD_BYTES)
        if len(self._plain) < needed:
            self._plain, self._frame = np.empty(needed, np.uint8), np.empty(_frame_bytes(needed), np.uint8)
        waiting = self._waiting.setdefault(TopicPartition(self._topic, partition), deque())
        while row < len(keys):
            end, size, latest = encode(place, row, self._most, self._plain.ctypes.data)
            base, first_key = int(timestamps[row]), keys[row].as_py()
            plain = self._plain[:size]
            # One record beyond the limit may be within it when it is compressed.
            smaller = self._compress and (size > self._most or _shrinks(plain, self._frame))
            body, codec = (_lz4(plain, self._frame), LZ4) if smaller else (plain.tobytes(), NONE)
            waiting.append(_EncodedBatch(body, codec, int(end) - row, base, int(latest), first_key))
            row = int(end)

    def flush(self) -> None:
        """Send all that was encoded, and wait until all replicas have it.

        Raises
        ------
        InputError
            If a batch is larger than its topic takes.
        KafkaUnavailableError
            If no partition got any further in time.
        RetryError
            If the cluster has lost what it had acknowledged.
        """
        left = {where: self._sequences.get(where, 0) for where, batches in self._waiting.items() if batches}
        rounds = LeaderRounds(self._cluster, _ProduceConnection, "producing to", "WRITE")

        def ask(connection: _ProduceConnection, some: Left, silence_s: float) -> float:
            if self._producer is None:
                found = connection.new_producer(silence_s)
                if isinstance(found, int):
                    rounds.refused(next(iter(some)), KafkaError(found))
                    return 0.0
                self._producer = found
            messages, size = dict[TopicPartition, Sequence[bytes]](), 0
            for where, sequence in some.items():
                batch = self._waiting[where][0]
                if messages and size + len(batch.body) > _REQUEST_BYTES:
                    break  # they come first in the next round
                messages[where] = batch.message(self._producer, sequence)
                size += _HEAD_BYTES + len(batch.body)
            answered, throttled_s = connection.produce(messages, silence_s)
            kill_switch.reached("columns produced")
            for where in answered.keys() & messages.keys():
                batch, error = self._waiting[where][0], answered[where]
                if error in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
                    raise self._too_large(batch)
                if error not in (KafkaError.NO_ERROR, KafkaError.DUPLICATE_SEQUENCE_NUMBER):
                    rounds.refused(where, KafkaError(error))
                    continue
                self._waiting[where].popleft()
                self._sequences[where] = (left.pop(where) + batch.records) % _SEQUENCES
                if self._waiting[where]:
                    left[where] = self._sequences[where]
            return throttled_s

        rounds.ask_all(left, ask)

    def _too_large(self, batch: _EncodedBatch) -> InputError:
        what = "a record" if batch.records == 1 else f"a batch of {batch.records} records"
        how = "" if batch.codec == NONE else "compressed "
        return InputError(
            f"{what} of {len(batch.body)} {how}bytes, with key {batch.first_key!r:.120}, is larger than topic "
            f"{self._topic} takes: its max.message.bytes is {self._max_batch_bytes}. Increase the topic's "
            "max.message.bytes, or make the record smaller, then run again"
        )


_LZ4_FRAME_BYTES = len(_LZ4_FRAME) + 2 * _LZ4_BLOCK.size


def _frame_bytes(size: int) -> int:
    """Return the bytes that a frame of so many bytes has at most; LZ4 writes more while it compresses."""
    blocks = -(-size // _LZ4_LARGEST)
    return size + size // 255 + blocks * (_LZ4_BLOCK.size + 16) + _LZ4_FRAME_BYTES


def _shrinks(data: Bytes, room: Bytes) -> bool:
    """Tell from the first of some bytes whether to compress them all: the broker and each reader undo it."""
    first = data[:_SAMPLE_BYTES]
    size: int = cramjam.lz4.compress_block_into(first.data, room.data, store_size=False)
    return size <= _WORTH_IT * len(first)


def _lz4(data: Bytes, frame: Bytes) -> bytes:
    """Return the frame of some bytes, which is made in `frame`: it has `_frame_bytes` of these."""
    frame[: len(_LZ4_FRAME)] = np.frombuffer(_LZ4_FRAME, np.uint8)
    end = len(_LZ4_FRAME)
    for at in range(0, len(data), _LZ4_LARGEST):
        plain, begin = data[at : at + _LZ4_LARGEST], end + _LZ4_BLOCK.size
        size, flag = cramjam.lz4.compress_block_into(plain.data, frame[begin:].data, store_size=False), 0
        if size >= len(plain):
            size, flag = len(plain), _LZ4_PLAIN
            frame[begin : begin + size] = plain
        _LZ4_BLOCK.pack_into(frame.data, end, size | flag)
        end = begin + size
    _LZ4_BLOCK.pack_into(frame.data, end, 0)
    return frame[: end + _LZ4_BLOCK.size].tobytes()
