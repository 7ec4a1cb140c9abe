"""The program that validates a store as the validate job does, part by part, and says how long each part took.

Time runs from the moment at which Spark is there. What is measured as memory is all of it: the driver, the JVM and the
Python workers.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from pydantic import BaseModel
from pyspark.sql import SparkSession
from statestore_expectations.runner import validate_store
from statestore_expectations.suites import load_suite
from statestore_jobs import python_daemon
from statestore_jobs.frames import NoFrames, compared_frames
from statestore_jobs.sources.register import register

from benchmarks.counting import Command
from benchmarks.restore_program import Order, specs_of
from benchmarks.validate_memory import JVM, PYTHON, PeakMemory
from demo.processes import ServiceError
from statestore.kafka.cluster import Cluster


class ValidationOutcome(BaseModel):
    """What the program writes: rows of the store, seconds of each part, and MiB of memory at the peak.

    Attributes
    ----------
    read
        Both sides into Spark's cache: the store, and the fold of its log.
    compare
        Their join, cached as well.
    suite
        The expectations, and the Data Docs.
    """

    rows: int
    read: float
    compare: float
    suite: float
    jvm_mib: float
    python_mib: float

    @property
    def seconds(self) -> float:
        """All parts together."""
        return self.read + self.compare + self.suite


def command_of(order: Order) -> Command:
    """Return the program that validates the order's only store, and writes its outcome into the order's result."""
    return Command([sys.executable, "-m", "benchmarks.validate_program", order.model_dump_json()])


def spark_of(workers: int) -> SparkSession:
    """Return a session on so many threads, with the sources and the validate job's settings."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark would take whatever python3 is on PATH
    spark = (
        SparkSession.builder.master(f"local[{workers}]")
        .appName("bench-validate")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(python_daemon.SETTING, python_daemon.__name__)
        .config(python_daemon.SHARED, "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    register(spark)
    return spark


def validate(order: Order, spark: SparkSession, docs: Path) -> ValidationOutcome:
    """Validate the order's only store.

    Raises
    ------
    ServiceError
        If it does not pass: the benchmark's stores are whole.
    """
    [store] = order.stores
    suite = load_suite(f"{order.application}.{store.name}", [store.kind.replace("-", "_")])
    with PeakMemory() as memory:
        started = time.perf_counter()
        with compared_frames(spark, Cluster(order.servers).topics, specs_of(order)) as frames:
            if isinstance(frames, NoFrames):
                raise ServiceError(f"store {store.name} could not be compared: {frames.why}")
            read = time.perf_counter()
            frames.comparison.count()
            compared = time.perf_counter()
            verdict = validate_store(
                spark,
                frames.store,
                frames.log,
                suite,
                run_id="bench",
                data_docs_dir=docs,
                comparison=frames.comparison,
                parameters={"partitions": order.partitions},
            )
            ended = time.perf_counter()
            rows = sum(size.keys for size in frames.sizes.values())
    if verdict.verdict != "passed":
        raise ServiceError(f"store {store.name} was to pass, found {verdict.verdict}: {verdict.detail}")
    mib = {part: size / 2**20 for part, size in memory.peak.items()}
    return ValidationOutcome(
        rows=rows,
        read=read - started,
        compare=compared - read,
        suite=ended - compared,
        jvm_mib=mib.get(JVM, 0),
        python_mib=mib.get(PYTHON, 0),
    )


def main(order: Order) -> None:
    """Validate with a fresh session, and write what it took."""
    spark = spark_of(order.workers)
    try:
        with tempfile.TemporaryDirectory(dir=order.result.parent) as docs:
            outcome = validate(order, spark, Path(docs))
    finally:
        spark.stop()
    order.result.write_text(outcome.model_dump_json(), encoding="utf-8")


if __name__ == "__main__":
    main(Order.model_validate_json(sys.argv[1]))
