"""A cluster whose nodes see nothing of each other's disks: what runs where makes no difference to what is there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from statestore.archive.archive import ArchiveSpec
from statestore.archive.layout import BUILDS, StoreDirectory
from statestore.archive.snapshots import History, histories
from statestore.kafka.cluster import Cluster
from statestore.reports import ProcessReport, RestoreReport, Status, VerifyReport, read_report
from tests.archive.s3 import BUCKET, running_s3
from tests.archive.s3 import environment as s3_environment
from tests.faults.spark_cluster import SPECULATION, SparkCluster, may_unshare, spark_cluster
from tests.integration.broker import WAIT_S, settle, wait_for
from tests.integration.support import Application
from tests.spark.test_jobs import JOB_S, QUICKLY, ROOT, SUBMIT, Installation

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

    def begin(self, job: str, *arguments: str) -> subprocess.Popen[str]:
        """Submit a job for the application to the cluster."""
        named = ("--application", self.application.name, *arguments)
        return self.start(job, *named, master=self.cluster.url, PYSPARK_PYTHON=sys.executable)

    def process(self) -> ProcessReport:
        """Process all input; no task may fail."""
        _end(self.begin("process"))
        return self.processed()

    def processed(self) -> ProcessReport:
        """Read the report of a run; no task may have failed."""
        report = read_report(self.report("process"), ProcessReport)
        assert [row.failure for row in report.rows] == [None] * PARTITIONS
        assert [found.failure for row in report.rows for found in row.snapshots] == [None] * PARTITIONS
        return report

    def restore(self, *arguments: str) -> RestoreReport:
        """Restore all store partitions; none may fail."""
        _end(self.begin("restore", *arguments))
        report = read_report(self.report("restore"), RestoreReport)
        assert [row.failure for row in report.rows] == [None] * PARTITIONS
        return report

    def verify(self, depth: str = "deep") -> VerifyReport:
        """Verify the application; each store must be whole."""
        _end(self.begin("verify", "--depth", depth))
        report = read_report(self.report("verify"), VerifyReport)
        assert [(row.task, row.status) for row in report.rows] == [
            (f"0_{number}", Status.OK) for number in range(PARTITIONS)
        ]
        return report

    def archive(self, monkeypatch: pytest.MonkeyPatch) -> ArchiveSpec:
        """Return its archive, which this process may look into."""
        for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            monkeypatch.setenv(name, self.environment[name])
        cluster = Cluster(self.application.servers, WAIT_S).topics.cluster_id()
        return ArchiveSpec(url=self.environment["STATESTORE_ARCHIVE"], cluster=cluster)

    def archived(self, monkeypatch: pytest.MonkeyPatch) -> dict[StoreDirectory, History]:
        """Return the snapshots of all store partitions."""
        archive = self.archive(monkeypatch)
        return histories(archive.open(), archive.cluster, self.application.name)

    def brought(self, report: ProcessReport) -> list[str]:
        """Return the tasks whose stores were built on their node."""
        return [row.task for row in report.rows if row.stores[0].rebuilt is not None]

    def assert_oracle(self, on: dict[int, int]) -> None:
        """Compare each partition's store on a worker's disk with the input and the log."""
        settle(self.application.servers, self.application.changelog)
        for partition, number in on.items():
            self.application.state_dir = self.cluster.disk(number)
            self.application.assert_oracle(partition)

    def wait_until_paused(self, job: subprocess.Popen[str], point: str) -> None:
        """Wait until a Python worker has stopped itself at a point."""

        def stopped() -> bool:
            assert job.poll() is None, job.communicate()[0][-3_000:]
            return self.mark.exists() and self.mark.read_text().startswith(f"{point}\n")

        wait_for(stopped, f"a worker to stop at {point}", JOB_S)

    @property
    def mark(self) -> Path:
        """File that says where a Python worker has stopped itself."""
        return self.directory / "mark"

    def pausing_at(self, point: str) -> dict[str, str]:
        """Return the environment of a worker that stops a task at a point, once."""
        return {"STATESTORE_PAUSE_AT": point, "STATESTORE_KILL_MARK": str(self.mark)}


def _end(job: subprocess.Popen[str]) -> None:
    log, _ = job.communicate(timeout=JOB_S)
    assert job.returncode == 0, log[-3_000:]


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
    assert {found.generation for found in nodes.archived(monkeypatch).values()} == {0}


@pytest.mark.parametrize(
    ("job", "arguments", "point"),
    [
        ("process", (), "Kafka committed, stores not"),
        ("process", (), "snapshot, blobs uploaded"),
        ("restore", ("--mode", "full", "--force"), "restore, built, not swapped"),
        ("restore", ("--mode", "full", "--force"), "snapshot, manifest written"),
    ],
)
def test_a_node_that_is_lost_in_the_middle_of_a_job_costs_that_job_nothing(
    nodes: Nodes, job: str, arguments: tuple[str, ...], point: str
) -> None:
    cluster = nodes.cluster
    nodes.produce(0)
    cluster.start_worker(0)
    nodes.process()
    cluster.kill_worker(0)

    nodes.produce(1)
    cluster.start_worker(1, **nodes.pausing_at(point))
    begun = nodes.begin(job, *arguments)
    nodes.wait_until_paused(begun, point)
    cluster.start_worker(2)
    cluster.kill_worker(1)
    _end(begun)
    if job == "process":
        nodes.processed()
    else:
        restored = read_report(nodes.report("restore"), RestoreReport)
        assert [(row.outcome, row.failure) for row in restored.rows] == [("restored", None)] * PARTITIONS
        nodes.process()
    nodes.assert_oracle(dict.fromkeys(range(PARTITIONS), 2))
    nodes.verify()


def test_a_node_that_wakes_when_another_one_has_done_its_work_changes_nothing(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, point = nodes.cluster, "flushed, not committed"
    nodes.produce(0)
    cluster.start_worker(0, **nodes.pausing_at(point))
    slept = nodes.begin("process")
    nodes.wait_until_paused(slept, point)
    cluster.stop_worker(0)
    slept.kill()  # as Airflow does when the task has taken too long
    slept.communicate()

    cluster.start_worker(1)
    nodes.process()
    nodes.assert_oracle(dict.fromkeys(range(PARTITIONS), 1))
    before = nodes.archived(monkeypatch)
    cluster.wake_worker(0)
    wait_for(lambda: cluster.is_idle(0), "the executor of the job that is gone to end", JOB_S)
    assert nodes.archived(monkeypatch) == before
    nodes.verify()

    nodes.produce(1)
    cluster.kill_worker(1)
    nodes.process()
    nodes.assert_oracle(dict.fromkeys(range(PARTITIONS), 0))
    assert {found.generation for found in nodes.archived(monkeypatch).values()} == {0}


def test_nodes_build_parts_of_one_store_and_none_builds_it_alone(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = nodes.cluster
    nodes.produce(0)
    nodes.produce(1)
    cluster.start_worker(0)
    nodes.process()
    cluster.start_worker(1)
    alone = nodes.restore("--mode", "full", "--force", "--ranges", "1")
    together = nodes.restore("--mode", "full", "--force", "--ranges", "3")
    assert [(row.resumed, row.digest) for row in together.rows] == [(row.records, row.digest) for row in alone.rows]
    assert [row.published.snapshot is not None for row in together.rows if row.published] == [True] * PARTITIONS
    for number in (0, 1):
        assert (cluster.disk(number) / ".statestore" / ".scratch").exists(), f"worker {number} has done no part"
    assert list(nodes.archive(monkeypatch).open().entries(BUILDS)) == []
    nodes.verify()


_COPIED = """
from functools import partial

