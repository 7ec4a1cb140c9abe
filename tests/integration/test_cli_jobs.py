"""The `statestore` command from end to end without Airflow: process, verify, restore, validate, and their reports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from statestore.metastore.evolution import partitions_of
from tests.integration.broker import NO_BROKER, wait_for
from tests.integration.catalogued import CatalogueCommand
from tests.integration.support import STORE, Application, put


@pytest.fixture
def application(command: CatalogueCommand, tmp_path: Path) -> Application:
    """An application in the catalogue, with input that nobody has processed."""
    made = Application(command.servers, tmp_path, partitions=2)
    put(command.metastore, made.definition, partitions_of(made.definition, made.partitions))
    for partition in range(made.partitions):
        made.send([(b"key", b"1"), (b"key", b"2")], partition)
    return made


@pytest.mark.long
@pytest.mark.timeout(900)
def test_all_that_the_dags_do_is_done_by_commands(
    command: CatalogueCommand, application: Application, tmp_path: Path
) -> None:
    processed = command.shown("process", "--application", application.name, "--parallel", "2")["rows"]
    assert [(row["task"], row["records_in"]) for row in processed] == [("0_0", 2), ("0_1", 2)]
    contents = application.contents(1)

    live = application.store_spec(1).live
    (live / "CURRENT").write_text("MANIFEST-999999\n")
    assert [row["status"] for row in command.shown("verify", "--parallel", "1", code=1)["rows"]] == ["OK", "CORRUPT"]
    (found,) = (tmp_path / "reports" / "verify").glob("*.json")
    assert command.shown("report", "verify", code=1)["rows"] == command.shown("report", str(found), code=1)["rows"]

    planned = command.shown("restore", "--verify-report", str(found), "--dry-run", "--parallel", "1")["rows"]
    assert [(row["task"], row["mode"]) for row in planned] == [("0_1", "full")]
    assert not (tmp_path / "reports" / "restore").exists(), "a plan is no result"
    (restored,) = command.shown("restore", "--verify-report", str(found), "--parallel", "1")["rows"]
    assert Path(restored["quarantine"]).is_dir()

    (report,) = (tmp_path / "reports" / "restore").glob("*.json")
    validated = command.shown("validate", "--restore-report", str(report), "--parallel", "2")["rows"]
    assert [(row["task"], row["verdict"]) for row in validated] == [("0_1", "passed")]
    assert (tmp_path / "data-docs" / "index.html").is_file()
    assert not Path(restored["quarantine"]).exists()
    assert application.contents(1) == contents

    places = [row["place"] for row in command.shown("maintain", "--dry-run", "--parallel", "2")["rows"]]
    assert {f"{application.name}/0_0", f"{application.name}/0_1"} < set(places)


@pytest.mark.short_for("KafkaUnavailableError")
@pytest.mark.parametrize(
    ("arguments", "settings", "kind", "code"),
    [
        (["process", "--application", "no-such"], {}, "UnknownApplicationError", 2),
        (["process"], {"BOOTSTRAP_SERVERS": NO_BROKER, "KAFKA_TIMEOUT_S": "1"}, "KafkaUnavailableError", 3),
        (["process", "--conf", "spark.cores.max"], {}, "InputError", 2),
        (["validate"], {}, "InputError", 2),
        (["validate", "--store", "counts"], {}, "InputError", 2),
        (["process", "--reports-dir", "/dev/null/reports"], {}, "InputError", 2),
    ],
)
def test_a_job_that_cannot_begin_ends_the_command_as_it_would_end_itself(
    command: CatalogueCommand, arguments: list[str], settings: dict[str, str], kind: str, code: int
) -> None:
    ran = command(*arguments, "--json", "-", **settings)
    error = json.loads(ran.err.splitlines()[-1])
    assert (ran.code, ran.out) == (code, ""), ran.err
    assert (error["kind"], error["exit_code"], error["retriable"]) == (kind, code, code == 3)


@pytest.mark.long
def test_no_process_of_a_job_outlives_the_command_that_started_it(
    command: CatalogueCommand, application: Application, tmp_path: Path
) -> None:
    environment = {**os.environ, **{f"STATESTORE_{name}": value for name, value in command.settings.items()}}
    started = subprocess.Popen(
        [sys.executable, "-m", "statestore.cli", "process", "--parallel", "1"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        parent = psutil.Process(started.pid)

        def with_jvm() -> list[psutil.Process]:
            assert started.poll() is None
            with suppress(psutil.NoSuchProcess):  # what spark-submit's scripts run ends between listing and asking
                found = parent.children(recursive=True)
                if any(process.name() == "java" for process in found):
                    return found
            return []

        children = wait_for(with_jvm, "the JVM to start", 120)
    finally:
        started.kill()
        started.wait()
    _, alive = psutil.wait_procs(children, timeout=120)
    assert alive == []
    shutil.rmtree(tmp_path / "state", ignore_errors=True)


def test_what_is_in_use_is_listed_and_read_as_json_by_the_names_that_reports_have(
    command: CatalogueCommand, application: Application
) -> None:
    for partition in range(application.partitions):
        assert application.run(partition).failure is None
    listed = command.shown("partitions")["rows"]
    assert [(row["application"], row["store"], row["task"], row["state"]) for row in listed] == [
        (application.name, STORE, f"0_{partition}", "sealed") for partition in range(2)
    ]
    assert [row["committed"] for row in listed] == [application.committed(partition) for partition in range(2)]
    assert all(row["start"] <= row["committed"] < row["end"] for row in listed)
    found = command.shown("read", STORE, "key", "--key-serde", "utf8", "--value-serde", "utf8")["rows"]
    assert [(row["task"], row["value"]) for row in found] == [("0_0", "2"), ("0_1", "2")]
    assert {type(row["timestamp"]) for row in found} == {int}
    assert command.shown("read", STORE, "00", code=1)["rows"] == []
