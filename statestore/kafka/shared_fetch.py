"""Fetching the beginnings of short logs together: neighbours come in one answer.

For a broker, and for us, a request costs more than the records of a short log. So where it is known which logs are
about to be read from an offset on, whoever comes first to one of a group has all of the group fetched, and the others
find theirs. What cannot be had in this way, each asks for by itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from threading import Lock

from confluent_kafka import KafkaError, KafkaException

from statestore.kafka.cluster import Cluster
from statestore.kafka.connection import ConnectionLostError
from statestore.kafka.connection_pool import Address
from statestore.kafka.fetch import FetchConnection, Fetched, FetchLimits
from statestore.kafka.leaders import find_leaders
from statestore.model import TopicPartition

_MIB = 1024 * 1024
#: So many logs are fetched together, into the memory that one of them might take.
_TOGETHER = 4
_LIMITS = FetchLimits(8 * _MIB, 2 * _MIB, wait_ms=0)
_SILENCE_S = 10.0


class FetchGroup:
    """Logs that are fetched together when the first of them is asked for."""

    def __init__(self, starts: Mapping[TopicPartition, int]) -> None:
        self._starts = starts
        self._lock = Lock()
        self._found: dict[TopicPartition, Fetched] | None = None

    def take(self, cluster: Cluster, partition: TopicPartition, offset: int, *, leave: bool) -> Fetched | None:
        """Return what was fetched of a log from this offset on; see `take_fetched`."""
        if self._starts[partition] != offset:
            return None
        with self._lock:
            if self._found is None:
                self._found = {}  # whatever comes of it, it is not tried again
                with suppress(ConnectionLostError, KafkaException):  # who asks by itself is told what is in the way
                    self._fetch(cluster, self._found)
            return self._found.get(partition) if leave else self._found.pop(partition, None)

    def _fetch(self, cluster: Cluster, found: dict[TopicPartition, Fetched]) -> None:
        by_leader: dict[Address, dict[TopicPartition, int]] = {}
        for partition, leader in find_leaders(cluster, self._starts, _SILENCE_S).items():
            if not isinstance(leader, KafkaError):
                by_leader.setdefault(leader, {})[partition] = self._starts[partition]
        for leader, starts in by_leader.items():
            connection = cluster.connect(FetchConnection, leader, _SILENCE_S)
            try:
                connection.request(starts, _LIMITS, read_committed=True)
                answered, throttled_s = connection.answer(_SILENCE_S)
            except BaseException:
                connection.close()  # an answer may be on its way
                raise
            # The records stay where they are: a connection that rests has let go of that memory.
            cluster.pool.release(leader, connection)
            found.update({at: its for at, its in answered.items() if not its.error and len(its.records)})
            time.sleep(throttled_s)  # a broker with a quota would not answer before


@contextmanager
def fetched_together(cluster: Cluster, starts: Mapping[TopicPartition, int]) -> Iterator[None]:
    """Fetch the beginnings of logs together, each once, while this block runs.

    Parameters
    ----------
    starts
        Logs in the order of reading, with the first offset that read-committed readers with this `Cluster` request.
    """
    rest, groups = iter(starts.items()), dict[TopicPartition, FetchGroup]()
    while some := dict(islice(rest, _TOGETHER)):
        groups |= dict.fromkeys(some, FetchGroup(some))
    pool = cluster.pool
    pool.fetched = groups
    try:
        yield
    finally:
        pool.fetched = {}


def take_fetched(cluster: Cluster, partition: TopicPartition, offset: int, *, leave: bool = False) -> Fetched | None:
    """Return what was fetched of a log from this offset on, together with others; None: nothing.

    Parameters
    ----------
    leave
        Leave it for the next who asks. If not, it is the caller's, and its memory goes with it.
    """
    group = cluster.pool.fetched.get(partition)
    return None if group is None else group.take(cluster, partition, offset, leave=leave)
