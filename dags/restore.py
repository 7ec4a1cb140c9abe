"""DAG `restore`: rebuild store partitions from their changelogs, manually with a form, or started by `verify`."""

from __future__ import annotations

from airflow.sdk import DAG, Param
from statestore_dags.approval import always_wanted, approve
from statestore_dags.every_dag import BY_HAND, every_dag, in_each_environment
from statestore_dags.form import field, store_fields
from statestore_dags.restores import MOST_RUNS
from statestore_dags.row_summaries import wants_validation
from statestore_dags.steps import job_steps, trigger_once

from statestore.environments import Environment
from statestore.requests.restore import RestoreRequest

DOC = """
### What it does
Rebuilds store partitions from their changelog topics. Each replacement is built beside the live store, checked, and
swapped in. The old store stays in quarantine until `validate`, which this DAG starts, has passed, or until it is older
than `STATESTORE_QUARANTINE_DAYS`. Healthy stores are skipped, so you can safely start this DAG again, or clear any
part of a run. After an interruption, the next run continues where the last one stopped. Each application is one Spark
job.

With *Only show the plan* on, nothing is changed. The log of *spark* has a table of what would be done and what it
needs, and so has the log of each mapped task. Mode *as-of* does not change the live stores. It builds a separate state
directory below `<state directory>-as-of`, which `maintenance` removes after `STATESTORE_REPORTS_DAYS`. The log of each
mapped task names it.

Several runs can be active at a time, each for different applications. If a run is already working on an application, a
later run that someone starts for it waits in *plan*. A later run that `verify` starts leaves this application out.

### What a failure means
* **plan**: the form is wrong, or the metastore is DEGRADED. The log says what was expected. Nothing was changed. If
  Kafka did not answer, the step is retried three times. `up_for_reschedule` is not a failure: the log names the run
  that this one waits for.
* **approve**: nobody answered, or someone marked it failed. *Reject* skips the rest of the run; it is not a failure.
* **spark**, one mapped task: nothing could be done for this application, for example because Kafka did not answer. It
  is retried three times, with increasing pauses, unless a retry cannot help.
* **check**, one mapped task: this store partition was not restored and is unchanged. The log gives the reason.

### What to do
If *approve* waits, answer it (*Required actions*, above the grid). Remove the cause that the log names, such as a full
disk or an application that still uses the store. Then start this DAG again with the same form, or clear *spark*.
"""


def _dag(environment: Environment) -> None:
    with DAG(
        dag_id=environment.dag_id("restore"),
        description="Rebuild state stores from their changelogs",
        doc_md=DOC,
        schedule=None,
        allowed_run_types=BY_HAND,
        # `verify` starts it; on a new installation a paused DAG would keep such runs waiting unseen.
        is_paused_upon_creation=False,
        **every_dag(runs=MOST_RUNS),
        params={
            **store_fields(
                RestoreRequest,
                "Name of the application whose stores are restored (its application.id). Stop it first.",
                without_definition=True,
            ),
            "mode": field(
                RestoreRequest,
                "mode",
                values_display={
                    "auto": "auto: tail if that is enough, otherwise full",
                    "tail": "tail: apply the records that the store has not seen",
                    "snapshot": "snapshot: the newest snapshot of the archive, then the rest of the changelog",
                    "full": "full: rebuild from the whole changelog",
                    "as-of": "as-of: build the store as of an earlier point, in another directory",
                },
            ),
            "as_of": Param(
                None,
                type=["null", "string"],
                title="As of",
                description_md="With mode *as-of*: the last changelog offset in the store, such as `1200`, or a time "
                "in ISO 8601, such as `2026-01-31T12:00:00+00:00`. Leave it blank with other modes.",
            ),
            "snapshot": field(
                RestoreRequest,
                "snapshot",
                description="With mode snapshot or as-of: the name of the snapshot to start from, for one store "
                "partition. Blank: the newest usable snapshot. If you accept a loss, you can name one that would not "
                "be chosen automatically.",
            ),
            "dry_run": field(RestoreRequest, "dry_run"),
            "deep_check": Param(
                False,
                type="boolean",
                title="Read every row before the swap",
                description="Off: only the files of a new store are checked.",
            ),
            "force": field(RestoreRequest, "force"),
            "accept_loss": field(RestoreRequest, "accept_loss"),
            "best_effort": field(RestoreRequest, "best_effort"),
            "approval": Param(
                always_wanted(),
                type="boolean",
                title="Ask before stores are rebuilt",
                description_md="On: this run waits until a person approves it. If `STATESTORE_RESTORE_APPROVAL` is "
                "set, every run waits.",
            ),
            "verify_report": field(
                RestoreRequest,
                "verify_report",
                section="Set by verify",
                description="Path of a report of verify, below the reports directory. The run restores what the "
                "report advises. With it, set only the switches for the plan, the check, the approval, "
                "and the accepted loss. verify fills in this field. Leave it blank in a run that you "
                "start yourself.",
            ),
        },
    ):
        steps = job_steps("restore", approve=approve)
        trigger_once("validate", wants_validation, steps, "restore_report")


in_each_environment(_dag, without_definitions=True)
