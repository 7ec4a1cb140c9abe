"""Values of records as a store keeps them that keeps headers (formats/headers_value.py): with those of their records.

The bytes of a record's headers are copied as they are, but for what Kafka Streams would write otherwise: it decodes and
encodes them, so that no varint has a superfluous byte, and no name has bytes that are not UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from statestore.formats.headers_value import Headers, encode_headers, headers_end
from statestore.formats.value_format import ValueFormat
from statestore.kafka.record_batch import damaged
from statestore.kafka.record_columns import SCHEMA, DecodedRecords, batch_with_values, to_batch
from statestore.model import TopicPartition

_LARGEST_COLUMN = np.iinfo(np.int32).max


def stored_columns(
    records: DecodedRecords, partition: TopicPartition, *, timestamped: bool
) -> Iterator[pa.RecordBatch]:
    """Yield records with their values as they are stored; one batch, or several where it would become too large.

    Parameters
    ----------
    partition
        Whose they are, for errors.
    timestamped
        Whether a stored value has a timestamp behind its headers.

    Raises
    ------
    LogCorruptedError
        If a record does not have the headers that it says.
    """
    from statestore.kafka import header_kernels  # numba's import takes long, see columns.py

    columns, data, headers, _ = records
    rows = columns.num_rows
    sections = np.zeros((rows, 2), np.int64)  # address and bytes of each row's headers, with their number in front
    odd = np.zeros(len(headers), np.uint8)
    malformed = header_kernels.locate(data, headers, data.ctypes.data, sections, odd)
    if malformed >= 0:
        offset = columns.column(3)[int(headers[malformed, 3])].as_py()
        raise damaged(partition, offset, "a record does not have the headers that it says")
    held = []
    for at in np.flatnonzero(odd).tolist():
        begin, end, count, row = headers[at].tolist()
        encoded = encode_headers(_decoded(data[begin:end].tobytes(), count))
        section = np.frombuffer(encoded, np.uint8)[_size_bytes(encoded) :]
        held.append(section)
        sections[row] = section.ctypes.data, len(section)
    yield from _laid_out(columns, sections, timestamped)


def _laid_out(columns: pa.RecordBatch, sections: np.ndarray, timestamped: bool) -> Iterator[pa.RecordBatch]:
    from statestore.compiled.batches import address_of
    from statestore.kafka import header_kernels

    place, rows = address_of(columns), columns.num_rows
    ends = np.zeros(rows + 1, np.int64)
    header_kernels.measure(place, sections, timestamped, ends)
    if ends[-1] > _LARGEST_COLUMN and rows > 1:
        half = rows // 2
        yield from _laid_out(columns.slice(0, half), sections[:half], timestamped)
        yield from _laid_out(columns.slice(half), sections[half:], timestamped)
        return
    values = np.empty(int(ends[-1]), np.uint8)
    header_kernels.lay_out(place, sections, timestamped, ends, values)
    column = columns.column(1)
    valid = None
    if column.null_count:
        flags = column.is_valid().to_numpy(zero_copy_only=False)
        valid = pa.py_buffer(np.packbits(flags, bitorder="little"))
    laid_out = pa.Array.from_buffers(
        pa.binary(), rows, [valid, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(values)]
    )
    keys, _, timestamps, offsets = columns.columns
    yield pa.RecordBatch.from_arrays([keys, laid_out, timestamps, offsets], schema=SCHEMA)


def _size_bytes(encoded: bytes) -> int:
    """Bytes of the size in front of encoded headers."""
    at = 0
    while encoded[at] >= 0x80:
        at += 1
    assert headers_end(encoded) == len(encoded)
    return at + 1


def _decoded(raw: bytes, count: int) -> Headers:
    """Read the headers of a record that Kafka could read, and that `locate` has gone through."""
    at = 0

    def varint() -> int:
        nonlocal at
        found = shift = 0
        while True:
            byte = raw[at]
            at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)

    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size = varint()
        name = raw[at : at + size].decode(errors="replace")
        at += size
        size = varint()
        headers.append((name, None if size < 0 else raw[at : at + size]))
        at += max(size, 0)
    return tuple(headers)


def stored_batch(messages: Sequence[Message], values: ValueFormat | None) -> pa.RecordBatch:
    """Return messages as a batch with `SCHEMA`; values as a store keeps them if its format keeps headers."""
    if values is None or not values.keeps_headers:
        return to_batch(messages)
    return batch_with_values(messages, [_stored(message, values) for message in messages])


def _stored(message: Message, values: ValueFormat) -> bytes | None:
    value = message.value()
    if value is None:
        return None
    return values.stored(value, message.timestamp()[1], tuple(message.headers() or ()))
