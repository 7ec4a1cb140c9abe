"""Punctuations by stream time: calls that depend on the records alone, never on the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: Called with stream time, ms.
Punctuate = Callable[[int], None]


@dataclass
class _Schedule:
    interval_ms: int
    punctuate: Punctuate
    next_ms: int


class Schedules:
    """The punctuations of one task. Kafka Streams' multiples: those of the interval, counted from the epoch."""

    def __init__(self) -> None:
        self._schedules: list[_Schedule] = []

    def __bool__(self) -> bool:
        return bool(self._schedules)

    def add(self, interval_ms: int, punctuate: Punctuate, stream_time: int) -> None:
        """Schedule a punctuation; `stream_time` is what has been reached already, -1 if nothing.

        Raises
        ------
        ValueError
            If the interval is less than 1 ms.
        """
        if interval_ms < 1:
            raise ValueError(f"a punctuation's interval is at least 1 ms, found {interval_ms}")
        self._schedules.append(_Schedule(interval_ms, punctuate, _following(interval_ms, stream_time)))

    def advance(self, stream_time: int) -> None:
        """Call what has become due, in the order of scheduling."""
        for schedule in self._schedules:
            if stream_time >= schedule.next_ms:
                schedule.next_ms = _following(schedule.interval_ms, stream_time)
                schedule.punctuate(stream_time)


def _following(interval_ms: int, stream_time: int) -> int:
    return 0 if stream_time < 0 else stream_time - stream_time % interval_ms + interval_ms
