"""The jobs as Airflow starts them, through spark-submit: a report, or one clear line and an exit code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from statestore_jobs.parallel import run_each

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import RetryError
from statestore.kafka.cluster import Cluster
from statestore.metastore.command_topic import topic_name
from statestore.metastore.evolution import partitions_of
from statestore.metastore.metastore import Metastore
from statestore.metastore.view import Pin
from statestore.reports import ProcessReport, ProcessRow, RestoreReport, Status, VerifyReport, read_report
from statestore.statedir.lock import locked
from statestore.tasks.stream_task import run_task
from statestore.verification.history import read_history
from tests.integration import broker
from tests.integration.broker import NO_BROKER, unique, wait_for
from tests.integration.support import STORE, Application, put
from tests.otlp import receiving

ROOT = Path(__file__).parents[2]
SUBMIT = Path(sys.executable).parent / "spark-submit"
#: A job takes ten seconds, unless the machine has other work.
JOB_S = 300
QUICKLY = ("--conf", "spark.ui.enabled=false")


class Installation:
    """Catalogue, reports and environment of one test."""

    def __init__(self, servers: str, directory: Path) -> None:
        self.directory = directory
        self.service_id = unique("service")
        self.metastore = Metastore(Cluster(servers, 60), self.service_id)
        self.environment = {
            **self.base_environment(),
            "STATESTORE_BOOTSTRAP_SERVERS": servers,
            "STATESTORE_STATE_DIR": str(directory / "state"),
            "STATESTORE_REPORTS_DIR": str(directory / "reports"),
            "STATESTORE_SERVICE_ID": self.service_id,
            "STATESTORE_DATA_DOCS_DIR": str(directory / "docs"),
            "STATESTORE_KAFKA_TIMEOUT_S": "60",
        }

    @staticmethod
    def base_environment() -> dict[str, str]:
        """Environment of everything of Spark."""
        return {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

    def define(self, application: Application) -> Pin:
        """Put the application into the catalogue, and return the pin of that."""
        definition = application.definition
        return put(self.metastore, definition, partitions_of(definition, application.partitions))

    def report(self, job: str) -> Path:
        """Where a job's report goes."""
        return self.directory / "reports" / job / "run-1.json"

    def start(self, job: str, *arguments: str, master: str = "local[2]", **environment: str) -> subprocess.Popen[str]:
        """Submit a job."""
        return subprocess.Popen(
            [
                SUBMIT,
                "--master",
                master,
                *QUICKLY,
                ROOT / "jobs" / f"{job}.py",
                "--report",
                self.report(job),
                *arguments,
            ],
            env={**self.environment, **environment},
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # spark-submit writes a driver's errors to its own output, too
            text=True,
        )

    def submit(self, job: str, *arguments: str, **how: str) -> None:
        """Submit a job that must succeed."""
        process = self.start(job, *arguments, **how)
        log, _ = process.communicate(timeout=JOB_S)
        assert process.returncode == 0, log[-3_000:]


@pytest.fixture
def installation(bootstrap_servers: str, tmp_path: Path) -> Installation:
    return Installation(bootstrap_servers, tmp_path)


@pytest.mark.long
def test_process_verify_and_restore_end_to_end(
    installation: Installation, bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    application.send([(b"a", b"1"), (b"a", b"1")], 0)
    application.send([(b"b", b"1")], 1)
    pin = installation.define(application)
    with receiving() as collector:
        installation.environment |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_SERVICE_NAME": "shop",
            "STATESTORE_METRICS_RECORDING_LEVEL": "DEBUG",
        }
        _run_end_to_end(installation, application, pin)
    assert [resource["service.name"] for resource in collector.resources] == ["shop"] * 3, "one request for each job"
    of = {"application": application.name}
    ended = {job: collector.last("statestore.job.exit_code", job_name=job, **of) for job in ("process", "verify")}
    assert ended == {"process": 0, "verify": 0}
    records = [collector.last("statestore.process.records", task_id=task, **of) for task in ("0_0", "0_1")]
    assert records == [2, 1]
    assert (collector.last("commit-rate", rocksdb_state_id=STORE, task_id="0_0", **of) or 0) > 0
    found = [
        collector.last("statestore.store.partitions", status=status, **of) for status in ("MISSING", "OK", "CORRUPT")
    ]
    assert found == [1, 1, 0]
    assert collector.last("statestore.restore.partitions", outcome="restored", **of) == 1


def _run_end_to_end(installation: Installation, application: Application, pin: Pin) -> None:
    tmp_path = installation.directory
    installation.submit("process", "--application", application.name)
    processed = read_report(installation.report("process"), ProcessReport)
    assert (processed.run_id, processed.applications, processed.catalogue) == ("run-1", (application.name,), str(pin))
    assert [(row.task, row.records_in, row.failure) for row in processed.rows] == [("0_0", 2, None), ("0_1", 1, None)]

    shutil.rmtree(application.live)
    installation.submit("verify")
    found = read_report(installation.report("verify"), VerifyReport)
    assert [(row.task, row.status) for row in found.rows] == [("0_0", Status.MISSING), ("0_1", Status.OK)]
    # Since then the process job has recorded the internal topics.
    assert found.catalogue == str(installation.metastore.view().pin) != str(pin)

    installation.submit("restore", "--verify-report", str(installation.report("verify")))
    restored = read_report(installation.report("restore"), RestoreReport)
    assert [(row.task, row.outcome, row.keys) for row in restored.rows] == [("0_0", "restored", 1)]
    assert restored.catalogue == found.catalogue
    application.assert_oracle(0)
    application.assert_oracle(1)
    reports = tmp_path / "reports"
    left = sorted(str(path.relative_to(reports)) for path in reports.rglob("*") if path.is_file())
    backup = f"metastore/{installation.service_id}.backup"
    jobs = [f"{job}/run-1.json" for job in ("process", "restore", "verify")]
    assert left == sorted(["history/verify/run-run-1.parquet", backup, f"{backup}.lock", *jobs])
    assert read_history(reports).column("status").to_pylist() == ["MISSING", "OK"]


@pytest.fixture
def known(installation: Installation) -> ApplicationDefinition:
    """The application that the catalogue has; nothing of it is in Kafka."""
    stores = (StoreDefinition(name="counts"),)
    defined = ApplicationDefinition(name="known", input_topic="in", processor="a:b", stores=stores)
    put(installation.metastore, defined, {"in": 1})
    return defined


def _assert_one_line(started: subprocess.Popen[str], code: int, line: str) -> None:
    log, _ = started.communicate(timeout=JOB_S)
    ours = [found for found in log.splitlines() if found.startswith(("process:", "verify:", "restore:"))]
    ours = [found for found in ours if ": definitions of catalogue " not in found]
    assert (started.returncode, len(ours)) == (code, 1), log[-3_000:]
    assert ours[0].startswith(line)
    assert "Traceback" not in log


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "environment", "code", "line"),
    [
        pytest.param(
            ["verify", "--application", "unknown"],
            {},
            2,
            "verify: UnknownApplicationError: no application 'unknown' is defined; the applications are: known",
            id="unknown application",
        ),
        pytest.param(
            ["restore", "--application", "known", "--catalogue", "7"],
            {},
            2,
            "restore: InputError: '7' is not the pin of a catalogue",
            id="malformed pin",
        ),
        pytest.param(
            ["restore", "--application", "known"],
            {"STATESTORE_BOOTSTRAP_SERVERS": NO_BROKER, "STATESTORE_KAFKA_TIMEOUT_S": "1"},
            3,
            "restore: KafkaUnavailableError: ",
            id="unreachable broker",
        ),
        pytest.param(
            ["verify"],
            {"STATESTORE_STATE_DIR": "", "STATESTORE_KAFKA_TIMEOUT_S": "soon"},
            2,
            "verify: InputError: the environment variables of this installation are invalid: STATESTORE_STATE_DIR: ",
            id="no settings",
        ),
    ],
)
def test_bad_input_and_an_unreachable_broker_end_with_one_clear_line(
    installation: Installation,
    known: ApplicationDefinition,
    arguments: list[str],
    environment: dict[str, str],
    code: int,
    line: str,
) -> None:
    with receiving() as collector:
        sent_to = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        _assert_one_line(installation.start(*arguments, **environment, **sent_to), code, line)
    assert collector.last("statestore.job.exit_code", job_name=arguments[0]) == code
    assert not list((installation.directory / "reports").rglob("*.json"))


@pytest.mark.long
def test_a_job_does_not_begin_on_a_catalogue_that_nobody_can_be_certain_of(
    installation: Installation, known: ApplicationDefinition, bootstrap_servers: str
) -> None:
    degraded = unique("service")
    put(Metastore(Cluster(bootstrap_servers, 60), degraded), known, {"in": 1})
    broker.produce(bootstrap_servers, topic_name(degraded), [(b"application/known", b"no command")])
    started = installation.start("process", STATESTORE_SERVICE_ID=degraded)
    _assert_one_line(started, 2, "process: MetastoreDegradedError: ")
    assert not list((installation.directory / "reports").rglob("*.json"))


@pytest.mark.long
def test_a_retry_uses_the_definitions_that_the_first_attempt_used(
    installation: Installation, bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.send([(b"a", b"1"), (b"a", b"2"), (b"b", b"1")])
    pin = installation.define(application)
    arguments = ("--application", application.name, "--catalogue", str(pin))
    first = installation.start("process", *arguments, STATESTORE_KILL_AT="flushed, not committed")
    log, _ = first.communicate(timeout=JOB_S)
    assert first.returncode == RetryError.exit_code, log[-3_000:]
    report = read_report(installation.report("process"), ProcessReport)
    assert [row.failure and row.failure.kind for row in report.rows] == ["WorkerLostError"], "O8: it was killed"

    changed = application.definition.model_copy(update={"processor": "tests.integration.support:echo"})
    put(installation.metastore, changed, {application.input: 1})
    installation.submit("process", *arguments)

    report = read_report(installation.report("process"), ProcessReport)
    assert (report.catalogue, [row.failure for row in report.rows]) == (str(pin), [None])
    application.assert_oracle()  # counts, where the definition of now would have kept the values


@pytest.mark.long
def test_driver_and_workers_end_with_the_jvm_and_leave_no_report(
    installation: Installation, bootstrap_servers: str, tmp_path: Path
) -> None:
    # Airflow kills only what it started: spark-submit's JVM.
    application = Application(bootstrap_servers, tmp_path, processor="block")
    reached = tmp_path / "reached"
    application.send([(b"a", str(reached).encode())])
    installation.define(application)
    process = installation.start("process")
    children: list[psutil.Process] = []
    try:
        wait_for(reached.exists, "the Spark task to process its record", JOB_S)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) > 1  # the Python driver, and the daemon that forks the workers
        process.kill()
        process.communicate(timeout=JOB_S)
        _, alive = psutil.wait_procs(children, timeout=JOB_S)
        assert alive == []
    finally:
        for orphan in (process, *children):
            if isinstance(orphan, subprocess.Popen) or orphan.is_running():
                orphan.kill()
    assert not installation.report("process").exists()
    # Nothing of the transaction was committed, and the next run takes over at once.
    assert application.defined(processor="tests.integration.support:count").process().records_in == 1
    application.assert_oracle()


@pytest.mark.long
def test_a_locked_task_discards_no_report(installation: Installation, bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    for partition in range(2):
        application.send([(b"a", b"1")], partition)
    installation.define(application)
    with locked(application.task_spec(0).paths, 60):
        process = installation.start("process")
        log, _ = process.communicate(timeout=JOB_S)
    assert process.returncode == RetryError.exit_code, log[-3_000:]
    report = read_report(installation.report("process"), ProcessReport)
    assert [(row.task, row.failure and row.failure.kind, row.records_in) for row in report.rows] == [
        ("0_0", "LockedError", 0),
        ("0_1", None, 1),
    ]
    assert f"the report is at {installation.report('process')}" in log
    application.assert_oracle(1)


@pytest.mark.long
@pytest.mark.parametrize("arguments", [(), ("--live",)])
def test_the_job_verifies_a_store_in_use(
    installation: Installation, bootstrap_servers: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    installation.define(application)
    for partition in range(2):
        application.send([(b"a", b"1")], partition)
        assert application.run(partition).failure is None
    with locked(application.task_spec(0).paths, 60):
        installation.submit("verify", "--depth", "deep", "--rate", "100", *arguments)
    report = read_report(installation.report("verify"), VerifyReport)
    other = Status.PROVEN if arguments else Status.OK
    assert [(row.task, row.status) for row in report.rows] == [("0_0", Status.PROVEN), ("0_1", other)]


_SPECULATION = """
from statestore_jobs.entry import spark_session
spark = spark_session("test")
print("speculation:", spark.sparkContext.getConf().get("spark.speculation"))
spark.stop()
"""


@pytest.mark.long
def test_our_session_makes_no_copies_of_tasks_whatever_an_installation_sets(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_SPECULATION)
    command = [SUBMIT, "--master", "local[1]", *QUICKLY, "--conf", "spark.speculation=true", program]
    environment = {**Installation.base_environment(), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=JOB_S, check=True)
    assert "speculation: false" in ran.stdout


@pytest.mark.long
def test_r13_one_failing_task_does_not_stop_the_others(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path, processor="count_or_fail", partitions=3)
    for partition, value in enumerate((b"1", b"poison", b"1")):
        application.send([(b"key-%d" % partition, value)], partition)
    rows = run_each(spark, [application.task_spec(partition) for partition in range(3)], run_task, ProcessRow)
    assert [row.task for row in rows] == ["0_0", "0_1", "0_2"]
    assert [row.failure.kind if row.failure else None for row in rows] == [None, "ProcessingError", None]
    application.assert_oracle(0)
    application.assert_oracle(2)
    assert not broker.consume(bootstrap_servers, application.changelog, 1)[0]
