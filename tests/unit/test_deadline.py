"""Calls that may never return, and consumers that do not close.

A fake consumer hangs here: librdkafka's own deadlock (its issue 4514) needs two of its threads to meet in one moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from statestore.errors import KafkaUnavailableError
from statestore.kafka import groups, reader, validating_consumer
from statestore.kafka.cluster import Cluster
from statestore.kafka.deadline import call_within, close_consumer
from statestore.kafka.writer import TransactionalWriter
from statestore.model import TopicPartition

NOWHERE = "127.0.0.1:1"
PARTITION = TopicPartition("log", 0)
#: Of what is to hang, s; far below what it hangs for.
SHORT_S = 0.05
LONG_S = 60.0


class HangingConsumer:
    """A consumer that gets nothing, and whose `close` returns when it is released."""

    released = threading.Event()

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.closed = False

    def assign(self, partitions: list[Any]) -> None:
        """Take partitions."""

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        """Return nothing."""
        return []

    def close(self) -> None:
        """Hang."""
        self.closed = self.released.wait(LONG_S)


@pytest.fixture(autouse=True)
def _released() -> Iterator[None]:
    HangingConsumer.released.clear()
    yield
    HangingConsumer.released.set()


def test_what_a_call_returns_is_returned() -> None:
    assert call_within(LONG_S, lambda: 7, "seven") == 7


def test_what_a_call_raises_is_raised() -> None:
    def fail() -> None:
        raise KafkaUnavailableError("no answer")

    with pytest.raises(KafkaUnavailableError, match="no answer"):
        call_within(LONG_S, fail, "failing")


def test_a_call_that_hangs_is_left_to_a_thread_that_no_process_waits_for() -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        call_within(SHORT_S, lambda: HangingConsumer.released.wait(LONG_S), "hanging call")
    assert time.monotonic() - started < LONG_S / 2
    (left,) = [thread for thread in threading.enumerate() if thread.name == "hanging call"]
    assert left.daemon


def test_a_consumer_that_does_not_close_is_left_to_itself_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    started = time.monotonic()
    close_consumer(HangingConsumer(), SHORT_S)
    assert time.monotonic() - started < LONG_S / 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "did not close in 0.05 s" in caplog.text


def test_a_consumer_that_closes_is_closed_when_the_call_returns(caplog: pytest.LogCaptureFixture) -> None:
    HangingConsumer.released.set()
    consumer = HangingConsumer()
    close_consumer(consumer, LONG_S)
    assert consumer.closed
    assert not caplog.records


def leave_group() -> None:
    """Make a consumer group, and leave it."""
    with groups.ConsumerGroup(Cluster(NOWHERE), "group"):
        pass


def leave_reader() -> None:
    """Read nothing from a log, and leave the reader."""
    with (
        pytest.raises(KafkaUnavailableError),
        reader.LogReader(Cluster(NOWHERE, 0), PARTITION) as reading,
    ):
        next(reading.read_messages(0, 1))


def leave_validation() -> None:
    """Validate no position."""
    assert validating_consumer.refused_positions(Cluster(NOWHERE, 0), {}) == set()


@pytest.mark.parametrize(
    ("module", "leave"),
    [(groups, leave_group), (reader, leave_reader), (validating_consumer, leave_validation)],
    ids=["group", "reader", "validation"],
)
def test_no_user_of_a_consumer_hangs_in_its_close(
    module: ModuleType, leave: Callable[[], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "Consumer", HangingConsumer)
    monkeypatch.setattr(module, "close_consumer", partial(close_consumer, timeout_s=SHORT_S))
    started = time.monotonic()
    leave()
    assert time.monotonic() - started < LONG_S / 2
    assert "did not close" in caplog.text


def test_offsets_are_not_taken_for_sent_whatever_was_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SystemError("returned NULL without setting an exception")

    with groups.ConsumerGroup(Cluster(NOWHERE), "group") as consumer:
        monkeypatch.setattr(consumer, "metadata", lambda: None)
        writer = TransactionalWriter(Cluster(NOWHERE, LONG_S), "writer")
        monkeypatch.setattr(writer, "_producer", SimpleNamespace(send_offsets_to_transaction=fail))
        with pytest.raises(SystemError):
            writer.send_offsets(consumer, {PARTITION: groups.GroupOffset(1)})
