"""What an error of Kafka's means for whoever asked."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from statestore.errors import (
    FencedError,
    InputError,
    KafkaUnavailableError,
    RetryError,
    StateStoreError,
    TopicMismatchError,
)
from statestore.kafka.client import translate


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.PRODUCER_FENCED, FencedError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicMismatchError),
        (KafkaError.MSG_SIZE_TOO_LARGE, InputError),
        (KafkaError.UNKNOWN_MEMBER_ID, InputError),
        (KafkaError._TIMED_OUT, KafkaUnavailableError),
        # A broker that was killed had not read, or had not written down, all that it was sent.
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, RetryError),
        (KafkaError.UNKNOWN_PRODUCER_ID, RetryError),
        (KafkaError.INVALID_CONFIG, StateStoreError),
    ],
)
def test_an_error_says_whether_the_same_may_succeed_later(code: int, kind: type[StateStoreError]) -> None:
    error = translate(KafkaError(code), "sending")
    assert type(error) is kind
    assert str(error).startswith("sending: ")
    assert KafkaError(code).name() in str(error)
