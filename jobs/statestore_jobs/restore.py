"""Restore store partitions from their changelogs: those that a verification found damaged, or those asked for.

The stores of a task are restored by one Spark task, one after the other. A log that is long enough is cut into ranges
before: each becomes sorted runs in a Spark task of its own, which the first one then puts together.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from statestore import clock
from statestore.changelog.topics import Topics
from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.durable import remove_tree
from statestore.errors import InputError, StateStoreError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.definition_files import select
from statestore.partition.judgement import waits_for_loss
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.many import cut_by_length, plan_many, require_points, restore_many
from statestore.recovery.planning import RECORDS_PER_S, require_disk_for_all, require_partitions
from statestore.recovery.spec import RestoreSpec, parse_as_of, require_consistent
from statestore.reports import (
    Action,
    JobReport,
    RestorePlanReport,
    RestorePlanRow,
    RestoreReport,
    Status,
    VerifyReport,
    read_report,
)
from statestore.verification.targets import store_partition_specs
from statestore_jobs.entry import Definitions, run_job, spark_session
from statestore_jobs.parallel import run_each
from statestore_jobs.shared_state import shared_state


def add_arguments(parser: ArgumentParser) -> None:
    """Declare this job's arguments."""
    parser.add_argument("--application", help="whose stores to restore")
    parser.add_argument("--store", action="append", default=[], help="may be repeated; none means all")
    parser.add_argument("--partition", action="append", default=[], type=int, help="may be repeated; none means all")
    parser.add_argument(
        "--mode", choices=("auto", "tail", "full", "as-of"), default="auto", help="auto does what verify advises"
    )
    parser.add_argument("--force", action="store_true", help="rebuild store partitions that are whole, too")
    parser.add_argument("--verify-report", type=Path, help="restore what this report advises, instead of the above")
    parser.add_argument("--as-of-offset", type=int, help="mode as-of: the last changelog offset in the store")
    parser.add_argument("--as-of-timestamp", help="mode as-of: ISO 8601 or ms; nothing younger is in the store")
    parser.add_argument("--target", type=Path, help="mode as-of: an empty directory, which becomes a state directory")
    parser.add_argument(
        "--best-effort", action="store_true", help="mode as-of: leave out what compaction has removed, and say so"
    )
    parser.add_argument("--ranges", type=int, help="cut each log into so many ranges; by its length if not said")
    parser.add_argument(
        "--check", choices=("files", "deep"), default="files", help="deep reads every row before the swap"
    )
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="rebuild also what its changelog can no longer give in full; the present store stays in quarantine",
    )
    parser.add_argument("--dry-run", action="store_true", help="report what would be done, and do nothing")


def run(arguments: Namespace, settings: Settings, catalogue: Catalogue) -> RestoreReport | RestorePlanReport:
    """Plan on the driver, restore in Spark tasks. Every store partition is verified again before it is touched."""
    started = clock.now_ms()
    topics = Topics(settings.bootstrap_servers, settings.kafka_timeout_s)
    stores, diverged = _chosen(arguments, settings, catalogue.definitions(), topics)
    progress = settings.reports_dir.absolute() / "restore" / f".progress-{arguments.report.stem}"
    restores = [
        # Only a comparison with the log finds these, so nothing less thorough may find them whole again.
        spec._replace(force=spec.force or str(spec.store.store_partition) in diverged)
        for spec in _restores(arguments, settings, stores, progress)
    ]
    require_points(restores)
    spark = spark_session("restore")
    if arguments.ranges is None:
        restores = cut_by_length(restores, spark.sparkContext.defaultParallelism)
    head = {
        "run_id": arguments.report.stem,
        "applications": tuple(dict.fromkeys(store.application for store in stores)),
        "started_ms": started,
    }
    if arguments.dry_run:
        with shared_state(spark, settings.state_dir):
            plans = plan_many(restores, partial(run_each, spark))
        _print_plan(plans)
        return RestorePlanReport(**head, finished_ms=clock.now_ms(), rows=tuple(plans), records_per_s=RECORDS_PER_S)
    try:
        with shared_state(spark, settings.state_dir):
            rows = restore_many(restores, partial(run_each, spark), progress)
    finally:
        remove_tree(progress)
    return RestoreReport(**head, finished_ms=clock.now_ms(), rows=tuple(rows))


