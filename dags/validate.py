"""DAG `validate`: judge stores with Great Expectations, after a restore, by time or by hand."""

from __future__ import annotations

from airflow.sdk import DAG
from statestore_dags.every_dag import BY_HAND_OR_TIME, every_dag
from statestore_dags.form import application_field, field
from statestore_dags.schedules import schedule
from statestore_dags.steps import job_steps
from statestore_dags.suggestions import suggested_stores

from statestore.requests.validate import ValidateRequest

DOC = """
### What it does
Reads stores and changelogs with Spark and runs the Great Expectations suites: the store holds exactly the live rows of
its changelog, what its kind promises, and the rules of its own suite. By time (`STATESTORE_VALIDATE_SCHEDULE`) that is
each store. The results are in the Data Docs (in the menu on the left), with plots and each verdict as JSON beside them.
After a restore, passing releases the replaced stores from quarantine.

### What red means
* **plan**: the form is wrong, or the metastore is DEGRADED; the log says what was expected. If Kafka did not answer, it
  is retried, three times.
* **spark**: the run could not be done at all, for example because Kafka did not answer. It is retried three times, with
  growing pauses, unless the same would happen again.
* **check**, one square: an expectation did not hold for this store, or the store could not be judged; the others have
  their verdicts all the same. A replaced store stays in quarantine, and the square's log has the command that puts it
  back, `statestore restore --rollback`.

### What to do
Look at the failed expectation in the Data Docs, and at the first failed rows in the report. If the store differs from
its changelog, start `restore` in mode *full* with *Rebuild also what is whole*. If a rule of your own fails, the data
of the application is in question, not the restore.
"""

with DAG(
    dag_id="validate",
    description="Judge state stores with Great Expectations",
    doc_md=DOC,
    schedule=schedule("STATESTORE_VALIDATE_SCHEDULE", "13 4 * * *"),
    catchup=False,
    allowed_run_types=BY_HAND_OR_TIME,
    # `restore` starts it; on a new installation a paused DAG would keep such runs waiting unseen.
    is_paused_upon_creation=False,
    **every_dag(),
    params={
        "application": application_field("Name of the application whose stores are validated (its application.id)."),
        "stores": field(ValidateRequest, "stores", **suggested_stores()),
        "verify_report": field(ValidateRequest, "verify_report"),
        "restore_report": field(ValidateRequest, "restore_report", section="Set by restore"),
    },
):
    job_steps("validate")
