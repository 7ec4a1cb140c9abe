"""The steps that each DAG is made of: plan, one Spark job, the rows of its report, one mapped Airflow task per row.

Parsing a DAG file reads nothing but the environment. Settings, the catalogue and reports are read inside the tasks.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Asset, RetryDecision, RetryPolicy, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from statestore.config import load_settings
from statestore.errors import GiveUpError, InputError, RebuildError
from statestore.reports import read_report
from statestore_dags import arguments
from statestore_dags.rows import REPORTS, row_to_dict

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

log = logging.getLogger(__name__)

#: Updated by `process` after each run in which every task reached its end; `verify` follows it.
PROCESSED = Asset("statestore/processed")

#: A step that asks Kafka itself is tried again; a failed form is not.
RETRIED: dict[str, Any] = {"retries": 1, "retry_delay": timedelta(seconds=20)}

_REPOSITORY = Path(__file__).resolve().parents[2]


@contextmanager
def bad_input_fails() -> Iterator[None]:
    """Turn an `InputError` into a failure that Airflow does not retry: the same input would fail again."""
    try:
        yield
    except InputError as error:
        raise AirflowFailException(str(error)) from error


@task(multiple_outputs=True, **RETRIED)
def plan(dag: Any = None, params: Any = None, run_id: Any = None) -> dict[str, Any]:
    """Check the form against the catalogue; return the job's arguments and the path of its report.

    The catalogue is pinned in the arguments: the job, and each retry of it, uses the definitions of this moment.
    """
    # Here, not at the top: DAG files are parsed every few seconds.
    from statestore.metastore.metastore import Metastore

    with bad_input_fails():
        settings = load_settings()
        view = Metastore.of(settings).require_running()
        applications = view.catalogue.definitions()
        match dag.dag_id:
            case "process":
                chosen = arguments.process_arguments(params, applications)
            case "verify":
                chosen = arguments.verify_arguments(params, applications)
            case "restore":
                chosen = arguments.restore_arguments(params, applications, settings.reports_dir)
            case "validate":
                chosen = arguments.validate_arguments(params, applications, settings.reports_dir)
    report = str(arguments.report_path(settings.reports_dir, dag.dag_id, run_id))
    log.info("definitions of catalogue %s", view.pin)
    return {"report": report, "arguments": ["--report", report, "--catalogue", str(view.pin), *chosen]}


class RetryUnlessDecided(RetryPolicy):
    """Retry the Spark job unless it ended with an exit code that says that the same call would end the same way."""

    _DECIDED = frozenset({InputError.exit_code, RebuildError.exit_code, GiveUpError.exit_code})

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """See `RetryPolicy.evaluate`."""
        # The operator keeps the ended process; its exception has the exit code only within a sentence.
        hook = getattr(context["task"], "_hook", None) if context else None
        code = getattr(getattr(hook, "_submit_sp", None), "returncode", None)
        if code in self._DECIDED:
            return RetryDecision.fail(reason=f"the job ended with exit code {code}: a retry would end the same way")
        return RetryDecision.default()


def spark_job(job: str, planned: XComArg) -> SparkSubmitOperator:
    """One `spark-submit` of a job in `jobs/` (or in STATESTORE_JOBS_DIR) on connection `spark_default`."""
    jobs_dir = Path(os.environ.get("STATESTORE_JOBS_DIR") or _REPOSITORY / "jobs")
    return SparkSubmitOperator(
        task_id="spark",
        conn_id="spark_default",
        application=str(jobs_dir.resolve() / f"{job}.py"),
        application_args=planned["arguments"],
        name=f"statestore-{job}",
        **RETRIED,
        retry_policy=RetryUnlessDecided(),
    )


@task
def rows(report: str, dag: Any = None) -> list[dict[str, Any]]:
    """Read the job's report; return its rows, over which the next step is mapped."""
    with bad_input_fails():
        return [row_to_dict(row) for row in read_report(Path(report), REPORTS[dag.dag_id]).rows]


@task(map_index_template="{{ task.op_kwargs['row']['label'] }}")
def check(row: dict[str, Any]) -> None:
    """Show one row: green if it is healthy, red if not, skipped if the store partition was in use."""
    log.info("%s: %s\n%s", row["label"], row["headline"], "\n".join(f"{name:>20}: {row[name]}" for name in row))
    if row["health"] == "later":
        raise AirflowSkipException(row["headline"])
    if row["health"] != "healthy":
        raise AirflowFailException(f"{row['label']}: {row['headline']}")


def trigger_once(dag_id: str, wanted: Callable[[list[dict[str, Any]]], bool], found: XComArg, conf: Any) -> None:
    """Start `dag_id` if the rows want it, and go on without waiting.

    It hangs on the rows and not on their mapped Airflow tasks, which fail exactly when it is needed. The run id is
    derived from this run's, so that a retry or a cleared task does not start a second one.
    """

    @task.short_circuit(task_id=f"needs_{dag_id}")
    def needed(found: list[dict[str, Any]]) -> bool:
        return wanted(found)

    needed(found) >> TriggerDagRunOperator(
        task_id=f"trigger_{dag_id}",
        trigger_dag_id=dag_id,
        trigger_run_id="{{ dag.dag_id }}__{{ run_id }}",
        conf=conf,
        skip_when_already_exists=True,
    )
