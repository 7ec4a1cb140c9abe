"""Notices that nothing comes any more. The waits that a broker imposes because of a quota do not count."""

from __future__ import annotations

import time

from confluent_kafka import ThrottleEvent

#: So long waits for a quota may take without any progress. Many clients that share a quota wait for each other.
_LONGEST_S = 600.0


class Stall:
    """Time left until a lack of progress is reported as a failure.

    Parameters
    ----------
    timeout_s
        Seconds without progress that are allowed, waits for a quota excluded. A single wait can be longer than this: it
        is in proportion to the bytes of an answer.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._throttled_until = 0.0
        self.progressed()

    @property
    def left_s(self) -> float:
        """Seconds left; zero or less: it has stalled."""
        return min(self._deadline, self._began + max(_LONGEST_S, self._timeout_s)) - time.monotonic()

    def progressed(self) -> None:
        """Start anew, after a wait that goes on."""
        self._began = max(time.monotonic(), self._throttled_until)
        self._deadline = self._began + self._timeout_s
        self._throttled = False

    def throttled(self, seconds: float) -> None:
        """Note that a broker wants not to be asked for some seconds."""
        if seconds > 0:
            self._throttled = True
            self._deadline += seconds
            self._throttled_until = max(self._throttled_until, time.monotonic() + seconds)

    def note(self, event: ThrottleEvent) -> None:
        """Note the same from librdkafka: its `throttle_cb`."""
        self.throttled(event.throttle_time)

    def told(self) -> str:
        """Say that nothing came, and what holds it back if that is known."""
        if self._throttled:
            return (
                f"a quota of the brokers let nothing through for {time.monotonic() - self._began:.0f} s: increase "
                "consumer_byte_rate or, for what is written, producer_byte_rate (a record batch larger than what the "
                "quota allows in ten seconds never comes)"
            )
        return f"nothing came for {self._timeout_s:g} s"
