"""The plugin in a real API server: nobody sees Data Docs or reports without logging in, and nothing else is served."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from demo.kafka import free_port
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
    port = free_port()
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
        wait_until(lambda: answers(f"{url}/api/v2/version"), 300, "the API server to answer", service)
        yield Server(url, directory)


@pytest.mark.parametrize(
    "path",
    [
        "/docs",
        "/docs/",
        "/docs/index.html",
        "/reports",
        "/reports/verify/run.json",
        "/api/overview",
        "/api/progress",
        "/api/history?application=shop",
        "/ui/state-stores.js",
    ],
)
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


def test_data_docs_are_served_with_an_index_and_run_no_scripts(server):
    docs = server.directory / "data-docs"
    page, verdict = docs / "validations" / "shop" / "run.html", docs / "verdicts" / "shop.orders" / "run.json"
    page.parent.mkdir(parents=True)
    page.write_text("<html><head></head><h1>Found</h1></html>")
    verdict.parent.mkdir(parents=True)
    told = {"application": "shop", "store": "orders", "verdict": "passed", "data_docs": str(page)}
    verdict.write_text(json.dumps(told))
    try:
        assert server.get_logged_in("/statestore/docs").headers["location"].endswith("/statestore/docs/")
        for path in ("", "index.html"):
            index = server.get_logged_in(f"/statestore/docs/{path}")
            assert "<a href='validations/shop/run.html'>shop/orders</a>" in index.text
        found = server.get_logged_in("/statestore/docs/validations/shop/run.html")
        assert "<h1>Found</h1>" in found.text
        assert 'href="../../../ui/data-docs.css"' in found.text
        assert server.get_logged_in("/statestore/ui/data-docs.css").headers["content-type"].startswith("text/css")
        for answer in (index, found):
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "script-src" not in policy
    finally:
        for directory in (docs / "validations", docs / "verdicts"):
            shutil.rmtree(directory)


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
        "/ui/../app.py",
        "/ui/..%2fapp.py",
        "/openapi.json",
    ],
)
def test_nothing_else_is_served(server, path):
    answer = server.get_logged_in(f"/statestore{path}")
    assert answer.status_code == 404
    assert "not for the web" not in answer.text


def test_the_menu_has_the_page_and_the_data_docs_and_the_dashboard_its_card(server):
    (plugin,) = server.get_logged_in("/api/v2/plugins").json()["plugins"]
    assert [view["href"] for view in plugin["external_views"]] == ["/statestore/docs/"]
    page, card = plugin["react_apps"]
    assert (page["name"], page["destination"], card["destination"]) == ("Stores", "nav", "dashboard")
    for path in (page["bundle_url"], page["icon"], page["icon_dark_mode"], card["bundle_url"]):
        assert server.get_logged_in(f"/{path}").status_code == 200
    assert server.get_logged_in("/api/v2/plugins/importErrors").json()["import_errors"] == []


def test_airflow_s_command_lists_the_plugin(airflow_home):
    done = subprocess.run(
        ["airflow", "plugins", "--output", "json"], capture_output=True, text=True, timeout=120, check=True
    )
    (plugin,) = json.loads(done.stdout[done.stdout.index("[") :])
    assert plugin["name"] == "state_stores"


def test_the_overview_is_sent_again_only_when_a_report_has_changed(server):
    first = server.get_logged_in("/statestore/api/overview")
    assert [problem["path"] for problem in first.json()["problems"]] == ["verify/run.json"]
    logged_in = {"Authorization": f"Bearer {server.token}"}
    again = server.get("/statestore/api/overview", headers={**logged_in, "If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = server.get("/statestore/api/overview", headers={**logged_in, "If-None-Match": '"other"'})
    assert other.json() == first.json()


def test_progress_and_history_are_empty_before_there_is_any(server):
    assert server.get_logged_in("/statestore/api/progress").json() == {"restores": []}
    history = server.get_logged_in("/statestore/api/history?application=shop&store=orders").json()
    assert (history["points"], history["problems"]) == ([], [])
    assert server.get_logged_in("/statestore/api/history").status_code == 422


@pytest.fixture(scope="module")
def without_settings() -> dict:
    """What the plugin loads and answers in a process without settings of ours, as nobody has logged in there."""
    code = (
        "import json, sys; sys.path.insert(0, 'plugins')\n"
        "from statestore_ui.app import app\n"
        "loaded = sorted(sys.modules)\n"
        "from fastapi.testclient import TestClient\n"
        "app.dependency_overrides = {d.dependency: lambda: None for d in app.router.dependencies}\n"
        "answers = [TestClient(app).get(path) for path in ('/docs/', '/api/overview')]\n"
        "print(json.dumps({'loaded': loaded, 'answers': [(answer.status_code, answer.text) for answer in answers]}))"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("STATESTORE_")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=300, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_missing_settings_are_named(without_settings):
    for status, said in without_settings["answers"]:
        assert status == 503
        assert "The API server is not configured for state stores" in said
        assert "STATESTORE_DATA_DOCS_DIR: Field required" in said


def test_the_api_server_loads_neither_kafka_nor_rocksdb_nor_spark_nor_numba(without_settings):
    heavy = {"confluent_kafka", "kafka", "rocksdict", "pyspark", "numba", "great_expectations", "pandas"}
    assert heavy.isdisjoint(without_settings["loaded"])
    assert "statestore_ui.app" in without_settings["loaded"]


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
