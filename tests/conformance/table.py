"""How conformance is printed: one row for each id, a line that counts, and what is violated."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.conformance.catalogue import Catalogue
from tests.conformance.coverage import Coverage
from tests.conformance.judging import State, Verdict

_STYLES = {
    State.PASSED: "green",
    State.PENDING: "yellow",
    State.LEFT_OUT: "yellow",
    State.FAILED: "bold red",
    State.MISSING: "bold red",
    State.PROVEN_THOUGH_PENDING: "bold red",
}
#: Of a file or a pipe, which has no width of its own.
_WIDTH = 140


def print_table(catalogue: Catalogue, verdicts: Sequence[Verdict]) -> None:
    """Print where each id stands, with its behaviour."""
    table = Table("id", "state", "tests", "behaviour")
    for verdict in verdicts:
        state = f"pending: {verdict.reason}" if verdict.state is State.PENDING else verdict.state.value
        tests = str(verdict.tests) if verdict.tests else ""
        behaviour = Text(catalogue.behaviours[verdict.behaviour])
        table.add_row(verdict.behaviour, Text(state, _STYLES[verdict.state]), tests, behaviour)
    _console().print(table)


def print_coverage(coverage: Coverage) -> None:
    """Print how many cases each composition has."""
    table = Table("composition", "make test", "make faults")
    for name, cases in coverage.items():
        table.add_row(name, *map(str, cases))
    _console().print(table)


def print_violations(verdicts: Sequence[Verdict]) -> None:
    """Print how many ids stand where, and each that makes the run fail."""
    counts = Counter(verdict.state for verdict in verdicts)
    console = _console()
    console.print(
        ", ".join(f"{counts[state]} {state}" for state in State if counts[state]) + f" of {len(verdicts)} ids"
    )
    for verdict in verdicts:
        if verdict.state.violated:
            text = f"{verdict.behaviour} {verdict.state}: {verdict.reason}"
            console.print(Text(text, _STYLES[verdict.state]), soft_wrap=True)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _WIDTH)
