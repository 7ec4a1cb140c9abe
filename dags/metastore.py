"""DAG `metastore`: apply the definitions of its form to the catalogue, as the command `statestore apply` does."""

from __future__ import annotations

from airflow.sdk import DAG, Param
from statestore_dags.every_dag import BY_HAND, every_dag, in_each_environment
from statestore_dags.mapped_tasks import check
from statestore_dags.registering import apply_definitions, plan_definitions

from statestore.environments import Environment

DOC = """
### What it does
Compares the definitions of the form with the topics and the catalogue, shows in the log of *plan* what would change,
field by field, and applies it. An unchanged definition logs nothing, so you can safely run this DAG again. Below
*check*, each application has its own mapped task. `process`, `verify`, and the other DAGs use the new definitions from
their next run on. A run in progress, and its retries, keep the definitions that it began with.

### What a failure means
* **plan**: the form is wrong, a topic is missing, code or a suite cannot be loaded, a change would require stores to be
  rebuilt, or the metastore is DEGRADED. The log says what was expected. Nothing was changed. If Kafka did not answer,
  the step is retried three times.
* **apply**: an application that would lose stores is running, and nothing was changed. Other causes: someone else
  changed the catalogue after *plan*, or Kafka did not answer. Changes that were already applied stay in effect. The
  log names the application that was not applied, or whose topics could not be created.

### What to do
Correct what the log names and start this DAG again. If the metastore is DEGRADED, `statestore metastore status` gives
the reason and the remedy.
"""


def _dag(environment: Environment) -> None:
    with DAG(
        dag_id=environment.dag_id("metastore"),
        description="Apply definitions of applications and stores to the catalogue",
        doc_md=DOC,
        schedule=None,
        allowed_run_types=BY_HAND,
        is_paused_upon_creation=False,
        **every_dag(),
        params={
            "definitions": Param(
                type="string",
                format="multiline",
                minLength=1,
                title="Definitions",
                description_md="Definitions of applications in YAML, separated by lines `---`. `statestore get` "
                "prints the current definitions.",
            ),
            "dry_run": Param(
                False,
                type="boolean",
                title="Only show the plan",
                description="On: nothing is changed.",
            ),
        },
    ):
        planned = plan_definitions()
        # Airflow's type of what a task returns does not tell that each of several outputs has a name.
        check.expand(square=apply_definitions(planned["catalogue"], planned["rows"]))  # type: ignore[index]


in_each_environment(_dag)
