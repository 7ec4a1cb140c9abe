"""Findings of the page that need a person: their order, reason, age, and a next step that helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from statestore_dags.suggestions import remember
from statestore_ui.application_summaries import MOST_FINDINGS
from statestore_ui.overview import Overviews
from statestore_ui.partition_pages import Question

from statestore.metastore.definition_files import parse_definitions
from statestore.reports import (
    Action,
    Failure,
    ProcessReport,
    ProcessRow,
    RestoreReport,
    RestoreRow,
    Status,
    VerifyReport,
    write_report,
)
from tests.ui.made_reports import T0, Reports, names, restored, validated, verify_row

FULL_DISK = Failure(kind="DiskSpaceError", message="12 GB are needed, 3 are free")
DEFINITIONS = """\
name: bakery
input_topic: orders
processor: demo.flight_delays:FlightDelays
stores:
  - name: breads
"""


class Shown:
    """The page's answers about a directory of reports."""

    def __init__(self, reports: Reports, docs: Path) -> None:
        self._reports, self._docs, self._overviews = reports, docs, Overviews()

    def _get(self) -> Any:
        return self._overviews.get(self._reports.directory, self._docs)

    @property
    def summary(self) -> Any:
        return json.loads(self._get().summary)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return list(json.loads(self._get().pages.get(Question(by="name")))["rows"])

    def restorable(self, *asked: Any, force: bool = False) -> Any:
        return json.loads(self._get().pages.restorable(*asked, force=force))


@pytest.fixture
def shown(reports: Reports, tmp_path: Path) -> Shown:
    return Shown(reports, tmp_path / "docs")


def test_a_failed_task_comes_first_with_its_reason_and_since_when(reports: Reports, shown: Shown) -> None:
    reports.verify([verify_row(0), verify_row(1), *(verify_row(each, Status.CORRUPT) for each in range(2, 6))], 1)
    reports.process([0], ["orders"], 2)
    for minute in (3, 4, 5):
        reports.process([0], ["orders"], minute, failure=FULL_DISK)
    first, second = shown.summary["findings"]
    assert (first["word"], first["level"], first["names"]) == ("TASK FAILED", "bad", ["orders/0_0"])
    assert first["detail"] == "DiskSpaceError: 12 GB are needed, 3 are free"
    assert first["since_ms"] == T0 + 3 * 60_000, "it had succeeded at minute 2"
    assert (second["word"], second["partitions"], second["button"]) == ("CORRUPT", 4, "restore")
    (card,) = shown.summary["applications"]
    assert (card["input_left"], card["since_ms"]) == (7, T0 + 60_000)


def test_a_task_that_never_opened_its_stores_is_shown(reports: Reports, shown: Shown) -> None:
    reports.process([3], [], 1, failure=FULL_DISK)
    (row,) = shown.rows
    assert (row["store"], row["task"], row["word"], row["level"]) == ("-", "0_3", "TASK FAILED", "bad")
    (card,) = shown.summary["applications"]
    assert (card["partitions"], card["lag"], card["starts"]) == (0, None, ["process"])


def test_an_application_of_the_catalogue_that_never_ran_is_shown(reports: Reports, shown: Shown) -> None:
    reports.verify([verify_row()], 1)
    remember(reports.directory, parse_definitions(DEFINITIONS + "---\n" + DEFINITIONS.replace("bakery", "shop"), "x"))
    bakery = next(row for row in shown.rows if row["application"] == "bakery")
    assert (bakery["word"], bakery["level"], bakery["button"]) == ("NEVER RUN", "notice", "process")
    assert shown.summary["findings"] == []


@pytest.mark.parametrize(
    ("differs", "said", "button"),
    [
        (False, "A rule of your own failed, and the store equals its changelog", None),
        (True, "Rows of the store differ from its changelog", "restore"),
        (None, "Read which expectation failed", None),
    ],
)
def test_a_failed_rule_has_other_advice_than_a_difference(
    reports: Reports, shown: Shown, differs: bool | None, said: str, button: str | None
) -> None:
    reports.verify([verify_row()], 1)
    reports.validate([validated(verdict="failed", failed_expectations=("a rule",), differs=differs)], 2)
    (found,) = shown.summary["findings"]
    assert (found["word"], found.get("button")) == ("VALIDATION FAILED", button)
    assert found["action"].startswith(said)


