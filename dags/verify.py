"""DAG `verify`: compare every store with its changelog, after `process` and by time; start `restore` where it helps.

After `process` it looks at the applications of that run alone, by depth `offsets`, which holds no lock for long. By
time it scans all. A sample of the rows of all is compared by `verify.deep`, which has a schedule of its own.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, AssetOrTimeSchedule, CronTriggerTimetable
from statestore_dags.assets import processed_asset
from statestore_dags.every_dag import every_dag, in_each_environment
from statestore_dags.form import application_field, field
from statestore_dags.row_summaries import wants_restore
from statestore_dags.schedules import alert_at, deep_sample, depth_after_process, schedule
from statestore_dags.steps import job_steps, trigger_once

from statestore.environments import Environment
from statestore.requests.verify import VerifyRequest

DOC = """
### What it does
Compares store partitions with their changelog topics and changes nothing.

* After `process`: those of the applications that it has processed, by their offsets
  (`STATESTORE_VERIFY_AFTER_PROCESS`).
* On a schedule: all of them. `verify` reads every row (*scan*). `verify.deep` compares a sample of the rows with the
  changelog.
* Manually: at the depth that the form names.

Kafka Streams applications that the file of `STATESTORE_ENVIRONMENTS` lists with a state directory are verified, too, on
a schedule and manually. They keep running. On a schedule, no locks are taken, so that a stopped one can start.

Each application is one Spark job. Below *check*, each store partition has its own mapped task. It succeeds if the store
is healthy, and fails if the store is damaged or behind, or if a kill of the running application would cost a full
restore or lose data. A store that is in use throughout is verified without its lock.
If that is not possible, or a difference is not confirmed, the task is skipped, and the next run checks the store again.
If `process` waits for a store, `verify` releases it, and returns to it after the others. With more than 256 store
partitions, a mapped task stands for several.

### What a failure means
* **plan**: the form is wrong, or the metastore is DEGRADED. The log says what was expected. If Kafka did not answer,
  the step is retried three times.
* **spark**, one mapped task: this application could not be verified, for example because Kafka did not answer. That
  says nothing about its stores. It is retried three times, with increasing pauses, unless a retry cannot help.
* **check**, one mapped task: this store partition needs action. The log names its status and the evidence.

### What to do
Usually no action is needed: if a restore helps, this run has already started `restore` (*trigger_restore*). If the
action is "manual", a person must decide: read the log of the mapped task. One run of this DAG starts at most one
restore, and none of a Kafka Streams application without a definition: stop that application, then start `restore`
manually. To restore again for a run that you have cleared, start `restore` manually.
"""


def _dag(dag_id: str, when: Any, description: str, depth: str, sample: float | None) -> None:
    with DAG(
        dag_id=dag_id,
        description=description,
        doc_md=DOC,
        schedule=when,
        catchup=False,
        **every_dag(),
        params={
            "application": application_field(
                "The application to verify. Blank: all applications of the environment.", without_definition=True
            ),
            "depth": field(
                VerifyRequest,
                "depth",
                default=depth,
                values_display={
                    "offsets": "offsets: how up to date each store is; intact stores are not opened",
                    "scan": "scan: also reads every row",
                    "deep": "deep: every row is compared with the changelog",
                },
            ),
            "sample": field(VerifyRequest, "sample", default=sample),
            "live": field(VerifyRequest, "live"),
            "alert_at": field(VerifyRequest, "alert_at", default=alert_at()),
        },
    ):
        steps = job_steps("verify")
        trigger_once("restore", wants_restore, steps, "verify_report")


def _after_process_or(cron: str | None, environment: Environment) -> Any:
    if depth_after_process() is None or not environment.has_definitions:
        return cron
    if cron is None:
        return [processed_asset()]
    return AssetOrTimeSchedule(timetable=CronTriggerTimetable(cron, timezone="UTC"), assets=[processed_asset()])


def _dags(environment: Environment) -> None:
    _dag(
        environment.dag_id("verify"),
        _after_process_or(schedule("STATESTORE_VERIFY_SCHEDULE", "17 */6 * * *"), environment),
        "Compare every state store with its changelog, and restore damaged, missing, or outdated stores",
        "scan",
        None,
    )
    _dag(
        environment.dag_id("verify.deep"),
        schedule("STATESTORE_VERIFY_DEEP_SCHEDULE", "29 2 * * *"),
        "Compare a sample of the rows of every state store with its changelog, and restore damaged stores",
        "deep",
        deep_sample(),
    )


in_each_environment(_dags, without_definitions=True)
