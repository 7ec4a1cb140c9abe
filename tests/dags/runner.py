"""Runs whole DAGs with `dag.test`, in the real Airflow of conftest.py."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from statestore.reports import write_report


class Runner:
    """Runs one DAG with `dag.test` and shows what became of it."""

    def __init__(self, directory: Path, load_dags) -> None:
        self.directory = directory
        self._load_dags = load_dags

    def run(self, dag_id, conf=None, report=None, exit_code=None):
        """Return the states of the run's Airflow tasks, mapped ones as a list in order, and the run."""
        if report is not None:
            write_report(self.directory / "report.json", report)
        if exit_code is not None:
            (self.directory / "exit").write_text(str(exit_code))
        dag = self._load_dags()[dag_id]
        for task in dag.tasks:
            task.retry_delay = timedelta(0)
        self.dag_run = dag.test(run_conf=conf or {})
        states: dict = {}
        for ti in sorted(self.dag_run.get_task_instances(), key=lambda ti: (ti.task_id, ti.map_index)):
            if ti.map_index >= 0:
                states.setdefault(ti.task_id, []).append((ti.rendered_map_index, str(ti.state)))
            else:
                states[ti.task_id] = str(ti.state)
        return states

    @property
    def calls(self) -> list[list[str]]:
        """Arguments of each start of the job."""
        path = self.directory / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def triggered(self, dag_id):
        """Runs of `dag_id` that this run has triggered."""
        from airflow.models.dagrun import DagRun

        run_id = f"{self.dag_run.dag_id}__{self.dag_run.run_id}"
        return [run for run in DagRun.find(dag_id=dag_id) if run.run_id == run_id]
