"""An API server with our plugin for the tests of the page; nothing runs its DAGs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import requests

from demo.airflow import Airflow
from demo.installation import Installation
from demo.kafka import free_port
from demo.processes import Processes, wait_until

#: How long a part of Airflow may take to start; 20 s on an idle machine.
_START_S = 600


class Served(NamedTuple):
    """A server that answers.

    Attributes
    ----------
    token
        Of somebody who has logged in.
    installation
        Its directories.
    """

    url: str
    token: str
    installation: Installation

    def run(self, dag_id: str, run_id: str) -> dict:
        """Return a run, as Airflow's API tells of it."""
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = requests.get(f"{self.url}/api/v2/dags/{dag_id}/dagRuns/{run_id}", headers=headers, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def delete_runs(self) -> None:
        """Delete all runs: without a scheduler, those that tests start stay queued, and pages show them."""
        url, headers = f"{self.url}/api/v2/dags/~/dagRuns", {"Authorization": f"Bearer {self.token}"}
        answer = requests.get(url, headers=headers, params={"limit": 100}, timeout=60)
        answer.raise_for_status()
        for run in answer.json()["dag_runs"]:
            one = f"{self.url}/api/v2/dags/{run['dag_id']}/dagRuns/{quote(run['dag_run_id'], safe='')}"
            if run["state"] == "running":  # which Airflow does not delete
                requests.patch(one, headers=headers, json={"state": "failed"}, timeout=60).raise_for_status()
            requests.delete(one, headers=headers, timeout=60).raise_for_status()


@contextmanager
def api_server(root: Path, **settings: str) -> Iterator[Served]:
    """Serve until the block ends, with these settings beside those of the installation."""
    installation = Installation(root)
    installation.create()
    port = free_port()
    keys = {"fernet_key": "", "jwt_secret": "j" * 64, "api_secret": "a" * 64}
    (installation.airflow_dir / "passwords.json").write_text('{"admin": "secret"}')
    url = f"http://127.0.0.1:{port}"
    with Processes(installation.root) as processes:
        environment = (
            Airflow(processes, installation, "127.0.0.1:1", schedules=False).environment(port, keys) | settings
        )
        for name, command in (("migrate", ["db", "migrate"]), ("dags", ["dags", "reserialize"])):
            log = installation.logs_dir / f"{name}.log"
            step = processes.start(name, ["airflow", *command], environment, log)
            wait_until(lambda step=step: step.poll() == 0, _START_S, f"airflow {' '.join(command)}", step)
        log = installation.logs_dir / "api-server.log"
        service = processes.start("api-server", ["airflow", "api-server"], environment, log)
        wait_until(lambda: _answers(url), _START_S, "the API server to answer", service)
        login = {"username": "admin", "password": "secret"}
        token = requests.post(f"{url}/auth/token", json=login, timeout=60).json()["access_token"]
        yield Served(url, token, installation)


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/api/v2/version", timeout=5).ok
    except requests.RequestException:
        return False
