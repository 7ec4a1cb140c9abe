"""A set is one cut: the stores of all tasks hold the fold of the input up to exactly the set's input offsets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statestore import clock
from statestore.archive.pins import SnapshotSet, find_set, pins, sets
from statestore.archive.selection import SnapshotChoice, chosen_snapshots
from statestore.archive.snapshots import mark_suspect
from statestore.changelog import brokers_clock
from statestore.discovery.archived import opened_snapshot
from statestore.kafka.cluster import Cluster
from statestore.model import TopicPartition
from statestore.reports import SnapshotSetRow
from statestore.tasks.offset_refresh import REFRESH_MS, refresh_offsets
from statestore.tasks.snapshot_sets import set_after_run
from tests.integration.broker import consume
from tests.integration.command_line import command_on
from tests.integration.test_snapshots import ROWS, Archived


class WithSets(Archived):
    """An application whose runs write sets."""

    def run_all(self, **changes: object) -> SnapshotSetRow | None:
        """Run all tasks, and write the set of the run."""
        rows = [self.run(partition, **changes) for partition in range(self.partitions)]
        return set_after_run(self.definition, rows, self.archive, Cluster(self.servers, 60))

    def known(self) -> list[SnapshotSet]:
        """All sets, the newest last."""
        return list(sets(self.objects, self.archive.cluster, self.name))

    def assert_cut(self, made: SnapshotSet, scratch: Path) -> int:
        """Compare the stores of a set with the fold of the input up to its offsets; return how many rows there are."""
        offsets = dict(made.input_offsets)
        total = 0
        for snapshot in chosen_snapshots(self.objects, SnapshotChoice(made.uuid)):
            partition = snapshot.store_partition.task.partition
            until = offsets[TopicPartition(self.input, partition)]
            expected: dict[bytes, int] = {}
            for record in consume(self.servers, self.input, partition)[0]:
                if record.offset < until:
                    expected[record.key] = expected.get(record.key, 0) + 1
            with opened_snapshot(self.objects, snapshot, scratch) as found:
                batches = [batch.to_pylist() for opened in found.databases for batch in opened.rows()]
            rows = {row["key"]: int(row["value"][8:]) for batch in batches for row in batch}
            assert rows == expected
            total += len(rows)
        return total


@pytest.fixture
def archived(bootstrap_servers: str, tmp_path: Path) -> WithSets:
    return WithSets(bootstrap_servers, tmp_path, partitions=2)


def test_a_set_holds_the_fold_of_the_input_up_to_its_offsets_whatever_came_later(
    archived: WithSets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    archived.send(ROWS, 0)
    archived.send(ROWS[:20], 1)
    first = archived.run_all()
    with monkeypatch.context() as later:
        now_ms = clock.now_ms() + REFRESH_MS
        later.setattr(brokers_clock, "now_ms", lambda _: now_ms)
        assert refresh_offsets(Cluster(archived.servers, 60).topics, archived.definition) == 2
    again = archived.run_all()  # idle: the set says the same
    archived.send([*ROWS[:50], (b"new", b"value")], 1)
    second = archived.run_all()  # task 0_0 is idle

    run, _ = command_on(archived, tmp_path, monkeypatch, capfd)
    where = ("--archive", archived.archive.url)
    listed = run.shown("snapshot", "list", "--sets", *where)["rows"]
    assert [(row["set"], row["snapshots"], row["removed"]) for row in listed] == [
        (one.snapshot_set, 2, 0) for one in (second, first)
    ]
    assert listed[0]["input_offsets"] == {f"{archived.input}-0": 200, f"{archived.input}-1": 71}
    assert run("snapshot", "pin", "cut", "--set", first.snapshot_set, "--why", "x", *where).code == 0
    assert run("snapshot", "pin", "none", "--set", "0" * 32, "--why", "x", *where).code == 2
    assert [found.snapshots for found in pins(archived.objects)] == [(archived.known()[0].place,)]
    assert first == again
    assert [one.uuid for one in archived.known()] == [first.snapshot_set, second.snapshot_set]
    before, after = archived.known()
    assert set(before.snapshots) & set(after.snapshots)  # that of 0_0
    archived.send(ROWS, 0)
    archived.run_all()
    shutil.rmtree(archived.state_dir)
    assert archived.assert_cut(before, tmp_path) == 220
    assert archived.assert_cut(after, tmp_path) == 251
    assert find_set(archived.objects, before.uuid) == before


@pytest.mark.long
def test_no_set_is_written_unless_all_of_it_is_of_the_same_moment(archived: WithSets, tmp_path: Path) -> None:
    archived.send(ROWS, 0)
    archived.send(ROWS, 1)
    rows = [archived.run(partition) for partition in range(2)]

    def why(*given: object) -> str:
        row = set_after_run(archived.definition, given, archived.archive, Cluster(archived.servers, 60))  # type: ignore[arg-type]
        assert row.snapshot_set is None
        return row.why

    unpublished = rows[1].snapshots[0].model_copy(update={"current": None})
    assert "0_1 has no snapshot of what it has now" in why(
        rows[0], rows[1].model_copy(update={"snapshots": [unpublished]})
    )
    (tmp_path / "a-file").write_text("x")
    archived.send(ROWS[:5], 0)
    nowhere = archived.archive.model_copy(update={"url": f"file://{tmp_path}/a-file"})
    failed = archived.run(0, archive=nowhere)  # processed, and not published
    assert "another run has continued" in why(*rows)
    assert "0_0 has no snapshot of what it has now" in why(failed, rows[1])
    assert archived.run_all().snapshot_set is not None  # a run that has nothing to process publishes it
    archived.send(ROWS[:5], 0)
    assert archived.run_all().snapshot_set is not None
    rows = [archived.run(partition) for partition in range(2)]
    (first, *_) = chosen_snapshots(archived.objects, SnapshotChoice("latest", application=archived.name))
    mark_suspect(archived.objects, first.directory, first.name, "DIVERGED")
    assert "is suspect, of an older generation, or removed" in why(*rows)


def test_an_application_that_processes_at_least_once_has_no_sets(bootstrap_servers: str, tmp_path: Path) -> None:
    archived = WithSets(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    archived.send(ROWS)
    assert archived.run_all() is None
