"""DAG `rewrite`: recreate, change, or copy the state of an application from a form, as `statestore rewrite` does."""

from __future__ import annotations

from airflow.sdk import DAG, Param
from statestore_dags.approval import approve_rewrite
from statestore_dags.every_dag import BY_HAND, every_dag, in_each_environment
from statestore_dags.form import application_field
from statestore_dags.mapped_tasks import check
from statestore_dags.rewriting import KINDS, plan_rewrite, run_rewrite
from statestore_dags.suggestions import suggested_stores

from statestore.environments import Environment

DOC = """
### What it does
Recreates, changes, or copies the state of an application, as `statestore rewrite` does. *plan* checks the conditions,
and its log shows what would be written, how much, and how long this takes. *approve* then waits for someone to approve
the plan, and *rewrite* carries it out. Below *check*, each store partition that was written has its own mapped task.

| what | when |
|---|---|
| reseed | the changelog of a store was lost, and its stores are intact |
| transform | a function can correct rows with wrong values or an old layout, or stores need another format |
| repartition | the number of input partitions changes. Apply the definition of the new application first |
| clone | you need a copy of an application that continues to run. Apply the definition of the copy first |
| point | an application must go back to a time or to a set of snapshots, with all stores and its input offsets |
| undo | such a change, or an overwrite with Spark, was a mistake. The stores return to their former changelogs |

*undo* takes back *transform* and *point*. Except for a clone, the application must be stopped: pause its DAG `process`
first. For the kinds *transform*, *repartition*, and *reseed*, it must have processed its input.
A clone is created in the Kafka cluster of this DAG's environment, even if the first application is in another cluster.
The command runs on the Airflow worker, which must see the state directory.

### What a failure means
* **plan**: the form is wrong, or something prevents the rewrite. The log says what. Nothing was changed. If Kafka did
  not answer, the step is retried three times.
* **approve**: nobody answered, or someone marked it failed. *Reject* skips the rest of the run, and is not a failure.
* **rewrite**: the log says what happened. The step is not retried, because you must decide whether to repeat it.

### What to do
Fix the cause that the log names. If *rewrite* failed or was killed, clear it: incomplete work is discarded or
completed, and nothing is written twice.
"""


def _dag(environment: Environment) -> None:
    with DAG(
        dag_id=environment.dag_id("rewrite"),
        description="Recreate, change, or copy the state of an application",
        doc_md=DOC,
        schedule=None,
        allowed_run_types=BY_HAND,
        is_paused_upon_creation=False,
        **every_dag(),
        params={
            "what": Param(
                type="string",
                enum=[*KINDS],
                title="What",
                description="The documentation of this DAG explains when to use each.",
            ),
            "application": application_field("Name of the application whose state is written (its application.id)."),
            "stores": Param(
                None,
                type=["array", "null"],
                items={"type": "string"},
                title="Stores",
                description="For reseed: the store. For transform: the stores; blank for all. For undo: the store, if "
                "several rewrites can be undone.",
                **suggested_stores(),
            ),
            "to": Param(
                None,
                type=["null", "string"],
                title="New application",
                description="For repartition and clone: the application to create. It must have a definition, and no "
                "state.",
            ),
            "function": Param(
                None,
                type=["null", "string"],
                title="Function",
                description="For transform: module:function, on the Python path of the Airflow worker.",
            ),
            "format": Param(
                None,
                type=["null", "string"],
                enum=[None, "plain", "timestamped", "headers"],
                title="Format",
                description="For transform: the new format of the stores. Blank: unchanged.",
            ),
            "as_bytes": Param(
                False,
                type="boolean",
                title="Rows as bytes",
                description="For transform: pass keys and values to the function as bytes, not as the serdes decode "
                "them.",
            ),
            "point": Param(
                None,
                type=["null", "string"],
                title="Point",
                description="For point: a time such as 2026-11-27T10:00:00Z, or the name of a set of snapshots.",
            ),
            "snapshot_set": Param(
                None,
                type=["null", "string"],
                title="Set of snapshots",
                description="For clone: the name of the set. Blank: the newest set.",
            ),
            "from_cluster": Param(
                None,
                type=["null", "string"],
                title="Cluster of the application",
                description="For clone: the id of the Kafka cluster of the first application, if it is a different "
                "cluster.",
            ),
            "reads_from": Param(
                None,
                type=["null", "string"],
                examples=["start", "end", "set-offsets"],
                title="Start of the new input",
                description="For repartition and clone: where the new application starts in a new input topic that "
                "has records. start or end; for clone also set-offsets, or a time such as "
                "2026-11-27T10:00:00Z.",
            ),
            "any_partitioner": Param(
                False,
                type="boolean",
                title="Any partitioner",
                description="For reseed, repartition, and clone: keys can be in partitions that Kafka's partitioner "
                "would not choose.",
            ),
            "accept_loss": Param(
                False,
                type="boolean",
                title="Accept loss",
                description="For undo: give up records that were processed or appended after the rewrite, and those "
                "that a former changelog has lost.",
            ),
            "dry_run": Param(False, type="boolean", title="Only show the plan", description="On: nothing is changed."),
        },
    ):
        planned = plan_rewrite()
        done = run_rewrite(planned)  # type: ignore[arg-type]  # as in each call of a task, what it will be is given
        planned >> approve_rewrite() >> done
        check.expand(square=done)


in_each_environment(_dag)
