"""Which generation a store's next snapshot belongs to, when stores are lost, put back, or late."""

from __future__ import annotations

import shutil

import pytest

from statestore.archive.cleanup import mark
from statestore.archive.grown_from import beginning
from statestore.archive.snapshots import history, mark_suspect, read_manifest
from statestore.durable import write_durably
from tests.integration.archived import ROWS, Archived
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
    write_durably(archived.store_spec().paths.snapshot(STORE), beginning("a rollback"))
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
