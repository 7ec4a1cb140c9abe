"""The rows that are not judged in a comparison with the log, for deep verification and validation.

Deep verification applies them to Arrow batches (comparison.py), validation to Spark DataFrames
(`jobs/statestore_jobs/frame_exclusions.py`). Each folds the log by itself; the rules and their bounds are these. What
is not judged is counted.

The proof (proof/) needs none of these rules but the expired segments. They decide about what is compared in key order:
stores that cannot be proven, samples, and rows whose records compaction has removed. Validation compares so, too.

changed keys
    Keys with later records behind the store's committed offset: compaction may have removed the record that the store
    has. `ROUNDS` bounds how often the log's end is asked for again, as the log goes on while it is read.
rows that may be gone
    Rows that only the store has, older than `gone_before_ms`: retention may have removed their records.
rows whose delete may be gone
    Rows that only the log has, if reading it took as long as `deletes_may_be_gone` says.
expired segments
    Segments that one side has dropped by its own stream time: see `LiveSegments`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from statestore import clock
from statestore.bulk.routing import Routing

#: How often the log's end is asked for anew. Each time there is less to read, down to what is younger than any segment
#: that a broker compacts.
ROUNDS = 5
#: Later than any time (ms).
FOREVER = (1 << 63) - 1


def gone_before_ms(log_start: int, config: Mapping[str, str], *, by_time: bool, now_ms: int) -> int:
    """Return the time (ms) before which records may be gone from a log; 0 if it has all, `FOREVER` if any may be.

    Parameters
    ----------
    log_start
        First offset of the log.
    config
        Configuration of its topic.
    by_time
        Whether the store's row keys tell how old a record can be.
    now_ms
        Time on this machine's clock, from which the brokers' may differ.
    """
    if log_start <= 0:
        return 0
    retention_ms = int(config.get("retention.ms", -1))
    deleted_by_time = "delete" in config.get("cleanup.policy", "") and int(config.get("retention.bytes", -1)) < 0
    if by_time and deleted_by_time and retention_ms >= 0:
        return now_ms - retention_ms + clock.BROKERS_DIFFER_MS
    return FOREVER


def deletes_may_be_gone(reading_ms: float, delete_retention_ms: int) -> bool:
    """Say whether deletes may have been removed from the log while it was read."""
    return reading_ms >= delete_retention_ms


class LiveSegments(NamedTuple):
    """Which segments of a window or session store are compared, by their starts (ms); of other stores 0 is.

    Attributes
    ----------
    oldest
        The oldest that is live at the log's stream time.
    droppable_before
        Those before it may have expired in the store, whose stream time lies within its newest segment.
    """

    oldest: int
    droppable_before: int

    def excludes_stored(self, segment: int) -> bool:
        """Say whether a segment that the store has is left out."""
        return segment < self.oldest

    def excludes_logged(self, segment: int, *, stored: bool) -> bool:
        """Say whether a segment that the log has is left out; `stored` says whether the store has it, too."""
        return segment < self.oldest or (not stored and segment < self.droppable_before)


def live_segments(stored: Iterable[int], stream_time: int, routing: Routing) -> LiveSegments:
    """Return which segments are compared.

    Parameters
    ----------
    stored
        Starts (ms) of the segments that the store has.
    stream_time
        Largest time (ms) of the log's rows; -1 if it has none.
    """
    newest = max(stored, default=None)
    own = 0 if newest is None or routing.interval_ms is None else routing.oldest_live(newest + routing.interval_ms - 1)
    return LiveSegments(routing.oldest_live(stream_time), own)
