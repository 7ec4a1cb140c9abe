"""Logs that are compacted when a test asks for it."""

from __future__ import annotations

import time

from tests.integration import broker
from tests.integration.broker import consume

#: All but the newest segment is compacted; a record begins one if it is so much later than what the last began with.
EAGER = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}


def overtake(servers: str, topic: str, key: bytes) -> None:
    """Log a key anew, and wait until compaction has removed the record that was its last."""
    logged = consume(servers, topic)[0]
    last = max(record.offset for record in logged if record.key == key)
    latest = max(int(time.time() * 1000), *(record.timestamp for record in logged))
    for ahead in (1, 2):  # the newest segment is never compacted
        broker.produce(servers, topic, [(key, b"newer")], timestamp=latest + ahead * 1_000)
    broker.wait_for(lambda: all(record.offset != last for record in consume(servers, topic)[0]), "compaction")
