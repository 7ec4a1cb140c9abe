"""Publishing snapshots by `process`: consecutive runs, exactly once, each of which changes 1 in 100 of the keys.

Each run is the process job's own tasks in two fresh worker processes, as in `make bench-process`; its time is that of
its tasks, without Spark's start. RocksDB compacts the stores meanwhile, and what it wrote anew is uploaded, too.

Run as a program, this is one run: it writes the rows of its tasks into a file.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from statestore_jobs.planning import prepare, task_specs

from benchmarks.counting import Command
from benchmarks.measure import SMALL, Result
from benchmarks.process_input import BATCH, batching_producer
from benchmarks.registered import register
from benchmarks.restore_run import seconds_of
from benchmarks.snapshot_restore import CORES
from demo.processes import Processes, ServiceError, wait_until
from statestore.archive.archive import ArchiveSpec
from statestore.config import load_settings
from statestore.kafka.cluster import Cluster
from statestore.metastore.metastore import Metastore
from statestore.reports import ProcessRow
from statestore.tasks import ProcessorContext, Record, ValueAndTimestamp
from statestore.tasks.stream_task import run_task

_STORE = "latest"
_PARTITIONS = 4
_KEYS = 20_000 if SMALL else 2_000_000
_CHANGED = _KEYS // 100
_RUNS = 2 if SMALL else 20
_KEY_BYTES, _VALUE_BYTES = 16, 100
_FLUSH_S = 300

SHARE, SECONDS = "publishing, share of a run", "publishing, a run"
UPLOADED, OF_STORE = "publishing, uploaded per new SST byte", "publishing, uploaded, share of the store"
CASES = (SHARE, SECONDS, UPLOADED, OF_STORE)
_UNITS = {SHARE: "%", SECONDS: "s", UPLOADED: "bytes", OF_STORE: "%"}


def keep(record: Record, context: ProcessorContext) -> None:
    """Keep the latest value of each key."""
    context.state_store(_STORE).put(record.key, ValueAndTimestamp(record.value, record.timestamp))


class _Application(NamedTuple):
    """An application that publishes into an archive."""

    name: str
    environment: Mapping[str, str]
    state_dir: Path

    def files(self) -> dict[tuple[str, int], int]:
        """Return the bytes of each SST file of its stores, by path and inode."""
        found = [(path, path.stat()) for path in self.state_dir.rglob("*.sst") if ".statestore" not in path.parts]
        return {(str(path), status.st_ino): status.st_size for path, status in found}


def measure_publishing(
    processes: Processes, scratch: Path, servers: str, archive: ArchiveSpec, runs: int | None
) -> list[Result]:
    """Measure the runs of an application, one by one, behind one that fills its stores."""
    topics, source = Cluster(servers).topics, "published-in"
    topics.create(source, _PARTITIONS, {"retention.ms": "-1"})
    wait_until(lambda: topics.describe([source]), 30, f"topic {source} to be there")
    names = np.random.default_rng(7).bytes(_KEY_BYTES * _KEYS)
    application = _registered("published", servers, source, archive, scratch)
    figures: dict[str, list[float]] = {case: [] for case in CASES}
    for number in range((runs or _RUNS) + 1):
        _produce(servers, source, names, number)
        found = _one_run(processes, scratch, application, _CHANGED if number else _KEYS)
        for case, figure in found.items() if number else ():
            figures[case].append(figure)
    return [Result(case, "ours", _UNITS[case], figures[case]) for case in CASES]


def _registered(name: str, servers: str, source: str, archive: ArchiveSpec, scratch: Path) -> _Application:
    definition = {
        "name": name,
        "input_topic": source,
        "processor": "benchmarks.snapshot_publish:keep",
        "stores": [{"name": _STORE, "value_serde": "bytes"}],
    }
    directory = scratch / name
    environment = {
        **register(servers, definition),
        "STATESTORE_BOOTSTRAP_SERVERS": servers,
        "STATESTORE_STATE_DIR": str(directory / "state"),
        "STATESTORE_REPORTS_DIR": str(directory / "reports"),
        "STATESTORE_DATA_DOCS_DIR": str(directory / "docs"),
        "STATESTORE_ARCHIVE": archive.url,
    }
    return _Application(name, environment, directory / "state")


def _produce(servers: str, source: str, names: bytes, number: int) -> None:
    """Produce a record for each key, or for 1 in 100 of them, chosen at random."""
    random = np.random.default_rng(number)
    chosen = np.arange(_KEYS) if number == 0 else random.choice(_KEYS, _CHANGED, replace=False)
    pool = random.bytes(1 << 20)
    values_at = random.integers(0, len(pool) - _VALUE_BYTES, len(chosen)).tolist()
    producer = batching_producer(servers)
    for sent, (key, at) in enumerate(zip(chosen.tolist(), values_at, strict=True), start=1):
        producer.produce(source, pool[at : at + _VALUE_BYTES], names[key * _KEY_BYTES : (key + 1) * _KEY_BYTES])
        if sent % BATCH == 0:
            wait_until(
                lambda: producer.poll(0) >= 0 and len(producer) <= 10 * BATCH, _FLUSH_S, "the broker", poll_s=0.01
            )
    producer.flush(_FLUSH_S)


def _one_run(processes: Processes, scratch: Path, application: _Application, records: int) -> dict[str, float]:
    before = application.files()
    result = scratch / f"{application.name}.json"
    command = Command([sys.executable, "-m", "benchmarks.snapshot_publish", str(result)], application.environment)
    seconds_of(processes, command, scratch / application.name, CORES)
    rows = [ProcessRow.model_validate(row) for row in json.loads(result.read_text(encoding="utf-8"))]
    published = [snapshot for row in rows for snapshot in row.snapshots]
    failures = [*filter(None, (row.failure for row in rows)), *filter(None, (found.failure for found in published))]
    if failures or len(published) != _PARTITIONS or sum(row.records_in for row in rows) != records:
        raise ServiceError(
            f"{application.name} was to process {records:,} records and publish {_PARTITIONS} snapshots, "
            f"found {sum(row.records_in for row in rows):,} and {len(published)}; {failures}"
        )
    after = application.files()
    new = sum(size for file, size in after.items() if file not in before)
    working = sum(row.seconds for row in rows)
    publishing = sum(snapshot.seconds for snapshot in published)
    uploaded = sum(snapshot.bytes for snapshot in published)
    return {
        SHARE: 100 * publishing / working,
        SECONDS: working / CORES,
        UPLOADED: uploaded / new,
        OF_STORE: 100 * uploaded / sum(after.values()),
    }


def main(result: Path) -> None:
    """Process everything for the only application of the environment's catalogue, and write the rows of its tasks."""
    settings = load_settings()
    topics, metastore = settings.cluster.topics, Metastore.of(settings)
    (entry,) = metastore.require_running().catalogue.applications.values()
    prepare(topics, metastore, [entry])
    specs = task_specs(settings, topics, entry.definition)
    with ProcessPoolExecutor(CORES, multiprocessing.get_context("spawn")) as pool:
        rows = list(pool.map(run_task, specs))
    result.write_text(json.dumps([row.model_dump(mode="json") for row in rows]), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
