"""Which generation a store's next snapshot belongs to, when stores are lost, put back, or late."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from statestore.archive.cleanup import Retention, mark
from statestore.archive.grown_from import beginning
from statestore.archive.snapshots import history, mark_suspect, read_manifest
from statestore.durable import write_durably
from statestore.kafka.cluster import Cluster
from statestore.partition import snapshots as publication
from statestore.partition.generations import superseded
from statestore.partition.rollback import RollbackSpec, roll_back
from statestore.recovery.archive_cleanup import clean_archive
from statestore.recovery.restore import restore
from statestore.recovery.snapshot_building import SnapshotSpec, snapshot_from_log
from statestore.reports import Action, Status
from statestore.statedir.seal import break_seal
from statestore.statedir.swap import locked_task
from statestore.stores.open import open_key_value_store
from statestore.tasks import ValueAndTimestamp
from tests.integration.archived import ROWS, TINY_RUN, Archived
from tests.integration.broker import T0
from tests.integration.support import STORE


@pytest.mark.long
def test_a_store_that_its_task_begins_anew_grew_from_no_snapshot(archived: Archived) -> None:
    archived.process(ROWS)
    (directory,) = archived.directories()
    (listed,) = history(archived.objects, directory).snapshots
    mark_suspect(archived.objects, directory, listed.name, "DIVERGED")
    shutil.rmtree(archived.live)
    (row,) = archived.process([(b"new", b"value")]).snapshots
    assert row.failure is None
    (newest,) = history(archived.objects, directory).usable
    assert read_manifest(archived.objects, directory, newest.name).parent is None


def test_a_store_that_its_task_begins_anew_is_not_what_a_rollback_had_put_back(archived: Archived) -> None:
    archived.process(ROWS)
    write_durably(archived.store_spec().paths.snapshot(STORE), beginning("a rollback", 0))
    shutil.rmtree(archived.live)
    (row,) = archived.process([(b"new", b"value")]).snapshots
    assert row.failure is None
    assert row.snapshot.startswith("00000000-")


def test_what_grew_from_a_suspect_snapshot_is_not_published_though_that_is_in_the_trash(archived: Archived) -> None:
    archived.process(ROWS)
    (directory,) = archived.directories()
    (listed,) = history(archived.objects, directory).snapshots
    mark_suspect(archived.objects, directory, listed.name, "DIVERGED")
    mark(archived.objects, listed)
    (row,) = archived.process([(b"new", b"value")]).snapshots
    assert "is suspect" in row.failure.message
    assert archived.snapshots() == []


def _replaced(archived: Archived) -> None:
    """Have something that a rollback puts back."""
    archived.restored("full", force=True)
    archived.process([(b"new", b"value")])


def _rolled_back(archived: Archived, **changes: Any) -> Any:
    row = roll_back(RollbackSpec(archived.store_spec(**changes), "back"))
    assert row.failure is None, row.failure
    return row.published


def test_a_generation_that_comes_late_does_not_take_the_place_of_one_that_was_begun_since(
    archived: Archived, tmp_path: Path
) -> None:
    archived.process(ROWS)
    _replaced(archived)
    assert _rolled_back(archived) is None  # the archive is away
    here, archived.state_dir = archived.state_dir, tmp_path / "elsewhere"
    archived.restored()
    _replaced(archived)
    first = _rolled_back(archived, archive=archived.archive)
    assert archived.snapshots() == [first.snapshot]
    archived.state_dir = here
    for _ in range(2):
        (row,) = archived.process([(b"newer", b"value")]).snapshots
        assert "another store began generation 1" in row.failure.message
        assert archived.snapshots() == [first.snapshot]


def test_a_store_that_comes_back_unsealed_has_no_snapshot_and_that_is_said(archived: Archived) -> None:
    archived.process(ROWS)
    break_seal(archived.store_spec().paths, STORE)  # as a crash or Kafka Streams does
    archived.restored("full", force=True)
    before = archived.snapshots()
    back = _rolled_back(archived, archive=archived.archive)
    assert (back.snapshot, archived.snapshots()) == (None, before)
    assert "only this state directory has it" in back.failure.message
    (row,) = archived.process([(b"new", b"value")]).snapshots  # which closes it, and so seals it
    assert (row.failure, archived.snapshots()) == (None, [row.snapshot])


@pytest.mark.long
def test_who_was_killed_after_he_began_a_generation_goes_on_with_it(
    archived: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived.process(ROWS)
    _replaced(archived)

    def killed(*_: Any) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(publication, "write_grown_from", killed)
        assert _rolled_back(archived, archive=archived.archive).failure.message.startswith("killed")
    (first,) = archived.snapshots()
    (row,) = archived.process([(b"newer", b"value")]).snapshots
    assert row.failure is None
    assert archived.snapshots() == [row.snapshot, first]
    (directory,) = archived.directories()
    newest = history(archived.objects, directory).usable[0].name
    assert read_manifest(archived.objects, directory, newest).parent == first


@pytest.mark.long
@pytest.mark.parametrize("again", ["process", pytest.param("snapshot create", marks=pytest.mark.long)])
def test_at_least_once_a_generation_that_could_not_be_begun_is_begun_later(
    bootstrap_servers: str, tmp_path: Path, again: str
) -> None:
    archived = Archived(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    archived.process(ROWS)
    spec = archived.store_spec(archive=archived.archive)
    assert snapshot_from_log(SnapshotSpec(spec, "first", TINY_RUN, tmp_path)).failure is None
    _replaced(archived)
    assert _rolled_back(archived) is None  # the archive is away
    if again == "process":
        (row,) = archived.process([(b"newer", b"value")]).snapshots
        assert (row.failure, archived.snapshots()) == (None, [row.snapshot])
        assert archived.process([(b"newest", b"value")]).snapshots == ()
    made = snapshot_from_log(SnapshotSpec(spec, "second", TINY_RUN, tmp_path))
    assert made.failure is None, made.failure
    assert archived.snapshots() == [made.published.snapshot, made.snapshot]
    assert made.snapshot.startswith("00000001-")
    expected = archived.contents()
    archived.lose_all()
    archived.restored()
    assert archived.contents().items() >= expected.items()


@pytest.mark.long
def test_what_was_opened_before_its_generation_was_begun_is_not_followed_by_what_it_replaced(
    archived: Archived, tmp_path: Path
) -> None:
    archived.process(ROWS)
    _replaced(archived)
    _rolled_back(archived)
    spec = archived.store_spec(archive=archived.archive)
    with locked_task(spec.paths, 1):
        break_seal(spec.paths, STORE)  # as an application does that opens it
    before = archived.snapshots()
    refused = snapshot_from_log(SnapshotSpec(spec, "first", TINY_RUN, tmp_path))
    assert "was put in place by a rollback: back. It has no snapshot" in refused.failure.message
    assert archived.snapshots() == before
    assert snapshot_from_log(SnapshotSpec(spec, "second", TINY_RUN, tmp_path, accept_loss=True)).failure is None


# -- what must not be published, or used, or replaced -----------------------------------------------------------------


@pytest.mark.long
def test_what_was_written_at_least_once_is_not_published_until_it_was_rebuilt(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    archived = Archived(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    archived.process(ROWS)
    archived.defined(processing_guarantee="exactly_once_v2")
    for _ in range(2):
        (row,) = archived.process([(b"new", b"value")]).snapshots
        assert "written at least once" in row.failure.message
        assert archived.directories() == []
    assert archived.restored("full", force=True).published.failure is None
    assert archived.process([(b"newer", b"value")]).snapshots[0].failure is None


@pytest.mark.long
@pytest.mark.parametrize("generation", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_store_with_nothing_to_do_is_published_again_if_its_archive_was_emptied(
    archived: Archived, generation: int
) -> None:
    archived.process(ROWS)
    if generation:
        _replaced(archived)
        _rolled_back(archived, archive=archived.archive)
        archived.process([(b"newer", b"value")])
    archived.process()  # is idle
    newest = archived.snapshots()[0]
    assert newest.startswith(f"0000000{generation}-")
    for found in list(archived.objects.entries()):
        archived.objects.delete(found.name)
    (row,) = archived.process().snapshots
    assert (row.failure, archived.snapshots()) == (None, [row.snapshot])
    assert row.snapshot != newest
    (row,) = archived.process().snapshots
    assert (row.snapshot, row.files) == (None, 0)


def _chosen(archived: Archived, **changes: Any) -> None:
    """Put back, and publish, what the log does not give."""
    archived.process(ROWS)
    spec = archived.store_spec()
    opened = open_key_value_store(spec.store, spec.live)
    opened.put(b"key-000", ValueAndTimestamp(b"chosen", T0))
    opened.commit({spec.partition: archived.committed()})
    opened.close()
    archived.restored("full", force=True)
    _rolled_back(archived, **changes)
    assert archived.process([(b"new", b"value")]).snapshots[0].failure is None


@pytest.mark.parametrize("published", [True, pytest.param(False, marks=pytest.mark.long)])
def test_what_a_person_has_put_back_is_not_replaced_unasked_because_its_log_does_not_give_it(
    archived: Archived, tmp_path: Path, published: bool
) -> None:
    _chosen(archived, **({"archive": archived.archive} if published else {}))
    for _ in range(2):
        found = archived.verify("deep")
        assert (found.status, found.action) == (Status.DIVERGED, Action.BY_HAND)
        assert "it is here by a rollback: back, at 20" in found.detail
        assert archived.verify().healthy
        archived.state_dir = tmp_path / "elsewhere"
        archived.restored()
    before = archived.snapshots()
    for diverged in (True, False):  # a report of a deep verification says so, or somebody asks for it
        asked = archived.restore_spec("full", force=True, archive=archived.archive)
        refused = restore(asked._replace(diverged=diverged))
        assert refused.failure is not None
        assert "it is here by a rollback: back, at 20" in refused.failure.message
    without_archive = restore(archived.restore_spec("snapshot", force=True, archive=None))
    assert without_archive.failure is not None, "there is no snapshot to begin with"
    assert archived.contents()[b"key-000"].value == b"chosen"
    assert archived.snapshots() == before
    archived.restored("full", force=True, accept_loss=True)
    assert archived.verify("deep").healthy


def test_what_a_person_has_put_back_outlives_its_node_although_its_log_is_smaller(archived: Archived) -> None:
    _chosen(archived)
    archived.lose_all()
    row = archived.restored("auto")
    assert (row.mode, row.before) == ("snapshot", Status.MISSING)
    assert archived.contents()[b"key-000"].value == b"chosen"
    assert archived.verify("deep").action is Action.BY_HAND


@pytest.mark.long
def test_what_a_person_has_put_back_is_not_followed_by_what_a_task_begins_anew(archived: Archived) -> None:
    _chosen(archived)
    before = archived.snapshots()
    archived.lose_all()
    (row,) = archived.process([(b"newer", b"value")]).snapshots
    assert "is not published: it was put in place by a rollback" in row.failure.message
    assert archived.snapshots() == before
    assert archived.restored(force=True).snapshot == before[0]
    assert archived.contents()[b"key-000"].value == b"chosen"


@pytest.mark.parametrize("by", ["restore", pytest.param("snapshot create", marks=pytest.mark.long)])
def test_clean_up_keeps_what_a_person_had_put_back_before_a_rebuild_from_the_log(
    archived: Archived, tmp_path: Path, by: str
) -> None:
    _chosen(archived)
    (chosen,) = archived.snapshots()
    if by == "restore":
        assert archived.restored("full", force=True, accept_loss=True).published.failure is None
    else:
        spec = archived.store_spec(archive=archived.archive)
        assert snapshot_from_log(SnapshotSpec(spec, "first", TINY_RUN, tmp_path, accept_loss=True)).failure is None
    (newest,) = archived.snapshots()
    assert newest.startswith("00000002-")
    clean_archive(archived.archive, Cluster(archived.servers, 60), Retention(1, 0, 0), dry_run=False)
    (directory,) = archived.directories()
    assert [str(found.name) for found in history(archived.objects, directory).snapshots] == [newest, chosen]


def test_an_older_copy_is_not_used_once_another_node_has_put_something_else_in_its_place(
    archived: Archived, tmp_path: Path
) -> None:
    def why() -> str | None:
        return superseded(archived.store_spec(archive=archived.archive))

    assert why() is None
    archived.process(ROWS)
    assert why() is None
    here, archived.state_dir = archived.state_dir, tmp_path / "elsewhere"
    assert why() is None
    archived.restored()
    _replaced(archived)
    archived.state_dir = here
    assert why() is None  # its log gives all
    archived.state_dir = tmp_path / "elsewhere"
    _rolled_back(archived)
    assert why() is None
    assert archived.process([(b"newer", b"value")]).snapshots[0].failure is None
    assert why() is None
    archived.state_dir = here
    assert why() == "it belongs to generation 0, but generation 1 has begun"
    archived.store_spec().paths.snapshot(STORE).unlink()
    assert "generation 1 has begun, and it is unknown" in str(why())
    (directory,) = archived.directories()
    archived.restored(force=True)
    assert why() is None
    for listed in history(archived.objects, directory).usable:
        mark_suspect(archived.objects, directory, listed.name, "DIVERGED")
    assert "which is suspect" in str(why())
