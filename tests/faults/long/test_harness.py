"""The harness notices: a library that does what it must not fails the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from statestore import kill_switch
from statestore.formats import offsets as offsets_format
from statestore.kafka.writer import TransactionalWriter
from statestore.model import TopicPartition
from statestore.stores.rocksdb import RocksDB
from statestore.tasks import stream_task
from statestore.tasks.spec import TaskSpec
from statestore.tasks.stream_task import StreamTask
from statestore.tasks.task_changelogs import TaskChangelogs
from tests.faults import oracle
from tests.faults.children import Hook, Kill
from tests.faults.hooks import to_disk
from tests.faults.made import aggregation_subject, processor_subject


def _stores_first(specs: Sequence[TaskSpec], directory: Path) -> None:
    """Commit the stores before Kafka, and die between."""

    class Sabotaged(StreamTask):
        def commit(self) -> None:
            self.topology.flush()
            self._stores.commit(self._writer.flush(), {})
            for store in self._stores.by_name.values():
                store.sync()
            kill_switch.reached("sabotaged")

    stream_task.StreamTask = Sabotaged  # type: ignore[misc]


def _no_replay(specs: Sequence[TaskSpec], directory: Path) -> None:
    """Take stores that are behind for whole."""

    def skip(_: TaskChangelogs, store: Any, changelog: TopicPartition, start: int, log: Any) -> int:
        store.commit({changelog: log.last_stable - 1})
        return 0

    TaskChangelogs.replay = skip  # type: ignore[method-assign]


def _no_input_offsets(specs: Sequence[TaskSpec], directory: Path) -> None:
    """Commit transactions without the input offsets."""
    TransactionalWriter.send_offsets = lambda *_: None  # type: ignore[method-assign]


def _trust_what_was_left_open(specs: Sequence[TaskSpec], directory: Path) -> None:
    """Take a store without transactions for whole, however it was left."""
    RocksDB.status = lambda _: offsets_format.STATUS_CLOSED  # type: ignore[method-assign]


def _no_stream_time(specs: Sequence[TaskSpec], directory: Path) -> None:
    """Begin with an unknown stream time."""
    recover = StreamTask.recover

    def forgetful(task: StreamTask) -> None:
        recover(task)
        task.topology.stream_time = -1

    StreamTask.recover = forgetful  # type: ignore[method-assign]


@pytest.mark.share_for("no replay", why="one sabotage")
@pytest.mark.parametrize(
    ("engine", "kill", "before", "after", "found"),
    [
        ("txn_rocksDB", Kill("sabotaged"), [_stores_first], [], "O[123]"),
        ("txn_rocksDB", Kill("Kafka committed, stores not"), [], [_no_replay], "O[123]"),
        ("txn_rocksDB", Kill("before close"), [_no_input_offsets], [], "O3"),
        ("rocksDB", Kill("flushed, not committed"), [to_disk], [_trust_what_was_left_open], "O[123]"),
    ],
    ids=["stores first", "no replay", "no input offsets", "uncommitted rows kept"],
)
def test_a_sabotaged_library_is_found_out(
    bootstrap_servers: str, tmp_path: Path, engine: str, kill: Kill, before: list[Hook], after: list[Hook], found: str
) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path, engine)  # type: ignore[arg-type]
    subject.produce(30)
    subject.run()
    oracle.check(subject)
    subject.produce(30)
    subject.child(kill=kill, hooks=before).killed()
    subject.run(hooks=after)
    with pytest.raises(AssertionError, match=f"^{found}"):
        oracle.check(subject)


def test_a_stream_time_that_begins_anew_is_found_out(bootstrap_servers: str, tmp_path: Path) -> None:
    subject = aggregation_subject(bootstrap_servers, tmp_path)
    subject.begin(processed=60, waiting=10, late_first=True)
    subject.run(hooks=[_no_stream_time])
    with pytest.raises(AssertionError, match=r"^O3"):
        oracle.check(subject)


@pytest.mark.share_for(why="cheap")
def test_a_kill_that_does_not_come_is_found_out(bootstrap_servers: str, tmp_path: Path) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path)
    subject.produce(10)
    child = subject.child(kill=Kill("no such point"))
    with pytest.raises(AssertionError, match=r"^O8"):
        child.killed()
