"""The last survey of each environment on the page: its figures, its age, and its own page."""

from __future__ import annotations

import json
from typing import Any

from statestore_ui.overview import Overviews

from tests.ui.made_reports import T0, Reports


def shown(reports: Reports) -> list[dict[str, Any]]:
    summary = json.loads(Overviews().get(reports.directory, reports.directory / "docs").summary)
    assert summary["problems"] == []
    found: list[dict[str, Any]] = summary["surveys"]
    return found


def test_the_last_survey_of_each_environment_is_shown(reports: Reports) -> None:
    assert shown(reports) == []
    reports.survey("shop", "shop", "", unread=1)
    reports.survey("shop", minute=2, before="payments.", left_out={"snapshots": "no archive"})
    reports.survey(minute=1)
    of_payments, ours = shown(reports)
    assert (of_payments["environment"], of_payments["risks"], of_payments["unread"]) == ("payments", 1, 0)
    assert of_payments["not_looked_at"] == ["snapshots"]
    assert (ours["environment"], ours["risks"], ours["applications"]) == ("", 0, 1)
    assert ours["started_ms"] == T0 + 60_000 - 5_000
    assert ours["run"]["report"] == "statestore/reports/survey/survey-00001.json"


def test_facts_that_were_not_read_are_counted(reports: Reports) -> None:
    reports.survey(unread=2)
    (found,) = shown(reports)
    assert (found["risks"], found["unread"], found["cluster"]) == (0, 2, "<b>cluster")


def test_a_broken_survey_is_named_and_an_older_one_is_shown(reports: Reports) -> None:
    reports.survey("shop")
    broken = reports.survey(minute=1)
    broken.write_text(broken.read_text().replace('"risks": []', '"risks": 3'))
    summary = json.loads(Overviews().get(reports.directory, reports.directory / "docs").summary)
    assert [found["risks"] for found in summary["surveys"]] == [1]
    (problem,) = summary["problems"]
    assert problem["path"] == f"survey/{broken.name}"
