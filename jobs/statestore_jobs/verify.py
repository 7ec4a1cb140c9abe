"""Verify store partitions against their changelogs: many to a Spark task, one row of findings each."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import TypeVar

from pyspark.sql import SparkSession

from statestore import clock
from statestore.archive.archive import archive_of
from statestore.cli.verification import Piece
from statestore.config import Settings
from statestore.discovery.partitions import failed_stores, select_store_partitions, task_counts
from statestore.environments import KafkaStreamsApplication
from statestore.errors import StateStoreError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.definition_files import select
from statestore.partition.grouping import by_task, in_order
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Status, VerifyReport, VerifyRow
from statestore.requests.verify import Depth, VerifyRequest
from statestore.verification.acknowledged import with_acknowledged
from statestore.verification.check import undetermined
from statestore.verification.history import write_history
from statestore.verification.live.verify import of_locked, was_read
from statestore.verification.options import VerifyOptions
from statestore_jobs import without_definition
from statestore_jobs.entry import run_job, spark_session
from statestore_jobs.shared_state import state_of
from statestore_jobs.without_definition import in_spark_tasks

T = TypeVar("T")
_log = logging.getLogger(__name__)
#: Spark tasks for each core: more of them even out stores of different sizes, fewer share more clients of Kafka.
_TASKS_PER_CORE: dict[Depth, int] = {"offsets": 2, "scan": 32, "deep": 32}

#: How long a lock is waited for that was held already when the store was first looked at, s.
_LAST_WAIT_S = 1.0


def run(request: VerifyRequest, settings: Settings, catalogue: Catalogue, run_id: str) -> VerifyReport:
    """Plan on the driver, verify in Spark tasks, keep the rows in the history."""
    started = clock.now_ms()
    options = VerifyOptions.of(request, started, run_bytes=settings.restore_run_bytes)
    applications = select(catalogue.definitions(), request.applications, request.stores)
    topics = settings.cluster.topics
    selected = select_store_partitions(
        settings, topics, applications, request.stores, request.partitions, leftovers=True
    )
    specs = selected.specs if len(applications) > 1 else selected.specs_of_all()
    archive = archive_of(settings, topics)
    specs = [spec.model_copy(update={"archive": archive}) for spec in specs]
    rows = _verify(settings, specs, options, task_counts(topics, applications), live=request.live)
    rows += [undetermined(found) for found in failed_stores(applications, selected.failed, request.stores)]
    report = VerifyReport(
        run_id=run_id,
        applications=tuple(application.name for application in applications),
        started_ms=started,
        finished_ms=clock.now_ms(),
        rows=tuple(with_acknowledged(rows, settings.state_dir)),
    )
    return _with_history(report, settings)


def _without_definition(
    request: VerifyRequest, settings: Settings, application: KafkaStreamsApplication, run_id: str
) -> VerifyReport:
    return _with_history(without_definition.verify(request, settings, application, run_id), settings)


def _with_history(report: VerifyReport, settings: Settings) -> VerifyReport:
    try:
        write_history(settings.reports_dir, report)
    except StateStoreError as error:  # the report says what was found
        _log.warning("verify: this run is missing in the history: %s", error)
    return report


def _verify(
    settings: Settings,
    specs: Sequence[StorePartitionSpec],
    options: VerifyOptions,
    tasks: Mapping[tuple[str, int], int],
    *,
    live: bool,
) -> list[VerifyRow]:
    with state_of(spark_session("verify"), settings) as spark:
        if live:
            return _looked_at(spark, specs, options, tasks, live=True)[0]
        rows, lost = _looked_at(spark, specs, options, tasks)
        # Who had them may have ended since, as a run of `process` to which a scan gave way.
        in_use = [at for at, row in enumerate(rows) if row.status is Status.LOCKED and at not in lost]
        again = [specs[at].model_copy(update={"lock_wait_s": _LAST_WAIT_S}) for at in in_use]
        for at, row in zip(in_use, _looked_at(spark, again, options, tasks)[0], strict=True):
            rows[at] = row
        in_use = [
            at
            for at, row in enumerate(rows)
            if row.status is Status.LOCKED and at not in lost and specs[at].home.is_locked_in_use
        ]
        if in_use:
            looked_at, _ = _looked_at(spark, [specs[at] for at in in_use], of_locked(options), tasks, live=True)
            for at, row in zip(in_use, looked_at, strict=True):
                rows[at] = row if was_read(row) else rows[at]
    return rows


def _looked_at(
    spark: SparkSession,
    specs: Sequence[StorePartitionSpec],
    options: VerifyOptions,
    tasks: Mapping[tuple[str, int], int],
    *,
    live: bool = False,
) -> tuple[list[VerifyRow], set[int]]:
    """Return a row for each spec, and the numbers of those whose worker died before it had looked."""
    parts = split(by_task(specs), _TASKS_PER_CORE[options.depth] * spark.sparkContext.defaultParallelism)
    indexes = [list(chain.from_iterable(part)) for part in parts]
    pieces = [Piece([specs[at] for at in part], options, tasks, live) for part in indexes]
    found = in_spark_tasks(spark, pieces)
    lost = {at for part, its in zip(indexes, found, strict=True) if its.lost for at in part}
    return in_order(indexes, [part.rows for part in found]), lost


def split(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Cut into at most so many parts, of sizes that differ by one at most, in order."""
    parts = min(parts, len(items))
    bounds = [at * len(items) // parts for at in range(parts + 1)] if parts else [0]
    return [items[start:end] for start, end in pairwise(bounds)]


def main() -> None:
    """Run this job as a program."""
    run_job("verify", VerifyRequest, run, without_definition=_without_definition)