from pyspark.sql import SparkSession
from statestore_jobs.nodes import run_here
from statestore_jobs.parallel import run_each
from statestore_jobs.planning import task_specs

from statestore.config import load_settings
from statestore.metastore.metastore import Metastore
from statestore.reports import ProcessRow

settings = load_settings()
(entry,) = Metastore.of(settings).require_running().catalogue.applications.values()
specs = task_specs(settings, settings.cluster.topics, entry.definition)
spark = SparkSession.builder.getOrCreate()
work = partial(run_here, label="copied", run_bytes=settings.restore_run_bytes)
print("failures:", [row.failure for row in run_each(spark, specs, work, ProcessRow)])
spark.stop()
"""


def test_a_copy_of_a_spark_task_on_another_node_takes_over_from_the_original(nodes: Nodes) -> None:
    cluster, point = nodes.cluster, "flushed, not committed"
    nodes.produce(0)
    cluster.start_worker(0)
    nodes.process()
    nodes.produce(1)
    cluster.kill_worker(0)
    cluster.start_worker(0, **nodes.pausing_at(point))
    cluster.start_worker(1)
    program = nodes.directory / "program.py"
    program.write_text(_COPIED)
    # The jobs' own sessions turn this off, whatever the installation sets.
    settings = [part for name, value in SPECULATION.items() for part in ("--conf", f"{name}={value}")]
    command = [SUBMIT, "--master", cluster.url, *QUICKLY, *settings, program]
    environment = {**nodes.environment, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=JOB_S, check=True)
    assert nodes.mark.read_text().startswith(f"{point}\n"), "the original has stopped"
    assert "failures: [None, None, None]" in ran.stdout
    nodes.verify()
    nodes.produce(2)
    cluster.kill_worker(0)
    nodes.process()
    nodes.assert_oracle(dict.fromkeys(range(PARTITIONS), 1))
