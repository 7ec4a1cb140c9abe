"""The check that every behaviour has a test: the verdicts, the catalogue's files, and whole runs of pytest with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from statestore.definitions.fields import Engine
from tests.conformance.catalogue import CatalogueError, load_catalogue
from tests.conformance.judging import Outcome, Result, State, judge, worse
from tests.engines import ENGINES, SHORT

REPOSITORY = Path(__file__).resolve().parents[2]
PASSED, SKIPPED, EXPECTED_TO_FAIL, FAILED = Outcome


# -- verdicts


def verdict(results=(), pending=()):
    """The verdict on K1, from `(case, outcome)` pairs of its tests."""
    found = [Result("K1", case, outcome) for case, outcome in results]
    (judged,) = judge(["K1"], dict.fromkeys(pending, "stores"), found)
    return judged


def test_an_id_without_a_test_is_missing_and_the_marker_is_told():
    judged = verdict()
    assert (judged.state, judged.tests, judged.state.violated) == (State.MISSING, 0, True)
    assert '@pytest.mark.behaviour("K1")' in judged.reason


def test_an_id_whose_tests_all_passed_is_proven():
    judged = verdict([("a.py::one", PASSED), ("a.py::two[x]", PASSED), ("a.py::two[y]", PASSED)])
    assert (judged.state, judged.tests, judged.reason) == (State.PASSED, 2, "")
    assert not judged.state.violated


@pytest.mark.parametrize("pending", [(), ("K1",)])
def test_one_test_that_failed_makes_the_id_fail_and_is_named(pending):
    judged = verdict([("a.py::one", PASSED), ("a.py::two[x]", PASSED), ("a.py::two[y]", FAILED)], pending)
    assert (judged.state, judged.reason) == (State.FAILED, "failed: a.py::two")
    assert judged.state.violated


def test_a_case_that_was_skipped_is_made_good_by_another_of_the_same_test_only():
    assert verdict([("a.py::one[x]", SKIPPED), ("a.py::one[y]", PASSED)]).state is State.PASSED
    judged = verdict([("a.py::one", SKIPPED), ("a.py::two", PASSED)])
    assert (judged.state, judged.reason) == (State.MISSING, "skipped or expected to fail: a.py::one")


def test_a_test_that_is_expected_to_fail_proves_nothing():
    results = [("a.py::one[x]", EXPECTED_TO_FAIL), ("a.py::one[y]", PASSED)]
    assert verdict(results).state is State.MISSING
    assert verdict(results, ["K1"]).state is State.PENDING


def test_a_pending_id_may_be_unproven_and_the_part_that_brings_it_is_told():
    judged = verdict(pending=["K1"])
    assert (judged.state, judged.reason) == (State.PENDING, "stores")
    assert not judged.state.violated


def test_a_pending_id_that_is_proven_has_to_leave_the_list():
    judged = verdict([("a.py::one", PASSED)], ["K1"])
    assert (judged.state, judged.state.violated) == (State.PROVEN_THOUGH_PENDING, True)
    assert "remove it from stores" in judged.reason


def test_each_id_is_judged_by_its_own_tests_in_the_order_given():
    results = [Result("T3", "a.py::one[x]", PASSED), Result("K1", "a.py::one[y]", FAILED)]
    assert [(one.behaviour, one.state) for one in judge(["T3", "K1", "C1"], {}, results)] == [
        ("T3", State.PASSED),
        ("K1", State.FAILED),
        ("C1", State.MISSING),
    ]


def test_of_two_outcomes_of_a_case_the_worse_one_counts():
    assert worse(None, PASSED) is PASSED
    assert worse(PASSED, FAILED) is worse(FAILED, PASSED) is FAILED
    assert worse(SKIPPED, PASSED) is SKIPPED


# -- the catalogue


def write(directory, behaviours, pending=""):
    directory.mkdir(exist_ok=True)
    (directory / "behaviours.toml").write_text(behaviours)
    (directory / "pending.toml").write_text(pending)
    return directory


def test_our_own_catalogue_has_every_id_and_nothing_else():
    lengths = {
        "T": 18,
        "W": 7,
        "K": 21,
        "L": 8,
        "M": 4,
        "F": 14,
        "H": 8,
        "S": 8,
        "R": 18,
        "C": 20,
        "G": 3,
        "V": 7,
        "U": 6,
        "D": 8,
    }
    expected = [f"{letter}{number}" for letter, last in lengths.items() for number in range(1, last + 1)]
    catalogue = load_catalogue(REPOSITORY / "tests" / "conformance")
    assert list(catalogue.behaviours) == expected
    assert set(catalogue.pending) <= set(expected)


def test_a_catalogue_keeps_the_order_and_tells_who_brings_what_is_pending(tmp_path):
    write(tmp_path, '["Restore"]\nR2 = "b"\nR1 = "a"\n["Offsets"]\nK1 = "c"\n', 'stores = ["K1"]\n')
    catalogue = load_catalogue(tmp_path)
    assert catalogue.behaviours == {"R2": "b", "R1": "a", "K1": "c"}
    assert list(catalogue.behaviours) == ["R2", "R1", "K1"]
    assert catalogue.pending == {"K1": "stores"}


@pytest.mark.parametrize(
    ("behaviours", "pending", "message"),
    [
        ('K1 = "a"', "", "K1 is outside of a section"),
        ('["x"]\nK1 = "a"\n["y"]\nK1 = "b"', "", "K1 is there twice"),
        ('["x"]\nK1 = "a"\nK1 = "b"', "", r"behaviours\.toml: "),
        ('["x"]\nK01 = "a"', "", "'K01': expected an id"),
        ('["x"]\nK1 = " "', "", "'K1': expected an id"),
        ('["x"]\nK1 = 1', "", "'K1': expected an id"),
        ('["x"]\nK1 = "a"', 'stores = ["K2"]', "'K2' is not in behaviours"),
        ('["x"]\nK1 = "a"', 'stores = ["K1"]\ntasks = ["K1"]', "K1 is there twice"),
        ('["x"]\nK1 = "a"', 'stores = "K1"', "expected a list"),
        ('["x"]\nK1 = "a"', "stores = [", r"pending\.toml: "),
    ],
)
def test_a_catalogue_that_contradicts_itself_is_refused(tmp_path, behaviours, pending, message):
    with pytest.raises(CatalogueError, match=message):
        load_catalogue(write(tmp_path, behaviours, pending))


def test_a_catalogue_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(CatalogueError, match=r"behaviours\.toml"):
        load_catalogue(tmp_path)


# -- whole runs


@pytest.fixture
def run(tmp_path):
    """Run pytest on a suite of its own, with the ids K1, K2 and T1; returns exit code and output."""
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntestpaths = suite\nconformance = ids\n"
        "addopts = --strict-markers -p tests.conformance.plugin -m 'not long and not other'\n"
        "markers =\n    behaviour(*ids): proves\n    long: left out of every run\n    other: as well\n"
    )
    (tmp_path / "suite").mkdir()

    def run_pytest(suite, *arguments, pending="stores = ['T1']"):
        write(tmp_path / "ids", '["x"]\nK1 = "first"\nK2 = "second"\nT1 = "third"\n', pending)
        (tmp_path / "suite" / "test_it.py").write_text(f"import pytest\nproves = pytest.mark.behaviour\n{suite}")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        # Other plugins take longer to import than such a suite to run.
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    return run_pytest


WHOLE = """
@proves("K1")
def test_one(): pass

