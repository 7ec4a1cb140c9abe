"""Metrics of one store: KIP-1035's commit metrics and Kafka Streams' restore metrics.

They are counted here for the job's report, and from recording level DEBUG on offered to OpenTelemetry as observable
gauges with Kafka Streams' names and tags. Without an exporter nobody observes them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakSet

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from statestore.metrics.table import GROUP

_OPERATIONS = ("commit", "flush", "restore")
#: Kafka's name of each figure, its unit and what it says.
_FIGURES = (
    ("rate", "1/s", "The average number of calls to {} per second"),
    ("latency-avg", "ns", "The average latency of calls to {}"),
    ("latency-max", "ns", "The maximum latency of calls to {}"),
)


@dataclass(frozen=True)
class Figures:
    """Measurements of one operation: calls, latencies in ns, and calls per second.

    The time begins when the store is opened; that of commits, when processing begins.
    """

    count: int
    rate: float
    latency_avg: float
    latency_max: int


class StoreMetrics:
    """Counts and times the operations of one store.

    Parameters
    ----------
    scope
        Kafka Streams' scope of the store's kind and engine, such as `rocksdb-window`.
    """

    def __init__(self, store: str, scope: str) -> None:
        self._store = store
        self.scope = scope
        self.tags: dict[str, str] = {}
        self._since = dict.fromkeys(_OPERATIONS, time.monotonic())
        self._counts = dict.fromkeys(_OPERATIONS, 0)
        self._totals = dict.fromkeys(_OPERATIONS, 0)
        self._maxima = dict.fromkeys(_OPERATIONS, 0)

    def open(self, task: str, *, published: bool) -> None:
        """Begin with an open store; `published` offers its figures to OpenTelemetry."""
        self._since = dict.fromkeys(_OPERATIONS, time.monotonic())
        for figures in (self._counts, self._totals, self._maxima):
            figures.update(dict.fromkeys(_OPERATIONS, 0))
        self.tags = {
            "type": GROUP,
            "thread-id": f"{os.getpid()}-{threading.current_thread().name}",
            "task-id": task,
            f"{self.scope}-state-id": self._store,
        }
        if published:
            _register(self)

    def begin_processing(self) -> None:
        """Count commits from now on: a replay has ended, and its commits are not those of a task."""
        self._since["commit"] = time.monotonic()
        self._counts["commit"] = self._totals["commit"] = self._maxima["commit"] = 0

    def record(self, operation: str, latency_ns: int) -> None:
        """Count one call."""
        self._counts[operation] += 1
        self._totals[operation] += latency_ns
        self._maxima[operation] = max(self._maxima[operation], latency_ns)

    def figures(self, operation: str) -> Figures:
        """Measurements so far."""
        count = self._counts[operation]
        seconds = max(time.monotonic() - self._since[operation], 1e-9)
        return Figures(
            count, count / seconds, self._totals[operation] / count if count else 0.0, self._maxima[operation]
        )

    def close(self) -> None:
        """Take the store's metrics away."""
        _live.discard(self)


_live: WeakSet[StoreMetrics] = WeakSet()
_registered = threading.Event()


def _register(store: StoreMetrics) -> None:
    _live.add(store)
    if _registered.is_set():
        return
    _registered.set()
    meter = metrics.get_meter("statestore")
    for operation in _OPERATIONS:
        for figure, unit, description in _FIGURES:

            def observe(
                _: CallbackOptions, operation: str = operation, name: str = figure.replace("-", "_")
            ) -> Iterable[Observation]:
                return [
                    Observation(getattr(store.figures(operation), name), store.tags)
                    for store in list(_live)
                    if store.figures(operation).count
                ]

            meter.create_observable_gauge(
                f"{operation}-{figure}", callbacks=[observe], unit=unit, description=description.format(operation)
            )
