"""What snapshots can still give: the last restore point, what a log has lost, and points that compaction has passed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from statestore.advice import Situation
from statestore.archive.layout import BLOBS
from statestore.archive.snapshots import histories, history, mark_suspect, read_snapshot
from statestore.cli.verification import verify_all
from statestore.errors import InputError
from statestore.recovery.planning import plan_restore
from statestore.recovery.restore import restore
from statestore.recovery.run import restore_specs
from statestore.recovery.snapshot_building import SnapshotSpec, snapshot_from_log
from statestore.reports import Action, RestoreRow, Status, VerifyRow
from statestore.requests.restore import RestoreRequest
from statestore.rewrite.reseed import ReseedSpec, reseed
from statestore.verification.check import verify_many
from statestore.verification.options import VerifyOptions
from statestore.verification.restore_points import with_restore_points
from tests.integration.archived import ROWS, Archived
from tests.integration.broker import T0, create_topic, delete_records, delete_topic, set_topic_config
from tests.integration.command_line import command_on
from tests.integration.support import CHANGELOG_CONFIG, Application


def verified(archived: Archived, depth: Any = "scan", **changes: Any) -> VerifyRow:
    """Verify the store partition of task 0_0 with its restore point."""
    specs = [archived.store_spec(archive=archived.archive, **changes)]
    (row,) = with_restore_points(specs, verify_many(specs, VerifyOptions(depth=depth)), depth)
    return row


def restored(archived: Archived, run: str = "run", **request: Any) -> RestoreRow:
    """Restore it as it is asked for."""
    asked = RestoreRequest(**request)
    specs = [archived.store_spec(archive=archived.archive)]
    (spec,) = restore_specs(specs, asked, run, run_bytes=1 << 24, quarantine_s=1e9)
    return restore(spec)


def lose_records(archived: Archived, before: int) -> None:
    """Let the changelog begin at a later offset."""
    set_topic_config(archived.servers, archived.changelog, cleanup_policy="compact,delete")
    delete_records(archived.servers, archived.changelog, before)


# -- the last restore point -------------------------------------------------------------------------------------------


def test_verification_names_the_last_restore_point_and_what_it_would_read(archived: Archived) -> None:
    archived.process(ROWS)
    (name,) = archived.snapshots()
    archived.send([(b"new", b"value")])
    assert Application.run(archived).failure is None  # without publishing
    point = verified(archived, "offsets").restore_point
    assert (point.snapshot, point.usable, point.detail) == (name, True, "")
    (listed,) = archived.objects.entries("stores")
    assert (point.committed, point.written_ms) == (199, listed.modified_ms)
    (directory,) = archived.directories()
    assert point.fetched == read_snapshot(archived.objects, history(archived.objects, directory).usable[0]).bytes
    assert point.offsets == 3  # a marker, the record, and its marker
    day_ms = 24 * 60 * 60 * 1000
    assert 0 <= point.written_ms + day_ms - point.until_ms < 60_000


def test_the_restore_point_of_a_store_in_use_is_named_and_no_restore_is_advised(archived: Archived) -> None:
    archived.process(ROWS)
    (name,) = archived.snapshots()
    spec = archived.store_spec(archive=archived.archive)
    (row,) = verify_all([spec], VerifyOptions("deep"), live=True)
    assert row.restore_point is not None
    assert (row.status, row.restore_point.snapshot, row.restore_point.usable) == (Status.PROVEN, name, True)
    shutil.rmtree(spec.live)
    (row,) = verify_all([spec], VerifyOptions("deep", confirm_within_s=0), live=True)
    assert row.restore_point is not None
    assert (row.status, row.action, row.restore_point.snapshot) == (Status.UNCONFIRMED, Action.LATER, name)


@pytest.mark.long
def test_a_snapshot_that_lacks_a_file_is_no_restore_point_and_an_older_one_is(archived: Archived) -> None:
    archived.process(ROWS)
    before = {found.name for found in archived.objects.entries(BLOBS)}
    archived.process([(b"new", b"value")])
    newer, older = archived.snapshots()
    for found in list(archived.objects.entries(BLOBS)):
        if found.name not in before:
            archived.objects.delete(found.name)
    assert verified(archived, "offsets").restore_point.snapshot == newer
    point = verified(archived).restore_point
    assert (point.snapshot, point.usable) == (older, True)
    assert f"{newer}: the archive lacks" in point.detail
    for found in list(archived.objects.entries(BLOBS)):
        archived.objects.delete(found.name)
    point = verified(archived).restore_point
    assert (point.snapshot, point.usable) == (newer, False)


@pytest.mark.long
def test_without_snapshots_or_an_archive_that_answers_the_store_is_verified_all_the_same(
    archived: Archived, tmp_path: Path
) -> None:
    archived.send(ROWS)
    assert Application.run(archived).failure is None
    row = verified(archived)
    assert (row.status, row.restore_point.snapshot, row.restore_point.detail) == (
        Status.OK,
        None,
        "there is no snapshot",
    )
    (tmp_path / "a-file").write_text("x")
    nowhere = archived.archive.model_copy(update={"url": f"file://{tmp_path}/a-file"})
    specs = [archived.store_spec(archive=nowhere)]
    (row,) = with_restore_points(specs, verify_many(specs), "scan")
    assert (row.status, row.restore_point.usable) == (Status.OK, False)
    assert "could not be reached" in row.restore_point.detail


# -- what the log has lost --------------------------------------------------------------------------------------------


def test_what_a_log_has_lost_comes_from_a_later_snapshot_without_a_person(archived: Archived, tmp_path: Path) -> None:
    archived.process(ROWS)
    shutil.copytree(archived.state_dir, tmp_path / "older")
    archived.process([(b"new", b"value")])
    expected, names = archived.contents(), archived.snapshots()
    shutil.rmtree(archived.state_dir)
    shutil.copytree(tmp_path / "older", archived.state_dir)  # as on a node that was away
    lose_records(archived, archived.log_end() - 1)
    row = verified(archived)
    assert (row.status, row.action) == (Status.TRUNCATED, Action.FULL)
    assert f"snapshot {names[0]} has what the changelog has lost" in row.detail
    plan = plan_restore(archived.restore_spec(archive=archived.archive))
    assert (plan.mode, plan.snapshot) == ("snapshot", names[0])
    row = archived.restored("auto")
    assert (row.before, row.snapshot) == (Status.TRUNCATED, names[0])
    assert archived.contents() == expected
    assert archived.snapshots()[-2:] == names  # of the same generation
    assert archived.process([(b"newer", b"value")]).failure is None


@pytest.mark.long
def test_a_snapshot_of_a_log_that_was_cut_does_not_take_the_place_of_a_store_with_more(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    archived = Archived(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    archived.process(ROWS)
    lose_records(archived, 100)
    spec = archived.store_spec(archive=archived.archive)
    made = snapshot_from_log(SnapshotSpec(spec, "made", 1 << 24, tmp_path, accept_loss=True))
    assert made.published.snapshot.startswith("00000001-")
    table = next(archived.live.glob("*.sst"))
    table.write_bytes(table.read_bytes()[:-1])
    row = verified(archived)
    assert (row.status, row.action, row.restore_point.usable) == (Status.CORRUPT, Action.BY_HAND, True)
    refused = restored(archived)
    assert "no snapshot can be used" in refused.failure.message
    refused = restored(archived, mode="snapshot", snapshot=made.published.snapshot)
    assert "lacks some of what the log has lost" in refused.failure.message


def test_of_a_lost_nodes_log_that_is_another_by_now_nothing_older_comes_back_unasked(archived: Archived) -> None:
    archived.process(ROWS)
    archived.lose_all()
    delete_topic(archived.servers, archived.changelog)
    create_topic(archived.servers, archived.changelog, 1, CHANGELOG_CONFIG)
    for mode in ("auto", "snapshot", "full"):
        refused = restored(archived, mode, mode=mode)
        assert "the archive has more" in refused.failure.message
    row = restored(archived, accept_loss=True)
    assert (row.failure, row.mode) == (None, "full")
    assert row.published.snapshot.startswith("00000001-")


def test_an_empty_store_that_was_begun_on_a_new_node_hides_nothing(archived: Archived) -> None:
    archived.process(ROWS)
    (name,) = archived.snapshots()
    expected = archived.contents()
    lose_records(archived, 100)
    archived.lose_all()
    archived.live.mkdir(parents=True)  # by a task that was killed before its first commit
    row = restored(archived)
    assert (row.failure, row.snapshot) == (None, name)
    assert archived.contents() == expected


@pytest.mark.long
def test_a_lost_node_whose_log_was_deleted_is_found_and_restored(archived: Archived) -> None:
    archived.process(ROWS)
    expected = archived.contents()
    lose_records(archived, archived.log_end())
    archived.lose_all()
    row = verified(archived)
    assert (row.status, row.action) == (Status.MISSING, Action.FULL)
    assert restored(archived).failure is None
    assert archived.contents() == expected


@pytest.mark.long
def test_the_command_verifies_by_what_the_archive_knows_of_a_store_whose_node_and_log_are_gone(
    archived: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    archived.process(ROWS)
    archived.lose_all()
    lose_records(archived, archived.log_end())
    command, definitions = command_on(archived, tmp_path, monkeypatch, capfd)
    said = ["--definitions", str(definitions), "--archive", archived.archive.url]
    (row,) = command.shown("verify", *said, code=1)["rows"]
    assert (row["status"], row["restore_point"]["snapshot"]) == ("MISSING", archived.snapshots()[0])


@pytest.mark.long
def test_snapshots_that_are_suspect_are_evidence_still(archived: Archived) -> None:
    archived.process(ROWS)
    lose_records(archived, 100)
    archived.lose_all()
    (directory,) = archived.directories()
    for found in history(archived.objects, directory).usable:
        mark_suspect(archived.objects, directory, found.name, "test")
    refused = restored(archived)
    assert "no snapshot can be used" in refused.failure.message


def test_a_plan_knows_what_only_the_archive_has(archived: Archived) -> None:
    archived.process(ROWS)
    (name,) = archived.snapshots()
    lose_records(archived, 100)
    archived.lose_all()
    plan = plan_restore(archived.restore_spec(archive=archived.archive))
    assert (plan.mode, plan.snapshot, plan.failure) == ("snapshot", name, None)
    plan = plan_restore(archived.restore_spec("full", archive=archived.archive))
    assert "the archive has more" in plan.failure.message


def test_a_snapshot_with_a_gap_behind_it_is_offered_by_hand_and_begins_a_generation(archived: Archived) -> None:
    archived.process(ROWS)
    (name,) = archived.snapshots()
    rows = archived.contents()
    archived.send([(b"key-000", b"value"), (b"lost", b"value")])
    assert Application.run(archived).failure is None
    lose_records(archived, archived.log_end())
    archived.send([(b"later", b"value")])
    assert Application.run(archived).failure is None
    shutil.rmtree(archived.live)
    found = verified(archived)
    assert (found.status, found.action) == (Status.MISSING, Action.BY_HAND)
    assert f"snapshot {name} has the store up to offset 199" in found.detail
    refused = restored(archived, mode="snapshot")
    assert "no snapshot can be used" in refused.failure.message
    refused = restored(archived, mode="snapshot", snapshot=name)
    assert "add --accept-loss" in refused.failure.message
    row = restored(archived, mode="snapshot", snapshot=name, accept_loss=True)
    assert (row.failure, row.mode, row.snapshot) == (None, "snapshot", name)
    assert archived.contents().keys() == rows.keys() | {b"later"}  # what came between is lost
    assert archived.snapshots() == [row.published.snapshot]
    assert row.published.snapshot.startswith("00000001-")
    assert verified(archived).status is Status.OK
    assert archived.process([(b"newest", b"value")]).snapshots[0].failure is None


def test_a_snapshot_of_a_topic_that_is_gone_is_built_elsewhere_and_never_in_place(
    archived: Archived, tmp_path: Path
) -> None:
    archived.process(ROWS)
    (name,) = archived.snapshots()
    expected = archived.contents()
    delete_topic(archived.servers, archived.changelog)
    create_topic(archived.servers, archived.changelog, 1, CHANGELOG_CONFIG)
    found = verified(archived)
    assert (found.status, found.action) == (Status.REPLACED, Action.BY_HAND)
    assert name in found.detail
    refused = restored(archived, mode="snapshot", snapshot=name, accept_loss=True)
    assert "cannot be put in place" in refused.failure.message
    assert archived.contents() == expected
    row = restored(archived, mode="as-of", snapshot=name, target=tmp_path / "then")
    assert (row.failure, row.exact, row.snapshot) == (None, True, name)
    archived.state_dir = tmp_path / "then"
    assert archived.contents() == expected


def test_the_only_copy_left_in_a_snapshot_is_built_elsewhere_as_advised(archived: Archived, tmp_path: Path) -> None:
    archived.process(ROWS)
    (name,) = archived.snapshots()
    expected = archived.contents()
    delete_topic(archived.servers, archived.changelog)
    create_topic(archived.servers, archived.changelog, 1, CHANGELOG_CONFIG)
    shutil.rmtree(archived.live)
    found = verified(archived)
    step = found.advice
    assert (step.situation, found.action) == (Situation.ONLY_SNAPSHOT, Action.BY_HAND)
    assert f"--mode as-of --snapshot {name} --target restored" in step.command
    archived.send([(b"new", b"value")])
    assert f"{step.sentence} Next: {step.command}" in archived.fails("ChangelogReplacedError")
    row = restored(archived, mode="as-of", snapshot=name, target=tmp_path / "restored")
    assert (row.failure, row.exact) == (None, True)
    # The changelog is then written from this copy.
    copy = archived.store_spec(state_dir=tmp_path / "restored")
    with reseed(ReseedSpec([copy], 1, True, None, run_bytes=1 << 24, started_ms=T0)) as work:
        work.carry_out(lambda topic: None)
    row = restored(archived, accept_loss=True)
    assert row.failure is None
    assert archived.contents().keys() == expected.keys()


@pytest.mark.long
def test_a_snapshot_that_is_named_must_be_there(archived: Archived) -> None:
    archived.process(ROWS)
    shutil.rmtree(archived.live)
    row = restored(archived, mode="snapshot", snapshot="00000000-00000000000000000001-" + "0" * 32)
    assert "has no snapshot 00000000-" in row.failure.message


# -- points in the past -----------------------------------------------------------------------------------------------


@pytest.mark.short_for("199")
@pytest.mark.parametrize("offset", [199, 201])
def test_r16_a_point_that_the_log_has_lost_comes_exactly_from_a_snapshot(
    archived: Archived, tmp_path: Path, offset: int
) -> None:
    archived.process(ROWS)
    (name,) = archived.snapshots()
    at = archived.contents()
    archived.send([(b"key-000", b"value")])
    assert Application.run(archived).failure is None  # without publishing
    after = archived.contents()
    lose_records(archived, 200)
    row = restored(archived, mode="as-of", as_of_offset=offset, target=tmp_path / "then")
    assert (row.failure, row.exact, row.snapshot) == (None, True, name)
    archived.state_dir = tmp_path / "then"
    assert archived.contents() == (at if offset == 199 else after)
    (found,) = histories(archived.objects, archived.archive.cluster, archived.name).values()
    assert len(found.snapshots) == 1  # nothing was published


@pytest.mark.long
def test_r16_between_snapshots_a_point_that_the_log_has_lost_is_refused(archived: Archived, tmp_path: Path) -> None:
    archived.process(ROWS)
    archived.process([(b"key-000", b"value"), (b"key-001", b"value")])
    lose_records(archived, 203)
    with pytest.raises(InputError, match="has the offsets 203 to 203"):
        restored(archived, mode="as-of", as_of_offset=201, target=tmp_path / "then")
