"""Which timestamps the topics that a task writes to take: a broker refuses others when it is too late to name a record.

A broker refuses a record whose timestamp is further from its clock than the topic's `message.timestamp.before.max.ms`
and `message.timestamp.after.max.ms` (KIP-937). Since Kafka 4.0 an hour ahead is the most by default (KIP-1030).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from statestore import clock
from statestore.changelog import brokers_clock
from statestore.kafka.cluster import Cluster

_MINUTE_MS = 60_000
_LAST = (1 << 63) - 1
_BEFORE, _AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"


class TimestampBounds(BaseModel):
    """The bounds that hold for all topics of a task.

    Attributes
    ----------
    before_ms, after_ms
        How far a timestamp may lie before and after the brokers' time (ms); None: no limit.
    host_ahead_ms
        How far this machine's clock is ahead of the brokers'.
    """

    model_config = ConfigDict(frozen=True)

    before_ms: int | None = None
    after_ms: int | None = None
    host_ahead_ms: int = 0

    def measured(self, cluster: Cluster) -> TimestampBounds:
        """Return the same bounds, judged by the clock of the brokers.

        Raises
        ------
        KafkaUnavailableError
            If no broker answers in time.
        """
        return self.model_copy(update={"host_ahead_ms": clock.now_ms() - brokers_clock.now_ms(cluster)})

    def check(self, timestamp: int) -> None:
        """Refuse a timestamp (ms) that a topic would not take.

        Raises
        ------
        ValueError
            If it is not above 0, or out of bounds.
        """
        if timestamp <= 0:  # librdkafka would log 0 as the time of now, and a restored store would differ
            raise ValueError(f"its timestamp is {timestamp}, expected milliseconds since 1970 above 0")
        if self.before_ms is None and self.after_ms is None:
            return
        now = self._now_ms()
        if self.after_ms is not None and timestamp > now + self.after_ms:
            raise ValueError(
                f"its timestamp {timestamp} is {timestamp - now} ms in the future; a topic written to takes at most "
                f"{self.after_ms} ms ({_AFTER})"
            )
        if self.before_ms is not None and timestamp < now - self.before_ms:
            raise ValueError(
                f"its timestamp {timestamp} is {now - timestamp} ms in the past; a topic written to takes at most "
                f"{self.before_ms} ms ({_BEFORE})"
            )

    def surely_taken(self) -> tuple[int, int]:
        """Return the first and the last timestamp (ms) that `check` takes now and for another minute."""
        now = self._now_ms()
        first = 1 if self.before_ms is None else max(now + _MINUTE_MS - self.before_ms, 1)
        return first, _LAST if self.after_ms is None else now + self.after_ms

    def first_refused(self, timestamps: npt.NDArray[np.int64]) -> tuple[int, ValueError] | None:
        """Return the index of the first timestamp that is refused, and why; None if all are taken."""
        try:
            self.check(int(timestamps.min()))
            self.check(int(timestamps.max()))
        except ValueError:
            for index, timestamp in enumerate(timestamps.tolist()):
                try:
                    self.check(timestamp)
                except ValueError as error:
                    return index, error
        return None

    def nearest(self, *timestamps: int) -> int:
        """Return the first of the timestamps (ms) that is taken; if none is, the nearest to the last one."""
        for timestamp in timestamps:
            try:
                self.check(timestamp)
            except ValueError:
                continue
            return timestamp
        now, last = self._now_ms(), timestamps[-1]
        if self.after_ms is not None:
            last = min(last, now + self.after_ms)
        if self.before_ms is not None:
            last = max(last, now - self.before_ms)
        return max(last, 1)

    def _now_ms(self) -> int:
        return clock.now_ms() - self.host_ahead_ms


#: For topics whose settings are not known.
ANY_TIMESTAMP = TimestampBounds()


def bounds_of(configs: Iterable[Mapping[str, str]]) -> TimestampBounds:
    """Return the narrowest bounds of topics, by their settings."""

    def smallest(setting: str) -> int | None:
        return min((int(config[setting]) for config in configs if setting in config), default=None)

    configs = list(configs)
    return TimestampBounds(before_ms=smallest(_BEFORE), after_ms=smallest(_AFTER))
