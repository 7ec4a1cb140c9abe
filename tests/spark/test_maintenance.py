"""Maintenance removes what is old and of no more use, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from statestore_jobs import maintenance

from demo.damage import flip_bit
from statestore.config import Settings
from statestore.partition.quarantine import quarantined
from statestore.recovery.report_cleanup import OldFiles
from statestore.recovery.restore import restore
from statestore.recovery.runner import Part
from statestore.recovery.sources.log import begin_ranges, restore_range
from statestore.recovery.staging import Staging
from statestore.recovery.task_cleanup import CleaningSpec, clean_task, tasks_with_own_files
from statestore.reports import MaintenanceReport, MaintenanceRow, Status
from statestore.requests.maintenance import MaintenanceRequest
from statestore.requests.restore import RestoreRequest
from statestore.statedir.lock import locked
from tests.integration.support import STORE, Application, catalogue_of
from tests.spark.parcels import clean_or_die

DAY_S = 24 * 60 * 60


def age(path: Path, days: float) -> Path:
    """Make a file, or a directory and all in it, so old."""
    then = time.time() - days * DAY_S
    for found in [*(path.rglob("*") if path.is_dir() else ()), path]:
        os.utime(found, (then, then))
    return path


def clean(application: Application, **changes: Any) -> MaintenanceRow:
    """Tidy up task 0_0; a week is old."""
    spec = CleaningSpec(application.store_spec().paths, application.definition.stores, 7 * DAY_S, dry_run=False)
    return clean_task(spec._replace(**changes))


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application with a whole store, whose predecessor is in quarantine."""
    made = Application(bootstrap_servers, tmp_path)
    made.process([(b"key-%03d" % number, b"1") for number in range(200)])
    flip_bit(made.live)
    assert made.restore().before is Status.CORRUPT
    return made


def in_quarantine(application: Application) -> list[Path]:
    return quarantined(application.store_spec().paths, STORE)


@pytest.mark.long
def test_a_replaced_store_goes_when_it_is_old_and_the_live_one_is_whole(application):
    assert clean(application).removed_count == 0
    (old,) = in_quarantine(application)
    age(old, 8)
    listed = clean(application, dry_run=True)
    assert (listed.removed, in_quarantine(application)) == ((str(old),), [old])
    done = clean(application)
    assert (done.removed, done.removed_bytes, done.failure) == (listed.removed, listed.removed_bytes, None)
    assert done.removed_bytes > 0
    assert in_quarantine(application) == []
    assert application.verify().status is Status.OK
    assert clean(application).removed_count == 0


def test_a_replaced_store_stays_while_the_live_one_is_damaged_or_nobody_knows_what_it_is(application):
    (old,) = in_quarantine(application)
    age(old, 8)
    unknown = clean(application, stores=())
    assert (unknown.kept, unknown.removed_count) == ((f"{old}: no definition has the store",), 0)
    flip_bit(application.live)
    broken = clean(application)
    assert (broken.kept, broken.healthy) == ((f"{old}: the live store is not intact",), True)
    assert in_quarantine(application) == [old]


@pytest.mark.long
def test_what_a_killed_restore_left_goes_when_it_is_old_but_not_while_somebody_works_on_it(application):
    spec = application.restore_spec("full", force=True)
    paths = spec.store.paths
    for part in begin_ranges(spec):
        assert restore_range(Part(spec, part)).failure is None
    built = paths.staging(STORE)
    shutil.copytree(application.live, built)
    runs = paths.runs(STORE)
    assert runs.exists()
    done = clean(application)
    assert (done.removed, built.exists(), runs.exists()) == ((str(built.parent),), False, True)
    age(runs, 8)
    with Staging(paths, STORE).reading(1.0):
        assert clean(application).kept == (f"{runs}: a restore of it is in progress",)
    assert clean(application).removed == (str(runs),)
    assert not runs.exists()
    assert application.verify().status is Status.OK


def test_a_task_that_is_in_use_is_left_alone(application):
    (old,) = in_quarantine(application)
    age(old, 8)
    with locked(application.store_spec().paths):
        row = clean(application)
    assert row.failure is not None
    assert row.failure.kind == "LockedError"
    assert in_quarantine(application) == [old]


@pytest.fixture
def files(tmp_path: Path) -> OldFiles:
    return OldFiles(tmp_path / "reports", tmp_path / "docs", tmp_path / "as-of", 30 * DAY_S, dry_run=False)


