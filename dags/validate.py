"""DAG `validate`: judge stores with Great Expectations, after a restore, on a schedule or manually."""

from __future__ import annotations

from airflow.sdk import DAG
from statestore_dags.every_dag import BY_HAND_OR_TIME, every_dag, in_each_environment
from statestore_dags.form import application_field, field
from statestore_dags.schedules import schedule
from statestore_dags.steps import job_steps
from statestore_dags.suggestions import suggested_stores

from statestore.environments import Environment
from statestore.requests.validate import ValidateRequest

DOC = """
### What it does
Reads stores and changelogs with Spark and runs the Great Expectations suites. They check that a store has exactly the
live rows of its changelog, the properties of its kind, and the rules of its own suite. The schedule
(`STATESTORE_VALIDATE_SCHEDULE`) validates all stores. The results are in the Data Docs (in the menu on the left), with
plots, and each verdict as JSON. If a restored store passes, the store that it replaced is deleted from quarantine.

### What a failure means
* **plan**: the form is wrong, or the metastore is DEGRADED. The log says what was expected. If Kafka did not answer,
  the step is retried three times.
* **spark**: nothing could be validated, for example because Kafka did not answer. It is retried three times, with
  increasing pauses, unless a retry cannot help.
* **check**, one mapped task: an expectation was not met, the store could not be validated, or no suite applies to it
  (*not judged*). The others still get their verdicts. A replaced store stays in quarantine, and the log of the mapped
  task has the command that puts it back, `statestore restore --rollback`.

### What to do
Read the failed expectation in the Data Docs, and the first failed rows in the report. If the store differs from its
changelog, start `restore` in mode *full* with *Rebuild healthy stores too*. If a rule of your own failed, check the
application's data, not the restore.
"""


def _dag(environment: Environment) -> None:
    with DAG(
        dag_id=environment.dag_id("validate"),
        description="Validate state stores with Great Expectations",
        doc_md=DOC,
        schedule=schedule("STATESTORE_VALIDATE_SCHEDULE", "13 4 * * *"),
        catchup=False,
        allowed_run_types=BY_HAND_OR_TIME,
        # `restore` starts it; on a new installation a paused DAG would keep such runs waiting unseen.
        is_paused_upon_creation=False,
        **every_dag(),
        params={
            "application": application_field(
                "Name of the application whose stores are validated (its application.id)."
            ),
            "stores": field(ValidateRequest, "stores", **suggested_stores()),
            "verify_report": field(ValidateRequest, "verify_report"),
            "restore_report": field(ValidateRequest, "restore_report", section="Set by restore"),
        },
    ):
        job_steps("validate")


in_each_environment(_dag)
