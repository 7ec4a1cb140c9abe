"""The program that makes an application of the state of another, with fresh worker processes, and takes the time.

Its workers are brought up as those of a restore are (`restore_program.py`). Time runs from the locks of the first
application to the offsets of the second one's group. There is no catalogue, as for a restore.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from typing import TypeVar

from benchmarks.counting import Command
from benchmarks.restore_log import STORE, input_of
from benchmarks.restore_program import Order, ready, specs_of, workers
from benchmarks.restore_run import RestoreOutcome
from statestore.config import Settings
from statestore.model import TaskId
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.group_offsets import InputPair
from statestore.rewrite.new_application import NewApplication
from statestore.rewrite.repartition import repartition
from statestore.rewrite.repartition_plan import RepartitionSpec

S = TypeVar("S")
M = TypeVar("M")


class RepartitionOrder(Order):
    """What is made of the application that the order names.

    Attributes
    ----------
    to, into
        The new application, and the partitions of what it reads.
    new_input
        What that is.
    """

    to: str
    into: int
    new_input: str

    def command(self) -> Command:
        """Return the program that does it."""
        return Command([sys.executable, "-m", "benchmarks.rewrite_program", self.model_dump_json()])

    @property
    def made(self) -> Order:
        """The order that is for what was made."""
        names = {name: getattr(self, name) for name in Order.model_fields}
        return Order(**{**names, "application": self.to, "partitions": self.into})


def _spec(order: RepartitionOrder, source: Sequence[StorePartitionSpec]) -> RepartitionSpec:
    new = [
        source[0].model_copy(update={"application": order.to, "task": TaskId(0, number), "changelog": None})
        for number in range(order.into)
    ]
    return RepartitionSpec(
        source=source,
        new=NewApplication(order.to, {STORE: new}, None),
        partitions=order.into,
        inputs=[InputPair(input_of(order.application), order.new_input, False, 0, order.into)],
        renamed={},
        reads_from=None,
        any_partitioner=False,
        run_bytes=Settings.model_fields["restore_run_bytes"].default,
        started_ms=time.time_ns() // 1_000_000,
        parallelism=order.workers,
    )


def _ready(all_there: Barrier) -> None:
    """Have loaded what this module imports."""
    ready(all_there)


def main(order: RepartitionOrder) -> None:
    """Repartition with fresh workers, and write what it took."""
    source = specs_of(order)
    with workers(order.workers, _ready) as pool:

        def run(pieces: Sequence[S], work: Callable[[S], M], *_: object) -> list[M]:
            return list(pool.map(work, pieces))

        started = time.perf_counter()
        with repartition(_spec(order, source), run) as work:
            rows = sum(row.rows for row in work.carry_out(lambda topics: None))
        seconds = time.perf_counter() - started
    outcome = RestoreOutcome(records=rows, rows=rows, seconds=seconds)
    order.result.write_text(json.dumps(outcome._asdict()), encoding="utf-8")


if __name__ == "__main__":
    main(RepartitionOrder.model_validate_json(sys.argv[1]))
