"""The wall clock, as records of Kafka and of stores have it."""

from __future__ import annotations

import time

#: How far the clocks of brokers and ours are apart at most.
BROKERS_DIFFER_MS = 10 * 60 * 1000
#: How far the clocks of two of our hosts are apart at most.
HOSTS_DIFFER_MS = 60_000


def now_ms() -> int:
    """Wall clock time, ms since the epoch."""
    return int(time.time() * 1000)
