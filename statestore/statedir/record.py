"""What we keep about a store outside of it: which topic its offsets speak of, and when it was last whole."""

from __future__ import annotations

import time
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from statestore.durable import write_durably
from statestore.errors import about
from statestore.statedir.paths import TaskPaths

#: The clocks of two hosts are not further apart than this.
_CLOCKS_DIFFER_MS = 86_400_000


class StoreRecord(BaseModel):
    """One store partition's record.

    `topic_id` tells a recreated changelog from the one that the store's offsets belong to. `caught_up_ms` is a wall
    clock time at which the store on disk had all of its changelog; while it is younger than the changelog's
    `delete.retention.ms`, no tombstone that the store has not seen can be gone from the log. `committed` is how far the
    store was then: one that is behind it now is an older copy, of which the time says nothing.
    `restored_by` is the label of the restore that put the store there, until its task commits.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
    topic_id: str
    caught_up_ms: int
    committed: int | None = None
    restored_by: str | None = None

    def whole_ms(self, committed: int | None) -> int | None:
        """When a store with this committed offset was known whole, ms since the epoch; None if it never was."""
        if self.committed is not None and (committed is None or committed < self.committed):
            return None
        return self.caught_up_ms


def read_record(paths: TaskPaths, store: str) -> StoreRecord | None:
    """Return the record, or None where there is none that can be read, or that can be true."""
    try:
        with about(paths.record(store)):
            found = StoreRecord.model_validate_json(paths.record(store).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    # A store that is taken for whole in the future would never have missed a tombstone.
    return found if found.caught_up_ms <= time.time() * 1000 + _CLOCKS_DIFFER_MS else None


def write_record(paths: TaskPaths, store: str, topic_id: str, committed: int | None) -> None:
    """Record that the store on disk has all of this changelog now, up to the committed offset."""
    record = StoreRecord(topic_id=topic_id, caught_up_ms=int(time.time() * 1000), committed=committed)
    write_durably(paths.record(store), record.model_dump_json())
