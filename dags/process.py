"""DAG `process`: run the stream applications' micro-batches, on a schedule or manually.

An application that wants a schedule of its own has a DAG of its own, `process.<application>`: it can be paused,
watched and alerted by itself, and a long run of another does not hold it up. STATESTORE_PROCESS_SCHEDULES names them.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param
from statestore_dags.assets import processed_asset
from statestore_dags.every_dag import every_dag, in_each_environment
from statestore_dags.form import application_field
from statestore_dags.schedules import process_schedules, schedule
from statestore_dags.steps import job_steps, told

from statestore.environments import Environment

DOC = """
### What it does
Reads the input topics up to their current ends and brings every state store up to date, exactly once. Each application
is one Spark job. Below *check*, each task of each application has its own mapped task. An application with its own
schedule has its own DAG, `process.<application>`.

### What a failure means
* **plan**: the form is wrong, or the metastore is DEGRADED. The log says what was expected. If Kafka did not answer,
  the step is retried three times.
* **spark**, one mapped task: nothing could be done for this application, for example because Kafka did not answer. It
  is retried three times, with increasing pauses. It is not retried if a retry cannot help, for example for bad input or
  a store that must be rebuilt. The other applications continue.
* **check**, one mapped task: that task did not reach its end; the others did. Nothing is lost and nothing is processed
  twice: the next run continues where this one stopped. *processed* starts `verify` for the applications whose tasks all
  reached their ends.

### What to do
Read the log of the failed mapped task. If the store is damaged, run `verify`, which starts `restore`. Otherwise wait
for the next run, start this DAG manually, or clear *spark* of the application. Processed records are not processed
again.
"""


def _dag(dag_id: str, when: str | None, application: Param, without: list[str]) -> None:
    with DAG(
        dag_id=dag_id,
        description="Process new input into the state stores, exactly once",
        doc_md=DOC,
        schedule=when,
        catchup=False,
        **every_dag(),
        params={"application": application},
    ):
        steps = job_steps("process", without=without)
        steps.rows >> told(processed_asset(), steps.report)


def _dags(environment: Environment) -> None:
    own = process_schedules()
    _dag(
        environment.dag_id("process"),
        schedule("STATESTORE_PROCESS_SCHEDULE", "*/10 * * * *"),
        application_field(
            "The application to process. Blank: all applications of this environment without their own schedule."
        ),
        sorted(own),
    )
    for name, when in own.items():
        _dag(
            environment.dag_id(f"process.{name}"),
            when,
            Param(name, type="string", enum=[name], title="Application", description="The application of this DAG."),
            [],
        )


in_each_environment(_dags)
