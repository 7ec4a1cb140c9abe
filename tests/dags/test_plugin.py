"""The plugin in a real API server: nobody sees Data Docs or reports without logging in, and nothing else is served."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import requests

from statestore.reports import write_report
from tests.dags.api_server import ApiServer
from tests.ui.made_reports import surveyed


class Server:
    """The API server, with and without a login, and the directory that it is configured for."""

    def __init__(self, api: ApiServer, directory: Path) -> None:
        self.url, self.token, self.directory = api.url, api.token, directory

    def get(self, path, **credentials):
        # Prepared by hand: requests would resolve the dots of a path itself.
        request = requests.Request("GET", self.url, **credentials).prepare()
        request.url = self.url + path
        return requests.Session().send(request, timeout=120, allow_redirects=False)

    def get_logged_in(self, path):
        return self.get(path, headers={"Authorization": f"Bearer {self.token}"})


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("plugin")
    (directory / "reports" / "verify").mkdir(parents=True)
    (directory / "reports" / "verify" / "run.json").write_text('{"job": "verify"}')
    (directory / "secret.json").write_text("not for the web")
    (directory / "reports" / "metastore").mkdir()
    (directory / "reports" / "metastore" / "default.backup").write_text("not for the web")
    (directory / "data-docs").mkdir()
    (directory / "data-docs" / "link.html").symlink_to(directory / "secret.json")
    return directory


@pytest.fixture
def server(airflow_api, directory, monkeypatch):
    # The server's pages ask the environment at each request, and it runs in this process.
    monkeypatch.setenv("STATESTORE_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    for name in ("STATE_DIR", "REPORTS_DIR", "DATA_DOCS_DIR"):
        monkeypatch.setenv(f"STATESTORE_{name}", str(directory / name.removesuffix("_DIR").lower().replace("_", "-")))
    return Server(airflow_api, directory)


@pytest.mark.parametrize(
    "path",
    [
        "/docs",
        "/docs/",
        "/docs/index.html",
        "/reports",
        "/reports/verify/run.json",
        "/surveys/run.json",
        "/api/overview",
        "/api/partitions",
        "/api/progress",
        "/audit",
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


def test_a_survey_is_served_as_a_page_that_runs_no_script(server, directory):
    path = directory / "reports" / "survey" / "run.json"
    write_report(path, surveyed("shop"))
    try:
        answer = server.get_logged_in("/statestore/surveys/run.json")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/html")
        assert "script-src" not in answer.headers["content-security-policy"]
        assert "&lt;b&gt;cluster" in answer.text
        assert "echo add" in answer.text
    finally:
        shutil.rmtree(path.parent)
    assert server.get_logged_in("/statestore/surveys/run.json").status_code == 404


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
        "/surveys/..%2f..%2fsecret.json",
        "/surveys/run.html",
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
    assert [view["href"] for view in plugin["external_views"]] == ["/statestore/docs/", "/statestore/audit"]
    page, card = plugin["react_apps"]
    assert (page["name"], page["destination"], card["destination"]) == ("Stores", "nav", "dashboard")
    for path in (page["bundle_url"], page["icon"], page["icon_dark_mode"], card["bundle_url"]):
        assert server.get_logged_in(f"/{path}").status_code == 200
    assert server.get_logged_in("/api/v2/plugins/importErrors").json()["import_errors"] == []


def test_airflow_s_command_lists_the_plugin(airflow_home, capsys):
    from airflow.cli.cli_parser import get_parser

    # As `airflow` does it, which would load all of Airflow once more.
    chosen = get_parser().parse_args(["plugins", "--output", "json"])
    chosen.func(chosen)
    said = capsys.readouterr().out
    (plugin,) = json.loads(said[said.index("[") :])
    assert plugin["name"] == "state_stores"


def test_the_overview_is_sent_again_only_when_a_report_has_changed(server):
    first = server.get_logged_in("/statestore/api/overview")
    assert [problem["path"] for problem in first.json()["problems"]] == ["verify/run.json"]
    logged_in = {"Authorization": f"Bearer {server.token}"}
    again = server.get("/statestore/api/overview", headers={**logged_in, "If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = server.get("/statestore/api/overview", headers={**logged_in, "If-None-Match": '"other"'})
    assert other.json() == first.json()
    rows = server.get_logged_in("/statestore/api/partitions?by=lag&limit=5").json()
    assert (rows["rows"], rows["total"], rows["tag"]) == ([], 0, first.headers["etag"].strip('"'))
    assert server.get_logged_in("/statestore/api/partitions?by=nothing").status_code == 422


def test_progress_and_history_are_empty_before_there_is_any(server):
    assert server.get_logged_in("/statestore/api/progress").json() == {"work": []}
    history = server.get_logged_in("/statestore/api/history?application=shop&store=orders").json()
    assert (history["points"], history["problems"]) == ([], [])
    assert server.get_logged_in("/statestore/api/history").status_code == 422
