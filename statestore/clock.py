"""The wall clock, as records of Kafka and of stores have it."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Wall clock time, ms since the epoch."""
    return int(time.time() * 1000)
