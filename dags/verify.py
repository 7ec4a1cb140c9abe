"""DAG `verify`: compare every store with its changelog, after `process` and by time; start `restore` where it helps.

After `process` it looks at the applications of that run alone, by depth `offsets`, which holds no lock for long. By
time it scans all. A sample of the rows of all is compared by `verify.deep`, which has a schedule of its own.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, AssetOrTimeSchedule, CronTriggerTimetable
from statestore_dags.assets import PROCESSED
from statestore_dags.every_dag import every_dag
from statestore_dags.form import application_field, field
from statestore_dags.row_summaries import wants_restore
from statestore_dags.schedules import deep_sample, depth_after_process, schedule
from statestore_dags.steps import job_steps, trigger_once

from statestore.requests.verify import VerifyRequest

DOC = """
### What it does
Compares store partitions with their changelog topics and changes nothing: after `process` those of the applications
that it has processed, by their offsets (`STATESTORE_VERIFY_AFTER_PROCESS`); by time all of them, `verify` every row
(*scan*) and `verify.deep` a sample of the rows with the changelog. By hand the form says how thoroughly. Each
application is one Spark job. Below *check*, each store partition has its own square: green is whole, red is damaged or
behind, pink (skipped) was in use all the time and is looked at again next time. A store that `process` waits for is
given to it, and looked at again when the others are done. Of more than 256, each square stands for several.

### What red means
* **plan**: the form is wrong, or the metastore is DEGRADED; the log says what was expected. If Kafka did not answer, it
  is retried, three times.
* **spark**, one square: nothing could be said of this application, for example because Kafka did not answer. That says
  nothing about its stores. It is retried three times, with growing pauses, unless the same would happen again.
* **check**, one square: this store partition needs work. The log names its status and the evidence.

### What to do
Mostly nothing: where a restore helps, this run has started `restore` already (*trigger_restore*). A status with the
action "by hand" needs a person: read the square's log. To restore again for a run that you have cleared, start
`restore` by hand; one run of this DAG starts at most one.
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
            "application": application_field("The one application to verify. Blank: all in the catalogue."),
            "depth": field(
                VerifyRequest,
                "depth",
                default=depth,
                values_display={
                    "offsets": "offsets: how far each store is; whole files are not opened",
                    "scan": "scan: every row is read, too",
                    "deep": "deep: every row is compared with the changelog",
                },
            ),
            "sample": field(VerifyRequest, "sample", default=sample),
        },
    ):
        steps = job_steps("verify")
        trigger_once("restore", wants_restore, steps, "verify_report")


def _after_process_or(cron: str | None) -> Any:
    if depth_after_process() is None:
        return cron
    if cron is None:
        return [PROCESSED]
    return AssetOrTimeSchedule(timetable=CronTriggerTimetable(cron, timezone="UTC"), assets=[PROCESSED])


_dag(
    "verify",
    _after_process_or(schedule("STATESTORE_VERIFY_SCHEDULE", "17 */6 * * *")),
    "Compare every state store with its changelog, and restore what is not whole",
    "scan",
    None,
)
_dag(
    "verify.deep",
    schedule("STATESTORE_VERIFY_DEEP_SCHEDULE", "29 2 * * *"),
    "Compare a sample of the rows of every state store with its changelog, and restore what is not whole",
    "deep",
    deep_sample(),
)
