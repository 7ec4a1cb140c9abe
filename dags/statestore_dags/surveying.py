"""The step of DAG `survey`: survey the cluster of an environment, and write the report."""

from __future__ import annotations

import logging
from typing import Any

from airflow.sdk import task

from statestore.config import load_settings
from statestore.metrics.export import export_report
from statestore.objects.path import ObjectPath, location
from statestore.reports import write_report
from statestore_dags.archive_connection import archive_connection
from statestore_dags.arguments import require_known_fields
from statestore_dags.connections import kafka_connection
from statestore_dags.mapped_tasks import by_application, squares
from statestore_dags.report_parts import report_path
from statestore_dags.retrying import RETRIED, in_environment

log = logging.getLogger(__name__)


@task(task_id="survey", **RETRIED)
def survey_cluster(dag: Any = None, dag_run: Any = None, run_id: Any = None, ti: Any = None) -> list[dict[str, Any]]:
    """Survey the cluster and write the report; return what *check* maps over. The XCom value `report` is its path."""
    # Here, not at the top: DAG files are parsed every few seconds.
    from statestore.survey.survey import SurveyRequest, survey

    with in_environment(dag.dag_id), kafka_connection(), archive_connection():
        require_known_fields(dag_run.conf, dag.params)
        settings = load_settings()
        path = report_path(location(settings.reports_dir), dag.dag_id, run_id)
        request = SurveyRequest(
            settings.cluster,
            settings.archive,
            settings.archive_timeout_s,
            settings.reports_dir,
        )
        if isinstance(path, ObjectPath):
            path.parent.require_bucket()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
        report = survey(request, path.stem)
        report = report.model_copy(update={"dag_id": dag.dag_id, "dag_run_id": run_id})
        write_report(path, report)
        ti.xcom_push("report", str(path))
        log.info("%d risks, %d facts not read: %s", len(report.risks), len(report.unread), path)
        export_report(report)
        return squares(path, report, applications=by_application())
