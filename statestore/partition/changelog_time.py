"""Stream time in the log of a window or session store, from its first and its last records."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from statestore.changelog.reader import ChangelogReader
from statestore.errors import StoreCorruptedError
from statestore.kafka.topics import LogRange
from statestore.partition.spec import StorePartitionSpec

#: Offsets that are read at the end: any record shows a time that is not too late.
_LAST = 500
#: Records that are read at the start: a single one can be late, so it does not show how far stream time was.
_FIRST = 20


class LogTimes(NamedTuple):
    """Times (ms) in the row keys of a log; None if no row was found.

    Attributes
    ----------
    first
        The largest of its first rows: stream time was about there when the log's present start was written.
    latest
        The largest of its last rows: stream time is at least there.
    """

    first: int | None = None
    latest: int | None = None


def log_times(spec: StorePartitionSpec, log: LogRange) -> LogTimes:
    """Return the times of a log's first and last records.

    Timestamps would not tell: those of transaction markers are of the wall clock.

    Raises
    ------
    StoreBehindLogStartError
        If the log's start moves meanwhile.
    KafkaUnavailableError
        If Kafka does not answer.
    """
    first = islice(_times(spec, log.start, log.last_stable), _FIRST)
    last = _times(spec, max(log.start, log.last_stable - _LAST), log.last_stable)
    return LogTimes(max(first, default=None), max(last, default=None))


def _times(spec: StorePartitionSpec, start: int, end: int) -> Iterator[int]:
    with ChangelogReader(spec.cluster, spec.partition) as reader:
        for batch in reader.read(start, end):
            for key in batch.column(0).to_pylist():
                if key is not None and (time := _row_time(spec, key)) is not None:
                    yield time


def _row_time(spec: StorePartitionSpec, row_key: bytes) -> int | None:
    try:
        return spec.store.store_kind.row_time(row_key)
    except StoreCorruptedError:  # no row of such a store, and it tells no time
        return None
