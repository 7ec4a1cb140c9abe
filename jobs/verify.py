"""Verify store partitions against their changelogs: one Spark task each, one row of findings each."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from jobs.entry import Definitions, main, now_ms, spark_session
from jobs.parallel import run_each
from jobs.planning import store_partition_specs
from statestore.changelog.topics import Topics
from statestore.config import Settings
from statestore.metastore.definitions import select
from statestore.reports import VerifyReport, VerifyRow
from statestore.verification.check import verify


def add_arguments(parser: ArgumentParser) -> None:
    """Declare this job's arguments."""
    parser.add_argument("--application", action="append", default=[], help="may be repeated; none means all")
    parser.add_argument("--store", action="append", default=[], help="may be repeated; none means all")
    parser.add_argument("--partition", action="append", default=[], type=int, help="may be repeated; none means all")


def run(arguments: Namespace, settings: Settings, definitions: Definitions) -> VerifyReport:
    """Plan on the driver, verify in Spark tasks."""
    started = now_ms()
    applications = select(definitions, arguments.application, arguments.store)
    topics = Topics(settings.bootstrap_servers, settings.kafka_timeout_s)
    specs = store_partition_specs(settings, topics, applications, arguments.store, arguments.partition)
    rows = run_each(spark_session("verify"), specs, verify, VerifyRow)
    return VerifyReport(
        run_id=arguments.report.stem,
        applications=tuple(application.name for application in applications),
        started_ms=started,
        finished_ms=now_ms(),
        rows=tuple(rows),
    )


if __name__ == "__main__":
    main("verify", run, add_arguments)
