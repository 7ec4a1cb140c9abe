"""What a way to get a store offers, and how it builds the store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from statestore.archive.manifest import Manifest
from statestore.changelog.epochs import log_ends
from statestore.errors import StateStoreError
from statestore.kafka.topics import LogRange
from statestore.objects.path import Location
from statestore.partition.facts import Facts, Open
from statestore.partition.plan import Need, Offer, Plan, Refusal, Request, SourceName
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.disk_space import disk_needed
from statestore.recovery.full import Built, Logs
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.runner import Runner
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staged_check import check_staged
from statestore.recovery.staging import Staging
from statestore.statedir.record import StoreRecord


class Work(NamedTuple):
    """A store partition that is built by a plan; the caller holds the task's lock, and the staging directory."""

    spec: RestoreSpec
    facts: Facts
    plan: Plan
    staging: Staging
    progress: RestoreProgressWriter

    @property
    def store(self) -> StorePartitionSpec:
        """The store partition."""
        return self.spec.store

    @property
    def logs(self) -> Logs:
        """Offsets of the changelog partitions."""
        return self.facts.asked_log.all_logs

    @property
    def log(self) -> LogRange:
        """Offsets of the changelog partition."""
        return self.logs[self.store.partition]

    @property
    def asked_ms(self) -> int:
        """The brokers' time before the ends of the logs were asked for, ms since the epoch."""
        return self.facts.asked_log.asked_ms

    @property
    def snapshot(self) -> Manifest | None:
        """The snapshot that it is built from; None if the plan names none."""
        return self.facts.known_archive.manifest(self.plan.snapshot)


class BuildResult(NamedTuple):
    """A new store in the staging directory, which was checked.

    Attributes
    ----------
    keys
        Its rows.
    exact
        False if compaction may have removed versions from the log; None if that cannot be, or was not asked.
    """

    built: Built
    keys: int
    exact: bool | None = None


class DiskNeeded(NamedTuple):
    """Disk space that a restore needs at most, bytes.

    Attributes
    ----------
    needed
        Where the store is put in place.
    each
        On each node that builds a part; 0 if there are no parts.
    """

    needed: int
    each: int = 0


class BuildSource(ABC):
    """A way to get a store.

    Attributes
    ----------
    name
        Its name in plans.
    order
        Its place among sources whose offers are equal.
    """

    name: SourceName
    order: int

    @abstractmethod
    def offer(self, facts: Facts, need: Need, request: Request) -> Offer | Open | Refusal | None:
        """Return what it offers for what is needed; None if it cannot give that. Pure."""

    @abstractmethod
    def build(self, work: Work) -> BuildResult:
        """Build the store in the staging directory, and check it."""

    def record(self, work: Work, built: Built) -> StoreRecord:
        """Return the record of a store that has its log up to the end that was asked for."""
        return record_of(work.spec, built, work.logs, built.since_ms)

    def may_replan(self, work: Work, error: StateStoreError) -> bool:
        """Return whether another source may be tried after this error."""
        return False

    def prepares(self, spec: RestoreSpec) -> bool:
        """Return whether `prepare` does a part of the work on a log that is cut into ranges."""
        return False

    def prepare(self, specs: Sequence[RestoreSpec], run: Runner, progress: Location) -> list[RestoreSpec]:
        """Do parts of restores ahead, several at a time; return the restores with what was done for them.

        What fails here, the restore does again, or says why it cannot.
        """
        return []

    def resumable(self, spec: RestoreSpec, logs: Logs) -> int:
        """Return the number of offsets that an interrupted attempt has read."""
        return 0

    def disk(self, spec: RestoreSpec, log_bytes: int, offsets: int) -> DiskNeeded:
        """Return the disk space that it needs; the default is a copy of the read part of the log.

        Parameters
        ----------
        log_bytes, offsets
            What is read of the log.
        """
        return DiskNeeded(disk_needed(log_bytes, spec.run_bytes, offsets))

    def clean(self, store: StorePartitionSpec) -> None:  # noqa: B027 (most sources leave nothing)
        """Remove what restores have prepared for a store partition, once it is restored."""

    def checked(self, work: Work, built: Built) -> int:
        """Check a store in the staging directory; return its rows."""
        work.progress.phase("checking")
        return check_staged(work.store, built, work.spec.request.check)


def record_of(spec: RestoreSpec, built: Built, logs: Logs, whole_ms: int) -> StoreRecord:
    """Return the record of a store that is put in place.

    Parameters
    ----------
    whole_ms
        The brokers' time at which it had all of its log, ms since the epoch.
    """
    assert spec.store.changelog is not None
    store, log = spec.store, logs[spec.store.partition]
    ends = log_ends(store.cluster, {store.partition: log})
    return StoreRecord(
        topic_id=spec.store.changelog.topic_id,
        caught_up_ms=whole_ms,
        committed=built.committed_offset,
        end=log.last_stable,
        epoch=ends[store.partition].epoch if ends else None,
        needed_from=log.start if built.first is None else min(built.first, log.start),
        stream_time=built.stream_time,
        restored_by=spec.label,
    )
