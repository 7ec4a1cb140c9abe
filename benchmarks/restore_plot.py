"""The plot of `make bench-restore`: the base as bars, what it depends on as lines, the other cases beside the peer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, save_chart
from benchmarks.restore_shapes import CLOSED, MEMORY, Shape

_PEER = "Kafka Streams, tuned"
_COLOURS = {
    "ours": "#1f6feb",
    "ours, Spark job": "#a371f7",
    "drain floor": "#79b8ff",
    "Kafka Streams": "#9aa4b2",
    "Kafka Streams" + CLOSED: "#c8ced6",
    _PEER: "#57606a",
    _PEER + CLOSED: "#7d8590",
    "Quix Streams": "#d4a72c",
}
#: Drawn in every panel that compares shapes.
_SHOWN = ("ours", "drain floor", _PEER, _PEER + CLOSED)

Found = Mapping[str, Mapping[str, Result]]


def draw(target: Path, results: Iterable[Result], base: Shape, others: Sequence[Shape]) -> None:
    """Draw medians, at the base with a dot for every run."""
    import matplotlib  # only needed here, and slow to import

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = target.stem
    from matplotlib import pyplot

    found: dict[str, dict[str, Result]] = {}
    for result in results:
        found.setdefault(result.case, {})[result.system] = result
    figure, axes = pyplot.subplots(2, 3, figsize=(14, 7.5))
    bars, memory, ratios, by_records, by_keys, by_cores = axes.flat
    _bars(bars, found[base.case], 1e-6, "million records/s")
    _bars(memory, found[f"{MEMORY}: {base.case}"], 1, "peak memory, MiB")
    figure.suptitle(f"base: {base.case}", fontsize=10)
    _ratios(ratios, found, base, others)
    _lines(by_records, found, base, others, lambda shape: shape.log.records / 1e6, seconds=True)
    by_records.set_xlabel("million records", fontsize=8)
    _lines(by_keys, found, base, others, lambda shape: shape.log.per_key)
    by_keys.set_xlabel("records per key", fontsize=8)
    _lines(by_cores, found, base, others, lambda shape: shape.cores)
    by_cores.set_xlabel("cores", fontsize=8)
    figure.tight_layout()
    save_chart(figure, target)
    pyplot.close(figure)


def _bars(axis: Any, systems: Mapping[str, Result], scale: float, unit: str) -> None:
    names = [name for name in _COLOURS if name in systems][::-1]
    axis.barh(names, [systems[name].median * scale for name in names], color=[_COLOURS[name] for name in names])
    for at, name in enumerate(names):
        axis.plot([figure * scale for figure in systems[name].runs], [at] * len(systems[name].runs), ".k", markersize=3)
    axis.set_xlabel(unit, fontsize=8)
    axis.tick_params(labelsize=8)


def _ratios(axis: Any, found: Found, base: Shape, others: Sequence[Shape]) -> None:
    """How many times as fast as the peer ours is, in every case."""
    shapes = [base, *others][::-1]
    pairs = [found[shape.case] for shape in shapes]
    names = [shape.difference(base) or "base" for shape in shapes]
    axis.barh(names, [pair["ours"].median / pair[_PEER].median for pair in pairs], color=_COLOURS["ours"])
    axis.axvline(1, color="#222222", linewidth=0.8)
    axis.set_xlabel(f"times as fast as {_PEER}", fontsize=8)
    axis.tick_params(labelsize=8)


def _lines(
    axis: Any,
    found: Found,
    base: Shape,
    others: Sequence[Shape],
    of: Callable[[Shape], float],
    *,
    seconds: bool = False,
) -> None:
    """Draw the shapes that differ from the base in this alone."""
    shapes = sorted((shape for shape in (base, *others) if shape == base or of(shape) != of(base)), key=of)
    at = [of(shape) for shape in shapes]
    for name in _SHOWN:
        rates = [found[shape.case][name].median for shape in shapes]
        figures = [
            shape.log.records / rate if seconds else rate / 1e6 for shape, rate in zip(shapes, rates, strict=True)
        ]
        axis.plot(at, figures, "o-", color=_COLOURS[name], label=name, markersize=4)
    axis.set_xticks(at)
    axis.set_ylabel("seconds" if seconds else "million records/s", fontsize=8)
    axis.set_ylim(bottom=0)
    axis.tick_params(labelsize=8)
    axis.legend(fontsize=7)
