"""Plots of a validated store: drawn from what there is, readable, and the same for the same data."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from statestore_jobs.frames import Size
from statestore_jobs.plots import Histogram, Lag, draw_all, lag_history

from statestore.reports import Action, Status, VerifyReport, VerifyRow
from statestore.verification.history import write_history

SIZES = {0: Size(10, 1_000_000), 3: Size(0, 0)}
HISTOGRAM = Histogram("timestamp", 1_700_000_000_000, 60_000, (1, 0, 5))
LAGS = [Lag("0_0", [1_700_000_000_000, 1_700_000_060_000], [0, 12]), Lag("0_3", [1_700_000_000_000], [7])]


def texts(path):
    return [element.text for element in ElementTree.parse(path).iter() if element.tag.endswith("text")]


def test_each_plot_has_its_data_and_names_its_store(tmp_path):
    sizes, times, lag = draw_all(tmp_path, "app.counts", SIZES, HISTOGRAM, LAGS)
    assert [path.name for path in (sizes, times, lag)] == ["partitions.svg", "timestamps.svg", "lag.svg"]
    assert {"app.counts", "keys", "keys and values, MB", "partition"} <= set(texts(sizes))
    assert {"app.counts", "timestamps", "rows"} <= set(texts(times))
    assert {"app.counts", "0_0", "0_3", "offsets"} <= set(texts(lag))


@pytest.mark.long
def test_the_same_data_are_drawn_byte_for_byte_the_same(tmp_path):
    first = [path.read_bytes() for path in draw_all(tmp_path, "app.counts", SIZES, HISTOGRAM, LAGS)]
    assert [path.read_bytes() for path in draw_all(tmp_path, "app.counts", SIZES, HISTOGRAM, LAGS)] == first


@pytest.mark.long
def test_what_there_is_no_data_for_is_not_drawn_and_an_earlier_plot_of_it_goes(tmp_path):
    draw_all(tmp_path, "app.counts", SIZES, HISTOGRAM, LAGS)
    assert draw_all(tmp_path, "app.counts", SIZES, None, []) == (tmp_path / "partitions.svg",)
    assert [path.name for path in tmp_path.iterdir()] == ["partitions.svg"]


@pytest.mark.short_for("4611686018427387904")
@pytest.mark.parametrize("start", [-1_000, 1 << 62])
def test_timestamps_that_no_calendar_has_are_drawn_as_numbers(tmp_path, start):
    _, times = draw_all(tmp_path, "app.counts", SIZES, Histogram("timestamp", start, 1, (1, 2)), [])
    assert "ms" in texts(times)


def test_the_lag_s_history_is_that_of_the_store_by_task_and_in_order(tmp_path):
    def row(task, lag, store="counts"):
        found = {"application": "app", "store": store, "status": Status.OK, "action": Action.NONE}
        return VerifyRow(task=task, lag=lag, **found)

    for started, rows in ((2000, [row("0_10", 5), row("0_2", None)]), (1000, [row("0_10", 9), row("0_2", 0)])):
        report = VerifyReport(
            run_id=f"run-{started}",
            applications=("app",),
            started_ms=started,
            finished_ms=started,
            rows=(*rows, row("0_0", 99, store="others")),
        )
        write_history(tmp_path, report)
    assert lag_history(tmp_path, "app", "counts") == [Lag("0_2", [1000], [0]), Lag("0_10", [1000, 2000], [9, 5])]
    assert lag_history(tmp_path / "none", "app", "counts") == []
