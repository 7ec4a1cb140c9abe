"""What the applications must leave for an input: plain Python, nothing of the library.

A windowed store drops what has expired as whole segments, and readers see no row older than its retention. A model
therefore has the stream time of each store, by which the rows to be compared are chosen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.faults.applications import GAP_MS, GRACE_MS, RETENTION_MS, WINDOW_MS
from tests.integration.broker import Logged

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


@dataclass
class Expected:
    """Rows by store, and what is sent by key, in its order."""

    stores: dict[str, Rows] = field(default_factory=dict)
    sent: dict[bytes, list[bytes | None]] = field(default_factory=dict)

    def send(self, key: bytes, value: bytes | None) -> None:
        """Note a record that is sent."""
        self.sent.setdefault(key, []).append(value)


def processed(records: Iterable[Logged]) -> Expected:
    """What `applications.process` leaves for one input partition."""
    counts, latest, hourly, visits = Rows(), Rows(), Rows(), Rows()
    expected = Expected({"counts": counts, "latest": latest, "hourly": hourly, "visits": visits})
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
    counts, hourly, visits = Rows(), Rows(), Rows()
    expected = Expected({"counts": counts, "hourly": hourly, "visits": visits})
    before = -1
    for _, key, value, at in records:
        now = max(before, at)
        if key is not None and value is not None:
            total, newest = _one_more(counts.rows.get((key,)), at)
            counts.rows[key,] = total, newest
            expected.send(key, total)
            start = at - at % WINDOW_MS
            if start + WINDOW_MS + GRACE_MS > now:
                hourly.put((key, start), start, _one_more(hourly.rows.get((key, start)), at))
            _visit_within_grace(visits, key, at, before)
        before = now
    return expected


def _visit_within_grace(visits: Rows, key: bytes, at: int, before: int) -> None:
    merged = [
        (name, start, end)
        for name, start, end in visits.rows
        if name == key and end >= at - GAP_MS and start <= at + GAP_MS and end > before - RETENTION_MS
    ]
    start, end = min([at, *(found[1] for found in merged)]), max([at, *(found[2] for found in merged)])
    if end < max(before, at) - GAP_MS - GRACE_MS:
        return
    parts = [visits.rows.pop(session) for session in merged]
    total = 1 + sum(int.from_bytes(value, "big") for value, _ in parts)
    newest = max([at, *(timestamp for _, timestamp in parts)])
    visits.put((key, start, end), end, (total.to_bytes(8, "big"), newest))


def grouped(records: Iterable[Logged]) -> Rows:
    """What the regrouped aggregation leaves for the whole input."""
    rows = Rows()
    for _, _, value, at in records:
        if value is not None:
            rows.rows[value[:1],] = _one_more(rows.rows.get((value[:1],)), at)
    return rows


def _one_more(found: Entry | None, at: int) -> Entry:
    count, newest = (0, at) if found is None else (int.from_bytes(found[0], "big"), found[1])
    return (count + 1).to_bytes(8, "big"), max(newest, at)
