"""DAG `restore`: rebuild store partitions from their changelogs, manually with a form, or started by `verify`."""

from __future__ import annotations

from airflow.sdk import DAG, Param
from statestore_dags.approval import always_wanted, approve
from statestore_dags.every_dag import BY_HAND, every_dag, in_each_environment
from statestore_dags.form import application_field, field
from statestore_dags.row_summaries import wants_validation
from statestore_dags.steps import job_steps, trigger_once
from statestore_dags.suggestions import suggested_stores

from statestore.environments import Environment
from statestore.requests.restore import RestoreRequest

DOC = """
### What it does
Rebuilds store partitions from their changelog topics. Each replacement is built beside the live store, checked, and
swapped in. The old store stays in quarantine until `validate`, which this DAG starts, has passed, or until it is older
than `STATESTORE_QUARANTINE_DAYS`. Healthy stores are skipped, so you can safely run it again, or clear any part of it.
After an interruption it continues where it stopped. Each application is one Spark job.

With *Only show the plan* on, nothing is changed. The log of *spark* has a table of what would be done and what it
needs, and so has the log of each mapped task. Mode *as-of* does not touch the live stores. It builds a separate state
directory below `<state directory>-as-of`, which `maintenance` removes after `STATESTORE_REPORTS_DAYS`. Each mapped task
says where it is.

### What a failure means
* **plan**: the form is wrong, or the metastore is DEGRADED. The log says what was expected. Nothing was changed. If
  Kafka did not answer, the step is retried three times.
* **approve**: nobody answered, or someone marked it failed. *Reject* skips the rest of the run; it is no failure.
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
        **every_dag(),
        params={
            "application": application_field("Name of the application whose stores are restored (its application.id)."),
            "stores": field(RestoreRequest, "stores", **suggested_stores()),
            "partitions": field(RestoreRequest, "partitions", description="Such as [0, 3]. Blank: all partitions."),
            "mode": field(
                RestoreRequest,
                "mode",
                values_display={
                    "auto": "auto: the tail where that is enough, otherwise full",
                    "tail": "tail: replay what the store has not seen",
                    "snapshot": "snapshot: the newest snapshot of the archive, and the rest of the changelog",
                    "full": "full: rebuild from the whole changelog",
                    "as-of": "as-of: build the store as it was at a point, elsewhere",
                },
            ),
            "as_of": Param(
                None,
                type=["null", "string"],
                title="As of",
                description_md="With mode *as-of*: the last changelog offset in the store, such as `1200`, or a time "
                "in ISO 8601, such as `2026-01-31T12:00:00+00:00`. Otherwise leave it blank.",
            ),
            "snapshot": field(
                RestoreRequest,
                "snapshot",
                description_md="With mode *snapshot* or *as-of*: begin with the snapshot of this name, of one "
                "store partition. Blank: the newest that can be used.",
            ),
            "dry_run": field(RestoreRequest, "dry_run"),
            "deep_check": Param(
                False,
                type="boolean",
                title="Read every row before the swap",
                description="Off: a new store is checked by its files.",
            ),
            "force": field(RestoreRequest, "force"),
            "accept_loss": field(RestoreRequest, "accept_loss"),
            "best_effort": field(RestoreRequest, "best_effort"),
            "approval": Param(
                always_wanted(),
                type="boolean",
                title="Ask before stores are rebuilt",
                description_md="On: this run waits until a person approves it. Where `STATESTORE_RESTORE_APPROVAL` is "
                "set, each run does.",
            ),
            "verify_report": field(
                RestoreRequest,
                "verify_report",
                section="Set by verify",
                description="Path of a report below the reports directory: everything it found is restored as it says; "
                "only the switches for the plan, the check, the approval and what may be lost may be set with it. "
                "verify fills this in; by hand leave it blank.",
            ),
        },
    ):
        steps = job_steps("restore", approve=approve)
        trigger_once("validate", wants_validation, steps, "restore_report")


in_each_environment(_dag)
