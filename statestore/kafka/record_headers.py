"""Records as columns with their headers, which are decoded only on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from statestore.kafka.record_batch import damaged
from statestore.kafka.record_columns import DecodedRecords, to_batch
from statestore.model import TopicPartition

#: Names and values, in their order.
Headers = tuple[tuple[str, bytes | None], ...]
#: Gives the headers of each record of a batch.
HeadersOfRecords = Callable[[], Sequence[Headers]]


class RecordsWithHeaders(NamedTuple):
    """A batch of records.

    Attributes
    ----------
    columns
        With `SCHEMA`.
    headers
        Called for the headers of each record; None: no record has any.
    """

    columns: pa.RecordBatch
    headers: HeadersOfRecords | None

    @classmethod
    def of_decoded(cls, decoded: DecodedRecords, partition: TopicPartition) -> RecordsWithHeaders:
        """Keep what was decoded; of the bytes that it came from, only if there are headers in them."""
        columns, data, headers, _ = decoded
        if not len(headers):
            return cls(columns, None)
        # A copy: the next fetch overwrites the bytes.
        return cls(columns, partial(_decoded, columns, data.tobytes(), headers, partition))


def with_headers(messages: Sequence[Message]) -> RecordsWithHeaders:
    """Return messages as a batch."""
    found: list[Headers] = [tuple(message.headers() or ()) for message in messages]
    return RecordsWithHeaders(to_batch(messages), (lambda: found) if any(found) else None)


def _decoded(columns: pa.RecordBatch, data: bytes, headers: np.ndarray, partition: TopicPartition) -> list[Headers]:
    from statestore.kafka import header_kernels  # numba's import takes long, see columns.py

    counts = headers[:, 2]
    malformed = np.flatnonzero(counts > (headers[:, 1] - headers[:, 0]) // 2)  # each takes two bytes or more
    entries = np.empty((0 if len(malformed) else int(counts.sum()), 5), np.int64)
    bad = (
        int(malformed[0]) if len(malformed) else header_kernels.entries(np.frombuffer(data, np.uint8), headers, entries)
    )
    if bad >= 0:
        offset = columns.column(3)[int(headers[bad, 3])].as_py()
        raise damaged(partition, offset, "a record does not have the headers that it says")
    names: dict[bytes, str] = {}
    found: list[Headers] = [()] * columns.num_rows
    for row, name_at, name_bytes, at, size in entries.tolist():
        raw = data[name_at : name_at + name_bytes]
        name = names.get(raw)
        if name is None:
            name = names[raw] = raw.decode(errors="replace")
        found[row] = (*found[row], (name, None if size < 0 else data[at : at + size]))
    return found
