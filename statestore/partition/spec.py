"""The description of one store partition for workers; created on the driver, frozen, picklable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, InstanceOf

from statestore.archive.archive import NO_ARCHIVE, ArchiveSpec
from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.model import StoreFormat, StorePartition, TaskId, TopicPartition
from statestore.partition.home import (
    FOREIGN_APPLICATION,
    GLOBAL_TABLE,
    IN_ARCHIVE,
    ON_DISK,
    ON_DISK_WITH_SNAPSHOTS,
    OWN_APPLICATION,
    Home,
    Origin,
    foreign,
)
from statestore.statedir.context import store_context
from statestore.statedir.paths import TaskPaths, task_paths
from statestore.stores.api import StoreContext
from statestore.stores.manifest import DatabaseProgress
from statestore.stores.segment_starts import left_over_segments, segment_interval_ms

T = TypeVar("T")


class GlobalTask(TaskId):
    """The place of a task id for global stores: they belong to no task and lie in `<application.id>/global`."""

    def __str__(self) -> str:
        return "global"


GLOBAL_TASK = GlobalTask(-1, 0)

#: How a global store is filled: a table has the rows of its topic; a processor of the application's makes others.
GlobalKind = Literal["table", "processor"]


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
    log_append_time
        Whether the brokers put their own time in the place of each record's.
    deleted_after_ms
        Age (ms) at which records are deleted; None: they are kept, or deleted also for another reason.
    """

    model_config = ConfigDict(frozen=True)

    topic: str
    topic_id: str
    delete_retention_ms: int
    partitions: int | None = None
    end_group: str | None = None
    compacted: bool = True
    log_append_time: bool = False
    deleted_after_ms: int | None = None


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
    described
        Where none of ours does: what a user says or has said of its kind and format; empty if nothing.
    shown
        Whether a directory of the store shows what it is.
    segments_seen
        Segments that were there when it was last verified: directory and identity of the database of each.
    progress_seen, committed_seen, restored_by_seen
        How far its databases had been written when it was last verified, by their directories' names, "" for the only
        one; its committed offset then; and the restore that had put it there.
    offsets_beside
        Its application is of Kafka Streams from before 4.3: a new store has its offsets in the task's `.checkpoint`.
    headers_ignored
        Records of its changelog may have headers, which it does not keep: it has taken such records in.
    global_kind
        How a global store is filled; None: that is not known, or it is none.
    global_said
        Somebody says so who knows the topology. If not, its rows were once those of its topic.
    archive
        Where its snapshots are; None: there are none.
    input_topic
        Topic that its task reads; None: not known.
    """

    model_config = ConfigDict(frozen=True)

    application: str
    task: InstanceOf[TaskId]
    store: StoreDefinition
    changelog: ChangelogSpec | None
    cluster: InstanceOf[Cluster]
    state_dir: Path
    lock_wait_s: float = 10.0
    exactly_once: bool = True
    owned: bool = True
    described: str = ""
    shown: bool = True
    segments_seen: tuple[tuple[str, str], ...] = ()
    progress_seen: tuple[tuple[str, DatabaseProgress], ...] = ()
    committed_seen: int | None = None
    restored_by_seen: str | None = None
    offsets_beside: bool = False
    headers_ignored: bool = False
    global_kind: GlobalKind | None = None
    global_said: bool = False
    archive: ArchiveSpec | None = None
    input_topic: str | None = None

    @property
    def logs_no_headers(self) -> bool:
        """True if headers in its changelog, besides positions, mean that it is not what it was taken for."""
        if self.changelog is None or self.is_global or self.owned or self.headers_ignored:
            return False
        if self.store.format is StoreFormat.HEADERS:
            return False
        # Others write an application's input, headers too: there they tell nothing against what a directory shows.
        return self.changelog.end_group is None or not self.shown

    @property
    def log_is_compacted(self) -> bool:
        """True if its changelog loses records that later ones of the same key have overtaken."""
        return self.changelog is not None and self.changelog.compacted

    @property
    def store_partition(self) -> StorePartition:
        """Which store partition it is."""
        return StorePartition(self.application, self.store.name, self.task)

    @property
    def paths(self) -> TaskPaths:
        """Paths of the task."""
        return task_paths(self.state_dir, self.application, self.task)

    @property
    def is_global(self) -> bool:
        """True for a global store."""
        return self.task == GLOBAL_TASK

    @property
    def home(self) -> Home:
        """Which of its copies counts.

        The store of an application without a definition is where that runs; its snapshots are of its log.
        """
        archive = self.snapshot_archive
        if archive is NO_ARCHIVE:
            return ON_DISK
        return IN_ARCHIVE if self.owned and archive.node_local else ON_DISK_WITH_SNAPSHOTS

    @property
    def snapshot_archive(self) -> ArchiveSpec:
        """The archive of its snapshots; one that offers nothing if there is none, or it is a global store."""
        return NO_ARCHIVE if self.archive is None or self.is_global else self.archive

    @property
    def with_shared_disk(self) -> StorePartitionSpec:
        """The store partition as if its disk counts, and its archive only has snapshots of it."""
        archive = None if self.archive is None else self.archive.model_copy(update={"node_local": False})
        return self.model_copy(update={"archive": archive})

    @property
    def origin(self) -> Origin:
        """Who writes it."""
        if self.owned and not self.is_global:
            return OWN_APPLICATION
        base = GLOBAL_TABLE if self.is_global else FOREIGN_APPLICATION
        return foreign(base, exactly_once=self.exactly_once, offsets_beside=self.offsets_beside)

    @property
    def partition(self) -> TopicPartition:
        """The store partition's part of the changelog; of a global store's several the first.

        A store without a changelog keeps the number of its last commit under this name.
        """
        topic = self.store.changelog_of(self.application) if self.changelog is None else self.changelog.topic
        return TopicPartition(topic, self.task.partition)

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
        own = {self.store.name: self.partitions}
        return store_context(
            self.paths,
            read_only=read_only,
            exactly_once=self.exactly_once,
            logged=self.store.logged,
            changelogs=own,
            without_left_over_segments=not self.owned,
        )

    def segments_used(self, segments: Mapping[int, T]) -> dict[int, T]:
        """Return the segments (by their starts in ms) that the application uses, if Kafka Streams writes the store."""
        left_over = self.left_over(segments)
        return {start: found for start, found in segments.items() if start not in left_over}

    def left_over(self, segments: Iterable[int]) -> list[int]:
        """Return the segments that Kafka Streams no longer uses, after a change of the retention."""
        retention_ms = self.store.retention_ms
        if self.owned or not self.store.segmented or retention_ms is None:
            return []
        return left_over_segments(segments, segment_interval_ms(retention_ms))


def on_this_disk(spec: StorePartitionSpec) -> StorePartitionSpec:
    """Return a store partition as a task decides about it: the store on its disk, also if the archive is its home."""
    return spec.model_copy(update={"archive": None})
