"""How a run is spread over workers, and what it prints at its end."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from tests.session.durations import Durations, directory_sums
from tests.session.scheduling import in_order, unit_of


@pytest.mark.parametrize(
    ("test", "unit"),
    [
        ("tests/spark/test_jobs.py::test_a[x/y::z]", "tests/spark/"),
        ("tests/unit/test_lock.py::Test::test_b", "tests/unit/test_lock.py"),
    ],
)
def test_a_directory_that_shares_what_is_dear_is_one_unit_and_any_other_file_its_own(test: str, unit: str) -> None:
    assert unit_of(test) == unit


def test_units_of_several_files_begin_first_and_keep_their_order() -> None:
    names = [
        "tests/unit/a.py::1",
        "tests/dags/a.py::2",
        "tests/spark/b.py::1",
        "tests/unit/a.py::3",
        "tests/spark/a.py::1",
    ]
    items = in_order([SimpleNamespace(nodeid=name) for name in names])  # type: ignore[misc]  # of an item, only its name
    assert [item.nodeid for item in items] == [names[2], names[4], names[1], names[0], names[3]]


def test_files_that_wait_take_turns_with_those_that_compute() -> None:
    files = ["contract/a", "faults/b", "integration/c", "properties/d", "unit/e", "unit/f"]
    items = in_order([SimpleNamespace(nodeid=f"tests/{file}.py::1") for file in files])  # type: ignore[misc]  # as above
    assert [item.nodeid.split("/")[1] for item in items] == [
        "contract",
        "faults",
        "properties",
        "integration",
        "unit",
        "unit",
    ]


def test_directories_are_summed_over_their_files() -> None:
    seconds = Counter({"tests/a/one.py::x[b/c]": 1.0, "tests/a/two.py::y": 2.0, "tests/a/b/three.py::z": 4.0})
    assert directory_sums(seconds) == {"tests/a/": 3.0, "tests/a/b/": 4.0}


def test_a_run_ends_with_its_ten_slowest_tests_each_with_all_of_its_phases() -> None:
    durations = Durations()
    for number in range(12):
        for phase in (1, number):
            durations.pytest_runtest_logreport(SimpleNamespace(nodeid=f"tests/a.py::{number}", duration=phase))  # type: ignore[arg-type]
    lines: list[str] = []
    durations.pytest_terminal_summary(SimpleNamespace(section=lines.append, write_line=lines.append))  # type: ignore[arg-type]
    slowest = [f"{number + 1:8.1f} s  tests/a.py::{number}" for number in range(11, 1, -1)]
    assert lines[1:] == [*slowest, f"{12 + sum(range(12)):8.1f} s  tests/"]
