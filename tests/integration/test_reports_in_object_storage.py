"""The command, the backup of the catalogue and clean-up, where reports lie in object storage."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from statestore.errors import ArchiveUnavailableError, MetastoreDegradedError
from statestore.kafka.cluster import Cluster
from statestore.metastore.metastore import Health
from statestore.objects.path import ObjectPath, listing, write_whole
from statestore.recovery import report_cleanup
from statestore.recovery.report_cleanup import OldFiles
from statestore.reports import RestoreReport, Status, VerifyReport, read_report
from statestore.verification.history import read_history
from tests.archive.counted import CountedStore
from tests.archive.faulty import status
from tests.archive.s3 import BUCKET, environment, running_s3
from tests.integration.broker import unique
from tests.integration.command_line import Ran, command_on
from tests.integration.commands import Service, assert_backed_up, names, put
from tests.integration.support import Application

_DAY_S = 24 * 60 * 60


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with running_s3() as url:
        yield url


@pytest.fixture
def store(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedStore]:
    made = CountedStore(endpoint)
    with made.running() as address:
        for name, value in environment(address).items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def place(store: CountedStore) -> ObjectPath:
    return ObjectPath(f"s3://{BUCKET}/{unique('place')}/reports")


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(bootstrap_servers: str, tmp_path: Path, monkeypatch, capfd):
    """Run the command on an application that has processed something."""
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1"), (b"b", b"1")])
    command, written = command_on(application, tmp_path, monkeypatch, capfd)

    def run(*arguments: str, reports: object) -> Ran:
        named = () if arguments[0] in ("report", "progress") else ("--definitions", str(written))
        return command(*arguments, *named, REPORTS_DIR=str(reports))

    run.application = application
    return run


def test_a_store_is_verified_and_restored_by_the_reports_in_a_bucket(run, place: ObjectPath) -> None:
    shutil.rmtree(run.application.store_spec().live)
    assert run("verify", "--parallel", "1", reports=place).code == 1
    (report,) = listing(place, "verify/*.json")
    assert [row.status for row in read_report(report, VerifyReport).rows] == [Status.MISSING]
    assert read_history(place).num_rows == 1
    for what in ("verify", str(report)):
        shown = run("report", what, reports=place)
        assert (shown.code, "MISSING" in shown.out) == (1, True)

    restored = run("restore", "--verify-report", str(report), "--parallel", "1", reports=place)
    assert restored.code == 0, restored.out + restored.err
    (report,) = listing(place, "restore/*.json")
    assert [row.outcome for row in read_report(report, RestoreReport).rows] == ["restored"]
    assert listing(place, "restore/.progress-*") == []
    assert run("report", "restore", reports=place).code == 0
    assert run("report", "process", reports=place).code == 2


@pytest.mark.long
def test_progress_is_shown_from_a_bucket(run, place: ObjectPath, tmp_path: Path) -> None:
    told = {"application": "shop", "store": "orders", "task": "0_3", "phase": "reading", "next": 7, "end": 99}
    write_whole(place / "restore" / ".progress-run" / "shop.json", json.dumps(told))
    write_whole(place / "restore" / ".progress-run" / "torn.json", "{")
    shown = run("progress", reports=place)
    assert (shown.code, "shop/orders/0_3" in shown.out) == (0, True)


@pytest.mark.short_for("s3://nobody/reports", "s3://user:canary@bucket/reports")
@pytest.mark.parametrize(
    ("place", "code", "expected"),
    [
        ("s3://nobody/reports", 2, "the bucket or container does not exist"),
        ("s3://user:canary@bucket/reports", 2, "has credentials or options in it"),
        ("s3://bucket/a/../../b", 2, "expected a name below a URL of object storage"),
        ("http://bucket/reports", 2, "expected the URL of an archive"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_before_any_work(
    run, store, place: str, code: int, expected: str
) -> None:
    for command in (("verify", "--parallel", "1"), ("report", "verify")):
        ran = run(*command, reports=place)
        assert (ran.code, expected in ran.err) == (code, True), ran.err
        assert "canary" not in ran.out + ran.err


def test_a_result_that_object_storage_does_not_take_is_shown_and_in_the_json(
    run, place: ObjectPath, store, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("STATESTORE_ARCHIVE_TIMEOUT_S", "2")
    store.fail("PUT", "", status(503))
    ran = run("verify", "--parallel", "1", "--json", str(tmp_path / "found.json"), reports=place)
    assert (ran.code, "could not be reached" in ran.err) == (3, True), ran.err
    assert [row.status for row in read_report(tmp_path / "found.json", VerifyReport).rows] == [Status.OK]
    assert "OK" in ran.out


# -- the backup --------------------------------------------------------------------------------------------------------


@pytest.fixture
def service(bootstrap_servers: str, place: ObjectPath, believed_soon: None) -> Service:
    made = Service(bootstrap_servers, place)  # type: ignore[arg-type]
    made.submit(put("flights"), put("weather"))
    return made


def test_every_command_is_in_the_backup_and_a_lost_or_older_one_gets_what_it_lacks(service: Service) -> None:
    assert_backed_up(service)
    older = service.backup.read_bytes()
    first, second = service.metastore(), service.metastore()
    first.submit(put("airports"))
    second.submit(put("planes"))
    assert service.backup.read_bytes().startswith(older)
    assert_backed_up(service)
    service.backup.write_bytes(older)  # by another writer, who knew less and was the last
    assert first.submit(put("more")).view.health is Health.RUNNING
    assert_backed_up(service)
    service.backup.unlink()
    assert len(names(service.metastore().view().catalogue)) == 5
    assert_backed_up(service)
    service.backup.write_bytes(service.backup.read_bytes() + b'{"offset":9,"tim')
    service.submit(put("last"))
    assert_backed_up(service)


@pytest.mark.long
def test_a_topic_that_was_deleted_is_made_anew_from_the_backup(service: Service) -> None:
    Cluster(service.servers).topics.delete(service.topic)
    metastore = service.metastore()
    view = metastore.view()
    assert (view.health, names(view.catalogue)) == (Health.DEGRADED, ["flights", "weather"])
    with pytest.raises(MetastoreDegradedError):
        metastore.submit(put("airports"))
    metastore.restore_backup(metastore.plan_restore())
    assert names(service.metastore().require_running().catalogue) == ["flights", "weather"]
    assert_backed_up(service)


def test_without_object_storage_no_command_is_sent(service: Service, store, monkeypatch) -> None:
    metastore = service.metastore()
    for method in ("GET", "PUT", "HEAD"):
        store.fail(method, "", status(503))
    with monkeypatch.context() as impatient:
        impatient.setenv("STATESTORE_ARCHIVE_TIMEOUT_S", "0.3")
        with pytest.raises(ArchiveUnavailableError):
            metastore.submit(put("airports"))
    store.heal()
    assert service.ids() == [1, 2]
    service.submit(put("airports"))
    assert_backed_up(service)


# -- clean-up ----------------------------------------------------------------------------------------------------------


def _fill(place: ObjectPath) -> tuple[set[str], set[str]]:
    """Write reports, the older first; return what is old, and what stays."""
    docs = place.parent / "docs"
    old = [
        place / "verify" / "a.json",
        place / "verify" / ".parts" / "a-shop.json",
        place / "history" / "verify" / "run-a.parquet",
        docs / "verdicts" / "shop.totals" / "a.json",
    ]
    stays = [
        place / "verify" / "b.json",
        place / "restore" / "only.json",
        place / "restore" / ".progress-running" / "a.json",
        place / "verify" / ".attempt-running" / "r.json",
        place / "metastore" / "default.backup",
        place / "mine.json",
        place / "history" / "verify" / "run-b.parquet",
        docs / "verdicts" / "shop.totals" / "b.json",
        docs / "verdicts" / "bank.totals" / "only.json",
        docs / "plots" / "shop.totals" / "lag.svg",
    ]
    for path in old:
        write_whole(path, "{}")
    newest_ns = max(path.stat().st_mtime_ns for path in old)
    while (place / "clock").now_s() * 1e9 <= newest_ns:  # S3's clock has seconds
        time.sleep(0.1)
    for path in stays:
        write_whole(path, "{}")
    return {str(path) for path in old}, {str(path) for path in stays}


def _there(place: ObjectPath) -> set[str]:
    above = place.parent
    return {str(path) for depth in range(1, 6) for path in listing(above, "/".join("*" * depth)) if path._listed}


def _cleaning(place: ObjectPath, older_than_s: float, *, dry_run: bool = False) -> OldFiles:
    return OldFiles(place, place.parent / "docs", None, older_than_s, dry_run=dry_run)


@pytest.mark.long
def test_old_reports_go_and_the_last_of_a_kind_and_what_is_not_ours_stay(place: ObjectPath) -> None:
    old, stays = _fill(place)
    listed = _cleaning(place, 0.0, dry_run=True).clean()
    assert _there(place) == old | stays
    done = _cleaning(place, 0.0).clean()
    assert [row.removed for row in done] == [row.removed for row in listed]
    assert {path for row in done for path in row.removed} == old
    assert {(row.place, row.removed_bytes) for row in done if row.removed} >= {("history", 2), ("verdicts", 2)}
    assert _there(place) == stays


@pytest.mark.long
def test_age_is_by_the_object_stores_clock(place: ObjectPath, monkeypatch) -> None:
    old, stays = _fill(place)
    monkeypatch.setattr(report_cleanup.time, "time", lambda: 1e11)  # the clock of this machine is wrong
    assert not any(row.removed for row in _cleaning(place, 30 * _DAY_S).clean())
    assert _there(place) == old | stays


@pytest.mark.long
def test_progress_and_attempts_of_killed_jobs_go_after_a_day(place: ObjectPath, monkeypatch) -> None:
    old, stays = _fill(place)
    monkeypatch.setattr(report_cleanup, "_DAY_S", 0.0)
    removed = {path for row in _cleaning(place, 30 * _DAY_S).clean() for path in row.removed}
    assert removed == {str(place / "restore" / ".progress-running"), str(place / "verify" / ".attempt-running")}
    assert _there(place) == {name for name in old | stays if "running" not in name}


def test_what_is_denied_is_told_of_its_place_and_the_rest_is_cleaned(place: ObjectPath, store) -> None:
    _fill(place)
    store.fail("POST", "delete", status(403), times=1)
    rows = {row.place: row for row in _cleaning(place, 0.0).clean()}
    assert rows["reports/verify"].failure is not None
    assert rows["reports/verify"].failure.kind == "ArchiveAccessError"
    assert (rows["history"].failure, rows["history"].removed_count) == (None, 1)