def test_a_restore_is_offered_only_where_it_helps(reports: Reports, shown: Shown) -> None:
    more = {"application": "damaged"}
    reports.verify([verify_row(), verify_row(0, **more), verify_row(1, Status.MISSING, **more)], 1)
    cards = {card["application"]: card["starts"] for card in shown.summary["applications"]}
    assert cards == {"damaged": ["restore", "verify", "process"], "shop": ["verify", "process"]}


def test_the_number_of_stores_that_a_restore_restores_is_known_before(reports: Reports, shown: Shown) -> None:
    rows = [verify_row(0), verify_row(1, Status.CORRUPT), verify_row(2, Status.LAGGING), verify_row(3, Status.LOCKED)]
    reports.verify([*rows, verify_row(1, Status.MISSING, store="totals")], 1)
    assert shown.restorable("shop", (), ()) == {"of": 5, "restored": 3}
    assert shown.restorable("shop", ("orders",), ()) == {"of": 4, "restored": 2}
    assert shown.restorable("shop", ("orders",), (0, 1)) == {"of": 2, "restored": 1}
    assert shown.restorable("shop", (), (), force=True) == {"of": 5, "restored": 5}
    assert shown.restorable("bakery", (), ()) == {"of": 0, "restored": 0}
    reports.restore([restored(1)], 2)
    assert shown.restorable("shop", ("orders",), (1,)) == {"of": 1, "restored": 0}


def head(minute: int, state_dir: str, dag_id: str | None) -> dict[str, Any]:
    times = {"started_ms": T0, "finished_ms": T0 + minute * 60_000}
    return {"run_id": f"run-{minute}", "applications": ("shop",), **times, "state_dir": state_dir, "dag_id": dag_id}


def test_a_restore_of_another_state_directory_changes_nothing(reports: Reports, shown: Shown) -> None:
    live = VerifyReport(**head(1, "/var/lib/live", "verify"), rows=(verify_row(),))
    write_report(reports.directory / "verify" / "live.json", live)
    failed = RestoreRow(**names(0), outcome="failed", mode="full", failure=FULL_DISK)
    write_report(reports.directory / "restore" / "a.json", RestoreReport(**head(2, "/tmp/copy", None), rows=(failed,)))
    missing = verify_row(0, Status.MISSING, action=Action.FULL)
    write_report(reports.directory / "verify" / "b.json", VerifyReport(**head(3, "/tmp/copy", None), rows=(missing,)))
    done = ProcessRow(application="shop", task="0_0", failure=FULL_DISK)
    write_report(reports.directory / "process" / "c.json", ProcessReport(**head(4, "/tmp/copy", None), rows=(done,)))
    assert [row["word"] for row in shown.rows] == ["OK"]
    here = RestoreReport(**head(5, "/var/lib/live", None), rows=(failed,))
    write_report(reports.directory / "restore" / "d.json", here)
    assert [row["word"] for row in shown.rows] == ["RESTORE FAILED"]


def test_of_many_findings_the_most_urgent_are_sent_and_the_others_counted(reports: Reports, shown: Shown) -> None:
    bad = [verify_row(0, Status.CORRUPT, application=f"shop-{number:02}") for number in range(MOST_FINDINGS)]
    warned = [verify_row(0, Status.LAGGING, application=f"a-{number}", lag=3) for number in range(3)]
    reports.verify([*warned, *bad], 1)
    summary = shown.summary
    assert {found["level"] for found in summary["findings"]} == {"bad"}
    assert (len(summary["findings"]), summary["more_findings"]) == (MOST_FINDINGS, 3)
    assert [card["application"] for card in summary["applications"]][-3:] == ["a-0", "a-1", "a-2"]
