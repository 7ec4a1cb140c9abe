"""From the outcomes of marked tests to a verdict on each id. Pure: no pytest, no files.

An id is proven if it has tests, and each of them passed. A test that runs with several parameters passed if at least
one of its cases did and none failed: a contract may skip what a composition does not have, but a test that was skipped
altogether proves nothing, and one that is expected to fail proves the contrary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """How one case of a test ended; the later one counts, where a test has several."""

    PASSED = "passed"
    SKIPPED = "skipped"
    EXPECTED_TO_FAIL = "expected to fail"
    FAILED = "failed"


class Result(NamedTuple):
    """One case of a test that is marked with an id; `case` is pytest's node id, with the parameters in brackets."""

    behaviour: str
    case: str
    outcome: Outcome

    @property
    def test(self) -> str:
        """The test without the parameters of this case."""
        return self.case.partition("[")[0]


class State(StrEnum):
    """Where an id stands."""

    PASSED = "passed"
    FAILED = "failed"
    PENDING = "pending"
    PROVEN_THOUGH_PENDING = "not pending any more"
    LEFT_OUT = "left to make faults"
    MISSING = "missing"

    @property
    def violated(self) -> bool:
        """Whether the run must fail for it."""
        return self not in (State.PASSED, State.PENDING, State.LEFT_OUT)


@dataclass(frozen=True)
class Verdict:
    """Where an id stands, and why.

    Attributes
    ----------
    tests
        How many tests are marked with it.
    reason
        What is wrong and what to do, or who brings the test; empty if it passed.
    """

    behaviour: str
    state: State
    tests: int
    reason: str = ""


def judge(
    behaviours: Iterable[str], pending: Mapping[str, str], results: Iterable[Result], left_out: Collection[str] = ()
) -> list[Verdict]:
    """Judge each id, in the order given, by the results of a run of all tests.

    Parameters
    ----------
    behaviours
        Every id.
    pending
        The part that brings the test, for each id that may be without one.
    results
        Of every case of every marked test.
    left_out
        Ids that have tests which no such run includes.
    """
    tests: dict[str, dict[str, set[Outcome]]] = {}
    for result in results:
        tests.setdefault(result.behaviour, {}).setdefault(result.test, set()).add(result.outcome)
    verdicts = [_judge_one(name, pending.get(name), tests.get(name, {})) for name in behaviours]
    return [
        replace(each, state=State.LEFT_OUT)
        if each.state is State.MISSING and not each.tests and each.behaviour in left_out
        else each
        for each in verdicts
    ]


def worse(first: Outcome | None, second: Outcome) -> Outcome:
    """Return what counts of two outcomes of one case, such as those of its body and its teardown."""
    order = list(Outcome)
    return second if first is None else max(first, second, key=order.index)


def _judge_one(name: str, part: str | None, tests: Mapping[str, set[Outcome]]) -> Verdict:
    count = len(tests)
    failed = [test for test, outcomes in tests.items() if Outcome.FAILED in outcomes]
    if failed:
        return Verdict(name, State.FAILED, count, f"failed: {', '.join(failed)}")
    unproven = [test for test, outcomes in tests.items() if not _proves(outcomes)]
    if tests and not unproven:
        if part is None:
            return Verdict(name, State.PASSED, count)
        return Verdict(name, State.PROVEN_THOUGH_PENDING, count, f"proven: remove it from {part} in pending.toml")
    if part is not None:
        return Verdict(name, State.PENDING, count, part)
    if unproven:
        return Verdict(name, State.MISSING, count, f"skipped or expected to fail: {', '.join(unproven)}")
    return Verdict(name, State.MISSING, count, f'no test has @pytest.mark.behaviour("{name}")')


def _proves(outcomes: set[Outcome]) -> bool:
    return Outcome.PASSED in outcomes and Outcome.EXPECTED_TO_FAIL not in outcomes
