"""The common part of all Kafka clients of the library: configuration, and translation of errors.

TLS and SASL settings are in the file of STATESTORE_KAFKA_CONFIG and read from there for each client, so that no
specification or closure has a password in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
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
from statestore.kafka.client_properties import checked_properties
from statestore.kafka.oauth import CALLBACK, MskToken
from statestore.kafka.rights import Right, grant
from statestore.private_config import KAFKA_CONFIG, read_kafka_config

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
        KafkaError.UNSTABLE_OFFSET_COMMIT,  # a transaction that has sent offsets is still open
    }
)
_PAUSE_S = 0.1
#: How a broker, or our own client, says that we may not come in; only another configuration helps.
_REFUSED = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
_UNAVAILABLE = _PASSING | frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
    }
)
_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
#: A broker that went down lost what it had not acknowledged. Nothing was committed: the input is read again.
_LOST = frozenset({KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID})
_UNKNOWN_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,  # of partitions that a topic does not have
    }
)


def client_config(bootstrap_servers: str, **overrides: Any) -> dict[str, Any]:
    """Return the configuration that every client starts from. It may hold passwords: it is never logged or passed on.

    librdkafka's own connection messages go to its log only at level error: a deadline of ours reports an outage.

    A topic that is missing stays missing. By default, brokers create one when a producer, or an admin client, asks who
    leads it: a changelog that was deleted would be there again, empty, and with settings that lose records.

    Raises
    ------
    InputError
        If the file of STATESTORE_KAFKA_CONFIG cannot be used.
    """
    properties = checked_properties(read_kafka_config(), KAFKA_CONFIG)
    if (region := properties.pop("aws.region", None)) is not None:
        properties |= {"sasl.mechanism": "OAUTHBEARER", CALLBACK: MskToken(str(region))}
    return {
        "client.id": f"statestore-{os.getpid()}",
        "log_level": 2,
        "socket.keepalive.enable": True,
        "allow.auto.create.topics": False,
        **properties,
        "bootstrap.servers": bootstrap_servers,
        **overrides,
    }


def make_client(kind: Callable[[dict[str, Any]], T], config: Mapping[str, Any]) -> T:
    """Return a client of that configuration.

    Raises
    ------
    InputError
        If it cannot be one, for example because a certificate is not there.
    """
    try:
        return kind(dict(config))
    except KafkaException as error:
        raise InputError(
            f"the configuration of Kafka's clients cannot be used: {error.args[0].str()}; correct it in the file of "
            f"{KAFKA_CONFIG}"
        ) from error


class _Reported:
    """Reports of a client about its connections, independent of any request."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None
        self._all_down = False

    def note(self, error: KafkaError) -> None:
        """Called by the client."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._all_down = True
        else:
            self._last = error

    def reason(self) -> KafkaError | None:
        """Return why no broker is of any use; None if one may be."""
        return self._last if self._all_down else None


def connected_admin(config: Callable[..., dict[str, Any]], timeout_s: float) -> AdminClient:
    """Make an admin client, and wait until a broker answers.

    Where a password is wrong, librdkafka would try on until the deadline, and then only say that it is over.
    """
    reported = _Reported()
    made = make_client(AdminClient, config(error_cb=reported.note))
    answer = made.describe_cluster(request_timeout=timeout_s)
    while True:
        try:
            answer.result(_PAUSE_S)
            return made
        except TimeoutError:
            made.poll(0)
            reason = reported.reason()
            if reason is not None and reason.code() in _REFUSED:
                raise KafkaException(reason) from None
        except KafkaException as error:
            made.poll(0)
            raise KafkaException(reported.reason() or error.args[0]) from error


def is_passing(error: KafkaError) -> bool:
    """True if the same request may well succeed a moment later."""
    return error.code() in _PASSING or error.retriable()


def until_answered(request: Callable[[float], T], doing: str, timeout_s: float, *rights: Right) -> T:
    """Make a request, again and again while what is in its way passes by itself.

    Parameters
    ----------
    request
        Called with the seconds that are left; raises KafkaException.
    doing
        What is being done, for the error.
    timeout_s
        Deadline of all attempts together.
    rights
        Rights that the request needs, for the error if it is refused.

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
                raise translate(error, doing, *rights) from error
            time.sleep(_PAUSE_S)  # nothing announces that a coordinator or leader is there


def translate(error: KafkaException | KafkaError, doing: str, *rights: Right) -> StateStoreError:
    """Return the error in the library's terms. A refusal names those of the rights that can be missing."""
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    code = cause.code()
    text = f"{doing}: {cause.str()} ({cause.name()})"
    if code in _FENCED:
        return FencedError(f"{text}; a later attempt of this task has taken over")
    if code in _UNKNOWN_TOPIC:
        return TopicMismatchError(
            f"{text}; create the topic, correct its name in the definition, or grant this user DESCRIBE on the topic: "
            "without it, brokers hide the topic"
        )
    if code == KafkaError.UNKNOWN_MEMBER_ID:
        return InputError(
            f"{text}; another process consumes as this group, or was killed and its session has not timed out: stop it "
            "(kafka-consumer-groups --describe --members shows its members), or wait"
        )
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return InputError(f"{text}; increase the topic's max.message.bytes, or send a smaller record")
    if (refused := grant(cause, getattr(error, "rights", rights))) is not None:
        return KafkaUnavailableError(f"{text}; {refused}")
    if code in _UNAVAILABLE:
        return KafkaUnavailableError(
            f"{text}; check that the brokers are up and that access is granted, then run again"
        )
    if cause.retriable() or code in _LOST:
        return RetryError(f"{text}; run again")
    return StateStoreError(text)
