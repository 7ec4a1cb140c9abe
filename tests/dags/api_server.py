"""Airflow's API server in a thread of this process, with a login.

It is the application that `airflow api-server` serves, on the database of the runs that tests start here; a process of
its own would load all of Airflow once more.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from demo.processes import wait_until

_LOGIN = {"username": "admin", "password": "secret"}
_START_S = 300
_STOP_S = 60


@dataclass(frozen=True)
class ApiServer:
    """Where it listens, and the token of somebody who has logged in."""

    url: str
    token: str


@contextmanager
def api_server(directory: Path) -> Iterator[ApiServer]:
    """Serve until the block ends; the password lies in the directory."""
    import uvicorn
    from airflow.api_fastapi.app import create_app

    passwords = directory / "passwords.json"
    passwords.write_text(json.dumps({_LOGIN["username"]: _LOGIN["password"]}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", str(passwords))
        server = uvicorn.Server(uvicorn.Config(create_app("core"), host="127.0.0.1", port=0, log_config=None))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            wait_until(lambda: server.started or not thread.is_alive(), _START_S, "the API server to listen")
            assert thread.is_alive(), "the API server ended before it listened"
            (listening,) = server.servers[0].sockets
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            answer = requests.post(f"{url}/auth/token", json=_LOGIN, timeout=60)
            yield ApiServer(url, answer.json()["access_token"])
        finally:
            server.should_exit = True
            thread.join(_STOP_S)
        assert not thread.is_alive()
