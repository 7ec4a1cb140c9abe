"""Plots of a validated store: how its keys and bytes are spread, of when its rows are, how its lag went.

They are SVG files, drawn without a display, and written anew with each validation of the store. What there is no data
for is not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib import rc_context
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from statestore.objects.path import Location, ObjectPath
from statestore.verification.history import read_history
from statestore_jobs.frames import TIMES, Size, is_known

_BARS = 60
#: With more partitions than this the lines of a plot are not told apart by colour.
_NAMED = 10
_COLOUR, _PALE = "#1f6feb", "#9aa4b2"
#: How the times of rows are called.
_TITLES = {"timestamp": "timestamps", "window_start": "starts of windows", "session_end": "ends of sessions"}


class Histogram(NamedTuple):
    """How many rows lie in each of so many stretches of the same length.

    Attributes
    ----------
    column
        What the time is.
    start, step
        Start of the first stretch, and length of each (ms).
    """

    column: str
    start: int
    step: int
    counts: tuple[int, ...]


class Lag(NamedTuple):
    """How far a store partition was behind its log, in offsets, at the times (ms) of some verifications."""

    task: str
    times: Sequence[int]
    lags: Sequence[int]


def draw_all(
    directory: Path, title: str, sizes: Mapping[int, Size], histogram: Histogram | None, lags: Sequence[Lag]
) -> tuple[Path, ...]:
    """Draw the plots of a store and return their files, those that there is data for.

    Plots of an earlier validation are removed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.svg"):
        old.unlink()
    drawn = []
    plots: dict[str, Callable[[Figure], None]] = {}
    if sizes:
        plots["partitions"] = partial(_draw_sizes, sizes=sizes)
    if histogram:
        plots["timestamps"] = partial(_draw_histogram, histogram=histogram)
    if lags:
        plots["lag"] = partial(_draw_lags, lags=lags)
    for name, draw in plots.items():
        drawn.append(directory / f"{name}.svg")
        # Text and ids that do not change from run to run, as long as the data do not.
        with rc_context({"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 8}):
            figure = Figure(figsize=(8, 3.2), layout="constrained")
            figure.suptitle(title)
            draw(figure)
            figure.savefig(drawn[-1], format="svg", metadata={"Date": None})
    return tuple(drawn)


# -- what is drawn ----------------------------------------------------------------------------------------------------


def histogram_of(store: DataFrame, sizes: Iterable[Size]) -> Histogram | None:
    """Count a store's rows by time, in one pass; None if no row has one.

    Parameters
    ----------
    store
        Rows, all within the times of `sizes`.
    """
    spans = [size.times for size in sizes]
    column = next((name for name in TIMES if any(name in span for span in spans)), None)
    if column is None:
        return None
    ends = [span[column] for span in spans if column in span]
    first, last = min(end[0] for end in ends), max(end[1] for end in ends)
    step = (last - first) // _BARS + 1
    bars = store.where(is_known(column)).groupBy(F.expr(f"({column} - {first}) div {step}").alias("bar")).count()
    counts = [0] * _BARS
    for row in bars.collect():
        counts[row.bar] = row["count"]
    return Histogram(column, first, step, tuple(counts))


def lag_history(reports_dir: Location, application: str, store: str) -> list[Lag]:
    """Return what verifications have found, the oldest first; runs that could not tell a lag are left out."""
    found = _fetched_history(reports_dir) if isinstance(reports_dir, ObjectPath) else read_history(reports_dir)
    of_store = pc.and_(pc.equal(found["application"], application), pc.equal(found["store"], store))
    rows = found.filter(pc.and_(of_store, pc.is_valid(found["lag"]))).select(["task", "started_ms", "lag"]).to_pylist()
    by_task: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_task.setdefault(row["task"], []).append(row)
    return [
        Lag(task, [row["started_ms"] for row in seen], [row["lag"] for row in seen])
        for task, seen in sorted(by_task.items(), key=lambda item: (len(item[0]), item[0]))
    ]


@lru_cache(maxsize=1)
def _fetched_history(reports_dir: ObjectPath) -> pa.Table:
    """Fetch the history once for all stores of a job: each run in it is a request."""
    return read_history(reports_dir)


# -- drawing ----------------------------------------------------------------------------------------------------------


def _draw_sizes(figure: Figure, sizes: Mapping[int, Size]) -> None:
    partitions = sorted(sizes)
    keys, size = figure.subplots(1, 2)
    keys.bar(partitions, [sizes[partition].keys for partition in partitions], color=_COLOUR)
    keys.set_ylabel("keys")
    size.bar(partitions, [sizes[partition].bytes / 1e6 for partition in partitions], color=_COLOUR)
    size.set_ylabel("keys and values, MB")
    for axis in (keys, size):
        axis.set_xlabel("partition")
        axis.xaxis.get_major_locator().set_params(integer=True)


def _draw_histogram(figure: Figure, histogram: Histogram) -> None:
    axis: Any = figure.subplots()  # its types leave out dates
    starts = [histogram.start + number * histogram.step for number in range(len(histogram.counts))]
    if _is_dates(starts):
        days = histogram.step / 86_400_000
        axis.bar([_date(start) for start in starts], histogram.counts, width=days, align="edge", color=_COLOUR)
        _date_axis(axis)
    else:
        axis.bar(starts, histogram.counts, width=histogram.step, align="edge", color=_COLOUR)
        axis.set_xlabel("ms")
    axis.set_title(_TITLES[histogram.column])
    axis.set_ylabel("rows")


def _draw_lags(figure: Figure, lags: Sequence[Lag]) -> None:
    axis: Any = figure.subplots()  # its types leave out dates
    named = len(lags) <= _NAMED
    for lag in lags:
        style = {"label": lag.task} if named else {"color": _PALE, "linewidth": 0.8}
        axis.plot([_date(time) for time in lag.times], lag.lags, marker=".", **style)
    if named:
        axis.legend(title="task")
    axis.set_ylim(bottom=0)
    axis.set_title("lag, as verifications have found it")
    axis.set_ylabel("offsets")
    _date_axis(axis)


def _date_axis(axis: Any) -> None:
    locator = AutoDateLocator()
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))


def _is_dates(times: Sequence[int]) -> bool:
    """Tell whether all are times that a calendar has: record timestamps are what producers make them."""
    return times[0] >= 0 and times[-1] < 253_402_300_800_000


def _date(time: int) -> datetime:
    return datetime.fromtimestamp(time / 1000, UTC)
