"""Home and origin of a store partition: which of its copies counts, and who writes it.

Both are chosen when the spec is made, and answer questions. No other code tests which one a store partition has. If the
work of a room differs, the room has a table by `Copy` or `Filling` (`tests/unit/test_home_rules.py`).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from statestore.reports import Status


class Copy(Enum):
    """The copy of a store partition that counts: key of tables."""

    DISK = "disk"
    SNAPSHOT = "newest snapshot"


class Filling(Enum):
    """What a store is filled from: key of tables."""

    CHANGELOG = "changelog"
    TOPIC = "all partitions of a topic"


class Home(NamedTuple):
    """Home of a store partition.

    Attributes
    ----------
    copy
        The copy that counts. If it is the newest snapshot, what lies on a disk is a cache.
    offers_snapshots
        There may be snapshots of it, to restore from and to follow.
    snapshots_show_more
        If its disk was lost, its snapshots show what it had.
    disks_are_shared
        All workers see the same disk.
    is_locked_in_use
        A store that is locked is one that its task uses.
    proves_rows
        Its rows can be compared with its log where it counts.
    pins_replaced
        A snapshot that a restore replaces is pinned until validation.
    mistrusts_snapshots
        If the store is damaged, so are its snapshots.
    reseed_refused
        Why its changelog is not written from the copy on a disk; None if it may be.
    """

    copy: Copy
    offers_snapshots: bool
    snapshots_show_more: bool = False
    disks_are_shared: bool = True
    is_locked_in_use: bool = True
    proves_rows: bool = True
    pins_replaced: bool = False
    mistrusts_snapshots: bool = False
    reseed_refused: str | None = None


ON_DISK = Home(Copy.DISK, offers_snapshots=False)
ON_DISK_WITH_SNAPSHOTS = Home(Copy.DISK, offers_snapshots=True, snapshots_show_more=True)
IN_ARCHIVE = Home(
    Copy.SNAPSHOT,
    offers_snapshots=True,
    disks_are_shared=False,
    is_locked_in_use=False,
    proves_rows=False,
    pins_replaced=True,
    mistrusts_snapshots=True,
    reseed_refused="the store here is a copy; the store itself is in the archive",
)


class Origin(NamedTuple):
    """Who writes a store partition, and what follows from that. The defaults are those of an application of ours.

    Attributes
    ----------
    filling
        What it is filled from.
    makes_empty_stores
        Its application discards a task of which a store is missing, so an empty one is created.
    tail_is_trusted
        A store that was caught up has the rows of its log, even if nobody compared them.
    closed_as_fold
        A store that can be read is the fold of its log up to its offset, even if nothing is recorded of it.
    offsets_are_inside
        A new store has its offsets inside, as snapshots need it. Before 4.3, Kafka Streams has them in `.checkpoint`.
    may_be_mistaken
        It may be another store than it was taken for.
    may_be_older
        A version of Kafka Streams before 4.3 may have written it.
    logs_late
        Versions may be logged that came too late for the store.
    has_lineage
        A store that was built otherwise than from its log begins a generation of snapshots.
    keeps_intervals
        The length of its segments is recorded, and does not change.
    keeps_its_lock
        A running application holds the locks of its tasks until it ends.
    is_fenced
        A producer of ours fences those that write for its tasks.
    log_may_be_split
        Several machines may read parts of its log.
    proves_offsets
        Its rows show which records of its log it has.
    has_partition_of_task
        Its changelog has one partition for each task.
    next_offsets_are_kept
        Its offsets are those of the next records, not of the last ones.
    unknown_format
        Status of a store whose format is unknown.
    reseed_refused
        Why its changelog is not written from its rows; None if it may be.
    as_of_refused
        Why it is not restored as of a point; None if it may be.
    """

    filling: Filling = Filling.CHANGELOG
    makes_empty_stores: bool = False
    tail_is_trusted: bool = True
    closed_as_fold: bool = False
    offsets_are_inside: bool = True
    may_be_mistaken: bool = False
    may_be_older: bool = False
    logs_late: bool = False
    has_lineage: bool = True
    keeps_intervals: bool = True
    keeps_its_lock: bool = False
    is_fenced: bool = True
    log_may_be_split: bool = True
    proves_offsets: bool = True
    has_partition_of_task: bool = True
    next_offsets_are_kept: bool = False
    unknown_format: Status = Status.DOWNGRADED
    reseed_refused: str | None = None
    as_of_refused: str | None = None


OWN_APPLICATION = Origin()
FOREIGN_APPLICATION = Origin(
    makes_empty_stores=True,
    tail_is_trusted=False,
    closed_as_fold=True,
    may_be_mistaken=True,
    may_be_older=True,
    logs_late=True,
    keeps_intervals=False,
    keeps_its_lock=True,
    is_fenced=False,
    unknown_format=Status.UNKNOWN_FORMAT,
)
GLOBAL_TABLE = FOREIGN_APPLICATION._replace(
    filling=Filling.TOPIC,
    makes_empty_stores=False,
    closed_as_fold=False,
    has_lineage=False,
    log_may_be_split=False,
    proves_offsets=False,
    has_partition_of_task=False,
    next_offsets_are_kept=True,
    reseed_refused="it is a global store: its topic is written by others",
    as_of_refused="is a global store of several logs: it has no state as of one point",
)


def foreign(origin: Origin, *, exactly_once: bool, offsets_beside: bool) -> Origin:
    """Return the origin of a store that Kafka Streams writes.

    Parameters
    ----------
    offsets_beside
        As of `StorePartitionSpec`.
    """
    return origin._replace(
        makes_empty_stores=origin.makes_empty_stores and exactly_once,
        closed_as_fold=origin.closed_as_fold and exactly_once,
        offsets_are_inside=not offsets_beside,
    )
