"""What `make bench-restore` measures: the base, and everything else with one thing different from it."""

from __future__ import annotations

import os
import random
import time
from typing import NamedTuple

from benchmarks.measure import SMALL
from benchmarks.restore_log import KEY_BYTES, LogShape

RECORDS = 40_000 if SMALL else 4_000_000
#: Parts of the names of figures that come with others.
CLOSED, MEMORY, SPARK_START = ", closed", "peak memory", "Spark's start"


class Shape(NamedTuple):
    """A log, with how many cores it is restored, and how many rounds that is measured."""

    log: LogShape
    cores: int
    rounds: int
    seed: int | None = None

    @property
    def case(self) -> str:
        """Name of the case."""
        drawn = "" if self.seed is None else f"drawn from {self.seed}"
        return ", ".join(filter(None, [drawn, *self.log.parts, _cores(self.cores)]))

    def difference(self, base: Shape) -> str:
        """Say what is different from the base."""
        here, there = [*self.log.parts, _cores(self.cores)], [*base.log.parts, _cores(base.cores)]
        return ", ".join(part for part, other in zip(here, there, strict=True) if part != other and part)


def _cores(number: int) -> str:
    return f"{number} core{'s' if number > 1 else ''}"


def drawn_shape(seed: int) -> Shape:
    """Draw a log that nobody has tuned for: up to 4 million records, and 400 MB of keys and values."""
    source = random.Random(seed)
    value_bytes = source.choice([20, 100, 400, 1_000, 4_000])
    per_key = source.choice([1, 2, 4, 10, 20])
    records = min(RECORDS, (RECORDS * 100) // (value_bytes + KEY_BYTES))
    log = LogShape(
        records // per_key * per_key,
        per_key,
        value_bytes,
        partitions=source.choice([1, 2, 4, 16, 64, 240]),
        compression=source.choice(["none", "gzip", "snappy", "lz4", "zstd"]),
        transactions=source.random() < 0.5,
        tombstones=source.choice([0, 0, 10, 30]),
        skew=source.choice([0.0, 0.0, 0.8, 1.1]),
    )
    return Shape(log, 2, 1 if SMALL else 3, seed)


BASE = Shape(LogShape(RECORDS), 2, 1 if SMALL else 3)
OTHERS: tuple[Shape, ...] = (
    ()
    if SMALL
    else (
        Shape(LogShape(RECORDS), 1, 1),
        Shape(LogShape(RECORDS, per_key=1), 2, 2),
        Shape(LogShape(RECORDS, per_key=20), 2, 2),
        Shape(LogShape(RECORDS, value_bytes=1_000), 2, 1),
        Shape(LogShape(RECORDS, kind="window"), 2, 1),
        Shape(LogShape(RECORDS, partitions=1), 2, 1),
        Shape(LogShape(1_000_000), 2, 1),
        Shape(LogShape(960_000, partitions=240), 2, 3),
        Shape(LogShape(16_000_000), 2, 1),
    )
)
#: Another one in each run, unless it is to be repeated.
DRAWN = drawn_shape(int(os.environ.get("BENCH_SEED") or time.time()))
SHAPES = (BASE, *OTHERS, *(() if SMALL else (DRAWN,)))
#: Measured at the base alone: they take the longest, or tell little beyond it.
ONLY_BASE = ("Quix Streams", "ours, Spark job", "Kafka Streams")
#: How often these are measured, unless a number of rounds is asked for: one takes as long as all the others together.
FEW_ROUNDS = {"Quix Streams": 1}
#: Not for a look: the one takes longer to start than the others to restore, and of the other there is one more.
NOT_SMALL = ("ours, Spark job", "Kafka Streams")
