"""Snapshots of stores: published when their task has closed them, and restored from with the rest of the log."""

from __future__ import annotations

import json
import logging
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from statestore.archive.archive import ArchiveSpec, archive_spec
from statestore.archive.contents import check_archive
from statestore.archive.layout import BLOBS
from statestore.archive.pins import pins
from statestore.archive.snapshots import histories, history, mark_suspect, missing_files, read_manifest
from statestore.config import Settings
from statestore.kafka.cluster import Cluster
from statestore.partition.rollback import RollbackSpec, roll_back
from statestore.partition.snapshots import publish_row
from statestore.recovery import tail
from statestore.recovery.archive_cleanup import archive_rows
from statestore.recovery.planning import plan_restore
from statestore.recovery.restore import restore
from statestore.recovery.run import restore_specs
from statestore.recovery.snapshot_building import SnapshotSpec, snapshot_from_log
from statestore.reports import Status, VerifyReport, write_report
from statestore.requests.restore import RestoreRequest
from statestore.statedir.scratch import default_scratch
from statestore.statedir.seal import forget_digests, install_digests, known_files, seal
from statestore.statedir.swap import locked_task
from statestore.stores.open import open_key_value_store
from statestore.tasks import ValueAndTimestamp
from tests.integration import dying
from tests.integration.archived import ROWS, TINY_RUN, Archived
from tests.integration.broker import (
    T0,
    create_topic,
    delete_records,
    delete_topic,
    produce,
    set_topic_config,
    transaction,
)
from tests.integration.command_line import command_on
from tests.integration.kinds import ALL_STORES, EVERY_KIND, STORES, changes, logged, stored
from tests.integration.support import CHANGELOG_CONFIG, STORE, Application


def test_a_task_publishes_what_it_has_committed_once(archived: Archived) -> None:
    (row,) = archived.process(ROWS).snapshots
    assert row.failure is None
    assert archived.snapshots() == [row.snapshot]
    assert row.bytes == sum(found.size for found in archived.objects.entries(BLOBS))
    (idle,) = archived.process().snapshots
    assert (idle.snapshot, idle.current) == (None, row.snapshot)
    (more,) = archived.process([(b"key-000", b"value")]).snapshots
    assert archived.snapshots() == [more.snapshot, row.snapshot]
    assert more.bytes < row.bytes


