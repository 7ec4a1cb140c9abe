"""What took long: at the end of a run, its ten slowest tests and the sum of each directory."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath

import pytest

_SLOWEST = 10


class Durations:
    """A plugin that adds up how long tests take, with what they set up and take down."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test."""
        self._seconds[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print both lists."""
        if not self._seconds:
            return
        terminalreporter.section(f"{_SLOWEST} slowest tests, and the sum of each directory")
        for name, seconds in (*self._seconds.most_common(_SLOWEST), *directory_sums(self._seconds).most_common()):
            terminalreporter.write_line(f"{seconds:8.1f} s  {name}")


def directory_sums(seconds: Counter[str]) -> Counter[str]:
    """Sum the seconds of tests, given by node id, for each directory that has test files."""
    sums: Counter[str] = Counter()
    for test, taken in seconds.items():
        sums[f"{PurePosixPath(test.partition('::')[0]).parent}/"] += taken
    return sums
