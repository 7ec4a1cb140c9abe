"""Record batches of magic 2, as brokers keep and send them: their heads, what may be delivered of them, their records.

A batch, big-endian:

    i64 base offset | i32 length of what follows | i32 leader epoch | i8 magic (2) | u32 CRC-32C of what follows |
    i16 attributes | i32 last offset delta | i64 base timestamp | i64 largest timestamp | i64 producer id |
    i16 producer epoch | i32 base sequence | i32 records | records, compressed together

Attributes: bits 0 to 2 codec, 3 timestamps are the broker's (the largest is that of every record), 4 in a transaction,
5 control: a transaction's marker. A record, lengths as zigzag varints (-1 is null):

    length of what follows | i8 attributes | timestamp delta | offset delta | key length | key | value length | value |
    headers | per header: key length | key | value length | value

What came from the network is checked here: a damaged batch is an error that names its place, never a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import google_crc32c

from statestore.errors import LogCorruptedError, StateStoreError
from statestore.kafka.compression import NONE, Bytes, DecompressionError, decompress
from statestore.model import TopicPartition

_HEAD = Struct(">qiibIhiqqqhii")
_PLACE = Struct(">qi")  # base offset and length, which the length does not count
_MAGIC = 2
_MAGIC_AT = 16
_CRC_END = 21
_CODEC, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_MARKER_KEY = Struct(">hh")  # version, type
_ABORT = 0

#: Bytes to leave behind records: not every step of decoding looks where they end.
SLACK = 64


class OldFormatError(StateStoreError):
    """The log has records of the formats before Kafka 0.11."""


class Batch(NamedTuple):
    """A batch's head, and its records as they came.

    Attributes
    ----------
    base_offset, last_offset
        The offsets that it takes; compaction may have removed records of it, at both ends, too.
    base_timestamp
        What the records' timestamp deltas are added to.
    append_time
        The timestamp of every record, if the broker's clock gives it; else -1.
    at, body
        Where the records begin in the answer, and their bytes.
    """

    base_offset: int
    last_offset: int
    base_timestamp: int
    append_time: int
    attributes: int
    producer_id: int
    record_count: int
    at: int
    body: Bytes

    @property
    def compressed(self) -> bool:
        """True if `body` has to be decompressed."""
        return self.attributes & _CODEC != NONE

    @property
    def is_marker(self) -> bool:
        """True if it is a transaction's marker, and has no records."""
        return self.attributes & _CONTROL != 0


class AbortedTransaction(NamedTuple):
    """From which offset on a producer's records were aborted, up to its next abort marker."""

    producer_id: int
    first_offset: int


def split(fetched: Bytes, partition: TopicPartition) -> Iterator[Batch]:
    """Yield the batches of an answer; one that is cut off at its end is left out.

    Raises
    ------
    LogCorruptedError
        If one fails its checksum or contradicts itself.
    OldFormatError
        If one is of a format before magic 2.
    """
    data, at, size, least = fetched.data, 0, len(fetched), 0
    while at + _MAGIC_AT < size:
        base, length = _PLACE.unpack_from(data, at)
        if data[at + _MAGIC_AT] < _MAGIC:
            raise OldFormatError(f"{partition} at offset {base}: a record of a format before Kafka 0.11")
        end = at + _PLACE.size + length
        if end > size and at:
            return
        # Brokers send the first batch as a whole, however large: an end beyond what came is damage.
        if data[at + _MAGIC_AT] > _MAGIC or not at + _HEAD.size <= end <= size:
            found = f"magic {data[at + _MAGIC_AT]} and {length} bytes, of which {size - at - _PLACE.size} came"
            raise damaged(partition, base, f"{found}; expected magic {_MAGIC} and all of its bytes")
        _, _, _, _, checksum, attributes, last, base_ms, max_ms, producer, _, _, count = _HEAD.unpack_from(data, at)
        computed = google_crc32c.value(fetched[at + _CRC_END : end])
        if computed != checksum:
            raise damaged(partition, base, f"its bytes have the CRC-32C {computed:08x}, expected {checksum:08x}")
        if base < least or last < 0 or not 0 <= count <= last + 1:
            raise damaged(partition, base, f"{count} records in {last + 1} offsets, expected offset {least} or later")
        append_ms = max_ms if attributes & _LOG_APPEND_TIME else -1
        begin = at + _HEAD.size
        yield Batch(base, base + last, base_ms, append_ms, attributes, producer, count, begin, fetched[begin:end])
        at, least = end, base + last + 1
    if not at:
        raise damaged(partition, 0, f"an answer of {size} bytes, expected a batch")


