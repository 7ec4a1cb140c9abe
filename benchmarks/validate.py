"""`make bench-validate`: the Spark sources beside Parquet, and the validation of stores of one million rows and more.

The sources read the same rows as Parquet holds, in one Spark session on two cores; a figure is rows/s, each round with
a query of its own. Validation is the validate job's work in a program of its own: reading both sides, comparing them,
the suite; figures are seconds, and memory at its peak.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.command import Asked, main
from benchmarks.measure import SMALL, Case, Result, measure
from benchmarks.process_input import Broker, delete_topic
from benchmarks.restore_log import STORE, Log, LogShape, fill
from benchmarks.restore_program import Order
from benchmarks.restore_run import seconds_of
from benchmarks.validate_memory import JVM, PYTHON
from benchmarks.validate_plot import draw
from benchmarks.validate_program import ValidationOutcome, command_of, spark_of, validate
from benchmarks.validate_shapes import CHECKSUM, COUNT, MEMORY, PARTS, SIZES, SOURCE_ROWS, VALIDATE, case_of
from benchmarks.validate_small import CASE as SMALL_STORES
from benchmarks.validate_small import SmallStores
from demo.kafka_jars import check_disk
from demo.processes import Processes, ServiceError
from statestore.definitions.store import StoreDefinition
from statestore.model import StoreFormat

CORES = 2
PARTITIONS = 2 if SMALL else 4
ROUNDS = 1 if SMALL else 5
VALIDATIONS = 1 if SMALL else 2
#: Of the command, whose time is Spark's more than the rows'.
_COMMANDS = 3
_DISK_GIB = 3 if SMALL else 20
_STORE = StoreDefinition(name=STORE, format=StoreFormat.TIMESTAMPED)
#: Left out of a look.
_NOT_SMALL = ("ours, changelog", "ours, changelog, latest")
_COLUMNS = ("partition", "key", "value", "timestamp")

Frame = Callable[[], DataFrame]


def checksum(frame: DataFrame) -> tuple[object, ...]:
    """Count the rows and add up their hashes, for which every byte is read."""
    hashed = F.xxhash64(*_COLUMNS).cast("decimal(38,0)")
    return tuple(frame.agg(F.count("*"), F.sum(hashed)).collect()[0])


def count(frame: DataFrame) -> tuple[object, ...]:
    """Count the rows. Of Parquet files that is read from their ends alone."""
    return (frame.count(),)


#: What is asked of each source, by the name of the case.
QUERIES = {CHECKSUM: checksum} if SMALL else {COUNT: count, CHECKSUM: checksum}


def frames_of(spark: SparkSession, order: Order, log: Log, parquet: Path) -> dict[str, Frame]:
    """Return ways to read the same rows, by the name of the system; each call is a query from the beginning."""
    store = {"state_dir": str(order.state_dir), "application": order.application, "store": STORE}
    changelog = {"bootstrap_servers": log.servers, "topic": log.topic}

    def source(name: str, options: Mapping[str, str]) -> Frame:
        return lambda: spark.read.format(name).options(**options).load()

    return {
        "ours": source("state_store", {**store, "format": _STORE.format.value}),
        "ours, changelog": source("changelog", changelog),
        "ours, changelog, latest": source("changelog", {**changelog, "latest": "true"}),
        "Parquet": lambda: spark.read.parquet(str(parquet)),
    }


def sources(spark: SparkSession, order: Order, log: Log, scratch: Path, asked: Asked) -> list[Result]:
    """Measure all sources, which must find the same rows."""
    parquet = scratch / "parquet"
    frames = frames_of(spark, order, log, parquet)
    frames["ours"]().write.parquet(str(parquet))
    expected = {case: query(frames["Parquet"]()) for case, query in QUERIES.items()}

    def rate(name: str, case: str) -> float:
        started = time.perf_counter()
        found = QUERIES[case](frames[name]())
        seconds = time.perf_counter() - started
        if found != expected[case]:
            raise ServiceError(f"{name}: {case} gave {found}, expected {expected[case]} as of Parquet")
        return log.rows / seconds

    chosen = asked.systems(frames, _NOT_SMALL)
    for name in chosen:  # code is compiled once for a session, and kernels once for an installation
        if name in _NOT_SMALL:  # the others have been read above
            rate(name, CHECKSUM)
    cases = [
        Case(case_of(case, log.rows), "rows/s", {name: partial(rate, name, case) for name in chosen})
        for case in QUERIES
        if asked.part in case_of(case, log.rows)
    ]
    return measure(cases, ROUNDS, asked=asked.rounds)


def validated_alone(processes: Processes, order: Order, scratch: Path) -> ValidationOutcome:
    """Validate the order's store by a program of its own."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        result = Path(directory) / "result.json"
        seconds_of(processes, command_of(order.model_copy(update={"result": result})), Path(directory), CORES)
        return ValidationOutcome.model_validate_json(result.read_text(encoding="utf-8"))


