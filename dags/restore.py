"""DAG `restore`: rebuild store partitions from their changelogs, by hand with a form or started by `verify`."""

from __future__ import annotations

from airflow.sdk import DAG, Param
from statestore_dags.arguments import MODES
from statestore_dags.rows import wants_validation
from statestore_dags.steps import check, plan, rows, spark_job, trigger_once

DOC = """
### What it does
Rebuilds store partitions from their changelog topics. Each is built beside the live one, checked, and swapped in; the
old one is kept in quarantine until `validate`, which this DAG starts, has passed, or a later restore finds it older
than `STATESTORE_QUARANTINE_DAYS`. What is whole already is skipped, so running it again is safe; after an interruption
it goes on where it was. A store as of an earlier point is made with `jobs/restore.py --mode as-of` instead.

### What red means
* **plan**: the form is wrong, or the metastore is DEGRADED; the log says what was expected. Nothing was touched. If
  Kafka did not answer, it is retried once.
* **spark**: the run could not be done at all, for example because Kafka did not answer. It is retried once.
* **check**, one square: this store partition was not restored and is as it was before. The log says why.

### What to do
Remove the cause that the log names, such as a full disk or an application that still runs on the store, and start this
DAG again with the same form.
"""

with DAG(
    dag_id="restore",
    description="Rebuild state stores from their changelogs",
    doc_md=DOC,
    schedule=None,
    allowed_run_types=["manual", "operator_triggered"],
    # `verify` starts it; on a new installation a paused DAG would keep such runs waiting unseen.
    is_paused_upon_creation=False,
    max_active_runs=1,
    default_args={"retries": 0},
    tags=["state stores"],
    params={
        "application": Param(
            None,
            type=["null", "string"],
            title="Application",
            description_md="Name of the application whose stores are restored (its `application.id`).",
        ),
        # No `examples`: with them the form offers nothing else, and the stores are unknown when this file is parsed.
        "stores": Param(
            [],
            type=["array", "null"],
            items={"type": "string"},
            title="Stores",
            description="Names of the stores to restore, one a line. Blank: all stores of the application.",
        ),
        "partitions": Param(
            [],
            type=["array", "null"],
            items={"type": "integer", "minimum": 0},
            title="Partitions",
            description_md="Numbers of the partitions to restore, such as `[0, 3]`. Blank: all partitions.",
        ),
        "mode": Param(
            "auto",
            type="string",
            enum=list(MODES),
            values_display={
                "auto": "auto: the tail where that is enough, otherwise full",
                "tail": "tail: replay what the store has not seen",
                "full": "full: rebuild from the whole changelog",
            },
            title="Mode",
            description_md="*tail* is quick and needs a sound store. *full* trusts nothing but the changelog.",
        ),
        "force": Param(
            False,
            type="boolean",
            title="Rebuild also what is whole",
            description="Off: store partitions that are whole are skipped.",
        ),
        "verify_report": Param(
            None,
            type=["null", "string"],
            title="Report of a verify run",
            section="Set by verify",
            description_md="Path of a report below the reports directory: everything it found is restored as it "
            "says, and the other fields must be left as they were. `verify` fills this in; by hand leave it blank.",
        ),
    },
):
    planned = plan()
    spark = spark_job("restore", planned)
    found = rows(planned["report"])
    spark >> found
    check.expand(row=found)
    trigger_once("validate", wants_validation, found, conf={"restore_report": planned["report"]})
