"""What the page says of running work, from the files that jobs write as they go."""

from __future__ import annotations

import os
import re
import time

import pytest
from fastapi.responses import JSONResponse
from statestore_ui.running_work import Running

from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.model import TaskId
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.reports import RestoreReport, write_report


@pytest.fixture
def show(reports):
    running = Running()
    return lambda now_s=None: running.get(reports.directory, now_s)["work"]


def only(restores):
    (restore,) = restores
    return restore


def test_what_a_restore_itself_writes_is_read(reports, show, tmp_path):
    store = StorePartitionSpec(
        application="shop",
        task=TaskId(0, 3),
        store=StoreDefinition(name="orders"),
        changelog=None,
        cluster=Cluster("", 1),
        state_dir=tmp_path / "state",
    )
    directory = reports.directory / "restore" / ".progress-manual__1-abcdef12"
    with RestoreProgressWriter(store, directory) as progress:
        progress.reading(1_000, 5_000)
        found = only(show())
        assert found["run"] == "manual__1-abcdef12"
        (partition,) = found["pieces"]
        assert (partition["phase"], partition["done"], partition["total"]) == ("reading", 0, 4_000)
    assert only(show())["ended"] == 1


def test_a_snapshot_that_is_fetched_is_told_in_bytes(reports, show):
    reports.progress("run", phase="fetching", fetched_bytes=1 << 20, snapshot_bytes=3 << 20)
    (partition,) = only(show())["pieces"]
    assert (partition["phase"], partition["fetched_bytes"], partition["snapshot_bytes"]) == (
        "fetching",
        1 << 20,
        3 << 20,
    )


def test_offsets_and_rates_are_summed_and_the_longest_time_is_left(reports, show):
    reports.progress("run", next=500, end=2_000, records=400, records_per_s=100.0, seconds_left=60)
    reports.progress("run", task="0_1", next=1_000, end=1_000, records=900, records_per_s=300.0, phase="ended")
    reports.progress("run", task="0_2", next=50, end=100, records=50, records_per_s=20.0, seconds_left=2)
    found = only(show())
    assert (found["done"], found["total"], found["ended"], found["seen"]) == (1_550, 3_100, 1, 3)
    assert (found["records_per_s"], found["seconds_left"], found["records"]) == (120, 60, 1_350)


def test_ranges_of_a_log_stand_for_their_store_partition_until_it_reads_itself(reports, show):
    reports.progress("run", part="1/2", start=0, next=1_000, end=1_000, phase="ended")
    reports.progress("run", part="2/2", start=1_000, next=1_500, end=2_000, records_per_s=10.0, seconds_left=50)
    (partition,) = only(show())["pieces"]
    assert (partition["done"], partition["total"], partition["phase"]) == (1_500, 2_000, "reading")
    reports.progress("run", part="2/2", start=1_000, next=2_000, end=2_000, phase="ended")
    assert only(show())["pieces"][0]["phase"] == "building"
    reports.progress("run", start=0, next=2_000, end=2_000, phase="checking")
    (partition,) = only(show())["pieces"]
    assert (partition["done"], partition["total"], partition["phase"]) == (2_000, 2_000, "checking")


def test_a_restore_that_says_nothing_any_more_says_for_how_long(reports, show):
    reports.progress("run")
    assert only(show(time.time() + 300))["silent_s"] == pytest.approx(300, abs=10)
    assert show(time.time() + 90_000) == []


def test_a_restore_whose_report_is_there_has_ended(reports, show):
    path = reports.progress("run")
    os.utime(path, (1_000_000, 1_000_000))
    report = RestoreReport(run_id="run", applications=(), started_ms=0, finished_ms=0, rows=())
    write_report(reports.directory / "restore" / "run.json", report)
    assert show() == []


def test_tasks_of_process_and_snapshots_are_told_as_restores_are(reports, show):
    reports.task_progress("p", 0, first=100, next=150, end=200, records_in=50, poison_records=2)
    reports.task_progress("p", 1, phase="recovering", end=900)
    reports.task_progress("p", 2, phase="ended", first=0, next=30, end=30, records_in=30)
    reports.progress("s", job="snapshot", next=1, end=4)
    found = {work["job"]: work for work in show()}
    process = found["process"]
    assert (process["done"], process["total"], process["ended"], process["seen"]) == (80, 130, 1, 3)
    assert (process["records"], process["dead_letters"]) == (80, 2)
    assert [(task["task"], task["phase"]) for task in process["pieces"]] == [
        ("0_0", "processing"),
        ("0_1", "recovering"),
    ]
    assert (found["snapshot"]["done"], found["snapshot"]["total"]) == (1, 4)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"application": 1, "store": "s", "task": "0_0", "phase": "reading"}',
     b'{"application": "a", "store": "s", "task": "0_0", "phase": "singing"}',
     b'{"application": "a", "store": "s", "task": "0_0", "phase": "reading", "next": "many"}'],
)  # fmt: skip
def test_a_file_that_something_else_wrote_is_passed_over(reports, show, content):
    path = reports.progress("run", next=5, end=10)
    (path.parent / "foreign.json").write_bytes(content)
    assert only(show())["seen"] == 1


def test_a_missing_directory_has_no_restores(reports, show):
    reports.directory.rmdir()
    assert show() == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1" * 400, "1" * 5000])
@pytest.mark.parametrize("field", ["end", "records_per_s", "seconds_left"])
def test_a_number_that_is_none_leaves_out_what_says_it_and_nothing_else(reports, show, field, number):
    reports.progress("good", end=2_000, records_per_s=1.0, seconds_left=4711)
    bad = reports.progress("bad", end=4711, records_per_s=4711.0, seconds_left=4711.0)
    text = re.sub(rf'"{field}":4711(\.0)?', f'"{field}":{number}', bad.read_text("utf-8"))
    assert number in text
    bad.write_text(text, "utf-8")
    restores = show()
    assert [restore["run"] for restore in restores] == ["good"]
    JSONResponse(restores)


@pytest.mark.parametrize("run", [os.fsdecode(b"caf\xe9"), "good"])
def test_names_that_are_no_utf8_are_shown_or_left_out(reports, show, run):
    path = reports.progress(run, end=2_000)
    if run == "good":
        path.write_text(path.read_text("utf-8").replace('"shop"', r'"\udce9"'), "utf-8")
    restores = show()
    assert [restore["run"] for restore in restores] == ([] if run == "good" else [r"caf\udce9"])
    JSONResponse(restores)
