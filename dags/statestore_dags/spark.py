"""One Spark job for each application of a run, each tried again where that may help.

Nothing comes back from a job but its report. An earlier one goes before anything else is done, and each attempt has its
job write to a path of its own: what lies there afterwards is what this attempt has written. The job of an attempt that
was killed or cleared may go on for a while, but nobody takes its report.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from statestore.config import load_state_dir
from statestore.errors import StateStoreError
from statestore.objects.path import Location, ObjectPath, location
from statestore.packages import files_of
from statestore_dags.archive_connection import archive_connection, reports_access
from statestore_dags.connections import kafka_connection
from statestore_dags.evidence_connection import evidence_connection
from statestore_dags.report_parts import attempt_path
from statestore_dags.retrying import RETRIED, in_environment

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg


class SparkJobOperator(SparkSubmitOperator):
    """`spark-submit` of a job that leaves a report.

    Parameters
    ----------
    part
        What the job works on; it stands on the square.
    report
        Where the job's report lies when it has ended; `--report` in the job's arguments names it, too.
    """

    def __init__(self, *, part: str = "", report: str = "", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.part = part
        self.report = report

    def execute(self, context: Context) -> None:
        """Submit the job, and wait until it has ended."""
        report = location(self.report)
        written = attempt_path(report, uuid4().hex)
        with in_environment(self.dag_id):
            with reports_access():
                report.unlink(missing_ok=True)
            self.application_args = [
                str(written) if argument == self.report else argument for argument in self.application_args or []
            ]
            try:
                shared = self.seen_by_executors()
                with kafka_connection(shared), archive_connection(shared), evidence_connection():
                    super().execute(context)
            except BaseException:
                try:  # what the job itself has failed of says whether it is tried again
                    with reports_access():
                        _take(written, report)
                except (StateStoreError, OSError) as error:
                    self.log.error("the job's report stays at %s: %s", written, error)
                raise
            with reports_access():
                _take(written, report)

    def seen_by_executors(self) -> Path | None:
        """Return a directory that the executors see as we do; None where they run on this machine.

        Of what an installation has, they share the state directory. The files with secrets lie below it.
        """
        try:
            master = Connection.get(self._conn_id).host or ""
        except AirflowNotFoundException:  # the provider takes YARN then
            master = ""
        return None if master.startswith("local") else load_state_dir() / ".statestore-kafka"


def _take(written: Location, report: Location) -> None:
    """Put what an attempt has written in the place of the report."""
    if isinstance(written, ObjectPath):
        if written.exists():
            written.replace(report)
        return
    assert not isinstance(report, ObjectPath)
    if written.exists():
        written.replace(report)
    shutil.rmtree(written.parent, ignore_errors=True)


def spark_jobs(job: str, planned: XComArg) -> Any:
    """Run the program of a job (or that in STATESTORE_JOBS_DIR) on connection `spark_default`, for each part of a plan.

    STATESTORE_SPARK_JOBS limits the JVMs of each DAG. STATESTORE_SPARK_POOL names the Airflow pool that limits those of
    all DAGs together. Those of `restore` and `drill` have another one, STATESTORE_RESTORE_POOL: a restore can take
    hours, and must leave the slots to the short jobs. A new installation has no pool but Airflow's own.
    """
    programs = os.environ.get("STATESTORE_JOBS_DIR") or files_of("statestore_jobs", inside="programs", beside=".")
    return SparkJobOperator.partial(
        task_id="spark",
        conn_id="spark_default",
        application=str(Path(programs).resolve() / f"{job}.py"),
        name=f"statestore-{job}",
        map_index_template="{{ task.part }}",
        pool=os.environ.get(
            "STATESTORE_RESTORE_POOL" if job in ("restore", "drill") else "STATESTORE_SPARK_POOL", ""
        ).strip()
        or "default_pool",
        max_active_tis_per_dag=_bound(),
        **RETRIED,
    ).expand_kwargs(planned)


def _bound() -> int:
    value = os.environ.get("STATESTORE_SPARK_JOBS", "").strip() or "2"
    if not value.isdigit() or int(value) < 1:
        raise ValueError(f"STATESTORE_SPARK_JOBS: expected a number from 1, found {value!r}")
    return int(value)
