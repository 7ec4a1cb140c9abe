"""docs/compatibility.md claims of each cell what was run, and nothing else."""

from __future__ import annotations

from tests.interop.compatibility import ALL_STEPS, VERSIONS, Cell, Column, document, steps_of

OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]
ALL = dict.fromkeys(ALL_STEPS.values(), True)


def lines(store: str, outcomes: dict[Cell, dict[str, bool]], versions: tuple[str, ...] = VERSIONS) -> list[list[str]]:
    text = document({store: versions}, outcomes)
    found = [line for line in text.splitlines() if line.startswith(f"| {store} |")]
    return [[cell.strip() for cell in line.strip("|").split("|")][1:] for line in found]


def test_a_cell_that_did_not_run_claims_nothing() -> None:
    assert lines("table", {}) == [["not run"] * len(VERSIONS)] * 2


def test_each_guarantee_is_claimed_by_itself() -> None:
    exactly_once, at_least_once = lines("table", {Cell(Column(NEWEST, "at_least_once"), "table"): ALL})
    assert exactly_once == ["not run"] * len(VERSIONS)
    assert at_least_once == [*["not run"] * (len(VERSIONS) - 1), "all"]


def test_what_failed_and_what_is_left_are_named() -> None:
    outcomes = {Cell(Column(NEWEST, "exactly_once_v2"), "table"): {"verified": True, "restored": False}}
    missing = [step for step in steps_of(NEWEST, "table").values() if step not in ("verified", "restored")]
    assert lines("table", outcomes)[0][-1] == f"restored **fails**; {', '.join(missing)} not run"


def test_a_version_that_has_no_such_store_is_told_from_one_that_was_not_tried() -> None:
    assert lines("table", {}, (NEWEST,))[0] == [*"-" * (len(VERSIONS) - 1), "not run"]
