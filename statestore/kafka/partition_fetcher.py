"""Fetches one partition from its current leader, through restarts and moves, within a deadline."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException

from statestore.errors import KafkaUnavailableError, StateStoreError, StoreBehindLogStartError, TopicMismatchError
from statestore.kafka.client import translate
from statestore.kafka.cluster import Cluster
from statestore.kafka.connection import LEAST_S, ConnectionLostError
from statestore.kafka.connection_pool import Address
from statestore.kafka.fetch import FetchConnection, Fetched, FetchLimits
from statestore.kafka.leaders import find_leaders, may_pass
from statestore.kafka.rights import on_topics
from statestore.kafka.shared_fetch import take_fetched
from statestore.kafka.stall import Stall
from statestore.model import TopicPartition

_MIB = 1024 * 1024
_LIMITS = FetchLimits(8 * _MIB, 8 * _MIB, wait_ms=500)
#: A leader that is silent for so long may have lost the connection, or the partition: ask again who leads.
_SILENCE_S = 10.0
_PAUSE_S = 0.1


class PartitionFetcher:
    """Fetches records of one partition, one answer after the other.

    Parameters
    ----------
    read_committed
        Up to the last stable offset, with the aborted transactions; else all.

    Notes
    -----
    Waits for a quota do not count against the cluster's deadline.
    """

    def __init__(self, cluster: Cluster, partition: TopicPartition, *, read_committed: bool) -> None:
        self._cluster = cluster
        self._partition = partition
        self._read_committed = read_committed
        self._connection: FetchConnection | None = None
        self._leader: Address | None = None
        self._asked: int | None = None

    def close(self) -> None:
        """Leave the broker; an answer that is on its way is lost."""
        if self._connection is not None and self._leader is not None and self._asked is None:
            self._cluster.pool.release(self._leader, self._connection)
            self._connection = None
        self._drop()

    def _drop(self) -> None:
        """Leave a broker that may not be of any use: the next request asks who leads."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._asked = None

    def ask_ahead(self, offset: int) -> None:
        """Send the request of the next `fetch`, so that the answer is on its way meanwhile."""
        try:
            self._ask(offset)
        except ConnectionLostError:
            self._drop()  # `fetch` makes another one

    def fetch(self, offset: int, end: int) -> Fetched:
        """Wait for records from an offset on; they may be overwritten by the next call's.

        Parameters
        ----------
        end
            Where what is wanted ends, exclusive. If compaction left nothing up to there, the answer without records is
            returned: what comes behind may be a transaction that hangs.

        Raises
        ------
        StoreBehindLogStartError
            If the log does not have the offset.
        TopicMismatchError
            If there is no such partition.
        KafkaUnavailableError
            If no records came within the deadline.
        """
        if self._asked is None and self._read_committed:
            there = take_fetched(self._cluster, self._partition, offset)
            if there is not None:
                return there
        stall = Stall(self._cluster.timeout_s)
        failed: StateStoreError | None = None
        pause_s = 0.0
        while (left := stall.left_s - pause_s) > 0:
            time.sleep(pause_s)  # nothing announces a new leader, or the end of a quota
            pause_s = _PAUSE_S
            try:
                silence_s = min(max(left, LEAST_S), _SILENCE_S)
                self._connect(silence_s)
                self._ask(offset)
                found, throttled_s = self._answer(silence_s)
            except ConnectionLostError as error:
                self._drop()
                self._cluster.pool.forget()
                failed = KafkaUnavailableError(str(error))
                continue
            except KafkaException as error:
                self._drop()
                self._cluster.pool.forget()
                failed = self._passing(error.args[0], offset)
                continue
            if found is not None and (len(found.records) or found.tells_of_none_before(end)):
                return found
            stall.throttled(throttled_s)
            pause_s, failed = throttled_s, None
        if isinstance(failed, TopicMismatchError):
            raise failed
        raise KafkaUnavailableError(
            f"reading {self._partition} from offset {offset}: {stall.told()}{f' ({failed})' if failed else ''}; check "
            "that the brokers are up, then run again"
        )

    def _connect(self, timeout_s: float) -> None:
        if self._connection is None:
            leader = find_leaders(self._cluster, [self._partition], timeout_s)[self._partition]
            if isinstance(leader, KafkaError):
                raise KafkaException(leader)
            self._leader = leader
            self._connection = self._cluster.connect(FetchConnection, leader, timeout_s)

    def _ask(self, offset: int) -> None:
        if self._connection is not None and self._asked != offset:
            assert self._asked is None, "an answer is on its way"
            self._connection.request({self._partition: offset}, _LIMITS, read_committed=self._read_committed)
            self._asked = offset

    def _answer(self, silence_s: float) -> tuple[Fetched | None, float]:
        assert self._connection is not None
        answered, throttled_s = self._connection.answer(silence_s)
        self._asked = None
        found = answered.get(self._partition)
        if found is not None and found.error:
            raise KafkaException(KafkaError(found.error))
        return found, throttled_s

    def _passing(self, error: KafkaError, offset: int) -> StateStoreError:
        """Return what stands in the way for a moment, or raise what does for longer."""
        if error.code() == KafkaError.OFFSET_OUT_OF_RANGE:
            raise gone(self._partition, offset)
        failed = translate(error, f"reading {self._partition}", *on_topics("READ", self._partition.topic))
        if may_pass(error):
            return failed
        raise failed


def gone(partition: TopicPartition, offset: int) -> StoreBehindLogStartError:
    """Return the error of an offset that is not in the log."""
    return StoreBehindLogStartError(f"{partition} no longer has offset {offset}, which was to be read next")