def put(path: Path, days: float) -> Path:
    """Make a file so old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return age(path, days)


def test_old_files_of_runs_go_and_the_last_of_a_kind_and_what_is_not_ours_stay(files):
    reports, docs = files.reports_dir, files.data_docs_dir
    gone = [
        put(reports / "verify" / "old.json", 31),
        put(reports / "verify" / ".parts" / "old-shop.json", 31),
        put(reports / "verify" / ".old.json.0123", 2),
        put(reports / "verify" / ".attempt-killed" / "r.json", 2).parent,
        put(reports / "restore" / ".progress-killed" / "a.json", 2).parent,
        put(reports / "history" / "verify" / "run-old.parquet", 31),
        put(docs / "verdicts" / "shop.totals" / "old.json", 31),
    ]
    for directory in (gone[3], gone[4]):
        age(directory, 2)
    stays = [
        put(reports / "verify" / "new.json", 29),
        put(reports / "restore" / "last-though-old.json", 90),
        put(reports / "restore" / ".progress-running" / "a.json", 0),
        put(reports / "verify" / ".attempt-running" / "r.json", 0),
        put(reports / "metastore" / "default.backup", 90),
        put(reports / "mine.json", 90),
        put(reports / "history" / "verify" / "run-new.parquet", 29),
        put(docs / "verdicts" / "shop.totals" / "new.json", 1),
        put(docs / "verdicts" / "bank.totals" / "last-though-old.json", 90),
        put(docs / "plots" / "shop.totals" / "lag.svg", 90),
    ]
    listed = files._replace(dry_run=True).clean()
    assert all(path.exists() for path in (*gone, *stays))
    done = files.clean()
    assert [row.removed for row in done] == [row.removed for row in listed]
    assert sorted(path for row in done for path in row.removed) == sorted(map(str, gone))
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in stays)


@pytest.mark.long
def test_an_old_state_directory_of_mode_as_of_goes_unless_it_is_in_use_or_somebody_elses(files, application):
    target = files.as_of_dir / "run"
    request = RestoreRequest(mode="as-of", as_of_offset=3, target=target, best_effort=True)
    spec = application.restore_spec()._replace(request=request)
    assert restore(spec).outcome == "restored"
    other = put(files.as_of_dir / "mine" / "x", 40).parent
    assert files.clean()[-1].removed == ()
    for directory in (target, other):
        age(directory, 40)
    (paths,) = tasks_with_own_files(target)
    with locked(paths):
        age(target, 40)
        assert f"{target}: a store in it is in use" in files.clean()[-1].kept
    age(target, 40)
    row = files.clean()[-1]
    assert (row.removed, row.kept) == ((str(target),), (f"{other}: no restore created it",))
    assert application.verify().status is Status.OK


@pytest.fixture
def run(spark, application, tmp_path, bootstrap_servers):
    """Run the job."""
    settings = Settings(
        bootstrap_servers=bootstrap_servers,
        state_dir=application.state_dir,
        reports_dir=tmp_path / "reports",
        data_docs_dir=tmp_path / "docs",
        archive=f"file://{tmp_path}/archive",
    )
    request = MaintenanceRequest(as_of_dir=tmp_path / "as-of")
    return lambda: maintenance.run(request, settings, catalogue_of(application.definition), "run")


def test_a_worker_that_dies_costs_its_own_row_alone(application, run, monkeypatch):
    (old,) = in_quarantine(application)
    age(old, 8)
    (application.store_spec(1).paths.own_dir).mkdir()
    monkeypatch.setattr(maintenance, "clean_task", clean_or_die)
    rows = {row.place: row for row in run().rows}
    assert rows[f"{application.name}/0_0"].failure is None
    assert not old.exists()  # perhaps by an attempt that Spark has cancelled, which could not tell
    assert rows[f"{application.name}/0_1"].failure.kind == "WorkerLostError"


def test_the_job_reports_each_task_and_each_kind_of_files(application, run):
    (old,) = in_quarantine(application)
    age(old, 8)
    report = run()
    assert MaintenanceReport.model_validate(json.loads(report.model_dump_json())) == report
    rows = {row.place: row for row in report.rows}
    assert rows[f"{application.name}/0_0"].removed == (str(old),)
    assert {"reports/verify", "history", "verdicts", "as-of", "archive/marked", "archive/files"} <= set(rows)
    assert all(row.healthy for row in report.rows)
