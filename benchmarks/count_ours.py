"""Ours, counting by key: the process job's own tasks in two worker processes, or the job itself through spark-submit.

Run as a program, this plans as the job does and gives each of two workers the next task when it is free, as Spark's
`local[2]` does. Time begins when the first task is open and starts to read; opening the later ones counts.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from statestore_jobs.planning import prepare, task_specs

from benchmarks.counting import Command, CountingRun, CountingSystem
from benchmarks.registered import register
from statestore.config import load_settings
from statestore.metastore.metastore import Metastore
from statestore.model import changelog_topic
from statestore.reports import ProcessReport, ProcessRow, read_report
from statestore.tasks import InputRecords, ProcessorContext, Record, ValueAndTimestamp
from statestore.tasks.stream_task import StreamTask, run_task

WORKERS = 2
_STORE = "counts"
_AGGREGATION = {"aggregations": [{"store": _STORE, "aggregate": "count"}]}
_PROCESSOR = {"processor": "benchmarks.count_ours:count", "stores": [{"name": _STORE, "value_serde": "int64"}]}
_BATCHES = {**_PROCESSOR, "processor": "benchmarks.count_ours:CountBatches"}


def count(record: Record, context: ProcessorContext) -> None:
    """Count one record, per record and in Python: what an application's own processor does."""
    store = context.state_store(_STORE)
    found = store.get(record.key)
    store.put(record.key, ValueAndTimestamp(found.value + 1 if found else 1, record.timestamp))


class CountBatches:
    """The same with many records at once, in columns."""

    def process_batch(self, batch: InputRecords, context: ProcessorContext) -> None:
        """Count the records of each key, and add them to what is stored."""
        store = context.arrow_store(_STORE)
        columns = pa.table({"key": batch.columns["key"], "at": batch.columns["timestamp"]})
        counted = columns.group_by("key", use_threads=False).aggregate([([], "count_all"), ("at", "max")])
        before = store.get_many(counted["key"]).values.fill_null(0)
        store.put_many(counted["key"], pc.add(before, counted["count_all"].combine_chunks()), counted["at_max"])


def _changelog(run: CountingRun) -> str:
    return changelog_topic(run.application, _STORE)


def _environment(run: CountingRun, work: Mapping[str, object]) -> dict[str, str]:
    """Register the application and return the settings of an installation that has it."""
    definition = {
        "name": run.application,
        "input_topic": run.input.topic,
        "commit_interval_ms": run.commit_interval_ms,
        **work,
    }
    return {
        **register(run.input.servers, definition),
        "STATESTORE_BOOTSTRAP_SERVERS": run.input.servers,
        "STATESTORE_STATE_DIR": str(run.directory / "state"),
        "STATESTORE_REPORTS_DIR": str(run.directory / "reports"),
        "STATESTORE_DATA_DOCS_DIR": str(run.directory / "docs"),
    }


def _workers(work: Mapping[str, object]) -> CountingSystem:
    def command(run: CountingRun) -> Command:
        argv = [sys.executable, "-m", "benchmarks.count_ours", str(run.started)]
        return Command(argv, _environment(run, work))

    return CountingSystem(command, _changelog)


def _spark_job() -> CountingSystem:
    def report(run: CountingRun) -> Path:
        return run.directory / "report.json"

    def command(run: CountingRun) -> Command:
        submit = [str(Path(sys.executable).parent / "spark-submit"), "--master", f"local[{WORKERS}]"]
        argv = [*submit, "--conf", "spark.ui.enabled=false", "jobs/process.py", "--report", str(report(run))]
        return Command(argv, {**_environment(run, _AGGREGATION), "PYSPARK_PYTHON": sys.executable})

    def seconds(run: CountingRun, _: float) -> float:
        rows = read_report(report(run), ProcessReport).rows
        return sum(row.seconds for row in rows) / WORKERS

    return CountingSystem(command, _changelog, seconds=seconds)


def ours() -> dict[str, CountingSystem]:
    """Our systems by name; the Spark job's time is that of its tasks, from its report."""
    return {
        "ours": _workers(_AGGREGATION),
        "ours, processor": _workers(_PROCESSOR),
        "ours, process_batch": _workers(_BATCHES),
        "ours, Spark job": _spark_job(),
    }


def _begin_together(all_there: Barrier, started: Any) -> None:
    """Prepare a worker: have it note when the first task starts to read, and wait for the others."""
    process = StreamTask.process

    def noting(task: StreamTask) -> None:
        if not started.value:
            started.value = time.time()
        process(task)

    StreamTask.process = noting  # type: ignore[method-assign, assignment]  # nothing else says when a task is open
    all_there.wait(60)


def _nothing() -> None:
    """Bring up a worker: this returns when all are there."""


def main(started: Path) -> int:
    """Process everything for the only application of the environment's catalogue; return the exit code."""
    settings = load_settings()
    topics, metastore = settings.cluster.topics, Metastore.of(settings)
    (entry,) = metastore.require_running().catalogue.applications.values()
    prepare(topics, metastore, [entry])
    specs = task_specs(settings, topics, entry.definition)
    spawn = multiprocessing.get_context("spawn")
    # Without a lock: both workers may write at their first task, and the difference is nothing.
    started_s = spawn.Value("d", 0.0, lock=False)
    with ProcessPoolExecutor(WORKERS, spawn, _begin_together, (spawn.Barrier(WORKERS), started_s)) as pool:
        for ready in [pool.submit(_nothing) for _ in range(WORKERS)]:
            ready.result()
        rows: list[ProcessRow] = list(pool.map(run_task, specs))
    started.write_text(str(started_s.value), encoding="utf-8")
    for row in rows:
        print(row.model_dump_json(indent=1), flush=True)
    return int(any(row.failure for row in rows))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
