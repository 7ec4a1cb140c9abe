"""An application that counts in stores of each kind without a changelog, and what they must have in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from statestore.definitions.store import StoreDefinition
from statestore.stores.api import Windowed
from statestore.stores.open import build_store
from statestore.tasks import ProcessorContext, Record, ValueAndTimestamp
from tests.faults.children import Child, Kill
from tests.integration.broker import T0, Row, consume
from tests.integration.support import STORE, Application

HOUR_MS = 3_600_000
RETENTION_MS = 10 * HOUR_MS
LOGGED = "logged"
#: Stores that each record is counted in.
STORES = (
    StoreDefinition(name=STORE, logged=False),
    StoreDefinition(name="hours", kind="window", logged=False, retention_ms=RETENTION_MS, window_size_ms=HOUR_MS),
    StoreDefinition(name="visits", kind="session", logged=False, retention_ms=RETENTION_MS),
    StoreDefinition(name=LOGGED),
)
_PADDING = b"." * 64


def count_in_all(record: Record, context: ProcessorContext) -> None:
    """Count a key's records in a store of each kind, and forward the number."""
    key, at = record.key or b"", record.timestamp
    hour = at - at % HOUR_MS
    total = 0
    for name in (STORE, LOGGED):
        store = context.state_store(name)
        found = store.get(key)
        total = 1 + (0 if found is None else number_in(found.value))
        store.put(key, ValueAndTimestamp(value_of(total), at))
    hours, visits = context.state_store("hours"), context.state_store("visits")
    found = hours.fetch(key, hour)
    hours.put(key, ValueAndTimestamp(value_of(1 + (0 if found is None else number_in(found.value))), at), hour)
    visit = Windowed(key, hour, hour)
    before = visits.fetch_session(key, hour, hour)
    visits.put(visit, value_of(1 + (0 if before is None else number_in(before))))
    context.forward(key, b"%d" % total)


def value_of(number: int) -> bytes:
    """Return the value that a store has for a number."""
    return b"%d" % number + _PADDING


def number_in(value: bytes) -> int:
    """Return the number in a value of a store."""
    return int(value.removesuffix(_PADDING))


class Counting:
    """The application, with input that is spread over several segments.

    Parameters
    ----------
    staged_bytes
        Staged bytes at which a commit is made early.
    """

    def __init__(self, servers: str, directory: Path, staged_bytes: int = 8 * 1024, seed: object = 1) -> None:
        self.application = Application(
            servers, directory, processor="count", stores=STORES, uncommitted_max_bytes=staged_bytes
        ).defined(processor="tests.faults.unlogged:count_in_all")
        self._marks = directory / "marks"
        self._draw = Random(f"{seed}")

    def send(self, records: int) -> None:
        """Produce input."""
        for _ in range(records // 20):
            rows: list[Row] = [(b"%02d" % self._draw.randrange(30), b"x") for _ in range(20)]
            self.application.send(rows, timestamp=T0 - T0 % HOUR_MS + self._draw.randrange(9) * HOUR_MS)

    def child(self, kill: Kill | None = None) -> Child:
        """Run the task in a separate process."""
        return Child([self.application.task_spec()], self._marks, kill=kill)

    def run(self) -> None:
        """Run the task to the end, which must succeed."""
        (row,) = self.child().rows()
        assert row.failure is None, row.failure
        assert row.lag == 0

    def check(self) -> None:
        """Compare all stores and the output with the input: nothing is lost, and nothing is counted twice."""
        counted: Counter[bytes] = Counter()
        hours: Counter[tuple[bytes, int]] = Counter()
        sent: list[Row] = []
        for record in consume(self.application.servers, self.application.input)[0]:
            key = record.key or b""
            counted[key] += 1
            hours[key, record.timestamp - record.timestamp % HOUR_MS] += 1
            sent.append((key, b"%d" % counted[key]))
        for name in (STORE, LOGGED):
            found = {key: number_in(value.value) for key, value in self.application.contents(store=name).items()}
            assert found == counted, f"{name}: not what the input gives"
        windows = {(window.key, window.start): number_in(value.value) for window, value in self._rows("hours")}
        assert windows == hours, "hours: not what the input gives"
        assert {(visit.key, visit.start): number_in(value) for visit, value in self._rows("visits")} == hours, "visits"
        output = [
            (record.key, record.value) for record in consume(self.application.servers, self.application.output)[0]
        ]
        assert output == sent, "the output is not what the input gives"

    def _rows(self, store: str) -> Sequence[tuple[Any, Any]]:
        spec = self.application.store_spec(store=store)
        opened = build_store(spec.store)
        opened.init(spec.context(read_only=True))
        try:
            opened.inner.advance_stream_time(T0 - T0 % HOUR_MS + 8 * HOUR_MS)
            return list(opened.all())
        finally:
            opened.close(clean=False)
