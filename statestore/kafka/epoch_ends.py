"""Asking leaders where a leader epoch ends in their logs (KIP-101, KIP-320), for many partitions at once.

Version 3, which brokers since Kafka 2.3 understand:

    OffsetForLeaderEpoch 3  asks: i32 replica (-1) | topics: name | partitions: i32 partition |
                                  i32 current leader epoch (-1) | i32 leader epoch
                            gets: i32 throttled (ms) | topics: name | partitions: i16 error | i32 partition |
                                  i32 leader epoch | i64 end offset

What is around that is in connection.py. The answer is of the largest epoch that the log knows, up to the one asked for,
and of the offset where the next one that it knows begins; the leader's own ends where its log does. An epoch before all
that the log knows is named as if it were known. Both are -1 if the log knows no epoch as new as the one asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import NamedTuple

from confluent_kafka import KafkaError

from statestore.kafka.cluster import Cluster
from statestore.kafka.compression import Bytes
from statestore.kafka.connection import Connection, by_topic, read_by_topic
from statestore.kafka.leader_requests import LeaderRounds, Left
from statestore.model import TopicPartition

_OFFSET_FOR_LEADER_EPOCH, _VERSION = 23, 3
_REPLICA = Struct(">i")
_ASKED = Struct(">iii")
_THROTTLED = Struct(">i")
_ANSWERED = Struct(">hiiq")


class EpochEnd(NamedTuple):
    """Answer of a leader about an epoch."""

    epoch: int
    offset: int


class _Answered(NamedTuple):
    error: int
    end: EpochEnd


class _EpochConnection(Connection):
    """A connection for OffsetForLeaderEpoch requests."""

    def ask(self, epochs: Left, silence_s: float) -> tuple[dict[TopicPartition, _Answered], float]:
        """Ask for an epoch of each partition; return what came, and for how many seconds not to ask again."""
        asked = {partition: _ASKED.pack(partition.partition, -1, epoch) for partition, epoch in epochs.items()}
        self._send(_OFFSET_FOR_LEADER_EPOCH, _VERSION, _REPLICA.pack(-1) + by_topic(asked))
        return self._answered(silence_s, _parse)


def ask_epoch_ends(
    cluster: Cluster,
    epochs: Mapping[TopicPartition, int],
    take: Callable[[TopicPartition, EpochEnd], int | None],
) -> None:
    """Ask the leader of each partition for an epoch, and for more while the answers raise questions.

    Parameters
    ----------
    cluster
        One with `can_fetch`.
    epochs
        What to ask first, by partition.
    take
        Gets an answer; returns the epoch to ask for next, None if no more is to be asked of the partition.

    Raises
    ------
    TopicMismatchError
        If there is no such partition.
    KafkaUnavailableError
        If nothing came within the deadline, or access is refused.
    """
    left = dict(epochs)
    rounds = LeaderRounds(cluster, _EpochConnection, "asking for the leader epochs of", "DESCRIBE")

    def ask(connection: _EpochConnection, some: Left, silence_s: float) -> float:
        answered, throttled_s = connection.ask(some, silence_s)
        for partition in answered.keys() & some.keys():
            error, end = answered[partition]
            if error:
                rounds.refused(partition, KafkaError(error))
                continue
            following = take(partition, end)
            if following is None:
                del left[partition]
            else:
                left[partition] = following
        return throttled_s

    rounds.ask_all(left, ask)


def _parse(data: Bytes) -> tuple[dict[TopicPartition, _Answered], float]:
    view = data.data
    (throttled_ms,) = _THROTTLED.unpack_from(view)
    answered: dict[TopicPartition, _Answered] = {}

    def read(topic: str, at: int) -> int:
        error, partition, epoch, offset = _ANSWERED.unpack_from(view, at)
        answered[TopicPartition(topic, partition)] = _Answered(error, EpochEnd(epoch, offset))
        return at + _ANSWERED.size

    read_by_topic(view, _THROTTLED.size, read)
    return answered, throttled_ms / 1000
