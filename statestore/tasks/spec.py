"""What a Spark task is told about one task of an application; made on the driver, frozen, picklable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, InstanceOf

from statestore.model import (
    ApplicationDefinition,
    StoreDefinition,
    StorePartition,
    Subtopology,
    TaskId,
    TopicPartition,
)
from statestore.statedir.context import store_context
from statestore.statedir.paths import TaskPaths
from statestore.stores.api import StoreContext


class GlobalTask(TaskId):
    """The place of a task id for global stores: they belong to no task and lie in `<application.id>/global`."""

    def __str__(self) -> str:
        return "global"


GLOBAL_TASK = GlobalTask(-1, 0)


class ChangelogSpec(BaseModel):
    """A store's changelog topic as it was when the job was planned.

    Attributes
    ----------
    partitions
        How many the topic has; None: not asked.
    end_group
        Consumer group whose committed offset is the end, if the log goes on behind it: the topic is the application's
        own input, of which the store has no more than what was processed.
    compacted
        Whether the log loses records, tombstones among them, that later ones of the same key have overtaken.
    """

    model_config = ConfigDict(frozen=True)

    topic: str
    topic_id: str
    delete_retention_ms: int
    partitions: int | None = None
    end_group: str | None = None
    compacted: bool = True


class StorePartitionSpec(BaseModel):
    """One store partition to verify or restore.

    Attributes
    ----------
    task
        The task, or `GLOBAL_TASK` for a global store, which has all partitions of its topic.
    exactly_once
        Whether a store that was left open may hold rows that were never committed.
    owned
        Whether a definition of ours says what the store is. If not, it was found in a state directory, and one in a
        format that we do not know is left alone.
    """

    model_config = ConfigDict(frozen=True)

    application: str
    task: InstanceOf[TaskId]
    store: StoreDefinition
    changelog: ChangelogSpec | None
    bootstrap_servers: str
    state_dir: Path
    kafka_timeout_s: float
    lock_wait_s: float = 10.0
    exactly_once: bool = True
    owned: bool = True

    @property
    def store_partition(self) -> StorePartition:
        """Which store partition it is."""
        return StorePartition(self.application, self.store.name, self.task)

    @property
    def paths(self) -> TaskPaths:
        """Paths of the task."""
        return TaskPaths(self.state_dir, self.application, self.task)

    @property
    def is_global(self) -> bool:
        """True for a global store."""
        return self.task == GLOBAL_TASK

    @property
    def partition(self) -> TopicPartition:
        """The store partition's part of the changelog; of a global store's several the first."""
        default = self.store_partition.changelog
        return default if self.changelog is None else default._replace(topic=self.changelog.topic)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """All partitions that the store is filled from: one, or every one of a global store's topic."""
        if not self.is_global or self.changelog is None:
            return (self.partition,)
        return tuple(self.partition._replace(partition=number) for number in range(self.changelog.partitions or 1))

    @property
    def live(self) -> Path:
        """Directory of the live store."""
        return self.paths.live(self.store)

    def context(self, *, read_only: bool = False) -> StoreContext:
        """Return the context that the store is opened in, with the changelog partitions whose offsets it may hold."""
        name = self.store.name
        context = store_context(self.paths, read_only=read_only, exactly_once=self.exactly_once)
        return replace(context, changelogs={name: self.partitions})


class TaskSpec(BaseModel):
    """One task of a process run.

    Attributes
    ----------
    input_end
        Offset before which the run ends.
    changelogs
        Changelog topic of each of the task's stores.
    max_batch_bytes
        The smallest `max.message.bytes` of the topics that the task writes to; None if not known.
    resume_from_position
        Where the group has no input offset although there is state: go on from the stores' position.
    progress
        File in which the task says how far it is; None: nowhere.
    """

    model_config = ConfigDict(frozen=True)

    application: ApplicationDefinition
    task: TaskId
    input_end: int
    changelogs: dict[str, ChangelogSpec]
    bootstrap_servers: str
    state_dir: Path
    kafka_timeout_s: float
    lock_wait_s: float = 10.0
    recording_level: str = "INFO"
    max_batch_bytes: int | None = None
    resume_from_position: bool = False
    progress: Path | None = None

    @property
    def subtopology(self) -> Subtopology:
        """What the task does."""
        return self.application.subtopologies[self.task.subtopology]

    @property
    def exactly_once(self) -> bool:
        """Whether the task commits with Kafka transactions."""
        return self.application.processing_guarantee == "exactly_once_v2"

    @property
    def paths(self) -> TaskPaths:
        """Paths of the task."""
        return TaskPaths(self.state_dir, self.application.name, self.task)

    @property
    def input(self) -> TopicPartition:
        """The task's input partition."""
        return TopicPartition(self.subtopology.input_topic, self.task.partition)

    def changelog(self, store: str) -> TopicPartition:
        """Changelog partition of one of the task's stores."""
        return StorePartition(self.application.name, store, self.task).changelog
