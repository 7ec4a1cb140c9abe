"""Two streams that `java/JoinTopology.java` joins, and the stores that Kafka Streams makes for that, as it names them.

Their records have nulls, come out of order, some of them when their window is over, and several at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from kafka_streams import STREAMS, Command, Store

from statestore.model import StoreFormat
from tests.integration.broker import T0

#: How long windows of the joins are kept, and how long after the first record the last one is (ms).
_RETENTION_MS, _SPAN_MS = 1_800_000, 5_400_000
_KEYS = [b"customer-%d" % number for number in range(200)]  # so many that some records meet no other


def _window(name: str) -> Store:
    return Store(name, "window", retention_ms=_RETENTION_MS, window_ms=1_200_000, duplicates=True)


def _list(name: str) -> Store:
    return Store(name, layout="lists")


def _table(name: str) -> Store:
    return Store(name, format=StoreFormat.TIMESTAMPED)


#: In the order of the topology: those of the inner, the left, the outer and the foreign-key join.
JOINED = [
    _window("KSTREAM-JOINTHIS-0000000004-store"),
    _window("KSTREAM-JOINOTHER-0000000005-store"),
    _window("KSTREAM-JOINTHIS-0000000009-store"),
    _window("KSTREAM-OUTEROTHER-0000000010-store"),
    _list("KSTREAM-OUTERSHARED-0000000009-store"),
    _window("KSTREAM-OUTERTHIS-0000000014-store"),
    _window("KSTREAM-OUTEROTHER-0000000015-store"),
    _list("KSTREAM-OUTERSHARED-0000000014-store"),
    _table("KSTREAM-TOTABLE-STATE-STORE-0000000018"),
    _table("KSTREAM-TOTABLE-STATE-STORE-0000000020"),
    _table("KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000025"),
]


def commands(count: int, seed: int) -> Iterator[Command]:
    """Yield records of both streams; those of seed 2 come behind those of seed 1."""
    rng = random.Random(seed)
    for number in range(count):
        time = T0 + (seed - 2) * _SPAN_MS + number * _SPAN_MS // count
        time -= rng.choice([0, 0, 0, rng.randrange(_RETENTION_MS // 2), rng.randrange(2 * _RETENTION_MS)])
        stream, key = rng.choice(STREAMS), rng.choice(_KEYS)
        for again in range(rng.choice([1, 1, 1, 2, 3])):
            value = rng.choice([b"%s|%d.%d" % (rng.choice(_KEYS), number, again)] * 5 + [b"none", None])
            yield Command(stream, key, value, time)
