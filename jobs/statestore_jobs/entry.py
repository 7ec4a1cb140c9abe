"""The common entry of all jobs: arguments, definitions, the report, and one clear message if a job cannot run.

Definitions come from the catalogue, as it is now or as a pin says; which one is printed and stands in the report. A
job needs certainty: it stops where the metastore is DEGRADED.

Exit codes: 0 the report is written (its rows may tell of damage), 2 bad input, 3 try again later (a report may be
written), 5 fenced, 1 a bug.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from socket import gethostname
from typing import TypeVar, cast
from uuid import uuid4

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from statestore.audit import new_record, write_record
from statestore.config import Settings, load_settings
from statestore.definitions.application import ApplicationDefinition
from statestore.environments import KafkaStreamsApplication
from statestore.errors import RetryError, StateStoreError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.metastore import Metastore
from statestore.metastore.view import Pin, View
from statestore.metrics.export import export_end, export_report
from statestore.objects.credentials import ARCHIVE_CONFIG
from statestore.objects.path import Location, location
from statestore.private_config import KAFKA_CONFIG
from statestore.reports import AnyReport, JobReport, RestoreReport, SnapshotReport, write_report
from statestore.requests.arguments import add_arguments, from_namespace
from statestore.requests.process import ProcessRequest
from statestore.requests.request import Request
from statestore.requests.restore import RestoreRequest
from statestore.schemas import serdes as schemas
from statestore_jobs import python_daemon

Definitions = dict[str, ApplicationDefinition]
R = TypeVar("R", bound=Request)
#: Does the work of a job; it is given the id of the run last.
Run = Callable[[R, Settings, Catalogue, str], JobReport]
#: Does the work of a job on an application without a definition; the same, with the application for the catalogue.
RunWithoutDefinition = Callable[[R, Settings, KafkaStreamsApplication, str], JobReport]
#: Says why a run is to be repeated although its report could be written; None: it is not.
TryAgain = Callable[[JobReport], str | None]


def run_job(
    name: str,
    kind: type[R],
    run: Run[R],
    try_again: TryAgain = lambda _: None,
    without_definition: RunWithoutDefinition[R] | None = None,
) -> None:
    """Run the job as a program and exit with its code; the report is written before a retry is decided on."""
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument(
        "--report", type=location, required=True, help="where to write the JSON report: a file, or a URL"
    )
    parser.add_argument(
        "--catalogue", metavar="OFFSET:DIGEST", help="pin of the definitions to use; those of now if not said"
    )
    parser.add_argument("--dag-id", help="the DAG that this job works for; it stands in the report")
    parser.add_argument("--dag-run-id", help="run id of that DAG's run; it stands in the report")
    parser.add_argument("--requested-by", help="who started that run, for the audit record")
    if without_definition is not None:
        parser.add_argument(
            "--kafka-streams", metavar="JSON", help="how --application, which has no definition, is found (as listed)"
        )
    add_arguments(parser, kind)
    arguments = parser.parse_args()
    exit_with_parent()
    report: JobReport | None = None
    try:
        request = from_namespace(kind, arguments)
        listed = getattr(arguments, "kafka_streams", None)
        application = None if listed is None else KafkaStreamsApplication.model_validate_json(listed)
        own = {} if application is None or application.state_dir is None else {"state_dir": application.state_dir}
        settings = load_settings(**own)
        view = view_of(Metastore.of(settings), arguments.catalogue)
        print(f"{name}: definitions of catalogue {view.pin}", flush=True)
        _audit(request, settings, arguments)
        if application is None or without_definition is None:
            report = run(request, settings, view.catalogue, arguments.report.stem)
        else:
            report = without_definition(request, settings, application, arguments.report.stem)
        said = {"catalogue": str(view.pin), "dag_id": arguments.dag_id, "dag_run_id": arguments.dag_run_id}
        said["state_dir"] = str(settings.state_dir)
        _write(arguments.report, report.model_copy(update=said))
        if (why := try_again(report)) is not None:
            raise RetryError(f"{why}; the report is at {arguments.report}")
    except StateStoreError as error:
        print(f"{name}: {error.kind}: {error}", file=sys.stderr, flush=True)
        if error.evidence:
            print(f"{name}: {error.evidence}", file=sys.stderr, flush=True)
        _export(name, arguments, report, error.exit_code)
        sys.exit(error.exit_code)
    except Exception:
        _export(name, arguments, report, 1)
        raise
    print(f"{name}: report written to {arguments.report}", flush=True)
    _export(name, arguments, report, 0)


def _audit(request: Request, settings: Settings, arguments: argparse.Namespace) -> None:
    """Write the audit record of a job that may replace live stores, or that accepts a loss of data."""
    match request:
        case RestoreRequest(changes_stores=True):
            record = new_record("restore", request.applications, accepts_loss=request.accept_loss)
        case ProcessRequest() if settings.accept_loss:
            record = new_record("process", request.applications, accepts_loss=True)
        case _:
            return
    said = {
        "by": arguments.requested_by or record.by,
        "store_partitions": tuple(map(str, getattr(request, "stores", ()))),
        "request": request.model_dump_json(exclude_defaults=True),
        "run_id": arguments.report.stem,
        "dag_id": arguments.dag_id,
        "dag_run_id": arguments.dag_run_id,
    }
    write_record(settings.reports_dir, record.model_copy(update=said))


def _export(name: str, arguments: argparse.Namespace, report: JobReport | None, exit_code: int) -> None:
    """Export the metrics of a run, last of all: nobody's result waits for a collector."""
    if report is None:
        export_end(name, getattr(arguments, "applications", None) or (), exit_code)
    else:
        export_report(cast(AnyReport, report), exit_code)


