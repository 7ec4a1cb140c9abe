"""Each job of deploy/kubernetes in a stand-in for a cluster: commands, roles, users, volumes, Spark's scheduler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from statestore.objects.path import Location, ObjectPath, listing, location
from statestore.reports import ProcessReport, RestoreReport, SnapshotReport, Status, VerifyReport, read_report
from tests.archive.s3 import BUCKET, environment, running_s3
from tests.integration.support import Application
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.manifests import DIRECTORY, composed
from tests.kubernetes.pods import Pod
from tests.spark.test_jobs import Installation

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="pods are made with mounts")
_JOB_S = 400.0
NO_ARCHIVE: Mapping[str, str] = {}
_OVERLAY = """
namespace: streams
resources: [{base}]
components: {components}
configMapGenerator:
  - name: statestore-settings
    behavior: merge
    literals: {literals}
generatorOptions: {{disableNameSuffixHash: true}}
"""


@pytest.fixture
def s3() -> Iterator[str]:
    """Endpoint of object storage, which pods reach as this process does."""
    with running_s3() as endpoint:
        yield endpoint


class Deployment:
    """What one test has applied, in a cluster of its own with a broker's address and a canary in its secret."""

    def __init__(
        self, servers: str, directory: Path, *components: str, archive: Mapping[str, str] = NO_ARCHIVE, **settings: str
    ) -> None:
        self.canary = f"canary{uuid4().hex}"
        self.installation = Installation(servers, directory)
        settings |= {"STATESTORE_SERVICE_ID": self.installation.service_id, "STATESTORE_KAFKA_TIMEOUT_S": "60"}
        overlay, place = directory / "overlay", directory / "cluster"
        overlay.mkdir()
        place.mkdir()
        base = os.path.relpath(DIRECTORY / "base", overlay)
        used = json.dumps([os.path.relpath(DIRECTORY / "components" / name, overlay) for name in components])
        literals = json.dumps([f"{name}={value}" for name, value in settings.items()])
        (overlay / "kustomization.yaml").write_text(_OVERLAY.format(base=base, components=used, literals=literals))
        credentials = {
            "kafka.json": json.dumps({"bootstrap.servers": servers}),
            "archive.json": json.dumps({**archive, "AWS_SECRET_ACCESS_KEY": self.canary}),
        }
        self.cluster = Cluster(composed(overlay), {"statestore-credentials": credentials}, place)
        self.shared = place / "statestore-shared"
        reports = settings.get("STATESTORE_REPORTS_DIR")
        self.reports: Location = self.shared / "reports" if reports is None else location(reports)

    @contextmanager
    def running(self) -> Iterator[Deployment]:
        """Run the cluster."""
        with self.cluster.served():
            yield self

    def run(self, job: str, *arguments: str, ends: int = 0) -> Pod:
        """Run a job, which must end with an exit code; return the pod of its driver."""
        pod = self.cluster.run(f"statestore-{job}", *arguments, timeout_s=_JOB_S)
        assert pod.exit_code == ends, pod.log.read_text(encoding="utf-8")[-5_000:]
        return pod

    def report(self, pod: Pod) -> Location:
        """Where the report of a driver is."""
        job = pod.name.split("-")[1]
        return self.reports / job / f"{pod.name}.json"

    def executors(self, job: str) -> list[Pod]:
        """Return the executors of a job's runs."""
        return [pod for name, pod in self.cluster.started.items() if f"-{job}-" in name and "-exec-" in name]

    def assert_secrets_kept(self) -> None:
        """Nothing of the secret is anywhere but in its files."""
        for pod in self.cluster.started.values():
            assert self.canary not in json.dumps([pod.manifest, pod.environment]), pod.name
            assert self.canary not in pod.log.read_text(encoding="utf-8"), pod.name
        for path in self.shared.rglob("*"):
            assert not path.is_file() or self.canary.encode() not in path.read_bytes(), path
        if isinstance(self.reports, ObjectPath):
            kept = listing(self.reports, "*/*.json")
            assert kept
            assert not [path for path in kept if self.canary.encode() in path.read_bytes()]


@needs_root
def test_each_job_does_its_work_on_a_shared_file_system(bootstrap_servers: str, tmp_path: Path) -> None:
    deployment = Deployment(
        bootstrap_servers,
        tmp_path,
        "shared",
    )
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    application.send([(b"a", b"1"), (b"a", b"1")], 0)
    application.send([(b"b", b"1")], 1)
    deployment.installation.define(application)
    with deployment.running():
        processed = deployment.run("process")
        rows = read_report(deployment.report(processed), ProcessReport).rows
        assert [(row.task, row.records_in, row.failure) for row in rows] == [("0_0", 2, None), ("0_1", 1, None)]

        # Spark has asked for executors as the template says, and as it says itself.
        executors = deployment.executors("process")
        assert len(executors) == 2
        for pod in executors:
            (container,) = pod.manifest["spec"]["containers"]
            assert (container["name"], container["image"]) == ("executor", processed.environment["EXECUTOR_IMAGE"])
            assert container["args"] == ["executor"]
            assert pod.manifest["spec"]["serviceAccountName"] == "statestore-executor"
            (owner,) = pod.manifest["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("Pod", processed.name)
            assert "Successfully registered with driver" in pod.log.read_text(encoding="utf-8")
        assert not any(map(deployment.cluster.is_there, executors))
        assert {path.stat().st_uid for path in (deployment.shared / "state").rglob("*")} == {50_000}

        shutil.rmtree(deployment.shared / "state" / application.name / "0_0")
        verified = deployment.run("verify", ends=1)
        found = deployment.report(verified)
        assert [row.status for row in read_report(found, VerifyReport).rows] == [Status.MISSING, Status.OK]

        in_pod = Path("/var/lib/statestore/shared/reports") / "verify" / found.name
        restored = deployment.run("restore", "--verify-report", str(in_pod))
        assert [row.outcome for row in read_report(deployment.report(restored), RestoreReport).rows] == ["restored"]
        assert list((deployment.shared / "compiled").rglob("*.nbc"))

        deployment.run("maintenance")

    used, allows = deployment.cluster.used, deployment.cluster.allows
    assert deployment.cluster.denied == set()
    # What Spark needs besides: it deletes an executor's pod that has failed.
    assert allows - {("statestore", *request) for request in used} == {("statestore", "delete", "pods")}
    deployment.assert_secrets_kept()


@needs_root
def test_jobs_work_on_a_disk_of_each_pod_which_is_gone_with_it(
    bootstrap_servers: str, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"s3://{BUCKET}/{uuid4().hex}"
    deployment = Deployment(
        bootstrap_servers,
        tmp_path,
        archive=environment(s3),
        STATESTORE_ARCHIVE=f"{place}/archive",
        STATESTORE_REPORTS_DIR=f"{place}/reports",
        STATESTORE_DATA_DOCS_DIR=f"{place}/data-docs",
    )
    for name, value in environment(s3).items():
        monkeypatch.setenv(name, value)
    application = Application(bootstrap_servers, tmp_path, partitions=1)
    application.send([(b"a", b"1")], 0)
    deployment.installation.define(application)
    with deployment.running():
        deployment.run("process")
        application.send([(b"a", b"2")], 0)
        processed = deployment.run("process")
        (row,) = read_report(deployment.report(processed), ProcessReport).rows
        assert (row.records_in, row.stores[0].restored) == (1, 0)
        assert "it is not on this node" in row.stores[0].rebuilt

        verified = deployment.run("verify", "--depth", "deep")
        (found,) = read_report(deployment.report(verified), VerifyReport).rows
        assert (found.status, found.keys) == (Status.OK, 1)

        made = deployment.run("snapshot", "--application", application.name)
        (archived,) = read_report(deployment.report(made), SnapshotReport).rows
        assert archived.snapshot
        assert listing(location(place), f"archive/stores/*/*/*/*/{archived.snapshot}.json")
        restored = deployment.run("restore", "--verify-report", str(deployment.report(verified)))
        assert read_report(deployment.report(restored), RestoreReport).rows == ()
        deployment.run("maintenance")
        assert listing(deployment.reports, "*/.progress-*") == []
        assert not deployment.shared.exists()
    deployment.assert_secrets_kept()


def test_the_entrypoint_runs_a_driver_of_deploy_mode_cluster(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from pyspark.sql import SparkSession\n"
        "conf = SparkSession.builder.getOrCreate().sparkContext.getConf()\n"
        "print('bound to', conf.get('spark.driver.bindAddress'), conf.get('spark.submit.deployMode'))\n"
        "raise SystemExit(3)\n"
    )
    # As KubernetesDriverBuilder has it.
    properties = tmp_path / "spark.properties"
    properties.write_text("spark.master=local[1]\nspark.ui.enabled=false\nspark.submit.deployMode=cluster\n")
    command = [DIRECTORY / "entrypoint.sh", "driver", "--properties-file", properties]
    command += ["--class", "org.apache.spark.deploy.PythonRunner", program]
    environment = {**Installation.base_environment(), "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert "bound to 127.0.0.1 client" in done.stdout, done.stderr[-3_000:]
    assert done.returncode == 3
