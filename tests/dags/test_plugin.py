"""The plugin in a real API server: nobody sees Data Docs or reports without logging in, and nothing else is served."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from demo.processes import Processes, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]


def answers(url):
    try:
        return requests.get(url, timeout=5).ok
    except requests.RequestException:
        return False


class Server:
    """An API server, with and without a login."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, directory
        login = {"username": "admin", "password": "secret"}
        self.token = requests.post(f"{url}/auth/token", json=login, timeout=30).json()["access_token"]

    def get(self, path, **credentials):
        # Prepared by hand: requests would resolve the dots of a path itself.
        request = requests.Request("GET", self.url, **credentials).prepare()
        request.url = self.url + path
        return requests.Session().send(request, timeout=30, allow_redirects=False)

    def get_logged_in(self, path):
        return self.get(path, headers={"Authorization": f"Bearer {self.token}"})


@pytest.fixture(scope="module")
def server(airflow_home, tmp_path_factory):
    directory = tmp_path_factory.mktemp("plugin")
    (directory / "passwords.json").write_text(json.dumps({"admin": "secret"}))
    (directory / "reports" / "verify").mkdir(parents=True)
    (directory / "reports" / "verify" / "run.json").write_text('{"job": "verify"}')
    (directory / "secret.json").write_text("not for the web")
    (directory / "reports" / "metastore").mkdir()
    (directory / "reports" / "metastore" / "default.backup").write_text("not for the web")
    (directory / "data-docs").mkdir()
    (directory / "data-docs" / "link.html").symlink_to(directory / "secret.json")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        **os.environ,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(directory / "passwords.json"),
        "STATESTORE_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "STATESTORE_STATE_DIR": str(directory / "state"),
        "STATESTORE_REPORTS_DIR": str(directory / "reports"),
        "STATESTORE_DATA_DOCS_DIR": str(directory / "data-docs"),
    }
    url = f"http://127.0.0.1:{port}"
    with Processes(directory) as processes:
        service = processes.start("api-server", ["airflow", "api-server"], env, directory / "api-server.log")
        wait_until(lambda: answers(f"{url}/api/v2/version"), 120, "the API server to answer", service)
        yield Server(url, directory)


@pytest.mark.parametrize("path", ["/docs", "/docs/", "/docs/index.html", "/reports", "/reports/verify/run.json"])
def test_nobody_gets_in_without_a_login(server, path):
    assert server.get(f"/statestore{path}").status_code == 401
    wrong = server.get(f"/statestore{path}", headers={"Authorization": "Bearer x.y.z"})
    assert wrong.status_code == 403


def test_a_browser_is_let_in_by_its_cookie(server):
    assert server.get("/statestore/docs/", cookies={"_token": server.token}).status_code == 200


def test_before_the_first_validation_a_page_says_what_to_run(server):
    page = server.get_logged_in("/statestore/docs/")
    assert page.status_code == 200
    assert "No Data Docs yet" in page.text
    assert "Start the DAG validate" in page.text


def test_data_docs_are_served_and_may_not_call_the_api(server):
    docs = server.directory / "data-docs"
    (docs / "static").mkdir()
    (docs / "static" / "style.css").write_text("body {}")
    (docs / "index.html").write_text("<h1>Data Docs</h1>")
    try:
        assert server.get_logged_in("/statestore/docs").headers["location"].endswith("/statestore/docs/")
        page = server.get_logged_in("/statestore/docs/")
        assert page.text == "<h1>Data Docs</h1>"
        assert "connect-src 'none'" in page.headers["content-security-policy"]
        assert server.get_logged_in("/statestore/docs/static/style.css").headers["content-type"].startswith("text/css")
    finally:
        (docs / "index.html").unlink()


def test_reports_are_listed_and_served(server):
    assert server.get_logged_in("/statestore/reports").json() == {"verify": ["run.json"]}
    assert server.get_logged_in("/statestore/reports/verify/run.json").json() == {"job": "verify"}


@pytest.mark.parametrize(
    "path",
    [
        "/docs/../secret.json",
        "/docs/..%2fsecret.json",
        "/docs/%2e%2e/secret.json",
        "/docs/link.html",
        "/docs//etc/passwd",
        "/docs/%00",
        "/reports/../secret.json",
        "/reports/..%2f/secret.json",
        "/reports/verify/..%2f..%2fsecret.json",
        "/reports/metastore/default.backup",
        "/openapi.json",
    ],
)
def test_nothing_else_is_served(server, path):
    answer = server.get_logged_in(f"/statestore{path}")
    assert answer.status_code == 404
    assert "not for the web" not in answer.text


def test_the_menu_has_the_data_docs(server):
    (plugin,) = server.get_logged_in("/api/v2/plugins").json()["plugins"]
    assert [view["href"] for view in plugin["external_views"]] == ["/statestore/docs/"]


def test_missing_settings_are_named(server):
    # In a process of its own: the running server has its settings.
    code = (
        "import sys; sys.path.insert(0, 'plugins')\n"
        "from fastapi.testclient import TestClient\n"
        "from statestore_ui.app import app\n"
        "app.dependency_overrides = {d.dependency: lambda: None for d in app.router.dependencies}\n"
        "answer = TestClient(app).get('/docs/')\n"
        "print(answer.status_code, answer.text)"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("STATESTORE_")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=120, check=True
    )
    answer = done.stdout.splitlines()[-1]
    assert answer.startswith("503")
    assert "STATESTORE_DATA_DOCS_DIR: Field required" in answer


def test_other_airflow_processes_load_the_plugin_without_its_pages():
    # Each task's process imports every plugin: two seconds of imports there would double many a task's time.
    code = (
        "import sys; sys.path.insert(0, 'plugins'); import state_stores\n"
        "print('fastapi' in sys.modules, 'airflow.api_fastapi.core_api.security' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.splitlines()[-1] == "False False"
