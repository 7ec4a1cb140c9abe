"""DAG `drill`: restore store partitions into scratch space, prove them, and remove them, on a schedule or manually."""

from __future__ import annotations

from airflow.sdk import DAG
from statestore_dags.every_dag import every_dag, in_each_environment
from statestore_dags.form import field, store_fields
from statestore_dags.schedules import schedule
from statestore_dags.steps import job_steps

from statestore.environments import Environment
from statestore.requests.drill import DrillRequest

DOC = """
### What it does
Proves that stores can be restored, and measures how long that takes. Each drill restores a store partition into scratch
space from the archive or the changelog, as onto an empty disk, compares every row with the changelog, and removes what
it built. With the objective *suites*, it also runs the store's suite on the restored rows. Live stores are not opened,
and applications can keep running.

On its schedule, it covers the applications with objectives: in their definition, or, for a Kafka Streams application
that the environment lists, in the file that STATESTORE_OBJECTIVES names. It drills the store partitions whose
proof is oldest, or whose restore is most at risk, within the budget of the objectives. If the form names stores or
partitions, it drills these, even if their proofs are recent. If a key for evidence is set, each drill leaves a signed
document.

Each application is one Spark job. Below *check*, each store partition has its own mapped task, drilled or not.

### What a failure means
* **plan**: the form is wrong, or the metastore is DEGRADED. The log says what was expected. If Kafka did not answer,
  the step is retried three times.
* **spark**, one mapped task: nothing could be drilled for this application. It is retried three times, with increasing
  pauses, unless a retry cannot help.
* **check**, one mapped task: an objective of this store partition is broken. The first words of its log say which:
  *never proven*, *proven too long ago*, *too slow*, *too old* (the snapshot that the restore started from), *unproven*
  (restored, but not compared in full, or its suite was not run), or *failed* (it could not be restored, or its rows are
  wrong or do not pass their suite).

### What to do
*failed*: read the reason in the log, and act on it at once: a real restore would fail, too. *too slow*: publish
snapshots more often, or raise the objective. *proven too long ago*, *never proven*: raise the budget, or start this DAG
for the store.
"""


def _dag(environment: Environment) -> None:
    with DAG(
        dag_id=environment.dag_id("drill"),
        description="Prove that state stores can be restored within their objectives",
        doc_md=DOC,
        schedule=schedule("STATESTORE_DRILL_SCHEDULE", "23 1 * * *"),
        catchup=False,
        **every_dag(),
        params={
            **store_fields(
                DrillRequest,
                "The application to drill. Blank: all applications with objectives, or all if none has any.",
                without_definition=True,
            ),
            "mode": field(
                DrillRequest,
                "mode",
                values_display={
                    "auto": "auto: as a restore would, from a snapshot or the changelog",
                    "snapshot": "snapshot: from the newest snapshot only",
                    "full": "full: from the whole changelog only",
                },
            ),
            "limit": field(DrillRequest, "limit"),
        },
    ):
        job_steps("drill")


in_each_environment(_dag, without_definitions=True)