def try_again(report: JobReport) -> str | None:
    """Say why all store partitions failed, if the reason passes for each; None: it does not."""
    if not isinstance(report, RestoreReport) or not report.rows:
        return None
    if not all(row.failure is not None and row.failure.retriable for row in report.rows):
        return None
    first = report.rows[0]
    return f"{first.label}: {first.failure.message}" if first.failure else first.label


# -- what is asked for ------------------------------------------------------------------------------------------------


def _chosen(
    arguments: Namespace, settings: Settings, definitions: Definitions, topics: Topics
) -> tuple[list[StorePartitionSpec], set[str]]:
    """Return the store partitions to restore, and the labels of those that a report says diverge from their logs."""
    diverged: set[str] = set()
    if arguments.verify_report is None:
        if not arguments.application:
            raise InputError("name the application to restore, or a verification report")
        applications = select(definitions, [arguments.application], arguments.store)
        specs = store_partition_specs(settings, topics, applications, arguments.store, arguments.partition)
    else:
        report = read_report(arguments.verify_report, VerifyReport)
        accepted = arguments.accept_loss or settings.accept_loss
        damaged = {
            row.label
            for row in report.rows
            if row.action in (Action.TAIL, Action.FULL) or (accepted and waits_for_loss(row))
        }
        diverged = {row.label for row in report.rows if row.status is Status.DIVERGED}
        applications = select(definitions, sorted({label.split("/")[0] for label in damaged}), []) if damaged else []
        found = store_partition_specs(settings, topics, applications)
        specs = [spec for spec in found if str(spec.store_partition) in damaged]
    _require_partitions(topics, applications, specs)
    return specs, diverged


def _require_partitions(
    topics: Topics, applications: Sequence[ApplicationDefinition], stores: Sequence[StorePartitionSpec]
) -> None:
    parts = {(application.name, part.index): part for application in applications for part in application.subtopologies}
    inputs = topics.describe(part.input_topic for part in parts.values())
    for store in stores:
        require_partitions(store, inputs[parts[store.application, store.task.subtopology].input_topic].partitions)


def _restores(
    arguments: Namespace, settings: Settings, stores: Sequence[StorePartitionSpec], progress: Path
) -> list[RestoreSpec]:
    as_of = parse_as_of(arguments.as_of_offset, arguments.as_of_timestamp)
    require_consistent(arguments.mode, as_of, arguments.target, best_effort=arguments.best_effort)
    if arguments.ranges is not None and arguments.ranges < 1:
        raise InputError(f"--ranges: expected a number from 1, found {arguments.ranges}")
    return [
        RestoreSpec(
            store,
            arguments.mode,
            arguments.force,
            arguments.report.stem,
            settings.restore_run_bytes,
            ranges=arguments.ranges or 1,
            check=arguments.check,
            progress=progress,
            as_of=as_of,
            target=arguments.target and arguments.target.absolute(),
            best_effort=arguments.best_effort,
            accept_loss=arguments.accept_loss or settings.accept_loss,
            quarantine_s=settings.quarantine_days * 86_400,
        )
        for store in stores
    ]


# -- the plan ---------------------------------------------------------------------------------------------------------


def _print_plan(rows: Sequence[RestorePlanRow]) -> None:
    table = Table("store partition", "is", "to do", "offsets", "log", "disk", "seconds", "why", box=None)
    for row in rows:
        todo = "refused" if row.failure else row.mode or "nothing"
        why = row.failure.message if row.failure else row.reason
        sizes = (f"{row.log_bytes / 1e6:,.1f} MB", f"{row.disk_needed / 1e6:,.1f} MB", f"{row.seconds:,.1f}")
        table.add_row(
            row.label, row.status or "", todo, f"{row.offsets:,}", *(sizes if row.mode else ("", "", "")), why
        )
    Console().print(table)
    try:
        require_disk_for_all(rows)
    except StateStoreError as error:
        print(f"restore: {error}", file=sys.stderr)


def main() -> None:
    """Run this job as a program."""
    run_job("restore", run, add_arguments, try_again)
