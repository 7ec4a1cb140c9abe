"""Restores of several applications at a time: which run of DAG `restore` works on which application.

A run works on an application from the end of its *plan* until its report is evaluated. Runs of other applications do
not wait for it. A run of the same application does: its *plan* is rescheduled, which takes no slot. A run that `verify`
started leaves the application out instead, because the next verification finds what is left to restore.

Two runs that are planned within the same second can both begin. The locks of the tasks then keep them apart.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DagRunState, TaskInstanceState
from airflow.sdk.exceptions import AirflowRescheduleException

from statestore_dags.arguments import Params, changes_stores

log = logging.getLogger(__name__)
#: Runs of `restore` at a time, working or waiting. The number of Spark jobs is limited separately.
MOST_RUNS = 16
#: How often a waiting run looks again.
LOOK_EVERY = timedelta(seconds=30)
#: XCom key of *plan*: the applications whose live stores the run changes.
RESTORES = "restores"
#: The step that ends after the report is evaluated.
_LAST_STEP = "needs_validate"
# A tuple: the API answers with texts, which equal these values but have other hashes.
_ENDED = (
    TaskInstanceState.SUCCESS,
    TaskInstanceState.FAILED,
    TaskInstanceState.SKIPPED,
    TaskInstanceState.UPSTREAM_FAILED,
    TaskInstanceState.REMOVED,
)


def restored_elsewhere(ti: Any, dag_id: str, run_id: str) -> dict[str, str]:
    """Return the applications that other runs of this DAG work on, and the id of the run."""
    if ti.get_dr_count(dag_id=dag_id, states=[DagRunState.RUNNING]) < 2:
        return {}
    states: Mapping[str, Mapping[str, Any]] = ti.get_task_states(dag_id=dag_id, task_ids=[_LAST_STEP])
    others = [other for other, its in states.items() if other != run_id and its.get(_LAST_STEP) not in _ENDED]
    return {
        application: other
        for other in others
        if ti.get_dagrun_state(dag_id=dag_id, run_id=other) == DagRunState.RUNNING
        for application in ti.xcom_pull(dag_id=dag_id, run_id=other, task_ids="plan", key=RESTORES) or ()
    }


def left_out(params: Params, elsewhere: Mapping[str, str]) -> list[str]:
    """Return the applications that a restore leaves out because another run works on them.

    Raises
    ------
    AirflowRescheduleException
        If the form names one of them: the run waits for its turn.
    """
    if not elsewhere or not changes_stores(params):
        return []
    application = str(params.get("application") or "").strip()
    if not application:
        for name, run_id in elsewhere.items():
            log.info(
                "if %s needs a restore, it is left out: run %s works on it. Verify finds what is left", name, run_id
            )
        return sorted(elsewhere)
    if application in elsewhere:
        log.info("waiting for run %s, which works on %s", elsewhere[application], application)
        raise AirflowRescheduleException(datetime.now(UTC) + LOOK_EVERY)  # type: ignore[no-untyped-call]
    return []


def claim(ti: Any, params: Params, applications: Iterable[str]) -> None:
    """Tell other runs which applications this run works on."""
    ti.xcom_push(RESTORES, list(applications) if changes_stores(params) else [])
