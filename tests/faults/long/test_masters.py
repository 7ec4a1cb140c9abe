"""The process job on every kind of master: Spark tasks in other processes, which share nothing but files and Kafka."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from statestore.definitions.aggregation import AggregationDefinition
from statestore.kafka.cluster import Cluster
from statestore.model import TopicPartition, changelog_topic, repartition_topic
from statestore.reports import ProcessReport, read_report
from tests.faults.spark_cluster import SPECULATION, spark_cluster
from tests.integration import broker
from tests.integration.broker import WAIT_S, consume
from tests.integration.spark_work import alone_in_spark
from tests.integration.support import Application
from tests.oracle.rows import fold
from tests.spark.test_jobs import QUICKLY, ROOT, SUBMIT, Installation


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A standalone master with two workers on loopback, on two hosts: Spark copies a task to another host only."""
    with spark_cluster(tmp_path) as cluster:
        for number in range(2):
            cluster.start_worker(number)
        yield cluster.url


_COPIED = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from statestore_jobs import parallel
from statestore_jobs.parallel import run_each
from tests.spark.parcels import Parcel, Row, alone_for_long

spark = SparkSession.builder.getOrCreate()
directory = Path(sys.argv[1])
parallel._FIRST_ATTEMPT_S = float(sys.argv[2])
rows = run_each(spark, [Parcel(number, directory / "unpacked") for number in range(3)], alone_for_long, Row)
print("rows:", [row.number for row in rows])
spark.stop()
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("waits_s", ["600", "0"], ids=["waits", "is tired of waiting"])
def test_a_copy_of_a_spark_task_that_finds_the_locks_of_the_original_does_not_answer_for_it(
    standalone: str, tmp_path: Path, waits_s: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(_COPIED)
    settings = [part for name, value in SPECULATION.items() for part in ("--conf", f"{name}={value}")]
    command = [SUBMIT, "--master", standalone, *QUICKLY, *settings, program, tmp_path, waits_s]
    environment = {**Installation.base_environment(), "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=True)
    assert "rows: [0, 1, 2]" in ran.stdout
    # Each attempt unpacks what it is sent: there was a copy. The original was done, or the piece once more.
    assert (tmp_path / "unpacked").read_text(encoding="utf-8").split().count("1") > 1
    assert (tmp_path / "done").read_text(encoding="utf-8").split() == ["done"]


@pytest.mark.share_for("standalone", why="the master that clusters have")
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("kind", ["local-cluster", "standalone"])
def test_tasks_of_both_subtopologies_run_in_executors_of_their_own(
    kind: str, request: pytest.FixtureRequest, bootstrap_servers: str, tmp_path: Path
) -> None:
    master = "local-cluster[2,1,1024]" if kind == "local-cluster" else request.getfixturevalue("standalone")
    installation = Installation(bootstrap_servers, tmp_path)
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    by_value = AggregationDefinition(store="values", group_by="tests.integration.support:value_of", partitions=3)
    application.extend(aggregations=(by_value,))
    application.send([(b"a", b"1"), (b"a", b"2"), (b"a", b"1")], 0)
    application.send([(b"b", b"1"), (b"b", b"3")], 1)
    installation.define(application)
    with alone_in_spark() if kind == "local-cluster" else nullcontext():
        installation.submit("process", "--application", application.name, master=master, PYSPARK_PYTHON=sys.executable)
    report = read_report(installation.report("process"), ProcessReport)
    assert [row.failure for row in report.rows] == [None] * 5
    assert [(row.task, row.records_in) for row in report.rows[:2]] == [("0_0", 3), ("0_1", 2)]
    assert {row.task for row in report.rows[2:]} == {"1_0", "1_1", "1_2"}
    assert sum(row.records_in for row in report.rows[2:]) == 5
    application.assert_oracle(0)
    application.assert_oracle(1)
    broker.settle(bootstrap_servers, changelog_topic(application.name, "values"))
    counts = [
        fold(consume(bootstrap_servers, changelog_topic(application.name, "values"), number)[0]) for number in range(3)
    ]
    found = {key: int.from_bytes(row.value, "big") for partition in counts for key, row in partition.items()}
    assert found == {b"1": 3, b"2": 1, b"3": 1}
    repartition = repartition_topic(application.name, "values")
    logs = Cluster(bootstrap_servers, WAIT_S).topics.log_ranges(
        TopicPartition(repartition, number) for number in range(3)
    )
    assert all(log.start == log.high_watermark for log in logs.values()), "what was processed is deleted"
    assert not list((tmp_path / "reports" / "process").glob(".progress*"))
