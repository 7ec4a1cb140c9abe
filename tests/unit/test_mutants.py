"""What `make mutants` says of a run: mutants that nobody noticed have a reason, and reasons are of such mutants."""

from __future__ import annotations

import pytest

from tests.mutants.survivors import SURVIVORS_FILE, Mutant, judge, load_reasons, reasons_of


def run(noticed, *survivors):
    """Mutants of which some were noticed, and others of these names were not."""
    return [Mutant("m", f"noticed {number}", True) for number in range(noticed)] + [
        Mutant("m", name, False) for name in survivors
    ]


def test_a_run_passes_where_every_survivor_has_a_reason_and_enough_were_noticed():
    verdict = judge(run(9, "a"), {"a": "why"})
    assert (verdict.share, verdict.passed, verdict.survivors) == (0.9, True, ("a",))


def test_a_run_fails_where_too_few_were_noticed_whatever_the_reasons():
    assert not judge(run(8, "a"), {"a": "why"}).passed
    assert not judge([], {}).passed


def test_a_survivor_without_a_reason_fails_the_run_and_is_named():
    verdict = judge(run(99, "a", "b"), {"a": "why"})
    assert (verdict.passed, verdict.unargued, verdict.stale) == (False, ("b",), ())


def test_a_reason_for_a_mutant_that_was_noticed_or_is_gone_fails_the_run_and_is_named():
    verdict = judge(run(99, "a"), {"a": "why", "noticed 3": "why", "gone": "why"})
    assert (verdict.passed, verdict.unargued, verdict.stale) == (False, (), ("gone", "noticed 3"))


def test_reasons_are_chosen_by_the_modules_that_they_are_for():
    reasons = {"statestore.formats.a.f: x[0] => x": "why", "statestore.kinds.b.f: x => y": "why"}
    assert {*reasons_of(reasons, ["statestore.formats.*"])} == {"statestore.formats.a.f: x[0] => x"}
    assert reasons_of(reasons, []) == reasons


def test_the_list_of_the_project_has_a_reason_of_one_line_for_each_mutant():
    assert all(reason and "\n" not in reason for reason in load_reasons(SURVIVORS_FILE).values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[argued]]\nreason = ""\nmutants = ["a"]', "expected a reason of one line"),
        ('[[argued]]\nreason = "two\\nlines"\nmutants = ["a"]', "expected a reason of one line"),
        ('[[argued]]\nreason = "why"\nmutants = []', "expected a reason of one line and its mutants"),
        ('[[argued]]\nreason = "why"\nmutants = ["a", "a"]', "a is there twice"),
        ('[[argued]]\nreason = "why"\nmutants = ["a"]\n' * 2, "a is there twice"),
        ('[[argued]]\nreason = "why"\nmutants = ["a"]\n[[argued]]\nreason = "why"\nmutants = ["b"]', "together"),
    ],
)
def test_a_list_that_contradicts_itself_is_refused(tmp_path, text, said):
    path = tmp_path / "survivors.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        load_reasons(path)
