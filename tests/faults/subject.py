"""One application under test: its topics, its input, its state, and what a plain consumer finds of it."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from statestore_jobs.planning import prepare, task_specs

from statestore.changelog.topic_settings import REPARTITION_CONFIG
from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.formats import checkpoint_file, session_key, window_key
from statestore.kafka.cluster import Cluster
from statestore.metastore.command_topic import topic_name
from statestore.model import StoreFormat, TaskId, TopicPartition, changelog_topic
from statestore.model import repartition_topic as repartition
from statestore.reports import ProcessRow
from statestore.statedir.context import store_context
from statestore.statedir.paths import TaskPaths
from statestore.stores.open import build_store
from statestore.tasks.spec import TaskSpec
from tests.faults.applications import GROUPS, RETENTION_MS
from tests.faults.children import Child, Hook, Kill
from tests.integration.broker import WAIT_S, Logged, PlainConsumer, create_topic, settle, unique
from tests.integration.support import register

#: Changelogs keep everything, so that records can be counted.
_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}
#: Each partition has some of them to itself.
KEYS = [b"", b"\0", b"ab", b"a", b"\xff", b"key of more bytes", b"k6", b"k7", b"k8", b"k9"]
_DAY_MS = 24 * 3_600_000
#: A store's rows: keys as in the changelog, values, and timestamps (None in the plain format).
Contents = dict[bytes, tuple[bytes, int | None]]


class Subject:
    """An application under test.

    Parameters
    ----------
    partitions
        Of the input.
    archive
        URL of the archive; None: there is none.
    node_local
        Whether the archive has the stores, and state directories have copies.
    """

    def __init__(
        self,
        servers: str,
        directory: Path,
        definition: ApplicationDefinition,
        *,
        seed: int,
        partitions: int = 2,
        archive: str | None = None,
        node_local: bool = False,
    ) -> None:
        self.servers = servers
        self.directory = directory
        self.state_dir = directory / "state"
        self.definition = definition
        self.partitions = partitions
        self.archive = archive
        self.node_local = node_local
        self.name = definition.name
        self.upgraded: set[str] = set()
        self._random = random.Random(seed)
        self._now = [int(time.time() * 1000) - 2 * _DAY_MS] * partitions
        self._topics = Cluster(servers, WAIT_S).topics
        create_topic(servers, definition.input_topic, partitions)
        create_topic(servers, f"{self.name}-out", 1)
        for part in definition.subtopologies:
            for item in part.regrouped:
                create_topic(servers, repartition(self.name, item.store), GROUPS, REPARTITION_CONFIG)
            count = partitions if part.index == 0 else GROUPS
            for store in part.stores:
                create_topic(servers, changelog_topic(self.name, store.name), count, _KEPT)
        self.service_id = unique("service")
        self.metastore = register(servers, definition, service_id=self.service_id)
        self.prepare()

    def prepare(self) -> None:
        """Prepare a run, as the process job does."""
        prepare(self._topics, self.metastore, [self.metastore.view().catalogue.entry(self.name)])

    # -- input ----------------------------------------------------------------------------------------------------

    def produce(
        self,
        records: int,
        *,
        tombstones: bool = True,
        jump: bool = False,
        big: bool = False,
        late_first: bool = False,
    ) -> None:
        """Produce random input into each partition, some of it in transactions that are aborted.

        Parameters
        ----------
        jump
            Let time go so far that all segments before expire.
        big
            Let a value be larger than what a transaction keeps in memory.
        late_first
            Let the first record come after its window has closed.
        """
        for partition in range(self.partitions):
            parts = self._random.randint(1, 3)
            for part in range(parts):
                if self._random.random() < 0.3:
                    self._send(partition, self._some(partition, 3, tombstones), end="abort")
                if jump and part == parts - 1:
                    self._now[partition] += 3 * RETENTION_MS
                rows = self._some(partition, max(records // parts, 1), tombstones)
                if big and part == 0:
                    key, _, timestamp = rows[0]
                    rows[0] = key, b"x" * 6_000, timestamp
                if late_first and part == 0:
                    key, _, _ = rows[0]
                    rows[0] = key, b"late", self._now[partition] - RETENTION_MS // 2
                self._send(partition, rows, end=self._random.choice(["commit", "none"]))
        settle(self.servers, self.definition.input_topic)

    def _some(self, partition: int, number: int, tombstones: bool) -> list[tuple[bytes, bytes | None, int]]:
        rows: list[tuple[bytes, bytes | None, int]] = []
        for _ in range(number):
            self._now[partition] += self._random.randint(0, 3_000)
            late = self._random.choice([0] * 16 + [WINDOW_LATE, RETENTION_MS // 2, RETENTION_MS, 2 * RETENTION_MS])
            value = self._random.choice(b"abcdef").to_bytes(1, "big") + b"%d" % self._random.randint(0, 99)
            deleted = tombstones and self._random.random() < 0.15
            rows.append(
                (
                    self._random.choice(KEYS[partition :: self.partitions]),
                    None if deleted else value,
                    self._now[partition] - late,
                )
            )
        return rows

    def _send(self, partition: int, rows: Iterable[tuple[bytes, bytes | None, int]], end: str) -> None:
        config = {"bootstrap.servers": self.servers, "linger.ms": 1}
        producer = Producer(config if end == "none" else {**config, "transactional.id": uuid4().hex})
        if end != "none":
            producer.init_transactions(WAIT_S)
            producer.begin_transaction()
        for key, value, timestamp in rows:
            producer.produce(
                self.definition.input_topic, value=value, key=key, partition=partition, timestamp=timestamp
            )
        assert producer.flush(WAIT_S) == 0
        if end != "none":
            (producer.commit_transaction if end == "commit" else producer.abort_transaction)(WAIT_S)

    # -- running --------------------------------------------------------------------------------------------------

    def specs(self, stage: int = 0, state_dir: Path | None = None, kafka_timeout_s: float = WAIT_S) -> list[TaskSpec]:
        """Plan the tasks of subtopology 0, or of the others, as the process job does."""
        settings = Settings(
            bootstrap_servers=self.servers,
            state_dir=state_dir or self.state_dir,
            reports_dir=self.directory / "reports",
            data_docs_dir=self.directory / "docs",
            kafka_timeout_s=kafka_timeout_s,
            archive=self.archive,
            node_local_state=self.node_local,
        )
        parts = [part.index for part in self.definition.subtopologies if (part.index > 0) == (stage > 0)]
        if stage and parts:
            self._topics.wait_until_stable([self.definition.subtopologies[part].input_topic for part in parts])
        return [spec for part in parts for spec in task_specs(settings, self._topics, self.definition, part)]

    @property
    def stages(self) -> range:
        """Stages of a run."""
        return range(2 if len(self.definition.subtopologies) > 1 else 1)

    def begin(self, *, processed: int = 20, waiting: int = 20, **how: bool) -> None:
        """Process some input in a clean run, and produce more that waits; `how` as of `produce`."""
        self.produce(processed)
        self.run()
        self.produce(waiting, **how)

    def child(self, *, kill: Kill | None = None, pause: Kill | None = None, hooks: Sequence[Hook] = ()) -> Child:
        """Run the tasks of subtopology 0 in a process that is killed or stopped."""
        return Child(self.specs(), self.directory / "run", kill=kill, pause=pause, hooks=hooks)

    def run(self, *, state_dir: Path | None = None, hooks: Sequence[Hook] = ()) -> list[ProcessRow]:
        """Run all tasks to the end of their input; none may fail."""
        rows = []
        for stage in self.stages:
            rows += Child(self.specs(stage, state_dir), self.directory / "run", hooks=hooks).rows()
        failures = [(row.task, row.failure) for row in rows if row.failure]
        assert not failures, f"the run failed: {failures}"
        assert {row.lag for row in rows} == {0}, f"input was left: {rows}"
        settle(self.servers, *self.written)
        return rows

    @property
    def written(self) -> list[str]:
        """Topics that the application writes to."""
        internal = [part.input_topic if part.index else f"{self.name}-out" for part in self.definition.subtopologies]
        return [*internal, *(changelog_topic(self.name, store.name) for store in self.definition.stores)]

    @property
    def tasks(self) -> list[TaskId]:
        """All tasks."""
        return [
            TaskId(part.index, number)
            for part in self.definition.subtopologies
            for number in range(self.partitions if part.index == 0 else GROUPS)
        ]

    def delete_topics(self) -> None:
        """Delete all topics; nothing works on the application any more."""
        names = [self.definition.input_topic, *self.written, topic_name(self.service_id)]
        admin = AdminClient({"bootstrap.servers": self.servers})
        for done in admin.delete_topics(names).values():
            done.result(WAIT_S)

    # -- what there is --------------------------------------------------------------------------------------------

    def paths(self, task: TaskId, state_dir: Path | None = None) -> TaskPaths:
        """Where a task has its state."""
        return TaskPaths(state_dir or self.state_dir, self.name, task)

    def logged(self, *topics: str) -> dict[tuple[str, int], tuple[list[Logged], int]]:
        """Read topics under read_committed; return records and end of each partition."""
        found = self._topics.describe(topics)
        with closing(PlainConsumer(self.servers)) as consumer:
            return consumer.read(  # type: ignore[return-value]
                {TopicPartition(name, number): 0 for name in topics for number in range(found[name].partitions)}
            )

    def stored(self, task: TaskId, store: str, state_dir: Path | None = None) -> tuple[Contents, int | None]:
        """Rows of a store on disk and its committed offset; the store is only read."""
        definition, paths = self.definition.store(store), self.paths(task, state_dir)
        opened = build_store(definition)
        opened.init(store_context(paths, read_only=True, exactly_once=False))
        try:
            offset = opened.committed_offset(TopicPartition(changelog_topic(self.name, store), task.partition))
            return contents(opened, definition.kind), offset
        finally:
            opened.close(clean=False)

    # -- what the past may have left ------------------------------------------------------------------------------

    def upgrade(self, store: str) -> None:
        """Define a plain store as timestamped from here on: its rows are migrated as they are met."""
        stores = tuple(
            found.model_copy(update={"format": StoreFormat.TIMESTAMPED}) if found.name == store else found
            for found in self.definition.stores
        )
        self.definition = self.definition.model_copy(update={"stores": stores})
        register(self.servers, self.definition, service_id=self.service_id)
        self.upgraded.add(store)


WINDOW_LATE = 12_000


def as_before_kip_1035(paths: TaskPaths, stores: Iterable[StoreDefinition]) -> None:
    """Move the offsets of cleanly closed key-value stores into a checkpoint file, as an older version had them."""
    offsets: dict[TopicPartition, int | None] = {}
    for definition in stores:
        store = build_store(definition)
        partition = TopicPartition(changelog_topic(paths.application, definition.name), paths.task.partition)
        store.init(store_context(paths))
        offsets[partition] = store.committed_offset(partition)
        store.clear_offsets()
        store.close()
    shutil.rmtree(paths.own_dir)  # an older version had nothing of ours
    paths.checkpoint.write_text(checkpoint_file.write(offsets))


def contents(store: object, kind: str) -> Contents:
    """Rows of an open store, under the keys that the changelog has."""
    rows: Contents = {}
    for key, value in store.all():  # type: ignore[attr-defined]
        row_key = {
            "key-value": lambda key: key,
            "window": lambda key: window_key.encode(key.key, key.start),
            "session": lambda key: session_key.encode(*key),
        }[kind](key)
        rows[row_key] = (value, None) if isinstance(value, bytes) else tuple(value)
    return rows
