"""The parts of the values of a store and its log that count in a comparison.

Kafka Streams puts positions into the headers of what it logs, where that is asked for (KIP-796). A store that keeps
headers has those of the records that wrote its rows; once it is restored, it has the positions among them, too. So
where a log has any, they count on neither side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import StoreCorruptedError
from statestore.formats.headers_value import decode_headers, encode_headers, headers_end
from statestore.formats.timestamped_value import TIMESTAMP_BYTES
from statestore.formats.value_format import SESSION_HEADERS, ValueFormat, value_format
from statestore.kafka.record_columns import SCHEMA
from statestore.model import StoreFormat
from statestore.stores.scan import STORED_SCHEMA

#: Arrow refuses to slice some values without an end.
_TO_THE_END = (1 << 31) - 1


class ComparedValues(NamedTuple):
    """How rows of a layout are compared.

    Attributes
    ----------
    layout
        Layout of the rows that are stored.
    timestamps, headers
        Whether these count, where the layout has them.
    positions
        Whether headers with positions count.
    """

    layout: ValueFormat
    timestamps: bool
    headers: bool
    positions: bool

    @property
    def result(self) -> ValueFormat:
        """Layout of the rows as they are compared."""
        if (self.timestamps, self.headers) == (self.layout.timestamped, self.layout.keeps_headers):
            return self.layout
        if self.headers:
            return SESSION_HEADERS
        return value_format(StoreFormat.TIMESTAMPED if self.timestamps else StoreFormat.PLAIN)

    @property
    def changes_logged(self) -> bool:
        """Whether rows of the log are compared otherwise than they were read."""
        if not self.layout.keeps_headers:
            return False
        return not self.headers or not self.positions or (self.layout.timestamped and not self.timestamps)

    def of_stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the store, with `scan.STORED_SCHEMA`, as they are compared.

        Raises
        ------
        StoreCorruptedError
            If a value is not of the layout.
        """
        keys, values = batch.columns
        if self.layout.keeps_headers:
            return _with_values(batch, 1, self._stripped, STORED_SCHEMA) if self.changes_logged else batch
        if not self.layout.timestamped or self.timestamps:
            return batch
        if batch.num_rows and pc.min(pc.binary_length(values)).as_py() < TIMESTAMP_BYTES:
            raise StoreCorruptedError(
                f"a stored value is shorter than the {TIMESTAMP_BYTES} bytes of a timestamp; restore the store"
            )
        return pa.RecordBatch.from_arrays(
            [keys, pc.binary_slice(values, TIMESTAMP_BYTES, _TO_THE_END)], schema=STORED_SCHEMA
        )

    def of_logged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the log, with `changelog.reader.SCHEMA`, as they are compared: headers are in their values."""
        return _with_values(batch, 1, self._read, SCHEMA) if self.changes_logged else batch

    def _stripped(self, stored: bytes) -> bytes:
        """Take from a stored value what does not count."""
        end = headers_end(stored)
        behind = stored[end:]
        if self.layout.timestamped and not self.timestamps:
            self.layout.timestamp_at(stored)
            behind = behind[TIMESTAMP_BYTES:]
        if not self.headers:
            return behind
        if self.positions:
            return stored[:end] + behind
        headers = decode_headers(stored, end)
        if len(headers) >= 2 and headers[-2] == ("v", b"\0") and headers[-1][0] == "c":
            headers = headers[:-2]
        return encode_headers(headers) + behind

    def _read(self, stored: bytes) -> bytes:
        """As `_stripped`, of a row of the log: in the timestamped layout its timestamp stands beside it."""
        stripped = self._stripped(stored)
        return stripped if self.headers or not self.timestamps else stripped[TIMESTAMP_BYTES:]


def _with_values(batch: pa.RecordBatch, at: int, change: Callable[[bytes], bytes], schema: pa.Schema) -> pa.RecordBatch:
    values = [None if value is None else change(value) for value in batch.column(at).to_pylist()]
    columns = batch.columns
    return pa.RecordBatch.from_arrays([*columns[:at], pa.array(values, pa.binary()), *columns[at + 1 :]], schema=schema)
