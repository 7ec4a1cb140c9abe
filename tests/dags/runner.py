"""Runs whole DAGs with `dag.test`, in the real Airflow of conftest.py."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from statestore.environments import DagName
from statestore.reports import write_report


@contextmanager
def _started(by):
    """Let `dag.test` make its run as the scheduler would; by itself it knows only runs by hand."""
    from airflow.models import dagrun
    from airflow.models.asset import AssetEvent

    make = dagrun.get_or_create_dagrun

    def made(*, session, **how):
        run = make(session=session, **how)
        if by == "scheduled":
            run.run_type = "scheduled"
        elif by is not None:
            run.run_type = "asset_triggered"
            events = session.query(AssetEvent).filter(AssetEvent.source_run_id == by.run_id).all()
            run.consumed_asset_events.extend(event for event in events if event.asset.name == "statestore/processed")
        session.commit()
        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dagrun, "get_or_create_dagrun", made)
        yield


class Runner:
    """Runs one DAG with `dag.test` and shows what became of it."""

    def __init__(self, directory: Path, load_dags) -> None:
        self.directory = directory
        self._load_dags = load_dags

    def run(self, dag_id, conf=None, report=None, exit_code=None, started_by=None):
        """Return the states of the run's Airflow tasks, mapped ones as a list in order, and the run.

        Parameters
        ----------
        started_by
            "scheduled", or the run whose event of `statestore/processed` has started this one; None: by hand.
        """
        if report is not None:
            write_report(self.directory / "report.json", report)
        if exit_code is not None:
            (self.directory / "exit").write_text(str(exit_code))
        dag = self._load_dags(DagName.parse(dag_id).dag)[dag_id]
        for task in dag.tasks:
            task.retry_delay = timedelta(0)
        with _started(started_by):
            self.dag_run = dag.test(run_conf=conf or {})
        states: dict = {}
        for ti in sorted(self.dag_run.get_task_instances(), key=lambda ti: (ti.task_id, ti.map_index)):
            if ti.map_index >= 0:
                states.setdefault(ti.task_id, []).append((ti.rendered_map_index, str(ti.state)))
            else:
                states[ti.task_id] = str(ti.state)
        return states

    @property
    def chosen(self) -> list[list[str]]:
        """Arguments of each start of the job after its report, the pin, its DAG run, and its user."""
        return [call[10:] for call in self.calls]

    @property
    def settings(self) -> dict[str, str]:
        """Environment of the last job."""
        return json.loads((self.directory / "settings.json").read_text())

    @property
    def calls(self) -> list[list[str]]:
        """Arguments of each start of the job, with the report's path as it is when the job has ended."""
        path = self.directory / "calls.jsonl"
        calls = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [[flag, _after_the_attempt(report), *rest] for flag, report, *rest in calls]

    def xcom(self, task_id, key="return_value"):
        """What a step of the last run has left."""
        (found,) = [ti for ti in self.dag_run.get_task_instances() if ti.task_id == task_id]
        return found.xcom_pull(task_ids=task_id, key=key)

    def triggered(self, dag_id):
        """Runs of `dag_id` that this run has triggered."""
        from airflow.models.dagrun import DagRun

        run_id = f"{self.dag_run.dag_id}__{self.dag_run.run_id}"
        return [run for run in DagRun.find(dag_id=dag_id) if run.run_id == run_id]

    def asset_events(self):
        """By store's asset, the extras of the events that the last run has added."""
        from airflow.models.asset import AssetEvent
        from airflow.utils.session import create_session

        with create_session() as session:
            found = session.query(AssetEvent).filter(AssetEvent.source_run_id == self.dag_run.run_id)
            return {event.asset.uri: event.extra for event in found if event.asset.uri.startswith("x-statestore:")}


def _after_the_attempt(report: str) -> str:
    """Where a report lies that a job has written at `.attempt-<attempt>/<name>`."""
    path = Path(report)
    assert path.parent.name.startswith(".attempt-")
    return str(path.parents[1] / path.name)
