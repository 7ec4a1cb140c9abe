"""DAG `snapshot`: publish snapshots of stores from their changelogs, on a schedule or by hand."""

from __future__ import annotations

from airflow.sdk import DAG
from statestore_dags.every_dag import every_dag
from statestore_dags.form import application_field, field
from statestore_dags.schedules import snapshot_schedule
from statestore_dags.steps import job_steps
from statestore_dags.suggestions import suggested_stores

from statestore.requests.snapshot import SnapshotRequest

DOC = """
### What it does
Builds stores from their changelogs in scratch space, publishes them as snapshots in the archive (`STATESTORE_ARCHIVE`),
and removes what it built. It begins with the previous snapshot, so it reads only what was logged since. The
applications are not touched and need not stop.

By time, and with a blank form, it takes the applications that process at least once: `process` publishes no snapshots
of these. If the form names an application, that one is taken. Each application is one Spark job. Each store partition
has its own square below *check*.

### What red means
* **plan**: no archive is set, the form is wrong, or the metastore is DEGRADED. The log says what was expected. If Kafka
  did not answer, it is retried, three times.
* **spark**, one square: nothing could be done for this application, for example because the archive or Kafka did not
  answer. It is retried three times, with growing pauses, unless the same would happen again.
* **check**, one square: no snapshot of this store partition was made. Older snapshots stay as they were. The log says
  why.

### What to do
If the archive or the disk of the scratch space was the cause, correct it and start this DAG again, or wait for the next
run. If the changelog was recreated, or has lost records that the store may need, no snapshot is made from it: the log
says what is missing. To make one all the same, name the application and turn on *Build also from a changelog that has
lost something*.
"""

with DAG(
    dag_id="snapshot",
    description="Publish snapshots of state stores from their changelogs",
    doc_md=DOC,
    schedule=snapshot_schedule(),
    catchup=False,
    **every_dag(),
    params={
        "application": application_field(
            "The one application to make snapshots of. Blank: those that process at least once."
        ),
        "stores": field(SnapshotRequest, "stores", **suggested_stores()),
        "partitions": field(SnapshotRequest, "partitions", description="Such as [0, 3]. Blank: all partitions."),
        "accept_loss": field(SnapshotRequest, "accept_loss"),
    },
):
    job_steps("snapshot")
