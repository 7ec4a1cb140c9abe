"""Restore drills on the page: a column, a card, and past restores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from statestore_ui.drill_history import drill_points
from statestore_ui.overview import Overviews
from statestore_ui.partition_pages import Question

from statestore import clock
from tests.ui.made_reports import T0, Reports, drill_row, verify_row

STANDINGS = ("proven", "never proven", "proven too long ago", "too slow", "too old", "unproven", "failed")


@pytest.fixture
def reports(tmp_path: Path) -> Reports:
    found = Reports(tmp_path / "reports")
    found.verify([verify_row(partition) for partition in range(len(STANDINGS))])
    found.drill([drill_row(partition, standing) for partition, standing in enumerate(STANDINGS)], minute=1)
    return found


def shown(reports: Reports, question: Question) -> list[dict[str, Any]]:
    pages = Overviews().get(reports.directory, reports.directory / "docs").pages
    rows: list[dict[str, Any]] = json.loads(pages.get(question))["rows"]
    return rows


@pytest.mark.behaviour("D4")
def test_each_broken_objective_looks_different(reports: Reports) -> None:
    rows = shown(reports, Question(by="name"))
    assert tuple(row["drill"]["standing"] for row in rows) == STANDINGS
    assert {row["word"] for row in rows} == {"OK"}, "a drill says nothing about the live store"
    assert [row["drill"].get("detail") for row in rows] == [f"why {standing}" for standing in STANDINGS]


@pytest.mark.behaviour("D4")
def test_a_proof_that_became_too_old_is_not_shown_as_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports, until_ms = Reports(tmp_path / "reports"), T0 + 3_600_000
    reports.verify([verify_row(0)])
    reports.drill([drill_row(0, "proven", valid_until_ms=until_ms)], minute=1)
    overviews = Overviews()
    for now_ms, standing in ((until_ms, "proven"), (until_ms + 1, "proven too long ago")):
        monkeypatch.setattr(clock, "now_ms", lambda now_ms=now_ms: now_ms)
        overview = overviews.get(reports.directory, reports.directory / "docs")
        (application,) = json.loads(overview.summary)["applications"]
        assert application["drills"]["standings"] == {standing: 1}


def test_partitions_are_sorted_by_their_last_proof(reports: Reports) -> None:
    rows = shown(reports, Question(by="proven"))
    assert [row["drill"].get("proven_ms", 0) for row in rows] == [0, 0, 0, T0, T0 + 2, T0 + 3, T0 + 4]


def test_a_card_counts_what_is_proven(reports: Reports) -> None:
    overview = Overviews().get(reports.directory, reports.directory / "docs")
    (application,) = json.loads(overview.summary)["applications"]
    assert application["drills"]["standings"] == dict.fromkeys(STANDINGS, 1)
    assert application["drills"]["slowest_seconds"] == 6.0


def test_past_drills_are_points_of_a_plot(reports: Reports) -> None:
    reports.drill([drill_row(0, "failed", seconds=9.0)], minute=2)
    found = drill_points(reports.directory, "shop", "orders")
    assert [(point["seconds"], point["verdicts"]) for point in found["points"]][1:] == [(9.0, {"failed": 1})]
    assert found["points"][0]["verdicts"]["proven"] == 2
    assert drill_points(reports.directory, "bakery", None)["points"] == []
    damaged = reports.directory / "history" / "drill" / "run-drill-00002.parquet"
    damaged.write_bytes(b"no parquet")
    (problem,) = drill_points(reports.directory, "shop", None)["problems"]
    assert "run-drill-00002.parquet" in problem["message"]
