"""The wall clock, as records of Kafka and of stores have it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

#: How far the clocks of brokers and ours are apart at most.
BROKERS_DIFFER_MS = 10 * 60 * 1000
#: How far the clocks of two of our hosts are apart at most.
HOSTS_DIFFER_MS = 60_000


def now_ms() -> int:
    """Wall clock time, ms since the epoch."""
    return int(time.time() * 1000)


def ms_of(text: str) -> int:
    """Read a time as users write it: ms since the epoch, or ISO 8601, which is in UTC if it names no offset from it.

    Raises
    ------
    ValueError
        If it is neither.
    """
    given = text.strip()
    if given.isascii() and given.isdigit() and int(given) < 1 << 63:
        return int(given)
    found = datetime.fromisoformat(given)
    since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
