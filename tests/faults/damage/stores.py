"""Stores to be damaged: made once by real tasks, and copied for every injection.

One application with a store of each kind and format, so that each fault meets all of them. What its stores must hold is
folded from their changelogs by a plain consumer; no reader of ours has a part in it.
"""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.model import StoreFormat, TaskId
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.recovery.restore import RestoreSpec, restore
from statestore.reports import RestoreRow, VerifyRow
from statestore.requests.restore import RestoreRequest
from statestore.statedir.paths import TaskPaths
from statestore.verification.check import verify
from statestore.verification.options import Depth, VerifyOptions
from tests.faults.applications import with_processor
from tests.faults.oracle import folded_log
from tests.faults.subject import Contents, Subject
from tests.integration.broker import WAIT_S, set_topic_config, settle, unique
from tests.oracle.rows import unexpired

FORMATS = {
    "counts": StoreFormat.TIMESTAMPED,
    "latest": StoreFormat.PLAIN,
    "hourly": StoreFormat.TIMESTAMPED,
    "visits": StoreFormat.PLAIN,
}
#: The task whose stores are damaged, and the one whose directories are put in their place.
TASK, OTHER_TASK = TaskId(0, 0), TaskId(0, 1)
_PARTITIONS = 2
_KEYS = [b"key-%03d" % number for number in range(120)]
#: Small enough that a store with a fault is restored in runs that reach the disk.
_RUN_BYTES = 16_384


class Original:
    """An application whose stores are whole, and what is in them.

    Attributes
    ----------
    subject
        The application.
    older
        Its state directory as it was some input before.
    changelogs
        What planning knows of the changelog topics; None: there is none.

    Parameters
    ----------
    runs, records
        How often the tasks run to make the stores, and for how many records of each partition.
    changelog_config
        Settings of the changelog topics; `_` stands for the dot. Without any they keep everything.
    """

    def __init__(
        self,
        servers: str,
        directory: Path,
        *,
        seed: int,
        runs: int = 3,
        records: int = 220,
        changelog_config: dict[str, str] | None = None,
    ) -> None:
        definition = with_processor(
            unique("damaged"), dict.fromkeys(FORMATS, "txn_rocksDB"), FORMATS, commit_interval_ms=600_000
        )
        self.subject = Subject(servers, directory / "original", definition, seed=seed, partitions=_PARTITIONS)
        self.older = directory / "older"
        self._copies = directory / "copies"
        self._chance = random.Random(seed)
        self._now = int(time.time() * 1000) - 24 * 3_600_000
        self._number = 0
        for name in FORMATS if changelog_config else ():
            set_topic_config(servers, self.changelog_name(name), **(changelog_config or {}))
        for number in range(runs):
            self.process(records)
            if number == runs - 2:
                shutil.copytree(self.subject.state_dir, self.older)
        self.look()

    def process(self, records: int) -> None:
        """Produce input and run the tasks; keys come and go, windows close and expire."""
        producer = Producer({"bootstrap.servers": self.subject.servers, "linger.ms": 1})
        for _ in range(records):
            self._now += self._chance.randint(0, 500)
            for partition in range(_PARTITIONS):
                value = None if self._chance.random() < 0.1 else self._chance.randbytes(60)
                producer.produce(
                    self.subject.definition.input_topic,
                    value=value,
                    key=self._chance.choice(_KEYS),
                    partition=partition,
                    timestamp=self._now,
                )
        assert producer.flush(WAIT_S) == 0
        settle(self.subject.servers, self.subject.definition.input_topic)
        self.subject.run()

    def look(self) -> None:
        """Learn from the changelogs what the stores must hold, and how the topics are now."""
        topics = [self.changelog_name(name) for name in FORMATS]
        logs = self.subject.logged(*topics)
        self._expected = {
            (task, name): folded_log(self.store(name), logs[self.changelog_name(name), task.partition][0])
            for name in FORMATS
            for task in (TASK, OTHER_TASK)
        }
        self.changelogs: dict[str, ChangelogSpec | None] = dict(self.subject.specs()[0].changelogs)

    def store(self, name: str) -> StoreDefinition:
        """Definition of a store."""
        return self.subject.definition.store(name)

    def changelog_name(self, store: str) -> str:
        """Changelog topic of a store."""
        return f"{self.subject.name}-{store}-changelog"

    def expected(self, store: str, task: TaskId = TASK) -> Contents:
        """Rows that retention still shows, as the changelog has them."""
        rows, _ = self._expected[task, store]
        if self.store(store).format is StoreFormat.PLAIN:
            return {key: (value, None) for key, (value, _) in rows.items()}
        return rows

    def stream_time(self, store: str, task: TaskId = TASK) -> int:
        """Stream time (ms) of a store."""
        return self._expected[task, store][1]

    def copy(
        self, *, sealed: bool = True, older: bool = False, only: str | None = None, directory: Path | None = None
    ) -> Copy:
        """Copy the state directory.

        Parameters
        ----------
        sealed
            False takes the seals away, as if another program had had the stores.
        older
            Whether to copy the older one.
        only
            The only store to be copied; None: all.
        directory
            Where to; None: beside the other copies.
        """
        self._number += 1
        state_dir = directory or self._copies / str(self._number)
        source = self.older if older else self.subject.state_dir
        others = () if only is None else set(FORMATS) - {only}
        shutil.copytree(source, state_dir, ignore=shutil.ignore_patterns(*others))
        copy = Copy(self, state_dir)
        if not sealed:
            copy.break_seals()
        return copy


