"""A cluster whose nodes see nothing of each other's disks: what runs where makes no difference to what is there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from statestore.archive.archive import ArchiveSpec
from statestore.archive.snapshots import histories
from statestore.changelog.topics import Topics
from statestore.reports import ProcessReport, Status, VerifyReport, read_report
from tests.archive.s3 import BUCKET, running_s3
from tests.archive.s3 import environment as s3_environment
from tests.faults.spark_cluster import SparkCluster, may_unshare, spark_cluster
from tests.integration.broker import WAIT_S, settle
from tests.integration.support import Application
from tests.spark.test_jobs import Installation

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(not may_unshare(), reason="only root may give each worker a disk of its own"),
]
PARTITIONS = 3


class Nodes(Installation):
    """An application on a cluster without a shared disk, with its archive on S3."""

    def __init__(self, servers: str, directory: Path, endpoint: str) -> None:
        super().__init__(servers, directory)
        self.application = Application(servers, directory, partitions=PARTITIONS)
        self.define(self.application)
        s3 = s3_environment(endpoint)
        self.environment |= {
            **s3,
            "STATESTORE_ARCHIVE": f"s3://{BUCKET}/{self.application.name}",
            "STATESTORE_NODE_LOCAL_STATE": "true",
        }
        self.cluster: SparkCluster

    def produce(self, number: int) -> None:
        """Send input to each partition."""
        for partition in range(PARTITIONS):
            rows = [(b"%d-key-%d" % (partition, at % 20), b"%d-%d" % (number, at)) for at in range(30)]
            self.application.send(rows, partition)

    def process(self) -> ProcessReport:
        """Process all input; no task may fail."""
        self.submit(
            "process", "--application", self.application.name, master=self.cluster.url, PYSPARK_PYTHON=sys.executable
        )
        report = read_report(self.report("process"), ProcessReport)
        assert [row.failure for row in report.rows] == [None] * PARTITIONS
        assert [found.failure for row in report.rows for found in row.snapshots] == [None] * PARTITIONS
        return report

    def verify(self, depth: str = "deep") -> VerifyReport:
        """Verify the application; each store must be whole."""
        name = self.application.name
        self.submit(
            "verify", "--application", name, "--depth", depth, master=self.cluster.url, PYSPARK_PYTHON=sys.executable
        )
        report = read_report(self.report("verify"), VerifyReport)
        assert [(row.task, row.status) for row in report.rows] == [
            (f"0_{number}", Status.OK) for number in range(PARTITIONS)
        ]
        return report

    def assert_generation(self, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Look into the archive."""
        for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            monkeypatch.setenv(name, self.environment[name])
        cluster = Topics(self.application.servers, WAIT_S).cluster_id()
        archive = ArchiveSpec(url=self.environment["STATESTORE_ARCHIVE"], cluster=cluster)
        found = histories(archive.open(), cluster, self.application.name)
        assert {one.generation for one in found.values()} == {expected}

    def brought(self, report: ProcessReport) -> list[str]:
        """Return the tasks whose stores were built on their node."""
        return [row.task for row in report.rows if row.stores[0].rebuilt is not None]

    def assert_oracle(self, on: dict[int, int]) -> None:
        """Compare each partition's store on a worker's disk with the input and the log."""
        settle(self.application.servers, self.application.changelog)
        for partition, number in on.items():
            self.application.state_dir = self.cluster.disk(number)
            self.application.assert_oracle(partition)


@pytest.fixture
def nodes(bootstrap_servers: str, tmp_path: Path) -> Iterator[Nodes]:
    with running_s3() as endpoint:
        made = Nodes(bootstrap_servers, tmp_path, endpoint)
        with spark_cluster(tmp_path, tmp_path / "state", made.environment) as cluster:
            made.cluster = cluster
            yield made


def test_every_task_moves_to_another_node_and_back(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = nodes.cluster
    nodes.produce(0)
    cluster.start_worker(0)
    assert nodes.brought(nodes.process()) == []
    nodes.assert_oracle(dict.fromkeys(range(PARTITIONS), 0))

    nodes.produce(1)
    cluster.start_worker(1)
    cluster.kill_worker(0)
    report = nodes.process()
    assert nodes.brought(report) == ["0_0", "0_1", "0_2"]
    assert [row.stores[0].restored for row in report.rows] == [0] * PARTITIONS, "nothing is replayed"
    nodes.assert_oracle(dict.fromkeys(range(PARTITIONS), 1))

    nodes.produce(2)
    cluster.start_worker(0)
    cluster.kill_worker(1)
    report = nodes.process()
    assert nodes.brought(report) == [], "the copies from before are brought to the end of their logs"
    assert {row.stores[0].restored for row in report.rows} == {30}
    nodes.assert_oracle(dict.fromkeys(range(PARTITIONS), 0))

    cluster.start_worker(1)
    nodes.verify()
    nodes.assert_generation(0, monkeypatch)
