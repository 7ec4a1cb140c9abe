"""A store or a task that fails does so alone; a zombie changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from statestore.model import TaskId
from statestore.reports import ProcessRow
from statestore.tasks import stream_task
from statestore.tasks.spec import TaskSpec
from statestore.tasks.stream_task import StreamTask
from tests.faults import oracle
from tests.faults.children import Child, Kill
from tests.faults.hooks import to_disk
from tests.faults.made import STORES, aggregation_subject, processor_subject, rebuilt
from tests.faults.subject import Subject
from tests.integration.broker import group_offset

TASK = TaskId(0, 0)


def _restored(row: ProcessRow) -> set[str]:
    return {figures.store for figures in row.stores if figures.restored}


def _identities(subject: Subject) -> dict[str, set[str]]:
    """What RocksDB calls the databases of each store: a database that was made anew has another name."""
    live = {name: subject.paths(TASK).live(subject.definition.store(name)) for name in STORES}
    return {name: {path.read_text() for path in live[name].rglob("IDENTITY")} for name in STORES}


@pytest.mark.behaviour("T13")
@pytest.mark.parametrize("unclean", ["hourly", pytest.param("latest", marks=pytest.mark.long)])
def test_t13_a_store_that_may_hold_uncommitted_rows_is_rebuilt_alone(
    bootstrap_servers: str, tmp_path: Path, unclean: str
) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path, others={unclean: "rocksDB"}, partitions=2)
    subject.begin()
    subject.child(kill=Kill("flushed, not committed", task="0_0"), hooks=[to_disk]).killed()
    before = _identities(subject)
    first, second = subject.run()
    assert (rebuilt(first), _restored(first)) == ({unclean}, {unclean})
    assert (rebuilt(second), _restored(second)) == (set(), set())
    assert min(first.records_in, second.records_in) > 0
    after = _identities(subject)
    assert {name for name in STORES if before[name].isdisjoint(after[name])} == {unclean}
    oracle.check(subject)


def _close_two_stores(specs: Sequence[TaskSpec], directory: Path) -> None:
    """In a child: close two stores between the commit in Kafka and theirs."""

    class Failing(StreamTask):
        def recover(self) -> None:
            super().recover()
            commit = self._writer.commit

            def then_close() -> None:
                commit()
                for name in ("latest", "hourly"):
                    self._stores.by_name[name].inner.close(clean=False)

            self._writer.commit = then_close  # type: ignore[method-assign]

    stream_task.StreamTask = Failing  # type: ignore[misc]


@pytest.mark.behaviour("R12")
def test_r12_stores_that_fail_to_commit_keep_no_other_from_it(bootstrap_servers: str, tmp_path: Path) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path)
    subject.produce(20)
    (row,) = subject.child(hooks=[_close_two_stores]).rows()
    assert row.failure.kind == "InvalidStateError"
    assert "store latest is closed" in row.failure.message
    offsets = {name: subject.stored(TASK, name)[1] for name in STORES}
    assert offsets["latest"] is None
    assert offsets["hourly"] is None
    assert None not in (offsets["counts"], offsets["visits"])
    (row,) = subject.run()
    assert (row.records_in, _restored(row)) == (0, {"latest", "hourly"})
    oracle.check(subject)


@pytest.mark.long
@pytest.mark.behaviour("R13")
def test_r13_of_a_corrupted_task_one_store_is_rebuilt_and_the_other_tasks_go_on(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path, partitions=2)
    subject.produce(20)
    subject.run()
    for table in subject.paths(TASK).store("counts").glob("*.sst"):
        table.write_bytes(bytes(table.stat().st_size))
    subject.produce(20)
    first, second = subject.run()
    assert (rebuilt(first), rebuilt(second)) == ({"counts"}, set())
    assert (_restored(first), _restored(second)) == ({"counts"}, set())
    assert min(first.records_in, second.records_in) > 0
    oracle.check(subject)


# -- zombies ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("R14")
@pytest.mark.parametrize(
    ("kind", "point"),
    [
        pytest.param("processor", "recovered", marks=pytest.mark.long),
        pytest.param("processor", "during produce", marks=pytest.mark.long),
        ("processor", "flushed, not committed"),
        pytest.param("aggregations", "flushed, not committed", marks=pytest.mark.long),
    ],
)
def test_r14_a_stopped_task_that_wakes_after_its_successor_changes_nothing(
    bootstrap_servers: str, tmp_path: Path, kind: str, point: str
) -> None:
    make = processor_subject if kind == "processor" else aggregation_subject
    subject = make(bootstrap_servers, tmp_path)
    subject.produce(20)
    subject.run()
    other = tmp_path / "other host"
    shutil.copytree(subject.state_dir, other)
    subject.produce(20)
    zombie = Child(subject.specs(), tmp_path / "zombie", pause=Kill(point))
    try:
        zombie.paused()
        subject.run(state_dir=other)
        before = _everything(subject)
        zombie.wake()
        (row,) = zombie.rows()
    finally:
        zombie.end()
    assert (row.failure.kind, row.failure.retriable) == ("FencedError", False)
    assert (row.records_in, row.commits) == (0, 0)
    assert _everything(subject) == before
    subject.run()  # its stores catch up
    oracle.check(subject)


def _everything(subject: Subject) -> object:
    """What a zombie must leave as it is: its stores' committed contents, the logs as consumers see them, the offset."""
    logs = {where: records for where, (records, _) in subject.logged(*subject.written).items()}
    offset = group_offset(subject.servers, subject.name, subject.definition.input_topic)
    stores = [store.name for store in subject.definition.subtopologies[0].stores]
    return {name: subject.stored(TASK, name) for name in stores}, logs, offset