@pytest.mark.parametrize("what", [pytest.param(1, marks=proves("K2")), 2])
def test_two(what): pass

def test_unmarked(): pass
"""


def test_a_whole_run_in_which_every_id_is_proven_or_pending_is_green_and_counts(run):
    code, output = run(WHOLE)
    assert code == 0, output
    assert "2 passed, 1 pending of 3 ids" in output
    assert "first" not in output  # the table is for --conformance


@pytest.mark.long
def test_conformance_runs_the_marked_tests_alone_and_prints_every_id(run):
    code, output = run(WHOLE, "--conformance")
    assert code == 0, output
    assert "2 passed, 2 deselected" in output
    assert all(text in output for text in ("K1", "first", "K2", "second", "T1", "third", "pending: stores"))


ENGINES_OF_A_TASK = """
@proves("K1", "K2")
@pytest.mark.parametrize("engine", ["txn_rocksDB", pytest.param("rocksDB", marks=pytest.mark.long)])
def test_tasks(engine): pass
"""


@pytest.mark.behaviour("T18")
def test_conformance_counts_the_cases_of_each_engine_also_of_those_left_out(run):
    code, output = run(ENGINES_OF_A_TASK, "--conformance")
    assert code == 0, output
    counted = [[part.strip() for part in line.split("│")[1:-1]] for line in output.splitlines() if "task " in line]
    assert counted == [["task rocksDB", "0", "1"], ["task txn_rocksDB", "1", "0"]]


@pytest.mark.behaviour("T18")
def test_the_table_of_engines_has_each_engine():
    assert set(ENGINES) == set(get_args(Engine))
    assert ENGINES[SHORT].transactional


@pytest.mark.short_for("arguments1")
@pytest.mark.parametrize("arguments", [(), ("--conformance",)])
def test_an_id_whose_tests_are_left_out_of_every_run_is_left_to_make_faults(run, arguments):
    left_out = WHOLE + '\n@pytest.mark.long\n@proves("T1")\ndef test_three(): pass\n'
    code, output = run(left_out, *arguments)
    assert code == 0, output
    assert "1 pending of 3 ids" in output
    code, output = run(left_out, *arguments, pending="")
    assert code == 0, output
    assert "2 passed, 1 left to make faults of 3 ids" in output
    code, output = run(WHOLE, *arguments, pending="")
    assert code == 1, output
    assert "T1 missing" in output


@pytest.mark.short_for("arguments0")
@pytest.mark.parametrize("arguments", [(), ("--conformance",), ("suite",)])
def test_an_id_that_nothing_proves_fails_a_run_that_is_otherwise_green(run, arguments):
    code, output = run(WHOLE, *arguments, pending="")
    assert code == 1, output
    assert "T1 missing: no test has @pytest.mark.behaviour" in output
    assert " failed" not in output


def test_a_pending_id_that_is_proven_fails_the_run(run):
    code, output = run(WHOLE, pending="stores = ['K2', 'T1']")
    assert code == 1, output
    assert "K2 not pending any more: proven: remove it from stores" in output


@pytest.mark.parametrize(
    ("broken", "state"),
    [
        ("def test_one(): assert False", "K1 failed: failed: suite/test_it.py::test_one"),
        ("def test_one(request): request.addfinalizer(lambda: 1 / 0)", "K1 failed: failed"),
        ("def test_one(): pytest.skip('no Java')", "K1 missing: skipped"),
        ("@pytest.mark.skip\ndef test_one(): pass", "K1 missing: skipped"),
        ("@pytest.mark.xfail\ndef test_one(): assert False", "K1 missing: skipped or expected to fail"),
    ],
)
@pytest.mark.long
def test_a_test_that_did_not_pass_proves_nothing(run, broken, state):
    code, output = run(WHOLE.replace("def test_one(): pass", broken))
    assert code == 1, output
    assert state in output


@pytest.mark.parametrize(
    "arguments", [("suite/test_it.py",), ("-k", "one"), ("-m", "behaviour"), ("--deselect", "suite/test_it.py::test_x")]
)
@pytest.mark.long
def test_a_run_of_a_part_is_not_judged_and_conformance_refuses_it(run, arguments):
    code, output = run(WHOLE, *arguments, pending="")
    assert (code, "of 3 ids" in output) == (0, False), output
    code, output = run(WHOLE, "--conformance", *arguments)
    assert (code, "--conformance runs every marked test" in output) == (4, True), output


@pytest.mark.long
def test_a_run_that_was_stopped_early_is_not_judged(run):
    code, output = run("def test_first(): assert False\n" + WHOLE, "-x", pending="")
    assert (code, "of 3 ids" in output) == (1, False), output


@pytest.mark.long
def test_the_marked_tests_can_be_listed_without_being_judged(run):
    code, output = run(WHOLE, "--conformance", "--collect-only", "-q", pending="")
    assert (code, "of 3 ids" in output) == (0, False), output
    assert "::test_one" in output
    assert "::test_unmarked" not in output


@pytest.mark.parametrize("marker", ['proves("K3")', "proves", "proves()", 'proves("K1", why="x")', "proves(1)"])
@pytest.mark.long
def test_a_marker_with_an_unknown_id_or_none_ends_the_collection(run, marker):
    code, output = run(f"@{marker}\ndef test_one(): pass", "suite/test_it.py")
    assert code == 4, output
    assert "suite/test_it.py::test_one" in output


@pytest.mark.long
def test_a_catalogue_that_contradicts_itself_ends_every_run(run):
    code, output = run(WHOLE, pending="stores = ['Z1']")
    assert (code, "'Z1' is not in behaviours.toml" in output) == (4, True), output
