"""Which generation a store's next snapshot belongs to, when stores are lost, put back, or late."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from statestore.archive.cleanup import mark
from statestore.archive.grown_from import beginning
from statestore.archive.snapshots import history, mark_suspect, read_manifest
from statestore.durable import write_durably
from statestore.partition import snapshots as publication
from statestore.partition.rollback import RollbackSpec, roll_back
from statestore.recovery.snapshot_building import snapshot_from_log
from statestore.statedir.seal import break_seal
from statestore.statedir.swap import locked_task
from tests.integration.archived import ROWS, TINY_RUN, Archived
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
        assert "generation 1 was begun by another store" in row.failure.message
        assert archived.snapshots() == [first.snapshot]


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


@pytest.mark.parametrize("again", ["process", pytest.param("snapshot create", marks=pytest.mark.long)])
def test_at_least_once_a_generation_that_could_not_be_begun_is_begun_later(
    bootstrap_servers: str, tmp_path: Path, again: str
) -> None:
    archived = Archived(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    archived.process(ROWS)
    spec = archived.store_spec(archive=archived.archive)
    assert snapshot_from_log(spec, "first", TINY_RUN, tmp_path).failure is None
    _replaced(archived)
    assert _rolled_back(archived) is None  # the archive is away
    if again == "process":
        (row,) = archived.process([(b"newer", b"value")]).snapshots
        assert (row.failure, archived.snapshots()) == (None, [row.snapshot])
        assert archived.process([(b"newest", b"value")]).snapshots == ()
    made = snapshot_from_log(spec, "second", TINY_RUN, tmp_path)
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
    refused = snapshot_from_log(spec, "first", TINY_RUN, tmp_path)
    assert "is here by a rollback: back, of which there is no snapshot" in refused.failure.message
    assert archived.snapshots() == before
    assert snapshot_from_log(spec, "second", TINY_RUN, tmp_path, accept_loss=True).failure is None
