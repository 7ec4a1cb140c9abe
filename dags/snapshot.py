"""DAG `snapshot`: publish snapshots of stores from their changelogs, on a schedule or manually."""

from __future__ import annotations

from airflow.sdk import DAG
from statestore_dags.every_dag import every_dag, in_each_environment
from statestore_dags.form import field, store_fields
from statestore_dags.schedules import snapshot_schedule
from statestore_dags.steps import job_steps

from statestore.environments import Environment
from statestore.requests.snapshot import SnapshotRequest

DOC = """
### What it does
Builds stores from their changelogs in scratch space, publishes them as snapshots in the archive (`STATESTORE_ARCHIVE`),
and removes what it built. It starts from the previous snapshot, so it reads only the records logged since then. The
applications are not affected and can keep running.

On its schedule, and if the form names no application, it covers the applications with at-least-once processing, because
`process` publishes no snapshots of these. If the form names an application, it covers only that one. Each application
is one Spark job. Below *check*, each store partition has its own mapped task.

### What a failure means
* **plan**: no archive is set, the form is wrong, or the metastore is DEGRADED. The log says what was expected. If Kafka
  did not answer, the step is retried three times.
* **spark**, one mapped task: nothing could be done for this application, for example because the archive or Kafka did
  not answer. It is retried three times, with increasing pauses, unless a retry cannot help.
* **check**, one mapped task: no snapshot of this store partition was made. Older snapshots are unchanged. The log gives
  the reason.

### What to do
If the archive or the disk of the scratch space was the cause, correct it and start this DAG again, or wait for the next
run. If the changelog was recreated, or has lost records that the store may need, no snapshot is made from it: the log
says what is missing. To make one anyway, name the application and turn on *Build even if the changelog has lost
something*.
"""


def _dag(environment: Environment) -> None:
    with DAG(
        dag_id=environment.dag_id("snapshot"),
        description="Publish snapshots of state stores from their changelogs",
        doc_md=DOC,
        schedule=snapshot_schedule(),
        catchup=False,
        **every_dag(),
        params={
            **store_fields(
                SnapshotRequest,
                "The application to make snapshots of. Blank: all applications with at-least-once processing.",
            ),
            "accept_loss": field(SnapshotRequest, "accept_loss"),
        },
    ):
        job_steps("snapshot")


in_each_environment(_dag)
