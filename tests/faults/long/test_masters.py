"""The process job on every kind of master: Spark tasks in other processes, which share nothing but files and Kafka."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import psutil
import pyspark
import pytest

from statestore.changelog.topics import Topics
from statestore.model import AggregationDefinition, TopicPartition, changelog_topic, repartition_topic
from statestore.reports import ProcessReport, read_report
from tests.integration import broker
from tests.integration.broker import WAIT_S, consume, fold, wait_for
from tests.integration.spark_work import alone_in_spark
from tests.integration.support import Application
from tests.spark.test_jobs import Installation

_SPARK = Path(pyspark.__file__).parent
#: Workers and executors, besides the drivers of other tests, have little memory.
_SMALL = {"SPARK_DAEMON_MEMORY": "256m"}
#: Each takes ports that are free.
_ON_LOOPBACK = ("--host", "127.0.0.1", "--webui-port", "0")


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A standalone master with two workers on loopback."""
    log = tmp_path / "standalone.log"
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        command = [_SPARK / "bin" / "spark-class", f"org.apache.spark.deploy.{name.lower()}.{name}", *arguments]
        environment = {**Installation.base_environment(), **_SMALL}
        with log.open("ab") as output:
            started.append(subprocess.Popen(command, stdout=output, stderr=output, env=environment))

    def logged(pattern: str) -> list[str]:
        return re.findall(pattern, log.read_text(errors="replace"))

    try:
        start("Master", *_ON_LOOPBACK, "--port", "0")
        (url,) = wait_for(lambda: logged(r"Starting Spark master at (spark://\S+)"), "the master", 300)
        for _ in range(2):
            start("Worker", *_ON_LOOPBACK, "--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work"), url)
        wait_for(lambda: len(logged("Successfully registered with master")) >= 2, "workers", 300)
        yield url
    finally:
        for process in started:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        family = [process, *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for member in family:
        member.kill()
    process.wait(60)


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
    logs = Topics(bootstrap_servers, WAIT_S).log_ranges(TopicPartition(repartition, number) for number in range(3))
    assert all(log.start == log.high_watermark for log in logs.values()), "what was processed is deleted"
    assert not list((tmp_path / "reports" / "process").glob(".progress*"))
