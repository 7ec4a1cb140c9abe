"""What a Spark task is told about one task of an application; made on the driver, frozen, picklable."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from statestore.model import ApplicationDefinition, StoreDefinition, StorePartition, TaskId, TopicPartition
from statestore.statedir.paths import TaskPaths


class ChangelogSpec(BaseModel):
    """A store's changelog topic as it was when the job was planned."""

    model_config = ConfigDict(frozen=True)

    topic: str
    topic_id: str
    delete_retention_ms: int


class StorePartitionSpec(BaseModel):
    """One store partition to verify or restore."""

    model_config = ConfigDict(frozen=True)

    application: str
    task: TaskId
    store: StoreDefinition
    changelog: ChangelogSpec | None
    bootstrap_servers: str
    state_dir: Path
    kafka_timeout_s: float
    lock_wait_s: float = 10.0

    @property
    def store_partition(self) -> StorePartition:
        """Which store partition it is."""
        return StorePartition(self.application, self.store.name, self.task)

    @property
    def paths(self) -> TaskPaths:
        """Paths of the task."""
        return TaskPaths(self.state_dir, self.application, self.task)

    @property
    def partition(self) -> TopicPartition:
        """The store partition's part of the changelog."""
        return self.store_partition.changelog

    @property
    def live(self) -> Path:
        """Directory of the live store."""
        return self.paths.store(self.store.name)


class TaskSpec(BaseModel):
    """One task of a process run."""

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

    @property
    def paths(self) -> TaskPaths:
        """Paths of the task."""
        return TaskPaths(self.state_dir, self.application.name, self.task)

    @property
    def input(self) -> TopicPartition:
        """The task's input partition."""
        return TopicPartition(self.application.input_topic, self.task.partition)
