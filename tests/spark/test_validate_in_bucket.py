"""Validation whose Data Docs, plots and verdicts lie in object storage, and results that it does not take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from posixpath import dirname, join, normpath
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.sql import SparkSession
from statestore_jobs import validate
from statestore_jobs.entry import run_job

from statestore.errors import ArchiveUnavailableError
from statestore.objects import path as object_paths
from statestore.objects.path import ObjectPath, listing
from statestore.reports import Action, Status, ValidatedStore, VerifyReport, VerifyRow, read_report
from statestore.requests.validate import ValidateRequest
from statestore.requests.verify import VerifyRequest
from statestore.verification.history import write_history
from tests.archive.counted import CountedStore
from tests.archive.faulty import status
from tests.archive.s3 import BUCKET, environment, running_s3
from tests.integration.broker import unique
from tests.integration.support import catalogue_of
from tests.spark.logged_store import LoggedStore


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
def place(store: CountedStore) -> ObjectPath:
    return ObjectPath(f"s3://{BUCKET}/{unique('place')}")


@pytest.fixture
def logged(spark: SparkSession, logged_store: Callable[..., LoggedStore], place: ObjectPath) -> LoggedStore:
    """A store with a row, whose reports and Data Docs lie in a bucket."""
    made = logged_store()
    made.log(0, [(b"a", b"1", 1_000), (b"b", b"2", 2_000)])
    made.catch_up(0)
    where = {"reports_dir": place / "reports", "data_docs_dir": place / "data docs"}
    return replace(made, settings=made.settings.model_copy(update=where))


def run(logged: LoggedStore, run_id: str):
    request = ValidateRequest(applications=(logged.application.name,))
    return validate.run(request, logged.settings, catalogue_of(logged.application, partitions=1), run_id)


class _Links(HTMLParser):
    """What a page of the Data Docs refers to below the Data Docs."""

    def __init__(self, page: str, text: str) -> None:
        super().__init__()
        self._page = page
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            parts = urlsplit(value or "")
            if name in ("href", "src") and not parts.scheme and not parts.netloc and parts.path:
                self.found.add(normpath(join(dirname(self._page), unquote(parts.path))))


@pytest.mark.long
def test_pages_plots_and_verdicts_are_there_with_all_that_they_link_to(logged, place: ObjectPath, store) -> None:
    docs = place / "data docs"
    row = VerifyRow(
        application=logged.application.name,
        store="counts",
        task="0_0",
        status=Status.OK,
        action=Action.NONE,
        lag=3,
    )
    head = {"applications": (logged.application.name,), "started_ms": 1, "finished_ms": 2}
    write_history(place / "reports", VerifyReport(**head, run_id="v", rows=(row,)))
    report = run(logged, "run-1")
    (validated,) = report.stores
    assert (validated.verdict, report.data_docs) == ("passed", None)
    assert {path.name for path in listing(docs, "plots/*/*.svg")} == {"partitions.svg", "timestamps.svg", "lag.svg"}
    assert set(validated.plots) == {str(path) for path in listing(docs, "plots/*/*.svg")}
    (verdict,) = listing(docs, "verdicts/*/run-1.json")
    assert ValidatedStore.model_validate_json(verdict.read_bytes()) == validated
    assert str(verdict) == validated.verdict_file

    page = ObjectPath(validated.data_docs or "")
    name = "/".join(page.parts[len(docs.parts) :])
    links = _Links(name, page.read_bytes().decode()).found
    missing = {link for link in links if not (docs / link).exists()}
    # The page in Airflow makes its own index; the icon is nowhere where Great Expectations looks for it, either.
    assert missing - {"validations/static/images/favicon.ico"} == {"index.html"}
    assert listing(docs, "static/images/*.png")
    assert not [path for path in listing(docs, "*") if path.name.startswith(".")]

    # Another run sends its own page and plots, and not again what all pages share.
    old = place / "data docs" / "plots" / f"{logged.application.name}.counts" / "old.svg"
    old.write_bytes(b"<svg/>")
    store.asked.clear()
    run(logged, "run-2")
    assert not old.exists()
    assert len(listing(docs, "verdicts/*/*.json")) == 2
    assert sum(count for asked, count in store.asked.items() if asked.startswith("PUT")) < 10


@pytest.mark.long
def test_without_object_storage_a_validation_is_to_be_tried_again(logged, store, monkeypatch) -> None:
    monkeypatch.setenv("STATESTORE_ARCHIVE_TIMEOUT_S", "2")
    store.fail("PUT", "", status(503))
    with pytest.raises(ArchiveUnavailableError, match="could not be reached"):
        run(logged, "run-1")


@pytest.mark.short_for("503")
@pytest.mark.parametrize(("code", "ends", "kind"), [(503, 3, "ArchiveUnavailable"), (403, 2, "ArchiveAccess")])
def test_a_report_that_object_storage_does_not_take_lies_on_the_disk_of_the_driver(
    code: int, ends: int, kind: str, logged, place: ObjectPath, store, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("STATESTORE_ARCHIVE_TIMEOUT_S", "2")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    settings = {
        "BOOTSTRAP_SERVERS": logged.settings.bootstrap_servers,
        "SERVICE_ID": unique("service"),
        "STATE_DIR": logged.settings.state_dir,
        "REPORTS_DIR": place / "reports",
        "DATA_DOCS_DIR": place / "data docs",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"STATESTORE_{name}", str(value))
    report = place / "reports" / "verify" / "run-1.json"
    monkeypatch.setattr(sys, "argv", ["verify", "--report", str(report)])
    made = VerifyReport(run_id="run-1", applications=("shop",), started_ms=1, finished_ms=2, rows=())
    store.fail("PUT", "", status(code))
    with pytest.raises(SystemExit) as ended:
        run_job("verify", VerifyRequest, lambda *_: made)
    assert ended.value.code == ends
    (kept,) = (tmp_path / "tmp" / "statestore-reports").glob("run-1-*.json")
    assert read_report(kept, VerifyReport).run_id == "run-1"
    said = capsys.readouterr().err
    assert f"{kind}Error: object storage s3://{BUCKET}" in said
    assert f"its report lies at {kept}" in said
    store.heal()
    assert not report.exists()
    run_job("verify", VerifyRequest, lambda *_: made)
    assert read_report(report, VerifyReport).catalogue is not None
