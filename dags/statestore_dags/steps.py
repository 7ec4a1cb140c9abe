"""The common steps of the job DAGs: plan, Spark jobs, their reports, one mapped task per row, a trigger.

Parsing a DAG file reads nothing but the environment. Settings, the catalogue and reports are read inside the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Asset, BaseOperator, XComArg, task
from airflow.sdk.exceptions import AirflowSkipException

from statestore.config import load_settings
from statestore.environments import active_environment, environments
from statestore.objects.path import ObjectPath, location
from statestore.reports import AnyReport, ProcessReport, read_any_report, read_report
from statestore_dags import alerts, jobs, restores
from statestore_dags.archive_connection import reports_access
from statestore_dags.arguments import (
    require_known_fields,
    require_work_without_definition,
    state_dir_without_definition,
)
from statestore_dags.assets import STORES, emit, processed_by
from statestore_dags.auditing import requested_by
from statestore_dags.connections import kafka_connection
from statestore_dags.mapped_tasks import by_application, squares
from statestore_dags.mapped_tasks import check as check
from statestore_dags.metastore_health import health_told
from statestore_dags.report_parts import gather, job_of, report_path
from statestore_dags.retrying import RETRIED, bad_input_fails, in_environment, retried_reads
from statestore_dags.schedules import depth_after_process
from statestore_dags.spark import spark_jobs
from statestore_dags.suggestions import remember

log = logging.getLogger(__name__)


@task(**RETRIED)  # type: ignore[untyped-decorator]  # its type has no arguments of operators
def plan(
    without: Sequence[str] = (),
    dag: Any = None,
    params: Any = None,
    run_id: Any = None,
    ti: Any = None,
    dag_run: Any = None,
    triggering_asset_events: Any = None,
) -> list[dict[str, Any]]:
    """Check the form against the catalogue; return the run's Spark jobs, one for each application.

    The catalogue is pinned in their arguments: a job, and each retry of it, uses the definitions of this moment. The
    path of the run's report is the XCom value `report`, what it will do in a sentence is `summary`.

    Parameters
    ----------
    without
        Applications that are left out where the form names none.
    """
    # Here, not at the top: DAG files are parsed every few seconds.
    from statestore.metastore.metastore import Metastore

    with in_environment(dag.dag_id) as environment, kafka_connection(), reports_access():
        if problem := alerts.problem():
            log.error("no one would be notified of a failure: %s", problem)
        require_known_fields(dag_run.conf, dag.params)
        settings = load_settings(**state_dir_without_definition(params))
        # The page shows the health of one catalogue.
        with nullcontext() if environment.has_own_catalogue else health_told(settings.reports_dir):
            view = Metastore.of(settings).require_running()
        defined = view.catalogue.definitions()
        listed = [name for each in environments() for name in each.kafka_streams]
        environment.require([name for name in (*defined, *listed) if name == params.get("application")])
        environment.require_undefined(defined)
        applications = environment.own(defined)
        remember(settings.reports_dir, applications)
        log.info("definitions of catalogue %s", view.pin)
        job = job_of(dag.dag_id)
        require_work_without_definition(params, job)
        if not (applications or environment.kafka_streams):
            log.warning("no application is defined yet: start %s with the YAML of one", environment.dag_id("metastore"))
        if job == "restore":
            without = restores.left_out(params, restores.restored_elsewhere(ti, dag.dag_id, run_id))
        report = report_path(settings.reports_dir, dag.dag_id, run_id)
        # Or fail now, and not when the job has done its work.
        if isinstance(report, ObjectPath):
            report.parent.require_bucket()
        else:
            report.parent.mkdir(parents=True, exist_ok=True)
        run = ("--dag-id", dag.dag_id, "--dag-run-id", run_id, "--requested-by", requested_by(dag_run))
        head = ("--catalogue", str(view.pin), *run)
        asked = jobs.Trigger(without, by_time=dag_run.run_type == "scheduled")
        if (processed := processed_by(triggering_asset_events)) is not None:
            params = {**params, "depth": depth_after_process(), "sample": None}
            asked = asked._replace(only=processed.applications)
        planned = jobs.plan_jobs(job, params, applications, settings, report, head, asked)
        if job == "restore":
            restores.claim(ti, params, (each["part"] for each in planned))
    ti.xcom_push("report", str(report))
    ti.xcom_push("summary", jobs.summary(job, params))
    return planned


# One of the jobs may have failed, and the others are shown all the same. Without a plan, or where all are skipped
# because there is no application or nobody has approved, there is nothing to show.
@task(outlets=[STORES], trigger_rule="all_done_min_one_success")
def rows(
    planned: list[dict[str, Any]], report: str, applications: bool, outlet_events: Any = None
) -> list[dict[str, Any]]:
    """Put the jobs' reports together and add what they say to the stores' assets; return what *check* maps over."""
    with bad_input_fails(), reports_access():
        failed = gather(planned, location(report))
        found = read_any_report(location(report)) if len(failed) < len(planned) else None
    shown = [_failed(label, why) for label, why in failed]
    if found is None:
        return shown
    emit(outlet_events, found, report)
    return [*shown, *squares(location(report), found, applications=applications)]


def _failed(label: str, why: str) -> dict[str, Any]:
    headline = f"its Spark job has left no report; the log of spark [{label}] says why. {why}"
    return {"label": label, "health": "failed", "headline": headline}


class Steps(NamedTuple):
    """What other steps may hang on.

    Attributes
    ----------
    report
        Path of the run's report.
    rows
        Ended when the report is there.
    check
        The squares.
    """

    report: XComArg
    rows: XComArg
    check: XComArg


def job_steps(job: str, *, without: Sequence[str] = (), approve: Callable[[], BaseOperator] | None = None) -> Steps:
    """Lay out plan, spark, rows and check.

    Parameters
    ----------
    without
        See `plan`.
    approve
        Makes the step that waits for a person between plan and Spark.
    """
    planned = plan(without=list(without))
    report = planned["report"]
    spark = spark_jobs(job, planned)
    if approve is not None:
        planned >> approve() >> spark
    found = rows.override(**retried_reads())(planned, report, by_application())
    spark >> found
    return Steps(report, found, check.override(**retried_reads()).expand(square=found))


def trigger_once(dag: str, wanted: Callable[[AnyReport], bool], steps: Steps, field: str) -> None:
    """Start a DAG of this environment with the report in a field of its form if the report wants it; do not wait.

    It hangs on the rows and not on their squares, which fail exactly when it is needed. The run id is derived from
    this run's, so that a retry or a cleared task does not start a second one.
    """

    @task.short_circuit(task_id=f"needs_{dag}", **retried_reads())
    def needed(report: str, dag: Any = None) -> bool:
        path = location(report)
        with in_environment(dag.dag_id), reports_access():
            # Where every job has failed there is none, and the squares say so.
            return path.exists() and wanted(read_any_report(path))

    needs = needed(steps.report)  # type: ignore[arg-type]  # as in each call of a task, what it will be is given
    steps.rows >> needs
    needs >> TriggerDagRunOperator(
        task_id=f"trigger_{dag}",
        trigger_dag_id=active_environment().dag_id(dag),
        trigger_run_id="{{ dag.dag_id }}__{{ run_id }}",
        conf={field: steps.report},
        skip_when_already_exists=True,
    )


def told(asset: Asset, report: XComArg) -> XComArg:
    """Return the step that adds the report, and the applications whose tasks all succeeded, to an asset event.

    It depends on the rows, not on their mapped tasks, so a failed task delays only its own application.
    """

    @task(task_id="processed", outlets=[asset], **retried_reads())
    def processed(report: str, outlet_events: Any = None) -> None:
        path = location(report)
        with bad_input_fails(), reports_access():
            # If every job failed, the run has no report.
            found = read_report(path, ProcessReport) if path.exists() else None
        failed = set() if found is None else {row.application for row in found.rows if not row.healthy}
        done = [] if found is None else [name for name in found.applications if name not in failed]
        if not done:
            raise AirflowSkipException("no application was processed to its end")
        outlet_events[asset].extra = {"report": report, "applications": done}

    return processed(report)  # type: ignore[arg-type]  # as above
