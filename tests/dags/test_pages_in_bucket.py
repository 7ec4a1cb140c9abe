"""The plugin in a real API server, where reports and Data Docs lie in object storage: only they are served."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from statestore_dags import archive_connection

from statestore.objects import path as object_paths
from statestore.objects.path import ObjectPath, write_whole
from tests.archive.counted import CountedStore
from tests.archive.faulty import status
from tests.archive.s3 import BUCKET, environment, running_s3
from tests.dags.test_archive_connection import save_connection
from tests.dags.test_plugin import Server
from tests.integration.broker import unique

PAGE = b"<html><head></head><h1>Found</h1><img src='../../static/logo.png'></html>"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with running_s3() as url:
        yield url


@pytest.fixture
def store(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedStore]:
    made = CountedStore(endpoint)
    with made.running() as address:
        for name, value in environment(address).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(object_paths, "_no_answer", {})
        yield made


@pytest.fixture
def place(store: CountedStore, monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    place = ObjectPath(f"s3://{BUCKET}/{unique('pages')}")
    for name, value in {
        "BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "STATE_DIR": "/nowhere",
        "REPORTS_DIR": place / "reports",
        "DATA_DOCS_DIR": place / "data docs",
    }.items():
        monkeypatch.setenv(f"STATESTORE_{name}", str(value))
    for name, content in {
        "reports/verify/run.json": b'{"job": "verify"}',
        "reports/metastore/default.backup": b"not for the web",
        "secret.json": b"not for the web",
        "data docs/validations/shop/run 1.html": PAGE,
        "data docs/static/logo.png": b"png",
        "data docs/plots/shop.orders/lag.svg": b"<svg/>",
    }.items():
        write_whole(place / name, content)
    return place


@pytest.fixture
def server(airflow_api, place, tmp_path) -> Server:
    return Server(airflow_api, tmp_path)


def test_reports_and_data_docs_are_served_to_who_has_logged_in(server: Server, store: CountedStore) -> None:
    assert server.get("/statestore/reports/verify/run.json").status_code == 401
    assert server.get_logged_in("/statestore/reports").json() == {"verify": ["run.json"]}
    report = server.get_logged_in("/statestore/reports/verify/run.json")
    assert (report.json(), report.headers["content-type"]) == ({"job": "verify"}, "application/json")
    again = {"Authorization": f"Bearer {server.token}", "If-None-Match": report.headers["etag"]}
    store.asked.clear()
    assert server.get("/statestore/reports/verify/run.json", headers=again).status_code == 304
    assert store.asked == {"HEAD run.json": 1}
    page = server.get_logged_in("/statestore/docs/validations/shop/run%201.html")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert '<link rel="stylesheet" href="../../../ui/data-docs.css">' in page.text
    assert "script-src" not in page.headers["content-security-policy"]
    for name, kind in (("static/logo.png", "image/png"), ("plots/shop.orders/lag.svg", "image/svg+xml")):
        found = server.get_logged_in(f"/statestore/docs/{name}")
        assert (found.status_code, found.headers["content-type"]) == (200, kind)
        assert found.headers["x-content-type-options"] == "nosniff"


@pytest.mark.short_for(every=4)
@pytest.mark.parametrize(
    "path",
    [
        "/docs/../secret.json",
        "/docs/..%2Fsecret.json",
        "/docs/%2e%2e/secret.json",
        "/docs/..%2F..%2F..%2Fetc/passwd",
        "/docs/validations",
        "/docs/validations/",
        "/docs/none.html",
        "/docs/a%00b",
        "/docs/s3://archive/secret.json",
        "/reports/..%2Fsecret.json",
        "/reports/../secret.json",
        "/reports/verify/..%2F..%2Fsecret.json",
        "/reports/metastore/default.backup",
        "/reports/verify/none.json",
    ],
)
def test_nothing_else_is_served(server: Server, path: str) -> None:
    answer = server.get_logged_in(f"/statestore{path}")
    assert answer.status_code == 404
    assert "not for the web" not in answer.text


@pytest.mark.parametrize(
    ("gone", "expected"),
    [("s3://nobody/x", "the bucket or container does not exist"), (None, "access was denied")],
)
def test_a_bucket_that_is_gone_or_denied_is_said_by_each_page(
    server: Server, store: CountedStore, monkeypatch: pytest.MonkeyPatch, gone: str | None, expected: str
) -> None:
    if gone is None:
        for method in ("GET", "HEAD"):
            store.fail(method, "", status(403))
    else:
        for name in ("REPORTS", "DATA_DOCS"):
            monkeypatch.setenv(f"STATESTORE_{name}_DIR", gone)
    for path in ("docs/", "docs/validations/shop/run%201.html", "reports", "reports/verify/run.json"):
        answer = server.get_logged_in(f"/statestore/{path}")
        assert (answer.status_code, expected in answer.text) == (503, True), path
        assert "secret" not in answer.text
    assert server.get_logged_in("/statestore/ui/state-stores.js").status_code == 200


def test_no_answer_is_said_too(server: Server, store: CountedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATESTORE_ARCHIVE_TIMEOUT_S", "0.3")
    for method in ("GET", "HEAD"):
        store.fail(method, "", lambda handler, _: handler.store.wait_for_the_end())
    for path in ("docs/", "docs/validations/shop/run%201.html", "reports", "reports/verify/run.json"):
        answer = server.get_logged_in(f"/statestore/{path}")
        assert (answer.status_code, "could not be reached" in answer.text) == (503, True), path
    assert server.get_logged_in("/statestore/api/progress").json() == {"work": []}


def test_the_connection_lets_the_page_in_and_a_changed_one_at_the_next_look(
    server: Server, store: CountedStore, place: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statestore_ui import app

    address = os.environ["AWS_ENDPOINT_URL"]
    for name in environment(address):
        monkeypatch.delenv(name)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(app, "access", archive_connection.LastingAccess())
    monkeypatch.setattr(archive_connection, "_LOOKS_EVERY_S", -1.0)
    monkeypatch.setenv("STATESTORE_ARCHIVE_CONNECTION", "archive_of_stores")
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")  # as `airflow api-server` has it
    for secret in ("first", "second"):
        save_connection(address, secret)
        assert server.get_logged_in("/statestore/reports").json() == {"verify": ["run.json"]}
        (file,) = tmp_path.glob("statestore-archive-*")
        assert os.environ["STATESTORE_ARCHIVE_CONFIG"] == str(file)
        assert json.loads(file.read_text())["AWS_SECRET_ACCESS_KEY"] == secret
        assert file.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("STATESTORE_ARCHIVE_CONNECTION", "gone")
    answer = server.get_logged_in("/statestore/api/overview")
    assert (answer.status_code, "Airflow has no connection 'gone'" in answer.text) == (503, True)
    app.access.close()
    assert list(tmp_path.iterdir()) == []
    assert "STATESTORE_ARCHIVE_CONFIG" not in os.environ
