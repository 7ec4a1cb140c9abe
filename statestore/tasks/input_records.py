"""The input of a task: records in columns, or one by one for processors that need them this way.

`process_batch` also gets its records in this form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import repeat
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.kafka.record_headers import HeadersOfRecords, RecordsWithHeaders
from statestore.model import TopicPartition
from statestore.tasks.processor import Headers, Record

#: Makes a record of its fields: `Record(*fields)` without a call of Python's for each.
_new_record: Any = partial(tuple.__new__, Record)


class InputRecords:
    """Records of one partition, in their order.

    Parameters
    ----------
    columns
        Columns with `SCHEMA` of `kafka/record_columns.py`.
    headers
        Returns the headers of each record of the whole batch. None: no record has any.
    first
        Index of the first record in that batch.

    Attributes
    ----------
    columns
        The records: key and value (binary), timestamp (ms), and offset (int64).
    """

    def __init__(
        self, partition: TopicPartition, columns: pa.RecordBatch, headers: HeadersOfRecords | None, first: int = 0
    ) -> None:
        self.columns = columns
        self._partition = partition
        self._headers = headers
        self._first = first
        self._records: list[Record] | None = None

    @classmethod
    def arrived(cls, partition: TopicPartition, batch: RecordsWithHeaders, most: int) -> Iterator[Self]:
        """Divide the records that have arrived into parts of limited size."""
        columns, headers = batch.columns, None if batch.headers is None else cache(batch.headers)
        for at in range(0, columns.num_rows, most):
            yield cls(partition, columns.slice(at, most), headers, at)

    @classmethod
    def joined(cls, parts: Sequence[InputRecords]) -> InputRecords:
        """Return all records of consecutive parts."""
        if len(parts) == 1:
            return parts[0]
        # In one piece, as they are bounded long before a column of Arrow's would need several.
        (columns,) = pa.Table.from_batches([part.columns for part in parts]).combine_chunks().to_batches()
        headers: HeadersOfRecords | None = None
        if any(part._headers is not None for part in parts):
            headers = cache(lambda: [tuple(found) for part in parts for found in part.headers])
        return cls(parts[0]._partition, columns, headers)

    def __len__(self) -> int:
        """Number of records."""
        return int(self.columns.num_rows)

    @property
    def topic(self) -> str:
        """Topic of the records."""
        return self._partition.topic

    @property
    def partition(self) -> int:
        """Partition of the records."""
        return self._partition.partition

    @property
    def headers(self) -> Sequence[Headers]:
        """Headers of each record."""
        if self._headers is None:
            return [()] * len(self)
        return self._headers()[self._first : self._first + len(self)]

    @property
    def timestamps(self) -> npt.NDArray[np.int64]:
        """Timestamps of the records (ms)."""
        found: npt.NDArray[np.int64] = self.columns.column(2).to_numpy()
        return found

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Offsets of the records, in ascending order."""
        found: npt.NDArray[np.int64] = self.columns.column(3).to_numpy()
        return found

    @property
    def records(self) -> list[Record]:
        """The records one by one. They are created once."""
        if self._records is None:
            keys, values, timestamps, offsets = self.columns.columns
            fields = zip(
                *(repeat(part) for part in self._partition),
                offsets.to_numpy().tolist(),
                keys.to_pylist(),
                values.to_pylist(),
                timestamps.to_numpy().tolist(),
                repeat(()) if self._headers is None else self.headers,
                strict=False,
            )
            self._records = list(map(_new_record, fields))
        return self._records

    def copy(self) -> InputRecords:
        """Return the same records, for code that may change what it is given, such as the list of `records`."""
        return InputRecords(self._partition, self.columns, self._headers, self._first)

    def part(self, start: int, stop: int | None = None) -> InputRecords:
        """Return some of the records, by their indexes."""
        length = (len(self) if stop is None else stop) - start
        found = InputRecords(self._partition, self.columns.slice(start, length), self._headers, self._first + start)
        found._records = None if self._records is None else self._records[start:stop]
        return found

    def at_offset(self, offset: int) -> Record:
        """Return the record with an offset."""
        index = int(np.searchsorted(self.offsets, offset))
        (record,) = self.part(index, index + 1).records
        return record
