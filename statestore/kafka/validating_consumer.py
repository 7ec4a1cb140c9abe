"""Validates log positions with librdkafka (KIP-320), for clusters that direct connections cannot reach."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from statestore.errors import KafkaUnavailableError
from statestore.kafka.client import translate
from statestore.kafka.cluster import Cluster
from statestore.kafka.deadline import close_consumer
from statestore.kafka.leaders import may_pass
from statestore.kafka.rights import is_about_unused_group, on_topics
from statestore.kafka.stall import Stall
from statestore.model import TopicPartition

_MESSAGES, _POLL_S = 10_000, 0.1
#: librdkafka validates a position before it fetches from there: what comes of the fetch tells that it was valid.
_CONFIG = {
    "group.id": "statestore-log-validator",  # librdkafka asks for one; nothing is committed to it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",
    "fetch.wait.max.ms": 10,
    "max.partition.fetch.bytes": 1,  # brokers give a whole batch nevertheless
    "queued.max.messages.kbytes": 1_024,
}
#: A position that is not valid: the log was cut below it, does not know its epoch, or does not have the offset.
_REFUSED = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE)


def refused_positions(cluster: Cluster, positions: Mapping[TopicPartition, tuple[int, int]]) -> set[TopicPartition]:
    """Return the partitions whose position librdkafka refuses; that it says why in words only is left to the caller.

    Parameters
    ----------
    positions
        Offset to read next, and leader epoch of the record before it, by partition.

    Raises
    ------
    KafkaUnavailableError
        If nothing came within the deadline, or access is refused.
    """
    refused: set[TopicPartition] = set()
    waiting = dict.fromkeys(positions)
    failed, stall = "no answer", Stall(cluster.timeout_s)
    consumer = cluster.client(Consumer, **_CONFIG, throttle_cb=stall.note)
    try:
        consumer.assign(
            [KafkaTopicPartition(*at, offset, leader_epoch=epoch) for at, (offset, epoch) in positions.items()]
        )
        while waiting:
            told = []
            for message in consumer.consume(_MESSAGES, _POLL_S):
                partition, error = TopicPartition(message.topic(), message.partition()), message.error()
                code = None if error is None else error.code()
                if code in (None, KafkaError._PARTITION_EOF, *_REFUSED):
                    told.append(partition)
                    if code in _REFUSED:
                        refused.add(partition)
                elif may_pass(error) or is_about_unused_group(error):
                    failed = error.str()
                else:
                    rights = on_topics("READ", partition.topic)
                    raise translate(error, f"validating a position in {partition}", *rights)
            if told:
                stall.progressed()
                consumer.pause([KafkaTopicPartition(*partition) for partition in told if partition in waiting])
                for partition in told:
                    waiting.pop(partition, None)
            elif stall.left_s <= 0:
                raise KafkaUnavailableError(
                    f"validating positions in {len(waiting)} partitions, {next(iter(waiting))} the first: "
                    f"{stall.told()} ({failed}); check that the brokers are up, then run again"
                )
    except KafkaException as error:
        raise translate(error, f"validating positions in {len(waiting)} partitions") from error
    finally:
        close_consumer(consumer)
    return refused
