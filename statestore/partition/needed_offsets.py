"""From where on a rebuild of a store needs its log: what lies before that has expired, or was never there. Pure."""

from __future__ import annotations

from statestore.kafka.topics import LogRange
from statestore.statedir.record import StoreRecord


def latest(*known: int | None) -> int | None:
    """Return the largest of some offsets or times; None if all are unknown."""
    return max((one for one in known if one is not None), default=None)


def recorded_need(record: StoreRecord | None, log: LogRange) -> int | None:
    """Return the first offset that a rebuild of a store needs by its record; None: not recorded.

    A log that begins with 0 has lost nothing at its start.
    """
    if log.start == 0:
        return 0
    return record.needed_from if record else None


def advanced_need(
    needed: int | None, log: LogRange, unexpired: int | None, oldest_ms: int, latest_ms: int | None
) -> int | None:
    """Return the first offset that a rebuild of a window or session store needs, now that time went on.

    Rows expire from the start of a log, and retention follows. If the log loses rows that have not expired, these stay
    needed: the store alone has them.

    Parameters
    ----------
    needed
        Offset that was needed so far; None: not known, so all.
    log
        Its offsets, asked for after `unexpired`.
    unexpired
        Offset of the first record in the log that has not expired; None: there is none.
    oldest_ms
        Rows with a smaller time (ms) have expired.
    latest_ms
        Largest time (ms) of the rows that the store had before this run; None: not known.
    """
    if unexpired is None:
        return needed
    complete = log.start <= (needed or 0)
    only_expired_lost = unexpired > log.start or (latest_ms is not None and latest_ms < oldest_ms)
    return max(unexpired, needed or 0) if complete or only_expired_lost else needed