def delivered(batches: Iterable[Batch], aborted: Sequence[AbortedTransaction]) -> Iterator[Batch]:
    """Leave out transaction markers, and the batches of aborted transactions; see `with_outcomes`."""
    return (batch for batch, committed in with_outcomes(batches, aborted) if committed)


def with_outcomes(batches: Iterable[Batch], aborted: Sequence[AbortedTransaction]) -> Iterator[tuple[Batch, bool]]:
    """Leave out transaction markers; yield each batch with False if its transaction was aborted.

    Parameters
    ----------
    batches
        Of one answer, in offset order.
    aborted
        What came with them; nothing under read_uncommitted.
    """
    ahead = sorted(aborted, key=lambda transaction: -transaction.first_offset)
    aborting: set[int] = set()
    for batch in batches:
        while ahead and ahead[-1].first_offset <= batch.last_offset:
            aborting.add(ahead.pop().producer_id)
        if batch.is_marker:
            if batch.producer_id in aborting and _is_abort(batch):
                aborting.remove(batch.producer_id)
        else:
            yield batch, not (batch.attributes & _TRANSACTIONAL and batch.producer_id in aborting)


def records_of(batch: Batch, partition: TopicPartition) -> Bytes:
    """Return the bytes of a batch's records, decompressed.

    Raises
    ------
    LogCorruptedError
        If they cannot be.
    """
    if not batch.compressed:
        return batch.body
    try:
        return decompress(batch.attributes & _CODEC, batch.body)
    except DecompressionError as error:
        raise damaged(partition, batch.base_offset, str(error)) from error


def first_record(batch: Batch, least: int, partition: TopicPartition) -> int | None:
    """Return the offset of the first record at or after `least`; None if compaction left none.

    Record by record in Python: for answers of which no more is asked.
    """
    if batch.record_count == batch.last_offset - batch.base_offset + 1:  # none was removed
        return max(batch.base_offset, least) if least <= batch.last_offset else None
    try:
        return next((offset for offset in _offsets(batch, records_of(batch, partition)) if offset >= least), None)
    except IndexError:
        raise damaged(partition, batch.base_offset, f"its {batch.record_count} records end early") from None


def _offsets(batch: Batch, records: Bytes) -> Iterator[int]:
    at = 0
    for _ in range(batch.record_count):
        length, at = _varint(records, at)
        _, delta_at = _varint(records, at + 1)  # behind the attributes, the timestamp
        yield batch.base_offset + _varint(records, delta_at)[0]
        at += length


def _is_abort(batch: Batch) -> bool:
    """Tell an abort marker from a commit marker by the type in its only record's key."""
    if not batch.record_count:  # compaction has removed the marker
        return False
    at = _varint(batch.body, 0)[1] + 1
    for _ in range(3):  # timestamp, offset, length of the key
        at = _varint(batch.body, at)[1]
    return bool(_MARKER_KEY.unpack_from(batch.body.data, at)[1] == _ABORT)


def _varint(data: Bytes, at: int) -> tuple[int, int]:
    """Return the zigzag varint at a place, and the place behind it."""
    found = shift = 0
    while True:
        byte = int(data[at])
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
        shift += 7


def damaged(partition: TopicPartition, offset: int, what: str) -> LogCorruptedError:
    """Return the error of a batch that cannot be used."""
    return LogCorruptedError(
        f"{partition}: the record batch at offset {offset} is damaged: {what}; if reading again does not help, the "
        "leader's copy of the log is: compare its replicas with kafka-dump-log.sh, and make another one the leader"
    )
