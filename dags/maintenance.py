"""DAG `maintenance`: remove old files that are no longer needed, on a schedule or manually."""

from __future__ import annotations

from airflow.sdk import DAG
from statestore_dags.every_dag import every_dag, in_each_environment
from statestore_dags.form import field
from statestore_dags.schedules import schedule
from statestore_dags.steps import job_steps

from statestore.environments import Environment
from statestore.requests.maintenance import MaintenanceRequest

DOC = """
### What it does
Removes, and lists in its report:

* stores in quarantine that were replaced more than `STATESTORE_QUARANTINE_DAYS` ago, if the live store is healthy;
* files of killed restores that no restore can resume from;
* reports, history, and verdicts older than `STATESTORE_REPORTS_DAYS`, but never the last of a kind;
* equally old state directories of mode *as-of*, below `<state directory>-as-of`;
* if `STATESTORE_ARCHIVE` is set, snapshots that are not needed. These stay: the newest `STATESTORE_SNAPSHOT_KEEP` of
  each store partition, those of the last `STATESTORE_SNAPSHOT_DAYS`, and those that are pinned or contain data that a
  changelog has lost. *archive/marked* lists the snapshots that no restore uses from now on. *archive/files* lists those
  that were marked `STATESTORE_SNAPSHOT_GRACE_HOURS` ago, and their files.

Below *check*, each task of an application has its own mapped task, and so has each kind of files. The application's
task is locked during its clean-up. If it is in use, its mapped task is skipped, and the next run tries again. With
*Only list* on, nothing is changed.

### What a failure means
* **plan**: the metastore is DEGRADED, so it is uncertain which stores exist. Nothing was removed. If Kafka did not
  answer, the step is retried three times.
* **spark**: nothing could be removed, for example because the settings are wrong. The remaining files do no harm.
* **check**, one mapped task: something could not be removed. The log has its path and the operating system's error. For
  *archive*, it has the error of the object store or of Kafka, or the object that could not be read.

### What to do
Correct what the log names, often an owner or a permission, and wait for the next run or start this DAG again.
"""


def _dag(environment: Environment) -> None:
    if not environment.has_own_files:
        return
    with DAG(
        dag_id=environment.dag_id("maintenance"),
        description="Remove old reports, replaced stores, snapshots, and files of killed restores",
        doc_md=DOC,
        schedule=schedule("STATESTORE_MAINTENANCE_SCHEDULE", "43 3 * * *"),
        catchup=False,
        **every_dag(),
        params={"dry_run": field(MaintenanceRequest, "dry_run")},
    ):
        job_steps("maintenance")


in_each_environment(_dag, without_definitions=True)
