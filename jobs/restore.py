"""Restore store partitions from their changelogs: those that a verification found damaged, or those asked for."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from jobs.entry import Definitions, main, now_ms, spark_session
from jobs.parallel import run_each
from jobs.planning import store_partition_specs
from statestore.changelog.topics import Topics
from statestore.config import Settings
from statestore.errors import InputError, RetryError
from statestore.metastore.definitions import select
from statestore.recovery.restore import RestoreSpec, restore
from statestore.reports import Action, RestoreReport, RestoreRow, VerifyReport, read_report
from statestore.tasks.spec import StorePartitionSpec


def add_arguments(parser: ArgumentParser) -> None:
    """Declare this job's arguments."""
    parser.add_argument("--application", help="whose stores to restore")
    parser.add_argument("--store", action="append", default=[], help="may be repeated; none means all")
    parser.add_argument("--partition", action="append", default=[], type=int, help="may be repeated; none means all")
    parser.add_argument(
        "--mode", choices=("auto", "tail", "full"), default="auto", help="auto does what verify advises"
    )
    parser.add_argument("--force", action="store_true", help="rebuild store partitions that are whole, too")
    parser.add_argument("--verify-report", type=Path, help="restore what this report advises, instead of the above")


def run(arguments: Namespace, settings: Settings, definitions: Definitions) -> RestoreReport:
    """Plan on the driver, restore in Spark tasks. Every store partition is verified again before it is touched."""
    started = now_ms()
    topics = Topics(settings.bootstrap_servers, settings.kafka_timeout_s)
    specs = _chosen(arguments, settings, definitions, topics)
    label = arguments.report.stem
    restores = [RestoreSpec(spec, arguments.mode, arguments.force, label, settings.restore_run_bytes) for spec in specs]
    rows = run_each(spark_session("restore"), restores, restore, RestoreRow)
    if rows and all(row.failure is not None and row.failure.retriable for row in rows):
        raise RetryError(f"{rows[0].label}: {rows[0].failure.message}" if rows[0].failure else rows[0].label)
    return RestoreReport(
        run_id=label,
        applications=tuple(dict.fromkeys(spec.application for spec in specs)),
        started_ms=started,
        finished_ms=now_ms(),
        rows=tuple(rows),
    )


def _chosen(
    arguments: Namespace, settings: Settings, definitions: Definitions, topics: Topics
) -> list[StorePartitionSpec]:
    if arguments.verify_report is None:
        if not arguments.application:
            raise InputError("name the application to restore, or a verification report")
        applications = select(definitions, [arguments.application], arguments.store)
        return store_partition_specs(settings, topics, applications, arguments.store, arguments.partition)
    report = read_report(arguments.verify_report, VerifyReport)
    damaged = {row.label for row in report.rows if row.action in (Action.TAIL, Action.FULL)}
    applications = select(definitions, sorted({label.split("/")[0] for label in damaged}), []) if damaged else []
    specs = store_partition_specs(settings, topics, applications)
    return [spec for spec in specs if str(spec.store_partition) in damaged]


if __name__ == "__main__":
    main("restore", run, add_arguments)
