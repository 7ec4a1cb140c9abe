"""A kind of store that the library does not have: measurements of a key, by time and channel. docs/extending.md."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

from statestore.errors import StateStoreError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.kinds.kind import Number, StoreKind
from statestore.stores.segmented import SegmentedBytes
from statestore.stores.storage import Storage
from statestore.stores.table import Row
from statestore.stores.typed import TypedStore

_SUFFIX = Struct(">qi")


class SeriesKind(StoreKind):
    """Rows by key, time of measurement and channel; they expire by that time."""

    name = "series"
    storage = "tests.spark.series_kind:SERIES"
    times = ("retention_ms",)
    numbers = (Number("measured_at"), Number("channel", 4))
    first_time = last_time = "measured_at"
    suite = "key_value"


KIND = SeriesKind()


class SeriesBytes(SegmentedBytes):
    """A store of measurements as bytes."""

    kind = KIND

    def put(self, key: bytes, measured_at: int, channel: int, value: bytes | None) -> bool:
        """Write a measurement, None deletes; return False if it has expired."""
        return self.put_row(key + _SUFFIX.pack(measured_at, channel), measured_at, value)

    def fetch(self, key: bytes, measured_at: int, channel: int, *, committed: bool = False) -> bytes | None:
        """Read a measurement."""
        return self.get_row(key + _SUFFIX.pack(measured_at, channel), measured_at, committed=committed)

    def rows(self) -> Iterator[Row]:
        """All measurements that have not expired."""
        oldest = self.opened.oldest_visible()
        for segment in self.opened.between(oldest, (1 << 63) - 1, reverse=False):
            yield from (row for row in segment.rows.scan(None, None) if KIND.row_time(row[0]) >= oldest)


class SeriesStore(TypedStore[Any, Any, SeriesBytes]):
    """Measurements of a key, by time (ms) and channel."""

    scope = "-series"

    def put(self, key: Any, measured_at: int, channel: int, value: Any) -> None:
        """Write a measurement and log the change; None deletes. One that has expired is dropped and not logged."""
        raw = self.key_bytes(key)
        row_key = raw + _SUFFIX.pack(measured_at, channel)
        stored = None if value is None else self._encode(value)
        change = self._checked_change(row_key, stored)
        try:
            if self._undo is not None:
                self._remember(row_key)
            kept = self.inner.put(raw, measured_at, channel, stored)
        except (StateStoreError, OSError) as error:
            self.fail(error)
        if kept:
            self._logged(row_key, *change)
        else:
            self.expired_records += 1

    def fetch(self, key: Any, measured_at: int, channel: int) -> Any:
        """Read a measurement; None if there is none."""
        stored = self.inner.fetch(self.key_bytes(key), measured_at, channel)
        return None if stored is None else self.decode(stored)

    def all(self) -> Iterator[tuple[Any, int, int, Any]]:
        """All measurements: key, time (ms), channel, value."""
        for row_key, stored in self.inner.rows():
            yield self.key_of(row_key[: -_SUFFIX.size]), *_SUFFIX.unpack(row_key[-_SUFFIX.size :]), self.decode(stored)

    @property
    def is_empty(self) -> bool:
        """True if there is no measurement that retention still shows."""
        return next(self.inner.rows(), None) is None


SERIES = Storage(SeriesStore, SeriesBytes, ("put", "fetch", "rows"), lambda store: store.rows())


def measure(record: Any, context: Any) -> None:
    """Keep the measurement that a record brings: `<time>,<channel>,<value>`; without a value it is deleted."""
    at, channel, value = record.value.split(b",")
    measurement = ValueAndTimestamp(value, record.timestamp) if value else None
    context.state_store("series").put(record.key, int(at), int(channel), measurement)
