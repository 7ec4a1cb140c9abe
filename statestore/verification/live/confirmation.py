"""Whether several looks at a store in use confirm a difference from its log. Pure.

While an application runs, a store can differ from its log without any damage: after a crash, a replay puts keys back to
earlier versions for a while, and rows can be on disk before their records are in the log. All of this is over once the
store is past the end of the log at the first look. So a difference counts if the same key still differs then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from statestore.kafka.topics import LogRange
from statestore.verification.proof.prefix import Range
from statestore.verification.proof.suspects import Suspect, Suspects

#: Kafka's default of `delivery.timeout.ms`: after that, a record is in the log, or will never be.
DELIVERED_S = 120.0


class Seen(NamedTuple):
    """The result of one look at a store, as far as it is compared with other looks.

    Attributes
    ----------
    at_s
        When it was, by a monotonic clock.
    log
        Offsets of the log after it.
    suspects
        By segment: rows that are not those of their database's position.
    torn
        The rows of a database have no offset in common.
    """

    at_s: float
    log: LogRange
    suspects: Mapping[int, Suspects]
    torn: bool = False

    @property
    def is_clean(self) -> bool:
        """True if all rows are those of their databases' positions."""
        return not self.torn and not any(found.rows for found in self.suspects.values())


def end_of(log: LogRange) -> int:
    """Return the end of a log, records of open transactions included."""
    return max(log.last_stable, log.high_watermark)


def confirmed(earlier: Sequence[Seen], last: Seen) -> list[tuple[int, Suspect]]:
    """Return the suspects of the last look, with their segments, that an earlier look confirms."""
    found: dict[tuple[int, tuple[int, int]], tuple[int, Suspect]] = {}
    for first in earlier:
        for segment, now in last.suspects.items():
            before = {suspect.key: suspect for suspect in first.suspects.get(segment, now._replace(rows=())).rows}
            for suspect in now.rows:
                if suspect.key in before and _confirms(first, before[suspect.key], last, segment, suspect):
                    found[segment, suspect.key] = segment, suspect
    return list(found.values())


def _confirms(first: Seen, before: Suspect, last: Seen, segment: int, suspect: Suspect) -> bool:
    end = end_of(first.log)
    if suspect.reason == "behind":
        assert suspect.record is not None, "a record is missing"
        return last.suspects[segment].reached >= end > suspect.record
    if before.row != suspect.row:
        return False  # it was written in between
    past = any(found.reached >= end for found in last.suspects.values())
    return past or last.at_s - first.at_s >= DELIVERED_S


def lowest(offsets: Sequence[tuple[Range, ...]]) -> tuple[Range, ...]:
    """Return the ranges of the database that is furthest behind; empty without any."""
    return min(offsets, key=lambda ranges: ranges[-1].last if ranges else -2, default=())
