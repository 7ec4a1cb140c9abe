"""What all Kafka clients of the library share: configuration, and errors in our own words."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from statestore.errors import (
    FencedError,
    InputError,
    KafkaUnavailableError,
    RetryError,
    StateStoreError,
    TopicMismatchError,
)

T = TypeVar("T")

#: Kafka is finding out who is in charge; the same request succeeds a little later.
_PASSING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,  # a broker that was just restarted knows less than its clients
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
_PAUSE_S = 0.1
_UNAVAILABLE = _PASSING | frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
    }
)
_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_UNKNOWN_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,  # of partitions that a topic does not have
    }
)


def client_config(bootstrap_servers: str, **overrides: Any) -> dict[str, Any]:
    """Return the configuration that every client starts from.

    librdkafka's own connection messages go to its log only at level error: a deadline of ours reports an outage.
    """
    return {
        "bootstrap.servers": bootstrap_servers,
        "client.id": f"statestore-{os.getpid()}",
        "log_level": 2,
        "socket.keepalive.enable": True,
        **overrides,
    }


class Admin:
    """An admin client that is made, and connected, when it is first needed.

    A client that has no connection yet when it is asked who leads a partition may ask the brokers only 3 s later.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._connected: AdminClient | None = None

    def client(self, timeout_s: float) -> AdminClient:
        """Return the client.

        Raises
        ------
        KafkaException
            If no broker answers in time.
        """
        if self._connected is None:
            made = AdminClient(client_config(self._servers))
            made.describe_cluster(request_timeout=timeout_s).result()
            self._connected = made
        return self._connected


def is_passing(error: KafkaError) -> bool:
    """True if the same request may well succeed a moment later."""
    return error.code() in _PASSING or error.retriable()


def until_answered(request: Callable[[float], T], doing: str, timeout_s: float) -> T:
    """Make a request, again and again while what is in its way passes by itself.

    Parameters
    ----------
    request
        Called with the seconds that are left; raises KafkaException.
    doing
        What is being done, for the error.
    timeout_s
        Deadline of all attempts together.

    Raises
    ------
    StateStoreError
        The last failure, in the library's terms.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        try:
            return request(max(left, _PAUSE_S))
        except KafkaException as error:
            if left <= 0 or not is_passing(error.args[0]):
                raise translate(error, doing) from error
            time.sleep(_PAUSE_S)  # nothing announces that a coordinator or leader is there


def translate(error: KafkaException | KafkaError, doing: str) -> StateStoreError:
    """Say what failed in the library's terms."""
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    code = cause.code()
    text = f"{doing}: {cause.str()} ({cause.name()})"
    if code in _FENCED:
        return FencedError(f"{text}; a later attempt of this task has taken over")
    if code in _UNKNOWN_TOPIC:
        return TopicMismatchError(f"{text}; create the topic, or correct its name in the definition")
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return InputError(f"{text}; raise the topic's max.message.bytes, or make the record smaller")
    if code in _UNAVAILABLE:
        return KafkaUnavailableError(
            f"{text}; check that the brokers are up and that access is granted, then run again"
        )
    if cause.retriable():
        return RetryError(text)
    return StateStoreError(text)
