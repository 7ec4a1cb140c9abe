"""Process what has arrived, exactly once: one Spark task per task of each application, up to the input's end of now."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from jobs.entry import Definitions, main, now_ms, spark_session
from jobs.parallel import run_each
from jobs.planning import task_specs
from statestore.changelog.topics import Topics
from statestore.config import Settings
from statestore.errors import RetryError
from statestore.metastore.definitions import select
from statestore.reports import ProcessReport, ProcessRow
from statestore.tasks.stream_task import run_task


def add_arguments(parser: ArgumentParser) -> None:
    """Declare this job's arguments."""
    parser.add_argument("--application", action="append", default=[], help="may be repeated; none means all")


def run(arguments: Namespace, settings: Settings, definitions: Definitions) -> ProcessReport:
    """Plan on the driver, process in Spark tasks.

    Raises
    ------
    RetryError
        If a task failed for a reason that passes, so that the whole run is to be repeated; what was committed stays.
    """
    started = now_ms()
    applications = select(definitions, arguments.application, [])
    topics = Topics(settings.bootstrap_servers, settings.kafka_timeout_s)
    specs = [spec for application in applications for spec in task_specs(settings, topics, application)]
    rows = run_each(spark_session("process"), specs, run_task, ProcessRow)
    for row in rows:
        if row.failure is not None and row.failure.retriable:
            raise RetryError(f"{row.label}: {row.failure.kind}: {row.failure.message}")
    return ProcessReport(
        run_id=arguments.report.stem,
        applications=tuple(application.name for application in applications),
        started_ms=started,
        finished_ms=now_ms(),
        rows=tuple(rows),
    )


if __name__ == "__main__":
    main("process", run, add_arguments)