@pytest.mark.parametrize("least", [1, pytest.param(1 << 60, marks=pytest.mark.long)], ids=["sorted", "replayed"])
def test_a_lost_node_is_restored_from_its_snapshot_and_the_rest_of_the_log(
    archived: Archived, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(tail, "LEAST_SORTED", least)
    archived.process(ROWS)
    archived.process([(b"key-000", b"value"), (b"new", b"value")])
    # What came after the snapshot is in the log alone.
    archived.send([(b"key-000", b"value"), (b"later", b"value")])
    assert Application.run(archived).failure is None
    expected = archived.contents()
    archived.lose_all()
    row = archived.restored()
    assert (row.before, row.mode, row.records) == (Status.MISSING, "snapshot", 2)
    assert row.snapshot == archived.snapshots()[1]
    assert archived.contents() == expected
    assert archived.verify("deep").status is Status.OK
    assert row.published.snapshot == archived.snapshots()[0]  # what it built
    assert archived.process([(b"later", b"value")]).failure is None
    assert archived.contents()[b"later"].value == b"2"


def test_files_whose_checksums_are_installed_are_not_read_to_be_sealed(archived: Archived) -> None:
    archived.process(ROWS)
    spec = archived.store_spec()
    paths, kind = spec.paths, spec.store.store_kind
    first, *others = sorted(known_files(paths, STORE))
    with locked_task(paths, 1):
        install_digests(paths, STORE, kind, {first: "0" * 64, "999999.sst": "1" * 64})
        seal(paths, STORE, kind)
    known = known_files(paths, STORE)
    assert known.pop(first) == "0" * 64
    assert set(known) == set(others)
    row = archived.verify("deep")
    assert (row.status, row.file) == (Status.CORRUPT, str(spec.live / first))


def test_files_that_are_on_this_disk_are_linked(archived: Archived) -> None:
    archived.process(ROWS)
    before = {path.stat().st_ino for path in archived.live.glob("*.sst")}
    assert archived.restored(force=True).mode == "snapshot"
    assert before & {path.stat().st_ino for path in archived.live.glob("*.sst")}


def test_auto_begins_with_the_snapshot_where_that_reads_less(bootstrap_servers: str, tmp_path: Path) -> None:
    archived = Archived(bootstrap_servers, tmp_path, processor="echo")
    archived.process([(key, b"v" * 1000) for _ in range(6) for key, _ in ROWS])  # the log has each key six times
    archived.lose_all()
    plan = plan_restore(archived.restore_spec(archive=archived.archive))
    assert (plan.mode, plan.snapshot) == ("snapshot", archived.snapshots()[0])
    assert archived.restored("auto").mode == "snapshot"
    archived.lose_all()
    assert archived.restored("full").mode == "full"


@pytest.mark.short_for("1")
@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_snapshot_is_passed_over_for_an_older_one_and_then_for_the_log(
    archived: Archived, caplog: pytest.LogCaptureFixture, damaged: int
) -> None:
    archived.process(ROWS)
    archived.process([(b"new", b"value")])
    expected, names = archived.contents(), archived.snapshots()
    (directory,) = archived.directories()
    newer, older = (
        read_manifest(archived.objects, directory, found.name) for found in history(archived.objects, directory).usable
    )
    for name in newer.blobs if damaged == 2 else newer.blobs - older.blobs:
        archived.objects.delete(name)
    archived.lose_all()
    with caplog.at_level(logging.WARNING):
        row = archived.restored()
    assert (row.mode, row.snapshot) == (("snapshot", names[1]) if damaged == 1 else ("full", None))
    assert f"snapshot {names[0]} is not used" in caplog.text
    assert ("rebuilt from its log alone" in caplog.text) is (damaged == 2)
    assert archived.contents() == expected
    assert archived.verify("deep").status is Status.OK


def test_a_snapshot_of_another_topic_of_that_name_is_not_used(archived: Archived, caplog: Any) -> None:
    archived.process(ROWS)
    archived.lose_all()
    delete_topic(archived.servers, archived.changelog)
    create_topic(archived.servers, archived.changelog, 1, CHANGELOG_CONFIG)
    produce(archived.servers, archived.changelog, [(b"key", (5).to_bytes(8, "big") + b"1")], 0, T0)
    with caplog.at_level(logging.WARNING):
        refused = restore(archived.restore_spec("snapshot", archive=archived.archive))
    assert "the archive has more" in refused.failure.message
    assert archived.restored("full", accept_loss=True).published.snapshot.startswith("00000001-")


def test_stores_that_another_writer_may_have_logged_to_are_not_published_by_their_task(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    archived = Archived(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    assert archived.process(ROWS).snapshots == ()


def test_an_archive_that_cannot_be_written_is_told_and_does_no_harm(archived: Archived, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("x")
    nowhere = archived.archive.model_copy(update={"url": f"file://{tmp_path}/a-file"})
    archived.send(ROWS)
    row = archived.run(archive=nowhere)
    assert row.failure is None
    assert row.snapshots[0].failure.kind == "ArchiveUnavailableError"
    assert archived.verify().status is Status.OK
    assert archived.process([(b"key-000", b"value")]).snapshots[0].failure is None


def test_a_restore_without_an_archive_says_what_to_set(archived: Archived) -> None:
    archived.process(ROWS)
    archived.lose_all()
    row = restore(archived.restore_spec("snapshot"))
    assert "set STATESTORE_ARCHIVE" in row.failure.message


# -- generations and suspects -----------------------------------------------------------------------------------------


def test_a_diverged_store_is_rebuilt_from_its_log_and_its_snapshots_are_not_used_again(
    archived: Archived, tmp_path: Path
) -> None:
    archived.process(ROWS)
    expected = archived.contents()
    spec = archived.store_spec()
    opened = open_key_value_store(spec.store, spec.live)
    opened.put(b"key-000", ValueAndTimestamp(b"wrong", T0))
    opened.commit({spec.partition: archived.committed()})
    opened.close()
    archived.process([(b"new", b"value")])  # seals and publishes what is wrong
    assert archived.verify("deep").status is Status.DIVERGED
    report = tmp_path / "verify.json"
    write_report(
        report,
        VerifyReport(
            run_id="v", applications=(archived.name,), started_ms=0, finished_ms=0, rows=(archived.verify("deep"),)
        ),
    )
    for mode in ("auto", "snapshot"):
        request = RestoreRequest(mode=mode, verify_report=report)
        (planned,) = restore_specs(
            [archived.store_spec(archive=archived.archive)], request, mode, run_bytes=1 << 20, quarantine_s=1
        )
        row = restore(planned)
        assert (row.failure, row.mode) == (None, "full")
        assert archived.snapshots() == [row.published.snapshot]  # all before are suspect
    assert archived.verify("deep").status is Status.OK
    assert archived.contents().keys() == expected.keys() | {b"new"}


@pytest.mark.long
def test_a_store_that_is_put_back_begins_a_generation_of_snapshots(archived: Archived) -> None:
    archived.process(ROWS)
    archived.restored("full", force=True)
    archived.process([(b"new", b"value")])
    before = archived.snapshots()
    rolled = roll_back(RollbackSpec(archived.store_spec(), "back"))
    assert rolled.failure is None
    assert archived.snapshots() == before  # without an archive nothing is published yet
    row = archived.process([(b"newer", b"value")])
    assert row.snapshots[0].failure is None
    assert archived.snapshots() == [row.snapshots[0].snapshot]
    assert row.snapshots[0].snapshot.startswith("00000001-")
    row = archived.process([(b"newest", b"value")])
    assert archived.snapshots()[0] == row.snapshots[0].snapshot
    assert row.snapshots[0].snapshot.startswith("00000001-")
    expected = archived.contents()
    archived.lose_all()
    assert archived.restored().mode == "snapshot"
    assert archived.contents() == expected


@pytest.mark.long
def test_a_store_that_is_put_back_is_published_at_once(archived: Archived) -> None:
    archived.process(ROWS)
    archived.restored("full", force=True)
    archived.process([(b"new", b"value")])
    rolled = roll_back(RollbackSpec(archived.store_spec(archive=archived.archive), "back"))
    assert (rolled.failure, rolled.published.failure) == (None, None)
    assert archived.snapshots() == [rolled.published.snapshot]
    assert archived.snapshots()[0].startswith("00000001-")


@pytest.mark.long
def test_a_snapshot_of_a_recreated_log_is_made_on_demand_and_begins_a_generation(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    archived = Archived(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    archived.process(ROWS)
    spec = partial(archived.store_spec, archive=archived.archive)
    made = snapshot_from_log(SnapshotSpec(spec(), "first", TINY_RUN, tmp_path))
    assert archived.snapshots() == [made.published.snapshot]
    archived.lose_all()
    delete_topic(archived.servers, archived.changelog)
    create_topic(archived.servers, archived.changelog, 1, CHANGELOG_CONFIG)
    produce(archived.servers, archived.changelog, [(b"key", (5).to_bytes(8, "big") + b"1")], 0, T0)
    refused = snapshot_from_log(SnapshotSpec(spec(), "second", TINY_RUN, tmp_path))
    assert "--accept-loss" in refused.failure.message
    again = snapshot_from_log(SnapshotSpec(spec(), "third", TINY_RUN, tmp_path, accept_loss=True))
    assert again.failure is None
    assert archived.snapshots() == [again.published.snapshot]
    assert again.published.snapshot.startswith("00000001-")


@pytest.mark.long
def test_an_accepted_loss_begins_a_generation_and_the_snapshots_before_it_stay(archived: Archived) -> None:
    archived.process(ROWS)
    (whole,) = archived.snapshots()
    set_topic_config(archived.servers, archived.changelog, cleanup_policy="compact,delete")
    delete_records(archived.servers, archived.changelog, 100)
    shutil.rmtree(archived.live)
    refused = restore(archived.restore_spec("full", archive=archived.archive))
    assert refused.failure.kind == "InputError"
    row = archived.restored("full", accept_loss=True)
    assert row.published.snapshot.startswith("00000001-")
    assert archived.snapshots() == [row.published.snapshot]
    (found,) = histories(archived.objects, archived.archive.cluster, archived.name).values()
    assert [str(one.name) for one in found.snapshots] == [row.published.snapshot, whole]


@pytest.mark.long
def test_a_snapshot_that_was_published_damaged_is_passed_over_and_marked(archived: Archived) -> None:
    archived.process(ROWS)
    (good,) = archived.snapshots()
    expected, spec = archived.contents(), archived.store_spec(archive=archived.archive)
    table = next(archived.live.glob("*.sst"))
    content = bytearray(table.read_bytes())
    content[10] ^= 1  # in the first block of rows
    table.write_bytes(content)
    with locked_task(spec.paths, 1):
        forget_digests(spec.paths, STORE)  # which would be taken over
        seal(spec.paths, STORE, spec.store.store_kind)
        assert publish_row(spec, "process").failure is None
    assert len(archived.snapshots()) == 2
    row = archived.restored()
    assert (row.before, row.snapshot) == (Status.CORRUPT, good)
    assert archived.snapshots()[-1] == good
    assert archived.contents() == expected
    assert archived.verify("deep").status is Status.OK


# -- what only the archive still has ----------------------------------------------------------------------------------


def test_what_a_lost_nodes_log_can_no_longer_give_comes_from_the_snapshot_or_not_at_all(archived: Archived) -> None:
    archived.process(ROWS)
    archived.process([(b"new", b"value")])
    expected, names = archived.contents(), archived.snapshots()
    set_topic_config(archived.servers, archived.changelog, cleanup_policy="compact,delete")
    delete_records(archived.servers, archived.changelog, 100)
    archived.lose_all()
    refused = restore(archived.restore_spec("full", archive=archived.archive))
    assert "the archive has more" in refused.failure.message
    assert archived.restored("auto").mode == "snapshot"
    assert archived.contents() == expected
    assert archived.snapshots()[-2:] == names  # of the same generation
    for found in list(archived.objects.entries(BLOBS)):
        archived.objects.delete(found.name)
    archived.lose_all()
    refused = restore(archived.restore_spec("snapshot", archive=archived.archive, accept_loss=True))
    assert "no snapshot can be used" in refused.failure.message


@pytest.mark.long
def test_a_lost_node_leaves_nothing_to_restore_of_a_store_into_which_nothing_was_logged(archived: Archived) -> None:
    archived.process()
    assert len(archived.snapshots()) == 1
    archived.lose_all()
    for mode in ("snapshot", "auto"):
        row = archived.restored(mode)
        assert (row.before, row.outcome) == (Status.EMPTY, "skipped")


@pytest.mark.long
def test_a_store_that_is_begun_anew_does_not_take_the_place_of_snapshots_with_more(archived: Archived) -> None:
    archived.process(ROWS)
    names = archived.snapshots()
    archived.lose_all()
    delete_topic(archived.servers, archived.changelog)
    create_topic(archived.servers, archived.changelog, 1, CHANGELOG_CONFIG)
    archived.send([(b"new", b"value")])
    assert f"--mode as-of --snapshot {names[-1]}" in archived.fails("ChangelogReplacedError")
    assert archived.snapshots() == names
    assert not archived.live.exists()
    assert archived.restored("auto", accept_loss=True).keys == 0
    (row,) = archived.process().snapshots
    assert row.failure is None
    assert archived.snapshots()[0].startswith("00000001-")


@pytest.mark.long
def test_a_store_that_was_only_caught_up_is_not_published_where_two_may_have_written(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    archived = Archived(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    archived.process(ROWS)
    produce(archived.servers, archived.changelog, [(b"key", (5).to_bytes(8, "big") + b"1")], 0, T0)
    row = archived.restored("auto")
    assert (row.mode, row.published) == ("tail", None)
    assert archived.restored("full", force=True, label="again").published.failure is None


@pytest.mark.long
def test_what_grew_from_a_suspect_snapshot_is_not_published(archived: Archived) -> None:
    archived.process(ROWS)
    (directory,) = archived.directories()
    (listed,) = history(archived.objects, directory).snapshots
    mark_suspect(archived.objects, directory, listed.name, "DIVERGED")
    (row,) = archived.process([(b"new", b"value")]).snapshots
    assert "is suspect" in row.failure.message
    assert archived.snapshots() == []


@pytest.mark.long
def test_a_file_that_the_archive_has_lost_is_uploaded_again(archived: Archived) -> None:
    archived.process(ROWS)
    for found in list(archived.objects.entries(BLOBS)):
        archived.objects.delete(found.name)
    archived.process([(b"new", b"value")])
    newest = read_manifest(archived.objects, *history_of(archived, archived.snapshots()[0]))
    assert missing_files(archived.objects, newest.files) == []


# -- from the log, of every kind --------------------------------------------------------------------------------------


def _archived(application: Application, directory: Path) -> ArchiveSpec:
    found = archive_spec(f"file://{directory}/archive", 10, Cluster(application.servers, 60).topics)
    assert found is not None
    return found


@pytest.mark.short_for("session")
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_snapshot_that_was_made_from_the_log_and_the_rest_of_it_give_what_all_of_it_gives(
    bootstrap_servers: str, tmp_path: Path, kind: str
) -> None:
    store, rows = ALL_STORES[kind], changes(ALL_STORES[kind], 300, 1)
    application = logged(bootstrap_servers, tmp_path, store, rows[:150])
    archive = _archived(application, tmp_path)
    spec = application.store_spec(archive=archive)
    (tmp_path / "scratch").mkdir()
    made = snapshot_from_log(SnapshotSpec(spec, "first", TINY_RUN, tmp_path / "scratch"))
    assert (made.failure, made.mode) == (None, "full")
    transaction(bootstrap_servers, application.changelog, rows[150:])
    again = snapshot_from_log(SnapshotSpec(spec, "second", TINY_RUN, tmp_path / "scratch"))  # begins with the first
    assert (again.failure, again.mode, again.records + again.skipped <= 150) == (None, "snapshot", True)
    assert list((tmp_path / "scratch").iterdir()) == []
    assert not application.state_dir.exists()
    elsewhere = application.restore_spec("full", force=True, state_dir=tmp_path / "elsewhere")
    assert restore(elsewhere).failure is None
    row = restore(application.restore_spec("snapshot", archive=archive))
    assert (row.failure, row.mode, row.snapshot, row.records) == (None, "snapshot", again.published.snapshot, 0)
    assert stored(spec, spec.live) == stored(elsewhere.store, elsewhere.store.live)
    assert application.verify("deep").status is Status.OK


def test_a_log_that_has_lost_its_start_is_not_published_alone(bootstrap_servers: str, tmp_path: Path) -> None:
    application = logged(bootstrap_servers, tmp_path, STORES["key-value"], changes(STORES["key-value"], 50, 1))
    archive = _archived(application, tmp_path)
    set_topic_config(bootstrap_servers, application.changelog, cleanup_policy="compact,delete")
    delete_records(bootstrap_servers, application.changelog, 10)
    row = snapshot_from_log(SnapshotSpec(application.store_spec(archive=archive), "run", TINY_RUN, tmp_path))
    assert row.failure.kind == "InputError"
    assert "a rebuild from its log alone would lose data: its changelog begins at offset 10" in row.failure.message
    assert list(archive.open().entries("stores")) == []


# -- kill -9 ----------------------------------------------------------------------------------------------------------


#: The others are left to `make faults`.
SHORT = ["restore, snapshot fetched", "snapshot, blobs uploaded"]
LONG = [
    "restore, batch of a tail read",
    "restore, tail taken over, not committed",
    "restore, tail replayed",
    "restore, built, not swapped",
    "swap, before the last rename",
    "restore, swapped, not sealed",
    "snapshot, manifest written",
]


def _sort_tails() -> None:
    tail.LEAST_SORTED = 1


@pytest.mark.short_for("restore, snapshot fetched")
@pytest.mark.parametrize("point", [*SHORT, *(pytest.param(point, marks=pytest.mark.long) for point in LONG)])
def test_a_restore_from_a_snapshot_that_is_killed_anywhere_is_completed_by_the_next(
    archived: Archived, point: str
) -> None:
    archived.process(ROWS)
    archived.send([(b"new", b"value"), (b"key-001", b"value")])
    assert Application.run(archived).failure is None
    expected = archived.contents()
    shutil.rmtree(archived.live)
    dying.die_in(archived.restore_spec("snapshot", archive=archived.archive), point, _sort_tails)
    row = archived.restored(label="rerun")
    assert row.outcome in ("restored", "skipped")
    assert archived.contents() == expected
    assert archived.verify("deep").status is Status.OK
    assert check_archive(archived.objects).broken == {}
    assert archived.restored(force=True, label="third").mode == "snapshot"
    assert archived.contents() == expected


@pytest.mark.short_for("snapshot, manifest written")
@pytest.mark.parametrize("point", ["snapshot, blobs uploaded", "snapshot, manifest written"])
def test_a_task_that_is_killed_while_it_publishes_has_committed_and_the_next_publishes(
    archived: Archived, point: str
) -> None:
    archived.process(ROWS)
    archived.send([(b"new", b"value")])
    dying.die_in(archived.task_spec(archive=archived.archive), point)
    assert archived.contents()[b"new"].value == b"1"
    (idle,) = archived.process().snapshots
    assert (idle.failure, idle.current) == (None, archived.snapshots()[0])
    row = archived.process([(b"newer", b"value")])
    assert (row.restored, row.snapshots[0].failure) == (0, None)
    assert check_archive(archived.objects).broken == {}
    expected = archived.contents()
    archived.lose_all()
    assert archived.restored().snapshot == row.snapshots[0].snapshot
    assert archived.contents() == expected


# -- the command ------------------------------------------------------------------------------------------------------


def test_snapshots_are_listed_shown_kept_and_checked(
    archived: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run, _ = command_on(archived, tmp_path, monkeypatch, capfd)
    archived.process(ROWS)
    archived.process([(b"new", b"value")])
    names = archived.snapshots()
    where = ("--archive", archived.archive.url)
    rows = run.shown("snapshot", "list", *where)["rows"]
    assert [(row["snapshot"], row["state"], row["source"]) for row in rows] == [
        (name, "usable", "process") for name in names
    ]
    assert rows[0]["store_partition"] == f"{archived.name}/{STORE}/0_0"
    assert run.shown("snapshot", "list", *where, "--application", "other")["rows"] == []
    ran = run("snapshot", "show", *where, names[1])
    assert json.loads(ran.out)["committed"] == rows[1]["offset"]
    assert run("snapshot", "show", *where, "none").code == 2
    assert run("snapshot", "pin", *where, "kept", "--why", "an upgrade").out == "pin kept keeps 1 snapshot\n"
    assert [found.snapshots[0].endswith(f"{names[0]}.json") for found in pins(archived.objects)] == [True]
    assert run("snapshot", "pin", *where, "kept", "--why", "again").code == 2
    assert run("snapshot", "unpin", *where, "kept").code == 0
    assert list(pins(archived.objects)) == []
    assert run.shown("snapshot", "check", *where)["broken"] == {}
    newer, older = (read_manifest(archived.objects, *history_of(archived, name)) for name in names)
    archived.objects.delete(min(newer.blobs - older.blobs))
    (broken,) = run.shown("snapshot", "check", *where, code=1)["broken"]
    assert broken.endswith(f"{names[0]}.json")


def history_of(archived: Archived, name: str) -> tuple[Any, Any]:
    """Where a snapshot is."""
    (directory,) = archived.directories()
    return next(
        (directory, one.name) for one in history(archived.objects, directory).snapshots if str(one.name) == name
    )


@pytest.mark.long
def test_snapshots_are_made_from_the_log_by_command(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    archived = Archived(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    run, definitions = command_on(archived, tmp_path, monkeypatch, capfd)
    archived.process(ROWS)
    expected = archived.contents()
    arguments = ("--archive", archived.archive.url, "--definitions", str(definitions), "--parallel", "1")
    made = run.shown("snapshot", "create", *arguments)
    assert list(default_scratch(archived.state_dir).iterdir()) == []
    assert [(row["snapshot"], row["grown_from"]) for row in made["rows"]] == [(archived.snapshots()[0], None)]
    archived.lose_all()
    assert archived.restored().mode == "snapshot"
    assert archived.contents() == expected


def test_old_snapshots_are_removed_by_command_and_all_others_stay(
    archived: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run, _ = command_on(archived, tmp_path, monkeypatch, capfd)
    for number in range(3):
        archived.process([*ROWS, (b"%d" % number, b"value")])
    names, expected = archived.snapshots(), archived.contents()
    clean = ("snapshot", "clean", "--archive", archived.archive.url, "--keep", "1", "--days", "0")
    refused = run(*clean, "--grace-hours", "1")
    assert refused.code == 2
    assert "--grace-hours: expected at least 48, found 1: an upload may take 24 hours" in refused.err
    clean += ("--grace-hours", "0", "--no-writers")
    before = sorted(archived.objects.entries())
    plan = run.shown(*clean, "--dry-run")
    assert [place.rpartition("/")[2] for place in plan["marked"]] == [f"{name}.json" for name in names[1:]]
    assert sorted(archived.objects.entries()) == before
    pinned = run("snapshot", "pin", "--archive", archived.archive.url, "kept", "--why", "x", "--snapshot", names[1])
    assert pinned.code == 0
    assert len(run.shown(*clean)["marked"]) == 1
    assert archived.snapshots() == names[:2]
    assert run.shown(*clean)["marked"] == []
    assert check_archive(archived.objects) == (2, {}, 0, 0)
    archived.lose_all()
    assert archived.restored().mode == "snapshot"
    assert archived.contents() == expected


def test_process_publishes_what_is_exactly_once_and_the_command_only_if_it_is_named(
    archived: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run, definitions = command_on(archived, tmp_path, monkeypatch, capfd)
    archived.process(ROWS)
    create = ("snapshot", "create", "--archive", archived.archive.url, "--definitions", str(definitions))
    refused = run(*create)
    assert refused.code == 2
    assert "If `process` publishes the snapshots of the application, name it with --application" in refused.err
    (row,) = run.shown(*create, "--application", archived.name)["rows"]
    assert (row["grown_from"], row["records"]) == (archived.snapshots()[-1], 0)


@pytest.mark.long
def test_maintenance_cleans_the_archive_up_and_its_failure_is_a_row(archived: Archived, tmp_path: Path) -> None:
    for number in range(3):
        archived.process([(b"%d" % number, b"value")])
    names = archived.snapshots()
    settings = Settings(
        bootstrap_servers=archived.servers,
        state_dir=archived.state_dir,
        reports_dir=tmp_path / "reports",
        data_docs_dir=tmp_path / "docs",
        archive=archived.archive.url,
        snapshot_keep=2,
        snapshot_days=0,
    )
    for dry_run, left in ((True, names), (False, names[:2])):
        marked, files = archive_rows(settings, dry_run=dry_run)
        assert (marked.place, marked.removed_count, files.removed_count) == ("archive/marked", 1, 0)
        assert marked.removed[0].endswith(f"{names[2]}.json")
        assert archived.snapshots() == left
    assert archive_rows(settings.model_copy(update={"archive": None}), dry_run=False) == []
    archived.objects.upload("format.json", [b"another"])
    (row,) = archive_rows(settings, dry_run=False)
    assert (row.place, row.failure and row.failure.kind) == ("archive", "InputError")


def test_snapshots_of_a_log_that_is_gone_are_never_removed(
    archived: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run, _ = command_on(archived, tmp_path, monkeypatch, capfd)
    for number in range(3):
        archived.process([(b"%d" % number, b"value")])
    delete_topic(archived.servers, archived.changelog)
    clean = ("snapshot", "clean", "--archive", archived.archive.url, "--keep", "1", "--days", "0")
    assert run.shown(*clean)["marked"] == []
    create_topic(archived.servers, archived.changelog, 1, CHANGELOG_CONFIG)
    assert run.shown(*clean)["marked"] == []
    assert len(archived.snapshots()) == 3


def test_an_archive_that_is_none_is_refused(
    archived: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run, _ = command_on(archived, tmp_path, monkeypatch, capfd)
    ran = run("snapshot", "list", "--archive", f"file://{tmp_path}/nothing")
    assert ran.code == 2
    assert "there is no archive" in ran.err
    ran = run("snapshot", "list", "--archive", "http://somewhere")
    assert ran.code == 2
    assert "expected the URL of an archive" in ran.err