@dataclass(frozen=True)
class Copy:
    """A copy of the state directory, to be damaged."""

    original: Original
    state_dir: Path

    @property
    def paths(self) -> TaskPaths:
        """Paths of the task whose stores are damaged."""
        return self.original.subject.paths(TASK, self.state_dir)

    def live(self, store: str, task: TaskId = TASK) -> Path:
        """Directory of a store."""
        return self.original.subject.paths(task, self.state_dir).live(self.original.store(store))

    def break_seals(self) -> None:
        """Remove seals and digests, as a store has none that another program was the last to open."""
        for pattern in ("seal-*", "digests-*"):
            for file in self.paths.own_dir.glob(pattern):
                file.unlink()

    def spec(self, store: str, **changes: Any) -> StorePartitionSpec:
        """Describe a store partition, as planning does."""
        spec = StorePartitionSpec(
            application=self.original.subject.name,
            task=TASK,
            store=self.original.store(store),
            changelog=self.original.changelogs[store],
            cluster=Cluster(self.original.subject.servers, WAIT_S),
            state_dir=self.state_dir,
            lock_wait_s=0.2,
        )
        return spec.model_copy(update=changes)

    def verify(self, store: str, depth: Depth = "scan") -> VerifyRow:
        """Verify a store."""
        return verify(self.spec(store), VerifyOptions(depth))

    def restore_spec(
        self, store: str, *, force: bool = False, accept_loss: bool = False, **changes: Any
    ) -> RestoreSpec:
        """Describe a restore."""
        return RestoreSpec(
            self.spec(store, **changes), RestoreRequest(force=force, accept_loss=accept_loss), "run", _RUN_BYTES
        )

    def restore(self, store: str, *, force: bool = False, accept_loss: bool = False) -> RestoreRow:
        """Restore a store, whatever comes of it."""
        return restore(self.restore_spec(store, force=force, accept_loss=accept_loss))

    def contents(self, store: str, directory: Path | None = None) -> Contents:
        """Rows of a store that retention still shows."""
        rows, _ = self.original.subject.stored(TASK, store, directory or self.state_dir)
        return unexpired(self.original.store(store), rows, self.original.stream_time(store))

    def remove(self) -> None:
        """Free the disk."""
        shutil.rmtree(self.state_dir)


def files_of(directory: Path) -> dict[str, bytes]:
    """Files below a directory; without RocksDB's own log and lock, which each opening writes."""
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and not file.name.startswith("LO")
    }
