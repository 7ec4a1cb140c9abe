"""Measuring: systems side by side in alternating rounds, results as JSON, and a plot of them for the docs.

A result file is a list of {case, system, unit, median, runs}; `system` is `ours` or the peer's name. Rounds alternate
the order of the systems, so that neither always runs on a warmer machine.
"""

from __future__ import annotations

import gc
import io
import json
import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path("build/bench")
#: `SCALE=small` is for a look, in under a minute; figures for the docs come from the whole run.
SMALL = os.environ.get("SCALE") == "small"
ROUNDS = 3 if SMALL else 7
#: matplotlib writes its colours into each element, and leaves text in the default colour.
_DARK = """\
@media (prefers-color-scheme: dark) {
  svg { fill: #f0f6fc }
  [style*="fill: #ffffff"] { fill: #161b22 !important }
  [style*="fill: #222222"] { fill: #f0f6fc !important }
  [style*="fill: #57606a"] { fill: #768390 !important }
  [style*="stroke: #000000"], [style*="stroke: #222222"] { stroke: #9198a1 !important }
  [style*="stroke: #57606a"] { stroke: #768390 !important }
  [style*="stroke: #cccccc"] { stroke: #3d444d !important }
}
"""


class Case(NamedTuple):
    """One piece of work: what each system does for it, as a function that returns the figure measured."""

    name: str
    unit: str
    systems: Mapping[str, Callable[[], float]]


class Result(NamedTuple):
    """Figures of one system in one case."""

    case: str
    system: str
    unit: str
    runs: list[float]

    @property
    def median(self) -> float:
        """Median of the runs."""
        return statistics.median(self.runs)


def measure(
    cases: list[Case], rounds: int = ROUNDS, few: Mapping[str, int] | None = None, *, asked: int | None = None
) -> list[Result]:
    """Run every system of every case once per round, in alternating order.

    Parameters
    ----------
    few
        Systems that take part in the first rounds only, and in how many.
    asked
        So many rounds instead, of all systems.
    """
    rounds, few = (asked, {}) if asked else (rounds, few or {})
    runs: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        for case in cases:
            order = [(system, work) for system, work in case.systems.items() if number < few.get(system, rounds)]
            for system, work in order if number % 2 == 0 else reversed(order):
                with _no_garbage_collection():
                    runs.setdefault((case.name, system), []).append(work())
    return [Result(case.name, system, case.unit, runs[case.name, system]) for case in cases for system in case.systems]


def report(name: str, results: list[Result], draw: Callable[[str, list[Result]], None] | None = None) -> None:
    """Write the results, show them, and draw them into docs/, by `plot` or `draw`, if they come from a whole run."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    rows = [{"case": r.case, "system": r.system, "unit": r.unit, "median": r.median, "runs": r.runs} for r in results]
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    table = Table("case", "system", "median", "unit", "against ours", title=f"{name}, {len(results[0].runs)} rounds")
    ours = {result.case: result.median for result in results if result.system == "ours"}
    for result in results:
        ratio = f"{result.median / ours[result.case]:.2f}" if result.case in ours else ""
        table.add_row(result.case, result.system, f"{result.median:,.3f}", result.unit, ratio)
    console = Console(width=120)
    console.print(table)
    console.print(f"written to {path}")
    if not SMALL:
        (draw or plot)(name, results)


def plot(name: str, results: list[Result]) -> None:
    """Draw medians as bars, with every run as a dot, one panel per case."""
    import matplotlib  # only needed here, and slow to import

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = name
    from matplotlib import pyplot

    cases = list(dict.fromkeys(result.case for result in results))
    columns = min(3, len(cases))
    lines = -(-len(cases) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(4.2 * columns, 2.6 * lines), squeeze=False)
    for axis in axes.flat[len(cases) :]:
        axis.set_visible(False)
    for axis, case in zip(axes.flat, cases, strict=False):
        shown = [result for result in results if result.case == case]
        axis.bar(
            [result.system for result in shown],
            [result.median for result in shown],
            color=["#1f6feb" if result.system == "ours" else "#9aa4b2" for result in shown],
        )
        for at, result in enumerate(shown):
            axis.plot([at] * len(result.runs), result.runs, ".", color="#222222", markersize=3)
        axis.set_title(case, fontsize=9)
        axis.set_ylabel(shown[0].unit, fontsize=8)
        axis.tick_params(labelsize=8)
        axis.set_ylim(bottom=0)
    figure.tight_layout()
    save_chart(figure, Path("docs/benchmarks") / f"{name}.svg")
    pyplot.close(figure)


def save_chart(figure: Figure, target: Path) -> None:
    """Save a chart as SVG that follows the reader's theme."""
    svg = io.StringIO()
    figure.savefig(svg, format="svg", metadata={"Date": None})
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(themed(svg.getvalue()), encoding="utf-8")


def themed(svg: str) -> str:
    """Return a chart of matplotlib with the rules of a dark theme."""
    return svg.replace("</style>", f"\n{_DARK}</style>", 1)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
