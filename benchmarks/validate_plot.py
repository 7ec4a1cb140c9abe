"""The plot of `make bench-validate`: the sources as bars; seconds and memory of a validation as its rows grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, save_chart
from benchmarks.validate_memory import JVM, PYTHON
from benchmarks.validate_shapes import CHECKSUM, COUNT, MEMORY, PARTS, SIZES, SOURCE_ROWS, VALIDATE, case_of

_COLOURS = {
    "ours": "#1f6feb",
    "ours, changelog": "#79b8ff",
    "ours, changelog, latest": "#a371f7",
    "Parquet": "#9aa4b2",
}
_PARTS = dict(zip(PARTS, ("#79b8ff", "#1f6feb", "#a371f7"), strict=True))
_MEMORY = {JVM: "#9aa4b2", PYTHON: "#1f6feb"}

Found = Mapping[tuple[str, str], Result]


def draw(target: Path, results: Iterable[Result]) -> None:
    """Draw medians; of the sources with a dot for every run."""
    import matplotlib  # only needed here, and slow to import

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = target.stem
    from matplotlib import pyplot

    found = {(result.case, result.system): result for result in results}
    figure, axes = pyplot.subplots(1, 4, figsize=(15, 3.6))
    for axis, work in zip(axes, (COUNT, CHECKSUM), strict=False):
        _rates(axis, found, case_of(work, SOURCE_ROWS))
    _growth(axes[2], found, VALIDATE, _PARTS, "seconds")
    _growth(axes[3], found, MEMORY, _MEMORY, "peak memory, MiB")
    figure.tight_layout()
    save_chart(figure, target)
    pyplot.close(figure)


def _rates(axis: Any, found: Found, case: str) -> None:
    names = list(_COLOURS)[::-1]
    axis.barh(names, [found[case, name].median / 1e6 for name in names], color=[_COLOURS[name] for name in names])
    for at, name in enumerate(names):
        runs = found[case, name].runs
        axis.plot([figure / 1e6 for figure in runs], [at] * len(runs), ".k", markersize=3)
    axis.set_xscale("log")  # Parquet's own count reads no rows
    axis.set_title(case, fontsize=9)
    axis.set_xlabel("million rows/s", fontsize=8)
    axis.tick_params(labelsize=8)


def _growth(axis: Any, found: Found, work: str, parts: Mapping[str, str], unit: str) -> None:
    """Draw what the parts add up to, by rows."""
    rows = [size / 1e6 for size in SIZES]
    figures = [[found[case_of(work, size), f"ours, {part}"].median for size in SIZES] for part in parts]
    axis.stackplot(rows, figures, labels=list(parts), colors=list(parts.values()))
    axis.set_xticks(rows)
    axis.set_xlabel("million rows", fontsize=8)
    axis.set_ylabel(unit, fontsize=8)
    axis.set_ylim(bottom=0)
    axis.tick_params(labelsize=8)
    axis.legend(fontsize=7, loc="upper left")
