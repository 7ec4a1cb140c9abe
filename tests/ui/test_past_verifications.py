"""The history of a store, from the Parquet files that verifications leave."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from statestore_ui import history as history_module
from statestore_ui.history import Histories

from statestore.reports import Status
from statestore.verification.history import history_dir
from tests.ui.made_reports import T0, verify_row


@pytest.fixture
def show(reports):
    histories = Histories()
    return lambda store=None: histories.get(reports.directory, "shop", store)


def test_each_run_is_a_point_with_lag_and_findings(reports, show):
    reports.verify([verify_row(0, lag=2), verify_row(1, Status.LAGGING, lag=40)], 2, history=True)
    reports.verify([verify_row(0), verify_row(1, lag=None)], 1, history=True)
    first, second = show("orders")["points"]
    assert (first["started_ms"], first["lag"], first["findings"]) == (T0 + 55_000, 0, {})
    assert (second["lag"], second["partitions"], second["findings"]) == (42, 2, {"LAGGING": 1})


def test_only_the_store_that_was_asked_for_counts_or_all_of_the_application(reports, show):
    others = [verify_row(store="totals", status=Status.MISSING), verify_row(application="other", status=Status.AHEAD)]
    reports.verify([verify_row(), *others], 1, history=True)
    assert show("orders")["points"][0]["findings"] == {}
    assert show()["points"][0]["findings"] == {"MISSING": 1}
    assert show("unknown")["points"] == []


def test_before_the_first_verification_it_is_empty(show):
    assert show() == {"application": "shop", "store": None, "points": [], "problems": []}


def test_what_is_no_file_of_the_history_is_named_and_passed_over(reports, show):
    reports.verify([verify_row()], 1, history=True)
    directory = history_dir(reports.directory)
    (directory / "torn.parquet").write_bytes(b"PAR1 and nothing else")
    pq.write_table(pa.table({"lag": [1]}), directory / "foreign.parquet")
    found = show()
    assert len(found["points"]) == 1
    assert {problem["path"] for problem in found["problems"]} == {
        "history/verify/torn.parquet",
        "history/verify/foreign.parquet",
    }


def test_each_file_is_read_once(reports, show, monkeypatch):
    reports.verify([verify_row()], 1, history=True)
    show()
    read = []
    original = history_module._read
    monkeypatch.setattr(history_module, "_read", lambda path: read.append(path.name) or original(path))
    show("orders")
    reports.verify([verify_row()], 2, history=True)
    assert len(show()["points"]) == 2
    assert read == ["run-verify-00002.parquet"]
