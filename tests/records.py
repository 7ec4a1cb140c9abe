"""What is recorded of a store, as tests write it down."""

from __future__ import annotations

import time

from statestore.statedir.record import StoreRecord


def recorded(topic_id: str, committed: int | None) -> StoreRecord:
    """Return the record of a store that is whole now."""
    return StoreRecord(topic_id=topic_id, caught_up_ms=int(time.time() * 1000), committed=committed)
