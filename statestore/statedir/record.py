"""The record of a store outside of its directory: its changelog topic, and when it was last complete."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from statestore import clock
from statestore.durable import read_checked, write_checked
from statestore.errors import about
from statestore.statedir.lock import require_locks
from statestore.statedir.paths import TaskPaths


class ExpiryCursor(BaseModel):
    """Place in the changelog of a store with a ttl: every earlier record is old and its row deleted, or skipped.

    Attributes
    ----------
    offset
        Next offset to read.
    time
        Timestamp (ms) of the record at `offset`, which was not old enough; None if unknown.
    skipped_offset, skipped_time
        Offset of the first record that was passed although it was not old, and the smallest timestamp (ms) of all such
        records; None if no such record was passed.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    offset: int = 0
    time: int | None = None
    skipped_offset: int | None = None
    skipped_time: int | None = None


class StoreRecord(BaseModel):
    """One store partition's record.

    Attributes
    ----------
    topic_id
        Tells a recreated changelog from the one that the store's offsets belong to.
    caught_up_ms
        A time of the brokers at which the store on disk had all of its changelog. While it is younger than the
        changelog's `delete.retention.ms`, no tombstone that the store has not seen can be gone from the log.
    committed
        How far the store was then. One that is behind it now is an older copy, of which the time says nothing.
    end
        Where the log ended then, exclusive, behind the markers of its transactions; None: not recorded.
    epoch
        Leader epoch of the last record before `end` (KIP-320); None: not recorded.
    needed_from
        First offset that a rebuild needs to lose nothing that the store has; None: not recorded.
    stream_time
        Largest timestamp (ms) of the rows of a window or session store; None: not recorded, or it has none.
    adopted
        The store was there before its first record. Some of its rows may never have been in this log.
    at_least_once
        It was written at least once since it was built, so other writers' records may lie between its own in its log.
    restored_by
        Label of the restore that put the store there, until its task commits.
    exact
        Of a store as of a point: it is what it was then; None: it is none, or that was not recorded.
    accepted
        Number of a commit that a store without a changelog lacks, if a user accepts that loss; -1: that number was
        unknown; None: no loss was accepted.
    expiry
        How far its changelog was searched for rows older than its ttl; None: from its start.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
    topic_id: str
    caught_up_ms: int
    committed: int | None = None
    end: int | None = None
    epoch: int | None = None
    needed_from: int | None = None
    stream_time: int | None = None
    adopted: bool = False
    at_least_once: bool = False
    restored_by: str | None = None
    exact: bool | None = None
    accepted: int | None = None
    expiry: ExpiryCursor | None = None

    @property
    def is_begun(self) -> bool:
        """True if it was written before its store was created: it does not show what an earlier store had."""
        return self.committed is None and self.caught_up_ms == 0 and self.restored_by is None

    def seen_end(self, committed: int | None) -> int | None:
        """Offset before which a store with this committed offset has seen all; None: not recorded."""
        return self.end if committed is not None and committed >= (self.committed or 0) else None

    def whole_ms(self, committed: int | None, now_ms: int) -> int | None:
        """When a store with this committed offset was known whole, ms since the epoch; None if it never was.

        A store that is taken for whole in the future would never have missed a tombstone, so such a time counts for
        nothing; whatever else the record says is as true as before.
        """
        if self.committed is not None and (committed is None or committed < self.committed):
            return None
        return self.caught_up_ms if self.caught_up_ms <= now_ms + clock.MEASUREMENTS_DIFFER_MS else None

    def as_written(self) -> str:
        """Return the record as JSON, with no later time than this machine's.

        Its time is the brokers'. If their clock, or this one, is set later, the store can only seem older than it is.
        """
        return self.model_copy(update={"caught_up_ms": min(self.caught_up_ms, clock.now_ms())}).model_dump_json()


def seen_end(record: StoreRecord | None, committed: int | None) -> int | None:
    """Return the offset before which a store with this committed offset has seen all; None: not recorded."""
    return None if record is None else record.seen_end(committed)


def whole_ms(record: StoreRecord | None, committed: int | None, now_ms: int) -> int | None:
    """Return when a store with this committed offset was known whole, ms since the epoch; None if it never was."""
    return None if record is None else record.whole_ms(committed, now_ms)


def topic_id_of(record: StoreRecord | None) -> str | None:
    """Return the id of the recorded changelog; None without a record."""
    return None if record is None else record.topic_id


def committed_of(record: StoreRecord | None) -> int | None:
    """Return the recorded offset; None without one."""
    return None if record is None else record.committed


def restored_by(record: StoreRecord | None) -> str | None:
    """Return the label of the restore that put a store in place; None if its task has committed since."""
    return None if record is None else record.restored_by


def read_record(paths: TaskPaths, store: str, *, in_memory: bool = False) -> StoreRecord | None:
    """Return the record of a store on disk, or that of an in-memory store from its last run; None if unreadable."""
    path = paths.memory_record(store) if in_memory else paths.record(store)
    try:
        with about(path):
            return StoreRecord.model_validate_json(read_checked(path))
    except (FileNotFoundError, ValueError):
        return None


def write_record(paths: TaskPaths, store: str, record: StoreRecord, *, in_memory: bool = False) -> None:
    """Write the record of a store, durably; its holder must still have the task's locks."""
    require_locks(paths)
    write_checked(paths.memory_record(store) if in_memory else paths.record(store), record.as_written())
