"""What a restore tells of its progress, and how people see it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from samples import store_partition

from statestore.model import TaskId
from statestore.progress import display as progress_shown
from statestore.progress import files as files_module
from statestore.progress.display import shown
from statestore.progress.files import read_files
from statestore.recovery import restore_progress as progress_module
from statestore.recovery.restore_progress import RESTORES, RestoreProgress, RestoreProgressWriter
from statestore.reports import RestorePlanReport, RestorePlanRow, read_report, write_report


@pytest.fixture
def store(tmp_path):
    return store_partition(tmp_path / "state", task=TaskId(0, 3))


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets forward, and files that are written at each call."""
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(files_module, "_EVERY_S", 0)
    return now


def test_a_restore_tells_offsets_rate_and_the_time_that_is_left(store, tmp_path, clock):
    with RestoreProgressWriter(store, tmp_path / "told") as progress:
        progress.reading(1_000, 5_000)
        clock[0] += 2
        progress.read(1_000, 900)
        (found,) = read_files(tmp_path / "told", RestoreProgress)
        assert (found.label, found.phase) == ("app/s/0_3", "reading")
        assert (found.start, found.next, found.end, found.records) == (1_000, 2_000, 5_000, 900)
        assert (found.records_per_s, found.seconds_left) == (450, 6)
        progress.phase("building")
    (found,) = read_files(tmp_path / "told", RestoreProgress)
    assert found.phase == "ended"


def test_a_short_log_tells_no_phase_between_its_reading_and_its_end(store, tmp_path):
    def phase():
        return [found.phase for found in read_files(tmp_path, RestoreProgress)]

    for offsets, told in ((50_000, "reading"), (50_001, "building")):
        with RestoreProgressWriter(store, tmp_path) as progress:
            assert phase() == ["verifying"]
            progress.reading(0, offsets)
            progress.phase("building")
            assert phase() == [told]
        assert phase() == ["ended"]


def test_a_snapshot_is_told_in_bytes_while_it_is_fetched(store, tmp_path, clock):
    with RestoreProgressWriter(store, tmp_path) as progress:
        progress.fetching(3 << 20)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(progress.fetched, [1 << 10] * 2_000))
        (found,) = read_files(tmp_path, RestoreProgress)
        assert (found.phase, found.fetched_bytes, found.snapshot_bytes) == ("fetching", 2_000 << 10, 3 << 20)
        assert RESTORES.bar(found) == ("app/s/0_3 fetching, MiB", 1, 3)
        assert "1 MiB left to fetch" in RESTORES.line([found], 1)


def test_ranges_of_a_store_partition_have_files_of_their_own(store, tmp_path):
    with (
        RestoreProgressWriter(store, tmp_path),
        RestoreProgressWriter(store, tmp_path, "1/2"),
        RestoreProgressWriter(store, tmp_path, "2/2"),
    ):
        labels = {found.label for found in read_files(tmp_path, RestoreProgress)}
    assert labels == {"app/s/0_3", "app/s/0_3 1/2", "app/s/0_3 2/2"}


def test_without_a_place_for_it_nothing_is_told(store, tmp_path):
    with RestoreProgressWriter(store, None) as progress:
        progress.reading(0, 10)
        progress.read(10, 10)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_told_is_shown_as_bars_or_as_lines(store, tmp_path, monkeypatch, capsys, terminal):
    monkeypatch.setattr(progress_shown.sys.stderr, "isatty", lambda: terminal, raising=False)
    with shown(tmp_path, ["app/s/0_3"], RESTORES), RestoreProgressWriter(store, tmp_path) as progress:
        progress.reading(0, 4_000)
        progress.read(4_000, 3_900)
    said = capsys.readouterr().err
    assert ("app/s/0_3 ended" if terminal else "restore: 1 of 1 ended, 3900 records read, 0 offsets left") in said


def test_a_plan_comes_back_as_it_was_written(tmp_path):
    row = RestorePlanRow(application="app", store="s", task="0_3", mode="full", start=10, end=30, resumable=5)
    report = RestorePlanReport(
        run_id="run", applications=("app",), started_ms=1, finished_ms=2, records_per_s=500_000, rows=(row,)
    )
    write_report(tmp_path / "plan.json", report)
    assert read_report(tmp_path / "plan.json", RestorePlanReport) == report
    assert row.offsets == 15
