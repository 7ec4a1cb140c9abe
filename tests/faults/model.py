"""What the applications must leave for an input: plain Python, nothing of the library but row keys.

A windowed store drops what has expired as whole segments, and readers see no row older than its retention. A model
therefore has the stream time of each store, by which the rows to be compared are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from statestore.definitions.aggregation import Sessions, TimeWindows
from statestore.formats import session_key, window_key
from tests.faults.applications import GAP_MS, GRACE_MS, RETENTION_MS, WINDOW_MS
from tests.integration.broker import Logged
from tests.oracle.aggregations import COUNT, Model

#: A row's value and timestamp (ms).
Entry = tuple[bytes, int]
_SEGMENT_MS = 60_000


@dataclass
class Rows:
    """Rows of a store; keys are (key,), (key, window start) or (key, session start, session end)."""

    rows: dict[tuple, Entry] = field(default_factory=dict)
    stream_time: int = -1

    def visible(self, timestamp: int) -> bool:
        """Whether retention still shows rows of this time."""
        return timestamp > self.stream_time - RETENTION_MS

    def put(self, key: tuple, timestamp: int, entry: Entry) -> None:
        """Write a row of a windowed store, unless its segment has expired."""
        self.stream_time = max(self.stream_time, timestamp)
        if timestamp // _SEGMENT_MS >= max(self.stream_time - RETENTION_MS, 0) // _SEGMENT_MS:
            self.rows[key] = entry

    def encoded(self, encode: Callable[..., bytes]) -> tuple[dict[bytes, Entry], int]:
        """Rows under the keys that the changelog has, and stream time."""
        return {encode(*key): entry for key, entry in self.rows.items()}, self.stream_time


@dataclass
class Expected:
    """Rows and stream time by store, and what is sent by key, in its order; of aggregations only the last."""

    stores: dict[str, tuple[Mapping[bytes, Entry], int]] = field(default_factory=dict)
    sent: dict[bytes, list[bytes | None]] = field(default_factory=dict)

    def send(self, key: bytes, value: bytes | None) -> None:
        """Note a record that is sent."""
        self.sent.setdefault(key, []).append(value)


def processed(records: Iterable[Logged]) -> Expected:
    """What `applications.process` leaves for one input partition."""
    counts, latest, hourly, visits = Rows(), Rows(), Rows(), Rows()
    expected = Expected()
    for _, key, value, at in records:
        assert key is not None
        if value is None:
            counts.rows.pop((key,), None)
            latest.rows.pop((key,), None)
            expected.send(key, None)
            continue
        total = b"%d" % (1 + int(counts.rows.get((key,), (b"0", 0))[0]))
        counts.rows[key,] = total, at
        latest.rows[key,] = value, at
        expected.send(key, total)
        start = at - at % WINDOW_MS
        before = hourly.rows.get((key, start), (b"0", 0))[0] if hourly.visible(start) else b"0"
        total = b"%d" % (1 + int(before))
        hourly.put((key, start), start, (total, at))
        expected.send(b"window of " + key, total)
        expected.send(b"session of " + key, _visit(visits, key, at))
    expected.stores = {
        "counts": counts.encoded(lambda key: key),
        "latest": latest.encoded(lambda key: key),
        "hourly": hourly.encoded(window_key.encode),
        "visits": visits.encoded(session_key.encode),
    }
    return expected


def _visit(visits: Rows, key: bytes, at: int) -> bytes:
    merged = [
        (name, start, end)
        for name, start, end in visits.rows
        if name == key and end >= at - GAP_MS and start <= at + GAP_MS and visits.visible(end)
    ]
    total = b"%d" % (1 + sum(int(visits.rows.pop(session)[0]) for session in merged))
    start, end = min([at, *(found[1] for found in merged)]), max([at, *(found[2] for found in merged)])
    visits.put((key, start, end), end, (total, at))
    return total


def aggregated(records: Iterable[Logged]) -> Expected:
    """What the aggregations of `applications.with_aggregations` leave for one input partition, `grouped` left out."""
    counts = Model(COUNT, None, None, True, 0)
    hourly = Model(COUNT, TimeWindows(size_ms=WINDOW_MS, grace_ms=GRACE_MS), None, True, RETENTION_MS)
    visits = Model(COUNT, None, Sessions(gap_ms=GAP_MS, grace_ms=GRACE_MS), False, RETENTION_MS)
    for record in records:
        for store in (counts, hourly, visits):
            store.process(record)
    stores = {"counts": counts, "hourly": hourly, "visits": visits}
    return Expected(
        {name: (store.rows, store.store_time) for name, store in stores.items()},
        {key: [value] for key, (value, _) in counts.output.items()},
    )


def grouped(records: Iterable[Logged]) -> dict[bytes, Entry]:
    """What the regrouped aggregation leaves for the whole input."""
    rows = Model(COUNT, None, None, True, 0)
    for record in records:
        rows.process(record._replace(key=None if record.value is None else record.value[:1]))
    return rows.rows
