"""Kafka Streams' aggregations, one record at a time: what the batch execution must come to, however it is cut.

Written from the processors of Kafka Streams' trunk of October 2024 (KStreamAggregate, KStreamReduce,
KStreamWindowAggregate, KStreamSessionWindowAggregate), with every accumulator through its serde after every record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from statestore.definitions.aggregation import Sessions, TimeWindows
from statestore.formats import session_key, window_key
from tests.integration.broker import Logged


@dataclass(frozen=True)
class Functions:
    """What an aggregate does, said apart from it."""

    read: Callable[[bytes], Any]
    initial: Callable[[], Any]
    add: Callable[[bytes, Any, Any], Any]
    merge: Callable[[bytes, Any, Any], Any]
    write: Callable[[Any], bytes]
    read_result: Callable[[bytes], Any]
    by_time: bool = False


COUNT = Functions(
    lambda raw: None,
    int,
    lambda _key, _value, number: number + 1,
    lambda _key, one, other: one + other,
    lambda number: number.to_bytes(8, "big"),
    lambda raw: int.from_bytes(raw, "big"),
)


@dataclass
class Model:
    """A store, its changelog and its output topic.

    Attributes
    ----------
    rows
        Plain value and timestamp by row key; the timestamp is only known to a timestamped store.
    logged
        Last value and timestamp logged by row key.
    output
        Last value and timestamp forwarded by output key; deleted ones are not there.
    """

    functions: Functions
    windows: TimeWindows | None
    sessions: Sessions | None
    timestamped: bool
    retention_ms: int
    rows: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    logged: dict[bytes, tuple[bytes | None, int]] = field(default_factory=dict)
    output: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    poison: list[int] = field(default_factory=list)
    late: int = 0
    dropped: int = 0
    stream_time: int = -1
    store_time: int = -1

    def process(self, record: Logged) -> None:
        """Process one record."""
        before = self.stream_time
        self.stream_time = max(before, record.timestamp)
        if record.key is None or record.value is None:
            self.dropped += 1
        elif self.sessions is not None:
            self._process_session(record, before)
        elif self.windows is not None:
            self._process_windows(record, self.windows)
        else:
            self._update(record, {record.key: record.key})

    def visible(self) -> dict[bytes, tuple[bytes, int]]:
        """Rows that retention still shows."""
        if self.windows is None and self.sessions is None:
            return self.rows
        return {key: row for key, row in self.rows.items() if self._time_of(key) > self.store_time - self.retention_ms}

    def _time_of(self, row_key: bytes) -> int:
        return window_key.decode(row_key)[1] if self.windows is not None else session_key.decode(row_key)[2]

    def _process_windows(self, record: Logged, windows: TimeWindows) -> None:
        starts, start = [], max(record.timestamp - windows.size_ms + windows.step_ms, 0) // windows.step_ms
        start *= windows.step_ms
        while start <= record.timestamp:
            if start + windows.size_ms > self.stream_time - windows.grace_ms:
                starts.append(start)
            start += windows.step_ms
        if not starts:
            self.late += 1
        assert record.key is not None
        self._update(
            record,
            {window_key.encode(record.key, at): record.key + at.to_bytes(8, "big") for at in starts},
        )

    def _update(self, record: Logged, rows: dict[bytes, bytes]) -> None:
        functions = self.functions
        changed = {}
        try:
            for row_key in rows:
                old = self.rows.get(row_key)
                if functions.by_time and old is not None and record.timestamp < old[1]:
                    continue
                accumulator = functions.initial() if old is None else functions.read_result(old[0])
                timestamp = record.timestamp if old is None else max(record.timestamp, old[1])
                accumulator = functions.add(record.key or b"", functions.read(record.value or b""), accumulator)
                changed[row_key] = None if accumulator is None else functions.write(accumulator), timestamp
        except Exception:
            self.poison.append(record.offset)
            return
        for row_key, (value, timestamp) in changed.items():
            self._write(row_key, value, timestamp, record.timestamp)
            self._forward(rows[row_key], value, timestamp if self.timestamped else record.timestamp)

    def _write(self, row_key: bytes, value: bytes | None, timestamp: int, record_timestamp: int) -> None:
        if self.windows is not None or self.sessions is not None:
            self.store_time = max(self.store_time, self._time_of(row_key))
        if value is None:
            self.rows.pop(row_key, None)
            self.logged[row_key] = None, record_timestamp
        else:
            kept = timestamp if self.timestamped else -1
            self.rows[row_key] = value, kept
            self.logged[row_key] = value, timestamp if self.timestamped else record_timestamp

    def _forward(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        if value is None:
            self.output.pop(key, None)
        else:
            self.output[key] = value, timestamp

    def _process_session(self, record: Logged, before: int) -> None:
        gap, grace, functions, at = self.sessions.gap_ms, self.sessions.grace_ms, self.functions, record.timestamp
        found = []
        for row_key in self.rows:
            key, start, end = session_key.decode(row_key)
            if key == record.key and end >= at - gap and start <= at + gap and end > before - self.retention_ms:
                found.append((end, start, row_key))
        found.sort()
        start, end = min([at, *(one[1] for one in found)]), max([at, *(one[0] for one in found)])
        if end < self.stream_time - grace - gap:
            self.late += 1
            return
        try:
            accumulator, timestamp = functions.initial(), at
            for _, _, row_key in found:
                accumulator = functions.merge(key, accumulator, functions.read_result(self.rows[row_key][0]))
                timestamp = max(timestamp, self.rows[row_key][1])
            accumulator = functions.add(record.key or b"", functions.read(record.value or b""), accumulator)
            value = None if accumulator is None else functions.write(accumulator)
        except Exception:
            self.poison.append(record.offset)
            return
        for _, _, row_key in found:
            self._write(row_key, None, -1, at)
            self._forward(row_key, None, -1)
        row_key = session_key.encode(record.key or b"", start, end)
        self._write(row_key, value, timestamp, at)
        self._forward(row_key, value, end)