def _write(path: Location, report: JobReport) -> None:
    """Write the report; where object storage does not take it, leave it on this machine's disk, and say where."""
    try:
        write_report(path, report)
    except StateStoreError as error:
        kept = Path(tempfile.gettempdir()) / "statestore-reports" / f"{report.run_id}-{uuid4().hex[:8]}.json"
        write_report(kept, report)
        said = f"{error} The work is done, its report lies at {kept} on {gethostname()}: `statestore report {kept}`"
        raise type(error)(said) from error


def all_failed_for_now(report: JobReport) -> str | None:
    """Say why all rows of a report failed, if the reason passes for each; None: it does not."""
    assert isinstance(report, RestoreReport | SnapshotReport)
    failures = [(row.label, row.failure) for row in report.rows]
    if not failures or not all(failure is not None and failure.retriable for _, failure in failures):
        return None
    label, first = failures[0]
    return f"{label}: {first.message}" if first else label


def view_of(metastore: Metastore, pin: str | None) -> View:
    """Return the catalogue of a pin, or of now.

    Raises
    ------
    MetastoreDegradedError
        If nobody can be certain of the catalogue.
    InputError
        If the log does not have the catalogue of the pin any more.
    """
    wanted = None if pin is None else Pin.parse(pin)
    now = metastore.require_running()
    return now if wanted in (None, now.pin) else metastore.pinned(wanted)


def exit_with_parent() -> None:
    """End this driver when who started it is gone: the command `statestore`, or the JVM of spark-submit.

    Airflow's operator ends only that JVM; the Python driver would go on unseen. And the JVM goes on when Airflow's task
    or worker is killed: the next attempt would wait for this one's locks, and do its work again.
    """
    above = _above()

    def watch() -> None:
        while None not in above and _above() == above:
            time.sleep(1)  # their end raises no event that Python can wait for
        os._exit(143)

    threading.Thread(target=watch, name="exit-with-parent", daemon=True).start()


def _above() -> tuple[int | None, ...]:
    """Pids of those without whom this driver has nobody to work for; None is one who is gone."""
    if "AIRFLOW_CTX_TASK_ID" not in os.environ:  # spark-submit by hand outlives the shell that it was started from
        return (os.getppid(),)
    # Airflow's task leads a process group, whose number nobody else gets while we are in it: also if the task ended
    # before we began, this tells. Its parent is the worker.
    return os.getppid(), _parent_of(os.getpgrp())


def _parent_of(pid: int) -> int | None:
    try:
        # The program's name, in parentheses, may have spaces in it.
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    except OSError:
        return None


def spark_session(name: str) -> SparkSession:
    """Return the session of this job; the master comes from spark-submit."""
    builder = SparkSession.builder.appName(f"statestore-{name}")
    SparkContext._ensure_initialized()  # else SparkConf would know nothing of what spark-submit was told
    for variable in (KAFKA_CONFIG, ARCHIVE_CONFIG, schemas.CONFIG):
        on_executors = f"spark.executorEnv.{variable}"
        if (path := os.environ.get(variable)) and not SparkConf().contains(on_executors):
            # Where the file is, never what is in it: Spark shows its configuration to everybody.
            builder = builder.config(on_executors, os.path.abspath(path))
    # A task holds its lock as long as it works. A copy of it would only wait for that lock, report that the store is
    # locked, and have Spark kill the one that works.
    builder = builder.config("spark.speculation", "false")
    if not SparkConf().contains(python_daemon.SETTING):
        builder = builder.config(python_daemon.SETTING, python_daemon.__name__)
    builder = builder.config(python_daemon.SHARED, "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark
