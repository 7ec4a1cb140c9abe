"""Nodes with a state directory each: the archive has the stores, and it does not matter where a task runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from statestore.archive.layout import BLOBS
from statestore.archive.snapshots import history, mark_suspect
from statestore.partition.generations import snapshot_directory
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Action, ProcessRow, Status, VerifyRow
from statestore.verification.check import verify_many
from statestore.verification.options import VerifyOptions
from tests.integration.archived import ROWS, Archived
from tests.integration.broker import delete_records, set_topic_config
from tests.integration.support import Application


class Nodes(Archived):
    """An application whose tasks run on nodes that do not see each other's disks."""

    def __init__(self, servers: str, directory: Path, **settings: Any) -> None:
        super().__init__(servers, directory, **settings)
        self.directory = directory
        self.archive = self.archive.model_copy(update={"node_local": True})

    def disk(self, node: str) -> Path:
        """Return a node's state directory."""
        return self.directory / node / "state"

    def run_on(self, node: str, **changes: Any) -> ProcessRow:
        """Run the task on a node; it must succeed."""
        row = self.run(state_dir=self.disk(node), **changes)
        assert row.failure is None, row.failure
        assert [found.failure for found in row.snapshots] == [None] * len(row.snapshots)
        return row

    def spec_on(self, node: str) -> StorePartitionSpec:
        """Plan the store partition of task 0_0 for a node."""
        return self.store_spec(archive=self.archive, state_dir=self.disk(node))

    def verify_on(self, node: str, depth: Any = "scan") -> VerifyRow:
        """Verify it from a node."""
        return verify_many([self.spec_on(node)], VerifyOptions(depth=depth))[0]


@pytest.fixture
def nodes(bootstrap_servers: str, tmp_path: Path) -> Nodes:
    """An application that has processed something on node `a`."""
    made = Nodes(bootstrap_servers, tmp_path)
    made.send(ROWS)
    made.run_on("a")
    return made


# -- verification -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", ["offsets", "scan", "deep"])
def test_a_store_that_lies_on_another_node_is_not_missing(nodes: Nodes, depth: str) -> None:
    row = nodes.verify_on("b", depth)
    assert (row.status, row.action, row.committed, row.lag) == (Status.OK, Action.NONE, 199, 0)
    assert row.depth == depth
    assert (row.keys, row.contents.differing if row.contents else None) == (
        (200, 0) if depth == "deep" else (None, None)
    )
    assert [path for path in nodes.disk("b").rglob("*") if path.is_file()] == [], "something is left in scratch space"


def test_a_snapshot_that_is_behind_its_log_lags(nodes: Nodes) -> None:
    nodes.send([(b"new", b"value")])
    assert Application.run(nodes, archive=None, state_dir=nodes.disk("a")).failure is None  # without publishing
    for depth in ("offsets", "scan", "deep"):
        row = nodes.verify_on("b", depth)
        assert (row.status, row.action, row.lag) == (Status.LAGGING, Action.TAIL, 2)


def test_a_store_without_a_snapshot_is_behind_its_log_and_not_missing(nodes: Nodes) -> None:
    shutil.rmtree(nodes.directory / "archive" / "stores")
    row = nodes.verify_on("b")
    assert (row.status, row.action) == (Status.LAGGING, Action.FULL)
    assert row.detail == "the archive has no snapshot of it that can be used"


def test_a_snapshot_without_one_of_its_files_is_damaged(nodes: Nodes) -> None:
    blob, *_ = nodes.objects.entries(BLOBS)
    nodes.objects.delete(blob.name)
    assert nodes.verify_on("b", "offsets").status is Status.OK
    row = nodes.verify_on("b")
    assert (row.status, row.action) == (Status.CORRUPT, Action.FULL)
    assert "the archive lacks 1 files of snapshot" in row.detail


def test_a_file_of_a_snapshot_with_other_bytes_is_found_by_depth_deep(nodes: Nodes) -> None:
    largest = max(nodes.objects.entries(BLOBS), key=lambda found: found.size)
    path = nodes.directory / "archive" / largest.name
    path.write_bytes(bytes(largest.size))
    assert nodes.verify_on("b").status is Status.OK
    row = nodes.verify_on("b", "deep")
    assert (row.status, row.action) == (Status.CORRUPT, Action.FULL)
    assert "other bytes" in row.detail


def test_a_suspect_snapshot_is_what_is_known_and_is_not_used(nodes: Nodes) -> None:
    spec = nodes.spec_on("b")
    directory = snapshot_directory(spec, nodes.archive)
    (found,) = history(nodes.objects, directory).usable
    mark_suspect(nodes.objects, directory, found.name, "for a test")
    row = nodes.verify_on("b")
    assert (row.status, row.action, row.loss) == (Status.LAGGING, Action.FULL, "none")
    set_topic_config(nodes.servers, nodes.changelog, cleanup_policy="compact,delete")
    delete_records(nodes.servers, nodes.changelog, 50)
    row = nodes.verify_on("b")
    assert (row.status, row.action, row.loss) == (Status.MISSING, Action.BY_HAND, "likely")
    assert "its changelog begins at offset 50" in row.detail


def test_where_the_archive_does_not_answer_the_stores_are_to_be_looked_at_later(nodes: Nodes) -> None:
    shutil.rmtree(nodes.directory / "archive")
    (nodes.directory / "archive").write_text("no directory")
    row = nodes.verify_on("b")
    assert (row.status, row.action) == (Status.LOCKED, Action.LATER)
