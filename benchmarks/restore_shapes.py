"""What `make bench-restore` measures: the base, and everything else with one thing different from it."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.measure import SMALL
from benchmarks.restore_log import LogShape

RECORDS = 40_000 if SMALL else 4_000_000
#: Parts of the names of figures that come with others.
CLOSED, MEMORY, SPARK_START = ", closed", "peak memory", "Spark's start"


class Shape(NamedTuple):
    """A log, with how many cores it is restored, and how many rounds that is measured."""

    log: LogShape
    cores: int
    rounds: int

    @property
    def case(self) -> str:
        """Name of the case."""
        return ", ".join([*self.log.parts, _cores(self.cores)])

    def difference(self, base: Shape) -> str:
        """Say what is different from the base."""
        here, there = [*self.log.parts, _cores(self.cores)], [*base.log.parts, _cores(base.cores)]
        return ", ".join(part for part, other in zip(here, there, strict=True) if part != other)


def _cores(number: int) -> str:
    return f"{number} core{'s' if number > 1 else ''}"


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
SHAPES = (BASE, *OTHERS)
#: Measured at the base alone: they take the longest, or tell little beyond it.
ONLY_BASE = ("Quix Streams", "ours, Spark job", "Kafka Streams")
#: How often these are measured at most: a round of theirs takes as long as one of all the others.
FEW_ROUNDS = {"Quix Streams": 1}
#: Not for a look: the one takes longer to start than the others to restore, and of the other there is one more.
NOT_SMALL = ("ours, Spark job", "Kafka Streams")
