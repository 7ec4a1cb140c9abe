"""Which store partitions are drilled, what their results mean, and how long the loss of a machine would take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.objectives import DrillBudget, RestoreObjectives
from statestore.drills.choosing import choose_drills
from statestore.drills.history import Drills, read_drill_history, write_drill_history
from statestore.drills.standing import EXIT_CODES, Past, confidence_of, exit_code, row_standing, standing_of
from statestore.reports import DrillReport, DrillRow, EvidenceHead, Failure

MINUTE_MS, DAY_MS = 60_000, 86_400_000
NOW_MS = 1_000 * DAY_MS
OBJECTIVES = RestoreObjectives(
    restorable_within=15 * MINUTE_MS, not_older_than=60 * MINUTE_MS, proven_every=7 * DAY_MS, nodes=3
)


def row(task: int = 0, verdict: Any = "proven", **changes: Any) -> DrillRow:
    content = {"standing": "never proven", "drilled": True, "verdict": verdict, "drilled_ms": NOW_MS, "seconds": 10.0}
    names = {"application": "shop", "store": "totals", "task": f"0_{task}"}
    return DrillRow.model_validate({**names, **content, **changes})


def past(**changes: Any) -> Past:
    return Past().after(row(**changes))


def report(rows: list[DrillRow], problem: str = "") -> DrillReport:
    head = EvidenceHead(application="shop", length=1, sha256="0" * 64, recorded=True, problem=problem)
    shown = [row_standing(each, Past(), OBJECTIVES, NOW_MS) for each in rows]
    names: dict[str, Any] = {"run_id": "run", "applications": ("shop",), "started_ms": 0, "finished_ms": 1}
    return DrillReport(**names, rows=tuple(shown), evidence=(head,))


@pytest.mark.behaviour("D8")
@pytest.mark.parametrize(
    ("suite", "standing"),
    [("passed", "proven"), (None, "unproven"), ("not run", "unproven"), ("error", "unproven")],
)
def test_an_objective_of_suites_holds_only_if_the_last_drill_passed_them(suite: Any, standing: str) -> None:
    objectives = OBJECTIVES.model_copy(update={"suites": True})
    found = past(suite=suite)
    assert standing_of(found, OBJECTIVES, NOW_MS)[0] == "proven"
    assert standing_of(found, objectives, NOW_MS)[0] == standing
    assert bool(choose_drills([found], objectives, NOW_MS, lambda at: 1).drilled) is (standing != "proven")


def test_the_history_keeps_the_result_of_a_suite(tmp_path: Path) -> None:
    found = row(suite="passed", suite_sha256="ab" * 32, suite_expectations=5)
    write_drill_history(tmp_path, report([found]))
    last = Drills(read_drill_history(tmp_path), NOW_MS).past(found.label).last
    assert last is not None
    assert (last.suite, last.suite_sha256, last.suite_expectations) == ("passed", "ab" * 32, 5)


@pytest.mark.parametrize(
    ("found", "standing"),
    [
        (Past(), "never proven"),
        (past(), "proven"),
        (past(verdict="failed"), "failed"),
        (past(verdict="unproven"), "unproven"),
        (past(seconds=901.0), "too slow"),
        (past(snapshot_age_seconds=3_601.0), "too old"),
        (past(drilled_ms=NOW_MS - 8 * DAY_MS), "proven too long ago"),
        (past(verdict="not done"), "never proven"),
    ],
    ids=lambda found: found if isinstance(found, str) else "",
)
def test_each_broken_objective_has_its_own_standing(found: Past, standing: str) -> None:
    assert standing_of(found, OBJECTIVES, NOW_MS)[0] == standing


def test_standings_have_different_exit_codes() -> None:
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)
    assert [exit_code(report([row(verdict=verdict)])) for verdict in ("proven", "failed", "unproven")] == [0, 1, 14]
    assert [exit_code(report([row(seconds=901.0)])), exit_code(report([row(drilled=False)]))] == [12, 10]
    assert exit_code(report([row(seconds=901.0), row(1, "failed")])) == 1


def test_a_proof_without_its_evidence_is_not_success() -> None:
    assert exit_code(report([row()], problem="the chain was cut")) == 1


def test_a_drill_that_was_not_done_keeps_the_last_proof_but_is_not_healthy() -> None:
    failure = Failure(kind="KafkaUnavailableError", message="no answer", retriable=True)
    found = row_standing(row(verdict="not done", failure=failure), past(), OBJECTIVES, NOW_MS)
    assert (found.standing, found.healthy) == ("proven", False)
    assert exit_code(report([row()]).model_copy(update={"rows": (found,)})) == 3


def test_a_report_without_store_partitions_is_not_success() -> None:
    assert exit_code(report([])) == 10


def test_a_proof_dated_in_the_future_does_not_count() -> None:
    ahead, within = past(drilled_ms=NOW_MS + DAY_MS), past(drilled_ms=NOW_MS + MINUTE_MS)
    assert standing_of(ahead, OBJECTIVES, NOW_MS)[0] == "unproven"
    assert standing_of(within, OBJECTIVES, NOW_MS)[0] == "proven", "clocks of machines differ a little"
    assert choose_drills([ahead], OBJECTIVES, NOW_MS, lambda at: 1).drilled == [0]
    assert standing_of(past(snapshot_age_seconds=-86_400.0), OBJECTIVES, NOW_MS)[0] == "unproven"


def test_a_proof_dated_in_the_future_hides_no_later_drill(tmp_path: Path) -> None:
    rows = [row(), row(drilled_ms=NOW_MS + DAY_MS), row(verdict="failed", drilled_ms=NOW_MS + 1)]
    for number, found in enumerate(rows):
        written = report([found]).model_copy(update={"run_id": f"run-{number}"})
        write_drill_history(tmp_path, written)
    drills = Drills(read_drill_history(tmp_path), NOW_MS + 1)
    assert standing_of(drills.past("shop/totals/0_0"), OBJECTIVES, NOW_MS + 1)[0] == "failed"


def test_a_proof_without_evidence_is_repeated_if_evidence_is_kept() -> None:
    pasts = [past(), past(evidence=7)]
    assert choose_drills(pasts, OBJECTIVES, NOW_MS, lambda at: 1).drilled == []
    assert choose_drills(pasts, OBJECTIVES, NOW_MS, lambda at: 1, evidence=True).drilled == [0]


def test_objectives_of_now_judge_earlier_drills() -> None:
    stricter = RestoreObjectives(restorable_within=9_000)
    found = row_standing(row(drilled=False), past(), stricter, NOW_MS)
    assert (found.standing, found.within_seconds, found.seconds) == ("too slow", 9.0, 10.0)


def test_the_oldest_and_the_slowest_proofs_are_drilled_first() -> None:
    pasts = [
        past(drilled_ms=NOW_MS - 5 * DAY_MS),
        past(drilled_ms=NOW_MS - 6 * DAY_MS),
        Past(),
        past(drilled_ms=NOW_MS - 5 * DAY_MS, seconds=850.0),
        past(drilled_ms=NOW_MS - DAY_MS),
    ]
    chosen = choose_drills(pasts, OBJECTIVES, NOW_MS, lambda at: 1)
    assert chosen.drilled == [2, 3, 1, 0]  # the proof of the last one is recent
    assert choose_drills(pasts, OBJECTIVES, NOW_MS, lambda at: 1, named=True).drilled == [2, 3, 1, 0, 4]
    assert choose_drills(pasts, OBJECTIVES, NOW_MS, lambda at: 1, limit=1).drilled == [2]


def test_a_budget_is_never_exceeded_and_what_it_leaves_out_is_named() -> None:
    objectives = OBJECTIVES.model_copy(update={"budget": DrillBudget(bytes_per_day=100)})
    sizes = [60, 50, 30]
    chosen = choose_drills([Past()] * 3, objectives, NOW_MS, sizes.__getitem__, spent=5)
    assert chosen.drilled == [0, 2]
    assert "its 50 bytes exceed the 35 that are left of the 100" in chosen.left[1]


def test_confidence_counts_the_proven_and_estimates_from_measured_rates() -> None:
    rows = [row(task, seconds=float(task)) for task in range(1, 101)]
    rows += [row(200, verdict="failed"), row(201, verdict=None, drilled=False)]
    shown = [row_standing(each, Past(), OBJECTIVES, NOW_MS) for each in rows]
    found = confidence_of("shop", shown, OBJECTIVES)
    assert (found.partitions, found.proven, found.slowest_seconds, found.p99_seconds) == (102, 100, 100.0, 99.0)
    assert found.application_seconds == 5_050 * 102 / 100
    assert found.node_seconds == 5_050 * 102 / 100 / 3
    assert any("2 store partitions that were never proven" in said for said in found.assumptions)


def test_without_a_measurement_nothing_is_estimated() -> None:
    found = confidence_of("shop", [row_standing(row(verdict="failed"), Past(), OBJECTIVES, NOW_MS)], OBJECTIVES)
    assert (found.share, found.slowest_seconds, found.application_seconds) == (0.0, None, None)


def test_a_definition_reads_objectives_as_durations_and_leaves_out_none() -> None:
    content = {"name": "shop", "input_topic": "orders", "processor": "m:f", "stores": [{"name": "totals"}]}
    assert "objectives" not in ApplicationDefinition.model_validate(content).model_dump()
    said = {"restorable_within": "15m", "not_older_than": "1h", "proven_every": "7d", "budget": {"parallelism": 2}}
    found = ApplicationDefinition.model_validate({**content, "objectives": said}).objectives
    assert found is not None
    assert (found.restorable_within, found.not_older_than, found.proven_every) == (900_000, 3_600_000, 604_800_000)
    assert ApplicationDefinition.model_validate({**content, "objectives": found.model_dump()}).objectives == found
    with pytest.raises(ValueError, match="expected a duration"):
        RestoreObjectives.model_validate({"proven_every": "weekly"})
