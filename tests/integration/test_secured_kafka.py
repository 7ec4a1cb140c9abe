"""Brokers that ask who we are: every way in that a client configuration can name, and what a closed door says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.kafka import HOST
from demo.processes import Processes
from statestore.changelog.epochs import Continuity, LogEnd, compare_ends, last_epochs
from statestore.kafka import record_kernels  # noqa: F401  # else short ranges are read through librdkafka
from statestore.kafka.client import client_config
from statestore.kafka.cluster import Cluster
from statestore.kafka.open_transaction import find_open_transaction
from statestore.kafka.secure_connection import can_fetch, connect
from statestore.model import TopicPartition
from statestore.recovery.restore import restore
from statestore.reports import Status
from statestore.tasks.stream_task import run_task
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration.broker import T0, create_topic, produce, settle, transaction, unique
from tests.integration.command_line import Command
from tests.integration.secured_broker import MUTUAL, USER, SecuredBroker, configured
from tests.integration.spark_work import alone_in_spark
from tests.integration.support import Application

#: As of an offset there is a state only while nothing was compacted away.
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}
WAYS = {
    "a password": ("SASL_PLAINTEXT", "PLAIN"),
    "a salted password": ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    "TLS": ("SSL", ""),
    "a certificate": (MUTUAL, ""),
    "a password through TLS": ("SASL_SSL", "PLAIN"),
    "a salted password through TLS": ("SASL_SSL", "SCRAM-SHA-512"),
}
SCRAM_TLS = WAYS["a salted password through TLS"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    directory = tmp_path_factory.mktemp("secured")
    with Processes(directory) as processes:
        yield SecuredBroker(processes, directory)


@pytest.fixture
def application(secured: SecuredBroker, tmp_path: Path) -> Application:
    """An application with input that is not processed yet; the test itself speaks to the listener that asks nothing."""
    made = Application(secured.plain_servers, tmp_path, changelog_config=KEPT)
    made.send([(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", None)])
    return made


def live_through(application: Application, path: Path, configuration: dict[str, object]) -> None:
    """Process, lose the store, restore it and compare it with its log, all with a client configuration."""
    servers = configuration["bootstrap.servers"]
    task, store = (make(cluster=Cluster(servers, 60)) for make in (application.task_spec, application.store_spec))
    planned = application.restore_spec("full", cluster=Cluster(servers, 60))
    with configured(path, configuration):
        assert run_task(task).failure is None
    settle(application.servers, application.output, application.changelog)
    shutil.rmtree(application.live)
    with configured(path, configuration):
        assert verify(store).status is Status.MISSING
        restored = restore(planned)
        assert (restored.failure, restored.outcome) == (None, "restored")
        assert verify(store, VerifyOptions(depth="deep")).status is Status.OK
    application.assert_oracle()


@pytest.mark.short_for("a password through TLS")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_store_is_filled_lost_and_restored_through_every_way_in(
    way: tuple[str, str], secured: SecuredBroker, application: Application, tmp_path: Path
) -> None:
    configuration = secured.configuration(*way)
    with configured(tmp_path / "client.json", configuration) as servers:
        assert can_fetch(client_config(servers)), "ranges of a log are fetched on connections of our own"
    live_through(application, tmp_path / "client.json", configuration)


@pytest.mark.long
def test_settings_that_librdkafka_alone_knows_leave_all_reading_to_it(
    secured: SecuredBroker, application: Application, tmp_path: Path
) -> None:
    configuration = {**secured.configuration(*SCRAM_TLS), "enable.ssl.certificate.verification": False}
    del configuration["ssl.ca.location"]
    with configured(tmp_path / "client.json", configuration) as servers:
        assert not can_fetch(client_config(servers))
    live_through(application, tmp_path / "client.json", configuration)


@pytest.mark.long
def test_the_command_verifies_and_restores_also_as_of_an_offset(
    secured: SecuredBroker,
    application: Application,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    application.process()
    definitions = tmp_path / "application.yaml"
    definitions.write_text(application.definition.model_dump_json())
    with configured(tmp_path / "client.json", secured.configuration(*SCRAM_TLS)) as servers:
        settings = {"BOOTSTRAP_SERVERS": servers, "STATE_DIR": str(application.state_dir), "KAFKA_TIMEOUT_S": "10"}
        command = Command(monkeypatch, capfd, settings)
        chosen = ("--application", application.name, "--definitions", str(definitions))
        shutil.rmtree(application.state_dir / application.name / "0_0" / "rocksdb")
        assert command("verify", *chosen).code == 1
        assert command("restore", *chosen).code == 0
        assert command("verify", *chosen, "--depth", "deep").code == 0
        # That nothing was compacted away is told by the batches of the log, which librdkafka does not show.
        as_of = ("--mode", "as-of", "--as-of-offset", "0", "--target", str(tmp_path / "then"))
        ran = command("restore", *chosen, *as_of)
        assert ran.code == 0, ran.err


def test_a_wrong_password_is_kafka_being_unavailable_and_is_not_shown(
    secured: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = {**secured.configuration(), "sasl.password": "wrong-and-secret"}
    with configured(tmp_path / "client.json", wrong) as servers:
        settings = {"BOOTSTRAP_SERVERS": servers, "STATE_DIR": str(tmp_path / "state"), "KAFKA_TIMEOUT_S": "30"}
        ran = Command(monkeypatch, capfd, settings)("verify")
    assert ran.code == 3
    assert "Authentication failed" in ran.err
    assert "check" in ran.err
    assert "wrong-and-secret" not in ran.out + ran.err


def test_no_password_goes_to_a_broker_with_the_certificate_of_another(secured: SecuredBroker) -> None:
    port = int(secured.servers("SASL_SSL").rpartition(":")[2])
    settings = {**secured.configuration(*SCRAM_TLS), "client.id": "test"}
    with connect((HOST, port), settings, 10):
        pass
    with pytest.raises(OSError, match="certificate verify failed"):
        connect(("localhost", port), settings, 10)
    with connect(("localhost", port), {**settings, "ssl.endpoint.identification.algorithm": "none"}, 10):
        pass


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_connection_of_our_own_says_why_it_was_refused(secured: SecuredBroker, mechanism: str) -> None:
    port = int(secured.servers("SASL_PLAINTEXT").rpartition(":")[2])
    settings = {**secured.configuration("SASL_PLAINTEXT", mechanism), "client.id": "test", "sasl.password": "wrong"}
    with pytest.raises(OSError, match="refuses to authenticate us: Authentication failed"):
        connect((HOST, port), settings, 10)


@pytest.mark.long
def test_without_a_certificate_of_ours_a_broker_that_asks_for_one_is_unavailable(
    secured: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bare = {**secured.configuration("SSL"), "bootstrap.servers": secured.servers(MUTUAL)}
    with configured(tmp_path / "client.json", bare) as servers:
        settings = {"BOOTSTRAP_SERVERS": servers, "STATE_DIR": str(tmp_path / "state"), "KAFKA_TIMEOUT_S": "10"}
        ran = Command(monkeypatch, capfd, settings)("verify")
    assert ran.code == 3
    assert "SSL" in ran.err


@pytest.mark.short_for("a salted password through TLS")
@pytest.mark.parametrize("way", ["a password", "a certificate", "a salted password through TLS"])
def test_the_transaction_that_holds_back_a_log_is_found(way: str, secured: SecuredBroker, tmp_path: Path) -> None:
    topic = create_topic(secured.plain_servers, unique("open"))
    producer = transaction(secured.plain_servers, topic, [(b"a", b"1")], end="open", timestamp=T0)
    with configured(tmp_path / "client.json", secured.configuration(*WAYS[way])) as servers:
        found = find_open_transaction(Cluster(servers, 30), TopicPartition(topic, 0), 0)
    producer.abort_transaction(30)
    assert found.transactional_id is not None


@pytest.mark.long
def test_leader_epochs_are_asked_for_where_one_must_show_a_password(secured: SecuredBroker, tmp_path: Path) -> None:
    log = TopicPartition(create_topic(secured.plain_servers, unique("epochs")), 0)
    produce(secured.plain_servers, log.topic, [(b"a", b"1"), (b"a", b"2")])
    ours = secured.configuration(*SCRAM_TLS)
    theirs = {**ours, "enable.ssl.certificate.verification": False}
    del theirs["ssl.ca.location"]
    for configuration, whole in ((ours, Continuity.INTACT), (theirs, Continuity.UNKNOWN)):
        with configured(tmp_path / "client.json", configuration) as servers:
            seen = last_epochs(Cluster(servers, 60), {log: LogEnd(2, 0)})
            assert compare_ends(Cluster(servers, 60), seen)[log].continuity is whole
            beyond = {log: LogEnd(3, 0)}
            assert compare_ends(Cluster(servers, 60), beyond)[log][:2] == (Continuity.CUT, 2)


_IN_TASK = """
import os, sys
from pyspark import SparkContext
SparkContext._ensure_initialized()  # the JVM, and what it starts, do not have the variable from here
os.environ["STATESTORE_KAFKA_CONFIG"] = sys.argv[1]
from statestore_jobs.entry import spark_session
spark = spark_session("test")
def ask(batches):
    from statestore.kafka.client import client_config
    for batch in batches:
        yield batch.set_column(0, "user", [client_config("")["sasl.username"]])
print("user:", spark.range(1).mapInArrow(ask, "user string").collect()[0].user)
spark.stop()
"""


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("master", ["local[1]", "local-cluster[1,1,1024]"])
def test_spark_tasks_read_the_file_that_the_driver_names(master: str, secured: SecuredBroker, tmp_path: Path) -> None:
    script = tmp_path / "in_task.py"
    script.write_text(_IN_TASK)
    path = tmp_path / "client.json"
    path.touch(0o600)
    path.write_text(json.dumps(secured.configuration()))
    environment = {
        **{name: value for name, value in os.environ.items() if name != "STATESTORE_KAFKA_CONFIG"},
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_SUBMIT_ARGS": f"--master {master} --conf spark.ui.enabled=false pyspark-shell",
    }
    with alone_in_spark():
        done = subprocess.run(
            [sys.executable, script, path], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
    assert f"user: {USER}" in done.stdout, done.stderr[-3_000:]
    assert secured.password not in done.stdout + done.stderr
