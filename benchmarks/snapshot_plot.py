"""The plot of `make bench-snapshot`: restores by records per key, fetching, and publishing run by run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, save_chart
from benchmarks.snapshot_publish import OF_STORE, SHARE

_COLOURS = {
    "ours": "#1f6feb",
    "ours, directory": "#79b8ff",
    "ours, full": "#a371f7",
    "obstore": "#9aa4b2",
    "Kafka Streams, tuned": "#57606a",
}

Found = Mapping[str, Mapping[str, Result]]


def draw(target: Path, results: Iterable[Result]) -> None:
    """Draw medians with a dot for every run."""
    import matplotlib  # only needed here, and slow to import

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = target.stem
    from matplotlib import pyplot

    found: dict[str, dict[str, Result]] = {}
    for result in results:
        found.setdefault(result.case, {})[result.system] = result
    figure, axes = pyplot.subplots(2, 3, figsize=(14, 6.5))
    restores = [case for case in found if case.startswith("restore")]
    for axis, case in zip(axes[0], restores, strict=True):
        _bars(axis, found[case], case)
    fetching, share, uploaded = axes[1]
    fetched = [case for case in found if case.startswith("fetch")]
    bars = {(case, name): result for case in fetched for name, result in found[case].items()}
    labels = [f"{case.removeprefix('fetch from ')}\n{name}" for case, name in bars]
    fetching.bar(labels, [result.median for result in bars.values()], color=[_COLOURS[name] for _, name in bars])
    for at, result in enumerate(bars.values()):
        fetching.plot([at] * len(result.runs), result.runs, ".k", markersize=3)
    fetching.set_title("fetching", fontsize=9)
    fetching.set_ylabel("MB/s", fontsize=8)
    fetching.tick_params(labelsize=7)
    _runs(share, found[SHARE]["ours"], "publishing: per cent of each run")
    _runs(uploaded, found[OF_STORE]["ours"], "publishing: uploaded bytes, per cent of the store")
    figure.tight_layout()
    save_chart(figure, target)
    pyplot.close(figure)


def _bars(axis: Any, systems: Mapping[str, Result], title: str) -> None:
    names = [name for name in _COLOURS if name in systems][::-1]
    axis.barh(names, [systems[name].median for name in names], color=[_COLOURS[name] for name in names])
    for at, name in enumerate(names):
        axis.plot(systems[name].runs, [at] * len(systems[name].runs), ".k", markersize=3)
    axis.set_title(title, fontsize=9)
    axis.set_xlabel("seconds", fontsize=8)
    axis.tick_params(labelsize=8)


def _runs(axis: Any, result: Result, title: str) -> None:
    axis.plot(range(1, len(result.runs) + 1), result.runs, "o-", color=_COLOURS["ours"], markersize=3)
    axis.set_title(title, fontsize=9)
    axis.set_xlabel("run", fontsize=8)
    axis.set_ylim(bottom=0)
    axis.tick_params(labelsize=8)
