"""Applications that work, rest until their group's offsets are gone, and must then continue as if nothing had been.

Each is one thing that an offset, or the stream time that is committed with it, protects.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from statestore.tasks import ProcessorContext, Record
from tests.integration import broker, dying
from tests.integration.broker import T0, consume
from tests.integration.support import Application

GUARANTEES = [
    pytest.param("exactly_once_v2", id="exactly once"),
    pytest.param("at_least_once", id="at least once"),
]
MINUTE = 60_000
BASE = T0 - T0 % MINUTE - 60 * MINUTE


def forward(record: Record, context: ProcessorContext) -> None:
    """Send each record on, and keep nothing."""
    context.forward(record.key, record.value)


class Ticking:
    """Sends stream time on, once a minute of it."""

    def init(self, context: ProcessorContext) -> None:
        """Schedule."""
        context.schedule(MINUTE, lambda time_ms: context.forward(b"tick", b"%d" % (time_ms // MINUTE)))

    def process(self, record: Record, context: ProcessorContext) -> None:
        """Keep nothing."""


class Silence:
    """One application, with what it does before and after it has rested."""

    def __init__(self, servers: str, directory: Path, guarantee: str, **settings: Any) -> None:
        self.application = Application(servers, directory, processing_guarantee=guarantee, **settings)
        self.servers = servers

    def before(self) -> None:
        """Work, and commit."""
        raise NotImplementedError

    def after(self) -> None:
        """Work again, and check that nothing happened twice."""
        raise NotImplementedError

    def sent(self, topic: str | None = None) -> list[bytes | None]:
        """Return the values that were sent to a topic, by default the output."""
        topic = topic or self.application.output
        broker.settle(self.servers, topic)
        return [record.value for record in consume(self.servers, topic)[0]]


class WithoutRows(Silence):
    """A task without rows sends nothing twice."""

    def before(self) -> None:
        """Send."""
        self.application.defined(processor="tests.integration.silence:forward")
        self.application.process([(b"k", b"%d" % number) for number in range(3)])

    def after(self) -> None:
        """Send one more."""
        self.application.process([(b"k", b"new")], T0 + 100)
        assert self.sent() == [b"0", b"1", b"2", b"new"]


class WithRows(Silence):
    """A task counts each record once, and is not stuck without input."""

    def before(self) -> None:
        """Count."""
        self.application.process([(b"k", b"1")] * 3)

    def after(self) -> None:
        """Count on."""
        assert self.application.process().records_in == 0
        self.application.process([(b"k", b"1")] * 2, T0 + 100)
        self.application.assert_oracle()


class Restored(Silence):
    """The position of the store is known after a restore, and is not needed."""

    def before(self) -> None:
        """Count, be killed, and be restored."""
        self.application.process([(b"k", b"1")] * 3)
        self.application.send([(b"k", b"1")] * 2, timestamp=T0 + 50)
        dying.die_in(self.application.task_spec(), "Kafka committed, stores not")
        self.application.restore()

    def after(self) -> None:
        """Count on."""
        self.application.process([(b"k", b"1")], T0 + 100)
        self.application.assert_oracle()


class DeadLetters(Silence):
    """Records that cannot be processed are sent to the dead-letter topic once."""

    def before(self) -> None:
        """Fail on all."""
        self.dead = broker.create_topic(self.servers, broker.unique("dead"))
        self.application.defined(processor="tests.integration.support:count_or_fail", dead_letter_topic=self.dead)
        self.application.send([(b"k", b"poison")] * 3)
        row = self.application.run()
        assert (row.failure, row.poison_records) == (None, 3)

    def after(self) -> None:
        """Count one."""
        self.application.process([(b"k", b"1")], T0 + 100)
        assert len(self.sent(self.dead)) == 3


class ClosedWindow(Silence):
    """A window that was closed stays closed; stream time was advanced by a record that changed no store."""

    aggregation: ClassVar[dict[str, Any]] = {"store": "w", "windows": {"size_ms": MINUTE, "grace_ms": MINUTE}}

    def before(self) -> None:
        """Count in a window, and close it."""
        self.application.extend(processor=None, stores=[], output_topics=(), aggregations=[self.aggregation])
        self.application.send([(b"k", b"1")] * 3, timestamp=BASE + 1_000)
        self.application.send([(None, b"1")], timestamp=BASE + 20 * MINUTE)
        assert self.application.run().failure is None
        assert self._late() == 1

    def after(self) -> None:
        """Come too late."""
        assert self._late() == 1

    def _late(self) -> int:
        self.application.send([(b"k", b"late")], timestamp=BASE + 2_000)
        row = self.application.run()
        assert row.failure is None, row.failure
        return row.late_records


class ClosedSession(ClosedWindow):
    """A session that was closed stays closed."""

    aggregation: ClassVar[dict[str, Any]] = {"store": "w", "sessions": {"gap_ms": MINUTE, "grace_ms": MINUTE}}


class Punctuation(Silence):
    """Punctuations of times that were passed are not repeated."""

    def before(self) -> None:
        """Pass ten minutes."""
        self.application.defined(processor="tests.integration.silence:Ticking")
        for minute in (0, 10):
            self.application.process([(b"k", b"1")], BASE + minute * MINUTE)
        self.ticks = self.sent()
        assert self.ticks

    def after(self) -> None:
        """Get a record of an earlier minute, and one of a later one."""
        self.application.process([(b"k", b"1")], BASE + 5 * MINUTE)
        assert self.sent() == self.ticks
        self.application.process([(b"k", b"1")], BASE + 11 * MINUTE)
        assert len(self.sent()) == len(self.ticks) + 1


SILENCES: list[type[Silence]] = [WithoutRows, WithRows, Restored, DeadLetters, ClosedWindow, ClosedSession, Punctuation]
