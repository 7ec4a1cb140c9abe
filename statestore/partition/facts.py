"""Facts about one store partition, by which it is judged and by which a restore is planned. Frozen values, no I/O.

What costs a read of the log or of the archive is asked only if it decides: it is `UNASKED` until then. `judge` and
`plan` return the questions that are open, and `verification/gathering.py` answers them for many store partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Final, NamedTuple, Protocol

from statestore.archive.manifest import Manifest
from statestore.archive.snapshots import History, Listed
from statestore.changelog.epochs import Continuity, LogComparison, LogEnd
from statestore.errors import StateStoreError
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.reports import Loss, Status
from statestore.statedir.record import StoreRecord


class Unasked(Enum):
    """Type of a fact that was not asked for."""

    UNASKED = "unasked"


UNASKED: Final = Unasked.UNASKED
NO_LOG = LogRange(0, 0, 0)


class Question(StrEnum):
    """Question about a store partition that costs a request to Kafka or to the archive."""

    LAST_KNOWN = "what snapshots and commits show of a store of which this disk shows nothing"
    LOG = "where the log begins and ends, and whether it was cut"
    FIRST_RECORD = "the first record that the store has not seen"
    LOG_TIMES = "the times of the first and last rows in the log"
    LACKS_VERSIONS = "whether compaction may have removed versions that the store has"
    TAIL_IS_COMPLETE = "whether compaction has removed nothing after the committed offset"
    SNAPSHOTS = "which snapshots the archive has"
    ARCHIVE_LOSS = "what a rebuild from the log would lose of the newest snapshot"
    MORE_SNAPSHOTS = "the next older snapshot"
    LOG_BYTES = "the bytes of keys and values in the log"
    REBUILD_LOSS = "what a rebuild of a global table would lose"
    PROOF = "from which offset a replay corrects every row"


class Open(NamedTuple):
    """Questions that must be answered before there is a result."""

    questions: frozenset[Question]

    @classmethod
    def of(cls, *questions: Question) -> Open:
        """Return open questions."""
        return cls(frozenset(questions))


class LastKnown(NamedTuple):
    """Content of a store partition, now or when it could last be used, from the store, its seal, or its record.

    Attributes
    ----------
    anything
        It has, or had, something of its log.
    committed
        Offset of the last changelog record in it; None if unknown.
    record
        Its record; None if there is none.
    foreign
        The directory holds the store of another partition, about whose log nothing is known here.
    uncommitted
        It could be read, and has no committed offset.
    in_memory
        It is kept in memory: between two runs, only its log has it.
    """

    anything: bool
    committed: int | None = None
    record: StoreRecord | None = None
    foreign: bool = False
    uncommitted: bool = False
    in_memory: bool = False

    @property
    def stream_time(self) -> int | None:
        """Largest timestamp (ms) of its rows, by its record; None if unknown."""
        return None if self.record is None else self.record.stream_time

    @property
    def is_unknown(self) -> bool:
        """True if neither the store nor a record shows what it had, not even that it had nothing.

        A task that was killed before its first commit may have left a store that it had only begun.
        """
        return (not self.anything or self.uncommitted) and (self.record is None or self.record.is_begun)


class Trouble(NamedTuple):
    """Reason why a store cannot be used.

    Attributes
    ----------
    rebuildable
        A rebuild from its log would repair it.
    """

    status: Status
    detail: str
    rebuildable: bool = True


class ListedSnapshots(NamedTuple):
    """The snapshots of one store partition, and the manifest of the newest one that can be read; None if there is none.

    The newest one of the current generation is evidence of what the store had, usable or not.
    """

    history: History
    newest: Manifest | None


class DiskFacts(NamedTuple):
    """A store partition as it lies on a disk, or as its newest snapshot has it if its home is the archive.

    Attributes
    ----------
    present
        The store has a directory, or a snapshot.
    committed
        Offset of the last changelog record in it; None if unknown.
    empty
        It has no rows.
    record
        Its record next to the store.
    sealed
        It is as it was sealed; None if that was not checked.
    upgrade_pending
        It has rows in an older format.
    trouble
        Why the store cannot be used; None if it can.
    file
        The damaged file.
    known
        Best evidence of what it has, or had.
    installed_by
        Why a user installed it in place of what its log gives; None if nobody did.
    has_database
        It has at least one database.
    listed
        Its snapshots, if they were listed as evidence of it.
    """

    present: bool
    committed: int | None = None
    empty: bool = True
    record: StoreRecord | None = None
    sealed: bool | None = None
    upgrade_pending: bool = False
    trouble: Trouble | None = None
    file: str | None = None
    known: LastKnown = LastKnown(anything=False)
    installed_by: str | None = None
    has_database: bool = False
    listed: ListedSnapshots | None = None

    @property
    def holds_nothing(self) -> bool:
        """True if the store does not exist, or has neither a row nor an offset."""
        return not self.present or (self.committed is None and self.empty and self.trouble is None)


class LogFacts(NamedTuple):
    """The changelog of a store partition. Ask for it after the store was read: the store may grow until then.

    Attributes
    ----------
    changelog
        Its topic; None if it does not exist.
    log
        Offsets of its first partition.
    cut_at
        Offset from which its records differ from those seen before, as after an unclean leader election; None if it
        was not cut, or that is unknown.
    stream_time, first_time
        Largest times (ms) of its last and of its first rows; None if not asked, or it has none. Rows older than stream
        time minus the store's retention have expired.
    lacks_versions
        Compaction may have removed something that a versioned store has; None if not asked.
    tail_is_complete
        Compaction has removed nothing after the committed offset; None if not asked.
    asked_ms
        The brokers' time before the ends were asked for, ms since the epoch.
    all_logs
        Offsets of all partitions that the store is filled from.
    times_known
        The times were asked for.
    """

    changelog: ChangelogSpec | None
    log: LogRange
    cut_at: int | None = None
    stream_time: int | None = None
    lacks_versions: bool | None = None
    first_time: int | None = None
    tail_is_complete: bool | None = None
    asked_ms: int = 0
    all_logs: Mapping[TopicPartition, LogRange] = {}
    times_known: bool = False


class Candidate(NamedTuple):
    """A snapshot that a restore could start from.

    Attributes
    ----------
    committed
        Offset of the last changelog record in it; None if it has none.
    record
        Its record; None if only `needed_from` and `adopted` are known.
    refused
        Why it cannot be used with the log as it is now; None if it can.
    installed_by
        Why a user installed its store in place of what the log gives.
    fetched, replayed
        Bytes of files to fetch, and offsets to read after it.
    manifest
        Its manifest; None if it could not be read.
    """

    name: str
    committed: int | None = None
    record: StoreRecord | None = None
    refused: str | None = None
    installed_by: str | None = None
    fetched: int = 0
    replayed: int = 0
    manifest: Manifest | None = None


class NamedSnapshot(NamedTuple):
    """The snapshot that a user has named.

    Attributes
    ----------
    listed, generation
        As it was listed, and the newest generation of its store partition.
    candidate
        What it is.
    differs
        How its store differs from the defined one; empty if it does not.
    """

    listed: Listed
    generation: int
    candidate: Candidate
    differs: str


class ArchiveFacts(NamedTuple):
    """The snapshots of one store partition.

    Attributes
    ----------
    error
        Why the archive could not be asked; None if it answered.
    newest
        The newest snapshot of the current generation that can be read, usable or not: evidence of what the store had.
    loss
        What a rebuild from the log would lose of that snapshot; None if there is no snapshot.
    history
        The listing; None if the archive was not asked.
    candidates
        Snapshots that were looked at so far, the newest first.
    complete
        There are no others.
    named
        The snapshot that the request names; None if it names none.
    """

    error: StateStoreError | None = None
    newest: Manifest | None = None
    loss: RebuildLoss | Unasked | None = UNASKED
    history: History | None = None
    candidates: tuple[Candidate, ...] = ()
    complete: bool = True
    named: NamedSnapshot | None = None

    @property
    def newest_record(self) -> StoreRecord | None:
        """Record of the newest snapshot; None without a snapshot."""
        return None if self.newest is None else self.newest.record

    def manifest(self, name: str | None) -> Manifest | None:
        """Return the manifest of a snapshot that may be restored from; None if it is not one of these."""
        choices = self.candidates if self.named is None else (self.named.candidate,)
        return next((one.manifest for one in choices if one.name == name), None)


#: A store without an archive: it offers nothing.
NO_ARCHIVE = ArchiveFacts()


class Correction(Protocol):
    """Tail of the log that corrects every row of a store (`recovery/catch_up.py`)."""

    @property
    def before(self) -> int:
        """Last offset that is not replayed."""

    @property
    def replaces_unexplained(self) -> bool:
        """True if it replaces or deletes rows that no record explains."""


class Facts(NamedTuple):
    """Everything that is known of one store partition.

    Attributes
    ----------
    observed
        False if the store could not be looked at; then the disk's facts say nothing.
    now_ms
        The brokers' time at which it is judged.
    first
        Offset of the first record in the range that `unread` returns; None if there is none.
    elsewhere
        Evidence from snapshots and commits was asked for.
    archive
        The snapshots.
    log_bytes
        Bytes of keys and values in the log, estimated.
    proof
        How the store can be caught up in spite of its offset; None if it cannot.
    rebuild_loss
        What a rebuild of a global table would lose.
    failed
        Names of sources, and of snapshots, that could not be used in this attempt.
    """

    spec: StorePartitionSpec
    disk: DiskFacts
    now_ms: int = 0
    log: LogFacts | Unasked = UNASKED
    first: int | Unasked | None = UNASKED
    elsewhere: bool = False
    archive: ArchiveFacts | Unasked = UNASKED
    log_bytes: int | Unasked = UNASKED
    proof: Correction | Unasked | None = UNASKED
    rebuild_loss: RebuildLoss | Unasked = UNASKED
    failed: frozenset[str] = frozenset()

    @property
    def asked_log(self) -> LogFacts:
        """The log, which was asked for."""
        assert self.log is not UNASKED
        return self.log

    @property
    def known_archive(self) -> ArchiveFacts:
        """The snapshots; none if they were not asked for."""
        return NO_ARCHIVE if self.archive is UNASKED else self.archive


class RebuildLoss(NamedTuple):
    """Loss of a full rebuild, its evidence, and the status of a store that is otherwise healthy."""

    loss: Loss
    why: str = ""
    status: Status = Status.OK


class Needs(NamedTuple):
    """Requirements for a snapshot that replaces a store whose log has lost its start.

    Attributes
    ----------
    offset
        It has all of the log from here on.
    adopted
        The store may have rows that were never in the log.
    """

    offset: int
    adopted: bool

    @classmethod
    def of(cls, record: StoreRecord | None) -> Needs:
        """Return what a store with this record, or without one, needs."""
        return cls(0, adopted=False) if record is None else cls(record.needed_from or 0, record.adopted)

    def met_by(self, snapshot: HasStart) -> bool:
        """Return whether a snapshot has it all, by its record or as a restore point."""
        begins = snapshot.needed_from
        return begins is not None and begins <= self.offset and snapshot.adopted >= self.adopted


class HasStart(Protocol):
    """The start of the log that a snapshot covers."""

    @property
    def needed_from(self) -> int | None:
        """Offset from which on it has all of its log."""

    @property
    def adopted(self) -> bool:
        """True if some of its rows may never have been in its log."""


def log_end(record: StoreRecord | None, changelog: ChangelogSpec | None) -> LogEnd | None:
    """Return where the log was seen to end, if that can be compared with the log as it is now."""
    record = of_log(record, changelog)
    return None if record is None or record.end is None or record.epoch is None else LogEnd(record.end, record.epoch)


def of_log(record: StoreRecord | None, changelog: ChangelogSpec | None) -> StoreRecord | None:
    """Return a record if it is that of a store with this changelog; None otherwise."""
    return None if record is None or changelog is None or record.topic_id != changelog.topic_id else record


def cut_at(comparison: LogComparison | None) -> int | None:
    """Return from where on a log certainly has other records than were seen before; None otherwise."""
    if comparison is None or comparison.continuity is not Continuity.CUT:
        return None
    return comparison.departs_by or 0
