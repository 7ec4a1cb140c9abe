"""The brokers' clock, by which Kafka deletes tombstones and old records.

Only the answer to a written record contains it: a topic with `message.timestamp.type=LogAppendTime` gives each record
the time at which a broker appended it. So each process writes one record to such a topic, and another one if the time
is needed more than five minutes later. In between, the brokers' time is the measured time plus the time since then.

A process without the right to write reads the append time of another process's last record. The brokers' time is not
earlier. The later of this time and this machine's clock counts. Before a restore uses a snapshot, such a process also
asks the object store for its time (`recovery/snapshot.py`).
"""

from __future__ import annotations

import logging
import os
import time
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from statestore import clock
from statestore.errors import KafkaUnavailableError, StateStoreError
from statestore.kafka.client import translate
from statestore.kafka.cluster import Cluster
from statestore.kafka.rights import REFUSED, on_topics
from statestore.kafka.topics import APPEND_TIME, TIMESTAMP_TYPE, Topics, has_append_time
from statestore.model import TopicPartition

#: One for all catalogues and applications of a cluster.
TOPIC = "_statestore-clock"
CONFIG = {"cleanup.policy": "delete", "retention.ms": "86400000", TIMESTAMP_TYPE: APPEND_TIME}
#: After so long, or if this machine's clock was set meanwhile, it is measured again.
_MEASURED_FOR_S = 300.0
_WAS_SET_MS = 1000

_REFUSED = frozenset(
    {
        *REFUSED,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
    }
)

_log = logging.getLogger(__name__)


class _Answer(NamedTuple):
    """The brokers' time (ms), exactly, or the best estimate of it."""

    brokers_ms: int
    is_exact: bool


class _Measured(NamedTuple):
    """One measurement.

    Attributes
    ----------
    brokers_ms, host_ms, monotonic_s
        The three clocks when a broker had just answered.
    is_exact
        A broker appended a record of this process then. If not, the brokers' time may be later.
    """

    brokers_ms: int
    host_ms: int
    monotonic_s: float
    is_exact: bool

    def is_current(self) -> bool:
        """Return whether it need not be measured again."""
        passed_s = time.monotonic() - self.monotonic_s
        by_host_ms = clock.now_ms() - self.host_ms
        return passed_s < _MEASURED_FOR_S and abs(by_host_ms - passed_s * 1000) <= _WAS_SET_MS

    def now_ms(self) -> int:
        """Return the brokers' time."""
        return self.brokers_ms + int((time.monotonic() - self.monotonic_s) * 1000)


#: By process, because a fork may live much longer than its parent's measurement, and by the brokers' addresses.
_measured: dict[tuple[int, str], _Measured] = {}


def now_ms(cluster: Cluster) -> int:
    """Return the brokers' time, in ms since the epoch.

    The result may be earlier than the brokers' clock by as long as one request takes.

    Raises
    ------
    KafkaUnavailableError
        If no broker answers in time, and their clock was not measured before.
    """
    key = (os.getpid(), cluster.servers)
    known = _measured.get(key)
    if known is not None and known.is_current():
        return known.now_ms()
    try:
        found = _ask(cluster)
    except KafkaUnavailableError:
        if known is None:
            raise
        found = _Answer(known.now_ms(), known.is_exact)
    _measured[key] = _Measured(found.brokers_ms, clock.now_ms(), time.monotonic(), found.is_exact)
    return found.brokers_ms


def is_exact(cluster: Cluster) -> bool:
    """Return whether the last result of `now_ms` is the brokers' time. If not, that time may be later."""
    known = _measured.get((os.getpid(), cluster.servers))
    return known is not None and known.is_exact


def _ask(cluster: Cluster) -> _Answer:
    topics = cluster.topics
    try:
        if TOPIC not in topics.describe([TOPIC]):
            topics.create(TOPIC, 1, CONFIG)
        appended_ms = _append(cluster)
    except StateStoreError as error:
        if not _is_refusal(error):
            raise
        why = str(error)
    else:
        if appended_ms is not None:
            return _Answer(appended_ms, True)
        why = f"it does not have {TIMESTAMP_TYPE}={APPEND_TIME}"
    found_ms = max(clock.now_ms(), _last_append_ms(topics))
    _log.warning(
        "the brokers' clock cannot be read from topic %s: %s. The age of deletes is judged by this machine's clock",
        TOPIC,
        why,
    )
    return _Answer(found_ms, False)


def _append(cluster: Cluster) -> int | None:
    """Write a record, and return when a broker appended it (ms); None if the topic has the writers' times."""
    delivered: list[tuple[KafkaError | None, Message]] = []
    producer = cluster.client(Producer, **{"linger.ms": 0, "acks": 1})
    producer.produce(TOPIC, b"", partition=0, on_delivery=lambda error, message: delivered.append((error, message)))
    producer.flush(cluster.timeout_s)
    doing = f"reading the brokers' clock from topic {TOPIC}"
    if not delivered:
        raise KafkaUnavailableError(f"{doing}: no answer within {cluster.timeout_s:g} s; check that the brokers are up")
    error, message = delivered[0]
    if error is not None:
        raise translate(error, doing, *on_topics("WRITE", TOPIC)) from KafkaException(error)
    kind, appended_ms = message.timestamp()
    return appended_ms if kind == TIMESTAMP_LOG_APPEND_TIME else None


def _last_append_ms(topics: Topics) -> int:
    """Return when another process's last record was appended (ms); 0 if that is not known."""
    try:
        if not has_append_time(topics.topic_configs([TOPIC])[TOPIC]):
            return 0
        return topics.largest_timestamp(TopicPartition(TOPIC, 0))
    except StateStoreError as error:
        if not _is_refusal(error):
            raise
        return 0


def _is_refusal(error: StateStoreError) -> bool:
    """Return whether the brokers do not grant a right, or do not take such a topic: asking again changes nothing."""
    cause = error.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].code() in _REFUSED
