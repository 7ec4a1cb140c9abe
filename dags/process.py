"""DAG `process`: run the stream applications' micro-batches, on a schedule or by hand."""

from __future__ import annotations

import os

from airflow.sdk import DAG, Param, task
from statestore_dags.steps import PROCESSED, check, plan, rows, spark_job

DOC = """
### What it does
Reads the input topics up to their present ends and brings every state store up to date, exactly once. One Spark job
works on all input partitions; below *check*, each task of each application has its own square.

### What red means
* **plan**: the form is wrong, or the metastore is DEGRADED; the log says what was expected. If Kafka did not answer, it
  is retried once.
* **spark**: the run could not be done at all, for example because Kafka did not answer. It is retried once.
* **check**, one square: that task did not reach its end; the others did. Nothing is lost and nothing is done twice:
  the next run goes on where this one stopped.

### What to do
Read the red square's log. If the store is damaged, run `verify`, which starts `restore`. Otherwise wait for the next
run, or start this DAG by hand.
"""

with DAG(
    dag_id="process",
    description="Process new input exactly once into the state stores",
    doc_md=DOC,
    # Empty: only by hand.
    schedule=os.environ.get("STATESTORE_PROCESS_SCHEDULE", "*/10 * * * *").strip() or None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 0},
    tags=["state stores"],
    params={
        "application": Param(
            None,
            type=["null", "string"],
            title="Application",
            description="The one application to process. Blank: all in the catalogue.",
        ),
    },
):
    planned = plan()
    spark = spark_job("process", planned)
    found = rows(planned["report"])

    @task(outlets=[PROCESSED])
    def processed(report: str, outlet_events=None) -> None:
        """Tell `verify` that the stores have moved on."""
        outlet_events[PROCESSED].extra = {"report": report}

    spark >> found
    check.expand(row=found) >> processed(planned["report"])
