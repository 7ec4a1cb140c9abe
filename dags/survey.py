"""DAG `survey`: list the applications with state on the cluster, and what puts that state at risk."""

from __future__ import annotations

from airflow.sdk import DAG
from statestore_dags.every_dag import every_dag, in_each_environment
from statestore_dags.mapped_tasks import check
from statestore_dags.schedules import schedule
from statestore_dags.surveying import survey_cluster

from statestore.environments import Environment

DOC = """
### What it does
Looks at the whole Kafka cluster of this environment, as the command `statestore survey` does: every application that
has state on it, and what puts that state at risk. It also looks at the snapshots of `STATESTORE_ARCHIVE`, and at
earlier verifications in `STATESTORE_REPORTS_DIR`. It changes nothing, and needs no Spark. It runs on the schedule
`STATESTORE_SURVEY_SCHEDULE`, or manually. Below *check*, each application has its own mapped task, and so has the
cluster itself. The page shows the last survey.

### What a failure means
* **survey**: the settings are wrong, or no broker answered. The log says what was expected. If Kafka did not answer,
  the step is retried three times.
* **check**, one mapped task: the state of this application is at risk. For *(cluster)*, the risk concerns the whole
  cluster or a changelog of no known application, or a fact could not be read. The log has each risk with its reason and
  the next step.

### What to do
Run the commands that the log or the page shows, or grant the missing right. Then start this DAG again.
"""


def _dag(environment: Environment) -> None:
    with DAG(
        dag_id=environment.dag_id("survey"),
        description="List the applications with state on the cluster, and what puts that state at risk",
        doc_md=DOC,
        schedule=schedule("STATESTORE_SURVEY_SCHEDULE", ""),
        catchup=False,
        **every_dag(),
    ):
        check.expand(square=survey_cluster())


in_each_environment(_dag, without_definitions=True)
