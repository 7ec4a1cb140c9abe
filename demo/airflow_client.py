"""A client of Airflow's REST API, with what the demo and the tests do as a user would: trigger, watch, read.

Every wait is bounded and ends early when Airflow itself died; errors say what Airflow answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import requests

from demo.processes import ServiceError, wait_until

_REQUEST_S = 60
_PAGE = 100
COMPONENTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")


@dataclass(frozen=True)
class DagRun:
    """A DAG run, as the API shows it."""

    dag_id: str
    run_id: str
    state: str
    run_type: str
    conf: dict[str, Any]

    @property
    def ended(self) -> bool:
        """True once nothing more happens."""
        return self.state in ("success", "failed")


@dataclass(frozen=True)
class TaskInstance:
    """A task of a run; a mapped task has one per index, with a label."""

    task_id: str
    map_index: int
    label: str | None
    state: str | None
    try_number: int
    duration_s: float | None


class AirflowClient:
    """The API at `url`, used as `user`.

    Parameters
    ----------
    check
        Called while waiting; raises if Airflow's processes have ended.
    """

    def __init__(self, url: str, user: str, password: str, check: Callable[[], None] = lambda: None) -> None:
        self.url = url
        self._credentials = {"username": user, "password": password}
        self._check = check
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy or a netrc file of the user's has no business here

    # -- waiting --------------------------------------------------------------------------------------------------

    def wait_healthy(self, deadline_s: float) -> None:
        """Wait until the API answers and says that scheduler, DAG processor and triggerer are healthy."""
        wait_until(self._healthy, deadline_s, f"Airflow at {self.url} to be healthy", poll_s=0.5)

    def wait_for_dags(self, dag_ids: list[str], deadline_s: float) -> None:
        """Wait until all these DAGs were parsed.

        Raises
        ------
        ServiceError
            Also as soon as Airflow reports an import error.
        """

        def parsed() -> bool:
            self._check()
            if errors := self.import_errors():
                raise ServiceError("Airflow cannot import: " + "; ".join(f"{k}: {v}" for k, v in errors.items()))
            return set(dag_ids) <= set(self.dags())

        wait_until(parsed, deadline_s, f"Airflow to parse {', '.join(dag_ids)}", poll_s=1)

    def wait_for_run(
        self,
        dag_id: str,
        run_id: str,
        deadline_s: float,
        on_change: Callable[[list[TaskInstance]], None] = lambda tasks: None,
    ) -> DagRun:
        """Wait until the run has ended, well or not, and return it; a run that does not exist yet is waited for.

        Parameters
        ----------
        on_change
            Called with the run's task instances, whenever one of them has changed, and at the end.
        """
        seen: list[TaskInstance] = []

        def ended() -> DagRun | None:
            nonlocal seen
            self._check()
            run = self.run(dag_id, run_id)  # before the tasks, so that an ended run shows their last state
            if run is None:
                return None
            if (tasks := self.task_instances(dag_id, run_id)) != seen:
                seen = tasks
                on_change(tasks)
            return run if run.ended else None

        run = wait_until(ended, deadline_s, f"run {run_id} of DAG {dag_id} to end", poll_s=1)
        assert run is not None
        return run

    # -- doing ----------------------------------------------------------------------------------------------------

    def unpause(self, dag_id: str) -> None:
        """Let the DAG's runs be scheduled."""
        self._call("PATCH", f"dags/{quote(dag_id)}", params={"update_mask": "is_paused"}, json={"is_paused": False})

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None, run_id: str | None = None) -> DagRun:
        """Start a run, as the form in the UI would."""
        body = {"conf": conf or {}, "logical_date": None, **({"dag_run_id": run_id} if run_id else {})}
        return _run(self._call("POST", f"dags/{quote(dag_id)}/dagRuns", json=body))

    # -- reading --------------------------------------------------------------------------------------------------

    def dags(self) -> list[str]:
        """Return the ids of all DAGs."""
        return [dag["dag_id"] for dag in self._all("dags", "dags")]

    def import_errors(self) -> dict[str, str]:
        """Return what could not be imported: the error by file name."""
        return {error["filename"]: error["stack_trace"] for error in self._all("importErrors", "import_errors")}

    def run(self, dag_id: str, run_id: str) -> DagRun | None:
        """Return the run, or None if there is none of that id."""
        found = self._call("GET", _path(dag_id, run_id), missing_ok=True)
        return None if found is None else _run(found)

    def runs(self, dag_id: str) -> list[DagRun]:
        """Return the runs of the DAG, the latest first."""
        return [_run(found) for found in self._all(f"dags/{quote(dag_id)}/dagRuns", "dag_runs", order_by="-run_after")]

    def task_instances(self, dag_id: str, run_id: str) -> list[TaskInstance]:
        """Return all task instances of the run, mapped ones included, by task and index."""
        found = [
            TaskInstance(
                each["task_id"],
                each["map_index"],
                each["rendered_map_index"],
                each["state"],
                each["try_number"],
                each["duration"],
            )
            for each in self._all(f"{_path(dag_id, run_id)}/taskInstances", "task_instances")
        ]
        return sorted(found, key=lambda each: (each.task_id, each.map_index))

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """Return what the task left for others, or None if it left nothing."""
        path = f"{_path(dag_id, run_id)}/taskInstances/{quote(task_id)}/xcomEntries/{quote(key)}"
        found = self._call("GET", path, params={"map_index": map_index, "deserialize": True}, missing_ok=True)
        return None if found is None else found["value"]

    def log_tail(self, dag_id: str, run_id: str, task: TaskInstance, lines: int = 20) -> list[str]:
        """Return the last lines of the log of the task's last try."""
        path = f"{_path(dag_id, run_id)}/taskInstances/{quote(task.task_id)}/logs/{max(1, task.try_number)}"
        params = {"map_index": task.map_index, "full_content": True}
        found = self._call("GET", path, params=params, missing_ok=True)
        entries = [] if found is None else found["content"]
        return [entry if isinstance(entry, str) else _log_line(entry) for entry in entries][-lines:]

    def explain(self, run: DagRun) -> str:
        """Say which tasks of a failed run failed, with the end of the log of the first of them."""
        failed = [task for task in self.task_instances(run.dag_id, run.run_id) if task.state == "failed"]
        names = ", ".join(f"{task.task_id}{f' [{task.label}]' if task.label else ''}" for task in failed)
        tail = "".join(f"\n  {line}" for line in self.log_tail(run.dag_id, run.run_id, failed[0])) if failed else ""
        return f"run {run.run_id} of DAG {run.dag_id} ended as {run.state}; failed tasks: {names or 'none'}{tail}"

    # -- HTTP -----------------------------------------------------------------------------------------------------

    def _healthy(self) -> bool:
        self._check()
        try:
            answer = self._session.get(f"{self.url}/api/v2/monitor/health", timeout=5)
        except requests.RequestException:
            return False
        return answer.ok and all((answer.json().get(name) or {}).get("status") == "healthy" for name in COMPONENTS)

    def _all(self, path: str, key: str, **params: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            page = self._call("GET", path, params={**params, "limit": _PAGE, "offset": len(found)})
            found += page[key]
            if not page[key] or len(found) >= page["total_entries"]:
                return found

    def _call(
        self, method: Literal["GET", "POST", "PATCH"], path: str, *, missing_ok: bool = False, **options: Any
    ) -> Any:
        answer = self._send(method, f"/api/v2/{path}", **options)
        if answer.status_code == requests.codes.unauthorized:  # no token yet, or it has expired
            token = self._send("POST", "/auth/token", json=self._credentials)
            self._accept(token)
            self._session.headers["Authorization"] = f"Bearer {token.json()['access_token']}"
            answer = self._send(method, f"/api/v2/{path}", **options)
        if missing_ok and answer.status_code == requests.codes.not_found:
            return None
        self._accept(answer)
        return answer.json()

    def _send(self, method: str, path: str, **options: Any) -> requests.Response:
        attempts = 3 if method == "GET" else 1
        for attempt in range(1, attempts + 1):
            try:
                return self._session.request(method, self.url + path, timeout=_REQUEST_S, **options)
            except requests.RequestException as error:
                self._check()
                if attempt == attempts:
                    raise ServiceError(f"{method} {self.url}{path} got no answer from Airflow: {error}") from error
        raise AssertionError("unreachable")

    def _accept(self, answer: requests.Response) -> None:
        if not answer.ok:
            request = answer.request
            raise ServiceError(
                f"{request.method} {request.url} was answered with {answer.status_code}: {answer.text[:1000]}"
            )


def _path(dag_id: str, run_id: str) -> str:
    return f"dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"


def _run(found: dict[str, Any]) -> DagRun:
    return DagRun(found["dag_id"], found["dag_run_id"], found["state"], found["run_type"], found["conf"] or {})


def _log_line(entry: dict[str, Any]) -> str:
    errors = [f"{each.get('exc_type')}: {each.get('exc_value')}" for each in entry.get("error_detail") or []]
    return " ".join(filter(None, [entry.get("timestamp"), entry.get("level"), entry.get("event"), *errors]))
