"""`statestore validate` on an application with four small stores, one of each kind: what it takes besides the rows.

The command is run as a user runs it: a program that starts a Spark session of its own, with no settings but those that
say where Kafka and the stores are. Time is that of the whole program.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.counting import Command
from benchmarks.process_input import batching_producer
from benchmarks.registered import register
from benchmarks.restore_run import seconds_of
from demo.processes import Processes, ServiceError
from statestore import clock
from statestore.kafka.cluster import Cluster
from statestore.tasks import ProcessorContext, Record

#: Each key has one row in each store.
KEYS, STORES = 814, 4
ROWS = KEYS * STORES
CASE = f"command validate, {STORES} stores with {ROWS:,} rows"
_NAME, _INPUT = "small", "small-in"
_PARTITIONS = 4
_HOUR_MS = 3_600_000
_FLUSH_S = 60


def keep(record: Record, context: ProcessorContext) -> None:
    """Keep what a key had, and when."""
    context.state_store("versions").put(record.key, record.value, record.timestamp)


class SmallStores:
    """The application, with all of its input processed."""

    def __init__(self, processes: Processes, servers: str, scratch: Path) -> None:
        self._processes, self._scratch = processes, scratch
        Cluster(servers).topics.create(_INPUT, _PARTITIONS, {"retention.ms": "-1"})
        self._environment = {
            **register(servers, _definition()),
            "STATESTORE_BOOTSTRAP_SERVERS": servers,
            "STATESTORE_STATE_DIR": str(scratch / "state"),
            "STATESTORE_REPORTS_DIR": str(scratch / "reports"),
            "STATESTORE_DATA_DOCS_DIR": str(scratch / "docs"),
        }
        scratch.mkdir()
        producer, now_ms = batching_producer(servers), clock.now_ms()  # of older rows the log may tell no more
        for number in range(KEYS):
            producer.produce(_INPUT, b"%d" % number, b"key-%d" % number, timestamp=now_ms + number)
        producer.flush(_FLUSH_S)
        self._seconds("process")

    def validated(self) -> float:
        """Validate all stores, and return the seconds from the start of the program to its end."""
        seconds = self._seconds("validate")
        stores = json.loads(self._shown.read_text(encoding="utf-8"))["stores"]
        if wrong := [found for found in stores if found["verdict"] != "passed"]:
            raise ServiceError(
                f"store {wrong[0]['store']} was to pass, found {wrong[0]['verdict']}: {wrong[0]['detail']}"
            )
        rows = sum(found["keys"] - found["not_compared"] for found in stores)
        if rows != ROWS or len(stores) != STORES:
            raise ServiceError(
                f"{STORES} stores with {ROWS:,} rows were to be validated, found {len(stores)}, {rows:,}"
            )
        return seconds

    @property
    def _shown(self) -> Path:
        return self._scratch / "shown.json"

    def _seconds(self, work: str) -> float:
        argv = [sys.executable, "-m", "statestore.cli", work, "--application", _NAME, "--json", str(self._shown)]
        command = Command(argv, self._environment)
        return seconds_of(self._processes, command, self._scratch, cores=2)


def _definition() -> dict[str, object]:
    retention = {"retention_ms": 24 * _HOUR_MS}
    return {
        "name": _NAME,
        "input_topic": _INPUT,
        "processor": f"{__name__}:keep",
        "aggregations": [
            {"store": "counts", "aggregate": "count"},
            {"store": "windows", "aggregate": "count", "windows": {"size_ms": _HOUR_MS}},
            {"store": "sessions", "aggregate": "count", "sessions": {"gap_ms": _HOUR_MS}},
        ],
        "stores": [
            {"name": "versions", "kind": "versioned", "value_serde": "bytes", **retention},
            {"name": "counts"},
            {"name": "windows", "kind": "window", "window_size_ms": _HOUR_MS, **retention},
            {"name": "sessions", "kind": "session", **retention},
        ],
    }
