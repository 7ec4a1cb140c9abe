"""DAG `maintenance`: remove what is old and of no more use, on a schedule or by hand."""

from __future__ import annotations

from airflow.sdk import DAG
from statestore_dags.every_dag import every_dag
from statestore_dags.form import field
from statestore_dags.schedules import schedule
from statestore_dags.steps import job_steps

from statestore.requests.maintenance import MaintenanceRequest

DOC = """
### What it does
Removes, and lists in its report:

* stores in quarantine that were replaced more than `STATESTORE_QUARANTINE_DAYS` ago, where the live store is whole;
* what restores that were killed have left behind, when nothing can be gone on with any more;
* reports, history and verdicts older than `STATESTORE_REPORTS_DAYS`, but never the last of a kind;
* state directories of mode *as-of* below `<state directory>-as-of` that are as old;
* if `STATESTORE_ARCHIVE` is set, snapshots that are not needed. The newest `STATESTORE_SNAPSHOT_KEEP` of each store
  partition stay, those of the last `STATESTORE_SNAPSHOT_DAYS`, and those that are pinned or hold what a changelog
  lost. *archive/marked* has the snapshots that no restore uses from now on. *archive/files* has what was marked
  `STATESTORE_SNAPSHOT_GRACE_HOURS` ago, and its files.

Each task has its own square below *check*, and so has each kind of files. A task is locked while it is tidied up; one
that is in use turns pink and is looked at next time. *Only list* changes nothing.

### What red means
* **plan**: the metastore is DEGRADED, so nobody knows for certain which stores there are. Nothing was removed. If Kafka
  did not answer, it is retried, three times.
* **spark**: nothing could be done, for example because the settings are wrong. What is still there is no harm.
* **check**, one square: something could not be removed. The log has its path and what the operating system said. For
  *archive*, it has what the object store or Kafka said, or the object that could not be read.

### What to do
Correct what the log names, often an owner or a permission, and wait for the next run or start this DAG again.
"""

with DAG(
    dag_id="maintenance",
    description="Remove old reports, replaced stores, snapshots and what killed restores have left",
    doc_md=DOC,
    schedule=schedule("STATESTORE_MAINTENANCE_SCHEDULE", "43 3 * * *"),
    catchup=False,
    **every_dag(),
    params={"dry_run": field(MaintenanceRequest, "dry_run")},
):
    job_steps("maintenance")
