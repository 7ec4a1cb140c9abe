"""Sends requests for many partitions to their leaders on direct connections, in rounds until all are answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException

from statestore.errors import KafkaUnavailableError, StateStoreError, TopicMismatchError
from statestore.kafka.client import translate
from statestore.kafka.cluster import Cluster
from statestore.kafka.connection import LEAST_S, Connection, ConnectionLostError
from statestore.kafka.connection_pool import Address
from statestore.kafka.leaders import find_leaders, may_pass
from statestore.kafka.rights import on_topics
from statestore.kafka.stall import Stall
from statestore.model import TopicPartition

C = TypeVar("C", bound=Connection)
#: What is to be asked next, by partition.
Left = Mapping[TopicPartition, int]

_PARTITIONS_A_REQUEST = 1_000
_SILENCE_S = 10.0
_PAUSE_S = 0.1


class LeaderRounds(Generic[C]):
    """Finds the leader of each partition, keeps one connection to each broker, and goes on when leaders move.

    Parameters
    ----------
    kind
        Of the connections.
    doing
        What is being done to partitions, for errors.
    operation
        The right to the topics that it needs.

    Notes
    -----
    Waits for a quota do not count against the cluster's deadline.
    """

    def __init__(self, cluster: Cluster, kind: type[C], doing: str, operation: str) -> None:
        self._cluster = cluster
        self._kind = kind
        self._doing = doing
        self._operation = operation
        self._led: dict[TopicPartition, Address] = {}
        self._connections: dict[Address, C] = {}
        self._failed: KafkaError | str = "no answer"

    def ask_all(self, left: Left, ask: Callable[[C, Left, float], float]) -> None:
        """Ask until nothing is left.

        Parameters
        ----------
        left
            What to ask. `ask` takes out what is answered, or changes it to what is to be asked next.
        ask
            Asks one broker for some of it, in one request. It gets the seconds after which a silent broker is left, and
            returns for how many the broker wants not to be asked again (a quota).

        Raises
        ------
        TopicMismatchError
            If there is no such partition.
        KafkaUnavailableError
            If no partition got any further within the deadline.
        """
        stall = Stall(self._cluster.timeout_s)
        try:
            while left:
                before = dict(left)
                self._ask_each_broker(left, ask, stall)
                if left != before:
                    stall.progressed()
                elif stall.left_s <= 0:
                    raise self._stalled(left, stall)
                else:
                    time.sleep(_PAUSE_S)  # nothing announces that a leader is there
        except BaseException:
            for connection in self._connections.values():
                connection.close()  # an answer may be on its way
            raise
        else:
            for leader, connection in self._connections.items():
                self._cluster.pool.release(leader, connection)
        finally:
            self._connections.clear()

    def refused(self, partition: TopicPartition, error: KafkaError) -> None:
        """Note what stands in the way of a partition for a moment, or raise what does for longer."""
        if not may_pass(error):
            raise translate(error, f"{self._doing} {partition}", *on_topics(self._operation, partition.topic))
        self._led.pop(partition, None)
        self._cluster.pool.forget()
        self._failed = error

    def _ask_each_broker(self, left: Left, ask: Callable[[C, Left, float], float], stall: Stall) -> None:
        timeout_s = max(stall.left_s, LEAST_S)
        silence_s = min(timeout_s, _SILENCE_S)
        by_leader: dict[Address, dict[TopicPartition, int]] = {}
        for partition, leader in self._find_leaders(left, timeout_s).items():
            by_leader.setdefault(leader, {})[partition] = left[partition]
        for leader, of_leader in by_leader.items():
            try:
                for some in _chunks(of_leader):
                    if leader not in self._connections:
                        self._connections[leader] = self._cluster.connect(self._kind, leader, silence_s)
                    throttled_s = ask(self._connections[leader], some, silence_s)
                    stall.throttled(throttled_s)
                    time.sleep(throttled_s)  # a broker with a quota would not answer before
            except ConnectionLostError as error:
                self._failed = str(error)
                self._forget(leader)

    def _find_leaders(self, left: Left, timeout_s: float) -> dict[TopicPartition, Address]:
        unknown = [partition for partition in left if partition not in self._led]
        if unknown:
            try:
                answered = find_leaders(self._cluster, unknown, timeout_s)
            except KafkaException as error:
                answered = dict.fromkeys(unknown, error.args[0])
            for partition, leader in answered.items():
                if isinstance(leader, KafkaError):
                    self.refused(partition, leader)
                else:
                    self._led[partition] = leader
        return {partition: self._led[partition] for partition in left if partition in self._led}

    def _forget(self, leader: Address) -> None:
        if leader in self._connections:
            self._connections.pop(leader).close()
        self._led = {partition: other for partition, other in self._led.items() if other != leader}
        self._cluster.pool.forget()

    def _stalled(self, left: Left, stall: Stall) -> StateStoreError:
        waiting = next(iter(left))
        if isinstance(self._failed, KafkaError):
            failed = translate(self._failed, f"{self._doing} {waiting}")
            if isinstance(failed, TopicMismatchError):
                return failed
        return KafkaUnavailableError(
            f"{self._doing} {len(left)} partitions, {waiting} the first: {stall.told()} "
            f"({self._failed}); check that the brokers are up, then run again"
        )


def _chunks(left: Left) -> Iterator[Left]:
    rest = iter(left.items())
    while some := dict(islice(rest, _PARTITIONS_A_REQUEST)):
        yield some
