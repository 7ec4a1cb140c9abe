"""Rows of a database that are not those of its position in the log. Pure.

The position of a database is at least the latest record that one of its rows must come from: a store has one writer,
and RocksDB puts its writes on disk in their order. If a later committed record of a key is at or before this position,
the key is behind. A row that equals no record at all is unexplained.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from statestore.compiled.batches import Bools, Int64s
from statestore.kafka.topics import LogRange
from statestore.verification.proof.kernels import (
    BY_OPTIONAL,
    FIRST,
    FOLLOWING,
    HIGH,
    LAST,
    LOW,
    NO_RECORD,
    OPEN,
    PRINT,
    SEGMENT,
    STORED,
    TIME,
    UNEXPLAINED,
)
from statestore.verification.proof.prefix import KeyFacts, Range

#: Suspects that are kept for each database: enough to find the same ones again.
_MOST = 10_000

Reason = Literal["behind", "unexplained", "aborted"]


class Suspect(NamedTuple):
    """A row that is not as the log has it at its database's position.

    Attributes
    ----------
    key
        Two hashes of the key.
    row
        Hash of the row, and its timestamp (ms).
    stored
        The store has a row.
    reason
        `behind`: a committed record at or before the position is missing. `unexplained`: no record gives the row.
        `aborted`: only a record of an aborted transaction gives it.
    record
        Offset of a record that has the key; None if no committed record has it.
    """

    key: tuple[int, int]
    row: tuple[int, int]
    stored: bool
    reason: Reason
    record: int | None


class Suspects(NamedTuple):
    """Suspects of a database.

    Attributes
    ----------
    reached
        The database has all of the log up to this offset, by the rows that are explained once; -1 without any.
    rows
        The first suspects.
    not_judged
        Unexplained rows whose records compaction or retention may have removed.
    before
        The database does not have the record at this offset, which replaces such a row.
    """

    reached: int
    rows: tuple[Suspect, ...]
    not_judged: int
    before: int = OPEN

    def merged(self, other: Suspects) -> Suspects:
        """Return the suspects of two parts of the keys."""
        reached, rows = max(self.reached, other.reached), (*self.rows, *other.rows)[:_MOST]
        return Suspects(reached, rows, self.not_judged + other.not_judged, min(self.before, other.before))

    def limited(self, offsets: tuple[Range, ...]) -> tuple[Range, ...]:
        """Return the offsets of the database without those at which a row that is not judged is replaced."""
        limited = (Range(found.first, min(found.last, self.before - 1)) for found in offsets)
        return tuple(found for found in limited if found.first <= found.last)


NO_SUSPECTS = Suspects(-1, (), 0)


def find_suspects(table: KeyFacts, log: LogRange, segment: int = 0, *, compacted: bool = True) -> Suspects:
    """Find the suspects of a database.

    Parameters
    ----------
    table
        With all rows of the store and all records of its log.
    segment
        Start (ms) of the database's segment; 0 if the store has one database.
    compacted
        Compaction may have removed records that have later ones of the same key.
    """
    facts = table.facts
    own = facts[:, SEGMENT] == segment
    first, following, last, flags = (facts[:, column] for column in (FIRST, FOLLOWING, LAST, PRINT))
    several = np.zeros(len(first), np.bool_)
    several[table.intervals.keys] = True
    explained, stored = own & (first != UNEXPLAINED), flags & STORED != 0
    reached = int(first[explained & ~several].max(initial=-1))
    behind = explained & (following <= reached)
    aborted = explained & ~several & (flags & BY_OPTIONAL != 0) & (first < log.last_stable) & ~behind
    unexplained = own & ~explained & stored
    lost = (last == NO_RECORD) & (log.start > 0)
    if compacted:
        lost |= last > reached
    return Suspects(
        reached,
        (
            *_rows(facts, behind, "behind", following),
            *_rows(facts, aborted, "aborted", first),
            *_rows(facts, unexplained & ~lost, "unexplained", last),
        )[:_MOST],
        int((unexplained & lost).sum()),
        int(following[unexplained & lost & (following > reached)].min(initial=OPEN)),
    )


def _rows(facts: Int64s, chosen: Bools, reason: Reason, records: Int64s) -> list[Suspect]:
    numbers = np.flatnonzero(chosen)[:_MOST]
    return [
        Suspect(
            (int(facts[at, LOW]), int(facts[at, HIGH])),
            (int(facts[at, PRINT]) | BY_OPTIONAL, int(facts[at, TIME]) if facts[at, PRINT] & STORED else 0),
            bool(facts[at, PRINT] & STORED),
            reason,
            None if records[at] == NO_RECORD else int(records[at]),
        )
        for at in numbers.tolist()
    ]
