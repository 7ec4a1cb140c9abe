"""Ours, restoring: `restore()` in worker processes of its own, or the job itself through spark-submit.

The same workers also read the log and throw it away: no restore can be faster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.counting import Command
from benchmarks.registered import register
from benchmarks.restore_log import rows_digest, window_key
from benchmarks.restore_program import Order, specs_of
from benchmarks.restore_run import RestoreOutcome, RestoringRun, RestoringSystem
from demo.processes import ServiceError
from statestore.archive.archive import ArchiveSpec
from statestore.reports import RestoreReport, read_report
from statestore.statedir.context import store_context
from statestore.stores.api import Windowed
from statestore.stores.open import build_store


def ours() -> dict[str, RestoringSystem]:
    """Our systems by name; the Spark job's time is that of its tasks, from its report."""
    return {
        "ours": RestoringSystem(_order("restore"), check=check_rows),
        "ours, Spark job": RestoringSystem(_spark_submit, _of_spark_job),
        "drain floor": RestoringSystem(_order("drain")),
    }


def _order(work: str) -> Callable[[RestoringRun], Command]:
    return lambda run: order_of(work, run).command()


def order_of(work: str, run: RestoringRun, state_dir: Path | None = None, archive: ArchiveSpec | None = None) -> Order:
    """Return the order to do this with the run's log, and with its state directory unless another is given."""
    return Order(
        work=work,
        servers=run.log.servers,
        application=run.log.application,
        stores=(run.log.shape.store,),
        partitions=run.log.shape.partitions,
        workers=run.workers,
        state_dir=state_dir or run.state_dir,
        result=run.result,
        archive=archive,
    )


# -- the Spark job ------------------------------------------------------------------------------------------------


def _report(run: RestoringRun) -> Path:
    return run.directory / "report.json"


def _spark_submit(run: RestoringRun) -> Command:
    definition = {
        "name": run.log.application,
        "input_topic": run.log.input,
        "processor": "benchmarks.count_ours:count",  # an application needs one; a restore does not call it
        "stores": [run.log.shape.store.model_dump(mode="json")],
    }
    environment = {
        **register(run.log.servers, definition),
        "STATESTORE_BOOTSTRAP_SERVERS": run.log.servers,
        "STATESTORE_STATE_DIR": str(run.state_dir),
        "STATESTORE_REPORTS_DIR": str(run.directory / "reports"),
        "STATESTORE_DATA_DOCS_DIR": str(run.directory / "docs"),
        "PYSPARK_PYTHON": sys.executable,
    }
    submit = [str(Path(sys.executable).parent / "spark-submit"), "--master", f"local[{run.workers}]"]
    job = ["jobs/restore.py", "--application", run.log.application, "--mode", "full", "--report", str(_report(run))]
    return Command([*submit, "--conf", "spark.ui.enabled=false", *job], environment)


def _of_spark_job(run: RestoringRun, seconds: float) -> RestoreOutcome:
    rows = read_report(_report(run), RestoreReport).rows
    for row in rows:
        if row.outcome != "restored":
            raise ServiceError(f"{row.label} was to be restored, found {row.outcome}: {row.failure}")
    working = sum(row.seconds for row in rows) / run.workers
    return RestoreOutcome(
        records=sum(row.records for row in rows),
        rows=sum(row.keys for row in rows),
        seconds=working,
        start_seconds=seconds - working,
    )


# -- what was restored --------------------------------------------------------------------------------------------


def check_rows(run: RestoringRun) -> None:
    """Compare the rows of the restored store with what was logged.

    Raises
    ------
    ServiceError
        If they differ.
    """
    found = digest_of(order_of("scan", run))
    if found != run.log.digest:
        raise ServiceError(f"the store restored from {run.log.topic} has digest {found}, expected {run.log.digest}")


def digest_of(order: Order) -> int:
    """Return the digest of all rows that the stores of an order have."""
    return rows_digest(rows_of(order))


def rows_of(order: Order, partition: int | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Yield the key in the log and the value of each row that the stores of an order have, or those of a partition."""
    for spec in specs_of(order):
        if partition not in (None, spec.task.partition):
            continue
        store = build_store(spec.store)
        store.init(store_context(spec.paths, read_only=True))
        try:
            for key, value in store.all():
                yield window_key(key.key, key.start) if isinstance(key, Windowed) else key, value
        finally:
            store.close(clean=False)
