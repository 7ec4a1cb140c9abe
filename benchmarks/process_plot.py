"""The plot of `make bench-process`: the base as bars, growth as lines, one column per commit interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from benchmarks.measure import Result, save_chart

_COLOURS = {
    "ours": "#1f6feb",
    "ours, processor": "#79b8ff",
    "ours, process_batch": "#54aeff",
    "ours, Spark job": "#a371f7",
    "Kafka Streams": "#57606a",
    "Kafka Streams, no cache": "#9aa4b2",
    "Quix Streams": "#d4a72c",
}


class Shape(Protocol):
    """An input's shape, as the cases are named by it."""

    @property
    def keys(self) -> int: ...
    @property
    def partitions(self) -> int: ...
    def case(self, interval: str) -> str: ...


def draw(target: Path, results: list[Result], base: Shape, shapes: Iterable[Shape], intervals: Iterable[str]) -> None:
    """Draw medians, at the base with a dot for every run."""
    import matplotlib  # only needed here, and slow to import

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = target.stem
    from matplotlib import pyplot

    found: dict[str, dict[str, Result]] = {}
    for result in results:
        found.setdefault(result.case, {})[result.system] = result
    by_keys = sorted((shape for shape in shapes if shape.partitions == base.partitions), key=lambda shape: shape.keys)
    by_partitions = sorted((shape for shape in shapes if shape.keys == base.keys), key=lambda shape: shape.partitions)
    columns = list(intervals)
    figure, axes = pyplot.subplots(3, len(columns), figsize=(5.2 * len(columns), 8), squeeze=False, sharex="row")
    for interval, (bars, keys, partitions) in zip(columns, axes.T, strict=True):
        _bars(bars, found[base.case(interval)])
        bars.set_title(f"commits each {interval}\n{base.keys:,} keys, {base.partitions} partitions", fontsize=9)
        _lines(keys, {shape.keys: found[shape.case(interval)] for shape in by_keys})
        keys.set_xscale("log")
        keys.set_xlabel(f"keys, with {base.partitions} partitions", fontsize=8)
        _lines(partitions, {shape.partitions: found[shape.case(interval)] for shape in by_partitions})
        partitions.set_xticks([shape.partitions for shape in by_partitions])
        partitions.set_xlabel(f"partitions, with {base.keys:,} keys", fontsize=8)
    figure.tight_layout()
    save_chart(figure, target)
    pyplot.close(figure)


def _bars(axis: Any, systems: Mapping[str, Result]) -> None:
    names = list(systems)[::-1]
    axis.barh(names, [systems[name].median / 1000 for name in names], color=[_COLOURS[name] for name in names])
    for at, name in enumerate(names):
        axis.plot([figure / 1000 for figure in systems[name].runs], [at] * len(systems[name].runs), ".k", markersize=3)
    axis.set_xlabel("thousand records/s", fontsize=8)
    axis.tick_params(labelsize=8)


def _lines(axis: Any, points: Mapping[int, Mapping[str, Result]]) -> None:
    shared = [name for name in _COLOURS if all(name in systems for systems in points.values())]
    for name in shared:
        rates = [systems[name].median / 1000 for systems in points.values()]
        axis.plot(list(points), rates, "o-", color=_COLOURS[name], label=name, markersize=4)
    axis.set_ylabel("thousand records/s", fontsize=8)
    axis.set_ylim(bottom=0)
    axis.tick_params(labelsize=8)
    axis.legend(fontsize=7)
