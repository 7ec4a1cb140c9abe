"""The description of one task of an application for a Spark task; created on the driver, frozen, picklable."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, InstanceOf

from statestore.archive.archive import ArchiveSpec
from statestore.definitions.application import ApplicationDefinition, Subtopology
from statestore.kafka.cluster import Cluster
from statestore.model import TaskId, TopicPartition
from statestore.objects.path import Location
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.statedir.paths import TaskPaths, task_paths
from statestore.tasks.timestamp_bounds import ANY_TIMESTAMP, TimestampBounds


class TaskSpec(BaseModel):
    """One task of a process run.

    Attributes
    ----------
    input_end
        Offset before which the run ends.
    input_id
        Id of the input's topic; None: not asked for.
    offsets_id
        Id of the topic that keeps the task's input offset.
    changelogs
        Changelog topic of each of the task's stores.
    max_batch_bytes
        The smallest `max.message.bytes` of the topics that the task writes to; None if not known.
    timestamps
        Which timestamps the topics that the task writes to take.
    resume_from_position
        Where the group has no input offset although there is state: go on from the stores' position.
    progress
        File in which the task says how far it is; None: nowhere.
    archive
        Where snapshots of its stores are published; None: nowhere.
    accept_loss
        An in-memory store may begin with what its changelog still has, also if that has lost something. A store without
        a changelog may begin as it is here, or empty if it is missing.
    """

    model_config = ConfigDict(frozen=True)

    application: ApplicationDefinition
    task: TaskId
    input_end: int
    input_id: str | None = None
    offsets_id: str
    changelogs: dict[str, ChangelogSpec]
    cluster: InstanceOf[Cluster]
    state_dir: Path
    lock_wait_s: float = 10.0
    recording_level: str = "INFO"
    max_batch_bytes: int | None = None
    timestamps: TimestampBounds = ANY_TIMESTAMP
    resume_from_position: bool = False
    progress: Location | None = None
    archive: ArchiveSpec | None = None
    accept_loss: bool = False

    @property
    def subtopology(self) -> Subtopology:
        """The task's part of the application."""
        return self.application.subtopologies[self.task.subtopology]

    @property
    def exactly_once(self) -> bool:
        """Whether the task commits with Kafka transactions."""
        return self.application.processing_guarantee == "exactly_once_v2"

    @property
    def paths(self) -> TaskPaths:
        """Paths of the task."""
        return task_paths(self.state_dir, self.application.name, self.task)

    @property
    def input(self) -> TopicPartition:
        """The task's input partition."""
        return TopicPartition(self.subtopology.input_topic, self.task.partition)

    @property
    def offsets(self) -> TopicPartition:
        """Partition that keeps the task's input offset."""
        return TopicPartition(self.subtopology.offsets_topic, self.task.partition)

    @property
    def stores_on_disk(self) -> tuple[StorePartitionSpec, ...]:
        """Those of the task's stores that outlive it."""
        return tuple(
            self.store_partition(store.name) for store in self.subtopology.stores if store.engine != "in_memory"
        )

    @property
    def unlogged_stores(self) -> tuple[str, ...]:
        """Names of the task's stores without a changelog."""
        return tuple(store.name for store in self.subtopology.stores if not store.logged)

    def changelog(self, store: str) -> TopicPartition:
        """Changelog partition of one of the task's stores; without a changelog, where it keeps its commit's number."""
        return TopicPartition(self.application.store(store).changelog_of(self.application.name), self.task.partition)

    def store_partition(self, store: str) -> StorePartitionSpec:
        """One of the task's stores, as a partition of it is verified and restored."""
        return StorePartitionSpec(
            application=self.application.name,
            task=self.task,
            store=next(found for found in self.subtopology.stores if found.name == store),
            changelog=self.changelogs.get(store),
            cluster=self.cluster,
            state_dir=self.state_dir,
            lock_wait_s=self.lock_wait_s,
            exactly_once=self.exactly_once,
            archive=self.archive,
            input_topic=self.subtopology.input_topic,
        )