def validation(validated: Callable[[], ValidationOutcome], rows: int, rounds: int) -> list[Result]:
    """Measure the validation of a store of so many rows."""
    found = [validated() for _ in range(rounds)]
    if wrong := [outcome.rows for outcome in found if outcome.rows != rows]:
        raise ServiceError(f"a store of {rows:,} rows was validated, found {wrong[0]:,}")
    figures: tuple[tuple[str, str, str, Callable[[ValidationOutcome], float]], ...] = (
        (VALIDATE, "ours", "s", attrgetter("seconds")),
        *((VALIDATE, f"ours, {part}", "s", attrgetter(part)) for part in PARTS),
        (MEMORY, "ours", "MiB", lambda outcome: outcome.jvm_mib + outcome.python_mib),
        (MEMORY, f"ours, {JVM}", "MiB", attrgetter("jvm_mib")),
        (MEMORY, f"ours, {PYTHON}", "MiB", attrgetter("python_mib")),
    )
    return [
        Result(case_of(work, rows), system, unit, [figure(outcome) for outcome in found])
        for work, system, unit, figure in figures
    ]


def run(asked: Asked) -> list[Result]:
    """Start a broker, and measure store by store."""
    reading = [case_of(query, SOURCE_ROWS) for query in QUERIES]
    asked.require_some([SMALL_STORES, *reading, *(case_of(VALIDATE, rows) for rows in SIZES)])
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as directory, Processes(Path(directory)) as processes:
        scratch = Path(directory)
        check_disk(scratch, _DISK_GIB, "make bench-validate")
        servers = Broker(processes, scratch / "kafka").start()
        if asked.part in SMALL_STORES and not SMALL:
            stores = SmallStores(processes, servers, scratch / "small")
            seconds = [stores.validated() for _ in range(asked.rounds or _COMMANDS)]
            results.append(Result(SMALL_STORES, "ours", "s", seconds))
        for rows in SIZES:
            read = rows == SOURCE_ROWS and any(asked.part in case for case in reading)
            validated = asked.part in case_of(VALIDATE, rows)
            if not (read or validated):
                continue
            log = fill(servers, f"bench-{rows}", LogShape(rows, per_key=1, partitions=PARTITIONS))
            order = _restored(processes, log, scratch / f"state-{rows}")
            rounds = asked.rounds or VALIDATIONS
            if read or SMALL:
                with _session() as spark:
                    if read:
                        results += sources(spark, order, log, scratch, asked)
                    if validated and SMALL:  # for a look a session that has started will do
                        results += validation(partial(validate, order, spark, scratch / "docs"), rows, rounds)
            if validated and not SMALL:
                results += validation(partial(validated_alone, processes, order, scratch), rows, rounds)
            delete_topic(servers, log.topic)
            shutil.rmtree(order.state_dir)
    return results


@contextmanager
def _session() -> Iterator[SparkSession]:
    spark = spark_of(CORES)
    try:
        yield spark
    finally:
        spark.stop()


def _restored(processes: Processes, log: Log, state_dir: Path) -> Order:
    """Have the log's store made, and return what `validate_program` is told of it."""
    order = Order(
        work="restore",
        servers=log.servers,
        application=log.application,
        stores=(_STORE,),
        partitions=log.shape.partitions,
        workers=CORES,
        state_dir=state_dir,
        result=state_dir.with_suffix(".json"),
    )
    seconds_of(processes, order.command(), state_dir.parent, CORES)
    return order


if __name__ == "__main__":
    main("validate", run, lambda name, results: draw(Path(f"docs/benchmarks/{name}.svg"), results))
