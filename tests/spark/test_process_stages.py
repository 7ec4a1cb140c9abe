"""Tasks behind a repartition topic wait for every earlier task of their application, and for no other application's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from statestore_jobs import process, validate, verify

from statestore.archive.archive import open_archive
from statestore.archive.pins import find_set
from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.metastore.metastore import Metastore
from statestore.model import TaskId, TopicPartition
from statestore.reports import ProcessReport
from statestore.requests.process import ProcessRequest
from statestore.requests.validate import ValidateRequest
from statestore.requests.verify import VerifyRequest
from statestore.statedir.lock import locked
from statestore.statedir.paths import TaskPaths
from tests.integration.broker import T0, delete_topic, group_offset, produce, unique
from tests.integration.catalogued import BY_VALUE, defined
from tests.integration.support import register

MINUTE = 60_000
WINDOWED = {**BY_VALUE, "windows": {"size_ms": MINUTE, "grace_ms": 10 * MINUTE}}
Process = Callable[..., ProcessReport]


def repartition(application: ApplicationDefinition) -> str:
    """Name of the topic that the application's later tasks read."""
    return f"{application.name}-by-value-repartition"


def lock_of(application: ApplicationDefinition, state_dir: Path) -> Any:
    """Hold what task 0_1 needs, as a long verification does."""
    return locked(TaskPaths(state_dir, application.name, TaskId(0, 1)), 60)


@pytest.fixture
def settings(bootstrap_servers: str, tmp_path: Path) -> Settings:
    return Settings(
        bootstrap_servers=bootstrap_servers,
        state_dir=tmp_path / "state",
        reports_dir=tmp_path / "reports",
        data_docs_dir=tmp_path / "docs",
        service_id=unique("service"),
        kafka_timeout_s=60,
        archive=f"file://{tmp_path}/archive",
    )


@pytest.fixture
def run(spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Process:
    """Run the job for applications, on the session of the tests."""
    planned = process.task_specs
    # A lock that is held is given up at once, instead of after 10 s.
    monkeypatch.setattr(
        process, "task_specs", lambda *of: [spec.model_copy(update={"lock_wait_s": 0}) for spec in planned(*of)]
    )

    def run(*applications: ApplicationDefinition) -> ProcessReport:
        metastore = register(settings.bootstrap_servers, *applications, service_id=settings.service_id)
        return process.run(ProcessRequest(), settings, metastore.view().catalogue, "run-1")

    return run


def windowed(servers: str, **fields: Any) -> ApplicationDefinition:
    """Define an application that counts by value in windows, with one record in each of its two input partitions."""
    made = defined(servers, aggregations=[WINDOWED], **{"processor": None, "stores": [], "output_topics": [], **fields})
    for partition, key in enumerate((b"a", b"b")):
        produce(servers, made.input_topic, [(key, b"x")], partition, T0)
    return made


def read_by_later_tasks(servers: str, application: ApplicationDefinition) -> bool:
    """Whether a later task has committed input."""
    topic = repartition(application)
    return any(group_offset(servers, application.name, topic, number) >= 0 for number in range(2))


@pytest.mark.behaviour("R13")
def test_r13_later_tasks_wait_for_a_locked_task_and_those_of_other_applications_do_not(
    run: Process, settings: Settings
) -> None:
    servers = settings.bootstrap_servers
    held, free = windowed(servers), windowed(servers)
    with lock_of(held, settings.state_dir):
        first = run(held, free)
    again = process.try_again(first)
    assert again is not None
    assert again.startswith(f"{held.name}/0_1: LockedError")
    assert (read_by_later_tasks(servers, held), read_by_later_tasks(servers, free)) == (False, True)
    second = run(held, free)
    rows = {row.label: row for row in second.rows}
    assert [row.label for row in rows.values() if row.failure] == []
    assert [sum(rows[f"{name}/1_{number}"].records_in for number in range(2)) for name in (held.name, free.name)] == [
        2,
        0,
    ]

    # Only of a run of all tasks is there a set.
    assert [row.application for row in first.sets] == [free.name]
    sets = {row.application: row for row in second.sets}
    assert sets[free.name] == first.sets[0]  # idle since
    made = find_set(open_archive(settings.archive), sets[held.name].snapshot_set)
    topics = (held.input_topic, repartition(held))
    assert [place.store_partition.task for place, _ in made.places] == [TaskId(1, 0), TaskId(1, 1)]
    assert dict(made.input_offsets) == {
        TopicPartition(topic, number): max(group_offset(servers, held.name, topic, number), 0)  # -1001: none yet
        for topic in topics
        for number in range(2)
    }


@pytest.mark.long
def test_an_application_without_its_input_topic_does_not_stop_the_others(run: Process, settings: Settings) -> None:
    servers = settings.bootstrap_servers
    sick, healthy = windowed(servers), windowed(servers)
    run(sick, healthy)
    delete_topic(servers, sick.input_topic)
    catalogue = Metastore.of(settings).view().catalogue
    report = process.run(ProcessRequest(), settings, catalogue, "run-1")
    assert set(report.applications) == {sick.name, healthy.name}
    failed = [(row.label, row.failure.kind) for row in report.rows if row.failure]
    assert failed == [(f"{sick.name}/-", "TopicMismatchError")]
    assert [row.task for row in report.rows if row.application == healthy.name] == ["0_0", "0_1", "1_0", "1_1"]

    verified = verify.run(VerifyRequest(depth="offsets"), settings, catalogue, "run-2")
    found = [(row.application, row.task, str(row.status)) for row in verified.rows]
    assert found == [
        (healthy.name, "1_0", "OK"),
        (healthy.name, "1_1", "EMPTY"),
        (sick.name, "-", "UNDETERMINED"),
    ]

    validated = validate.run(ValidateRequest(applications=(sick.name, healthy.name)), settings, catalogue, "run-3")
    verdicts = {row.label: row.verdict for row in validated.rows}
    assert verdicts == {
        f"{healthy.name}/by-value/1_0": "passed",
        f"{healthy.name}/by-value/1_1": "passed",
        f"{sick.name}/by-value/-": "error",
    }


@pytest.mark.long
def test_the_report_says_for_which_earlier_task_a_later_one_was_not_begun(run: Process, settings: Settings) -> None:
    servers = settings.bootstrap_servers
    failing = defined(servers, processor="tests.integration.support:count_or_fail", aggregations=[WINDOWED])
    produce(servers, failing.input_topic, [(b"a", b"1")], 0)
    produce(servers, failing.input_topic, [(b"b", b"poison")], 1)
    report = run(failing)
    found = [(row.task, row.failure and (row.failure.kind, row.failure.retriable)) for row in report.rows]
    waiting = ("EarlierTaskError", False)
    assert found == [("0_0", None), ("0_1", ("ProcessingError", False)), ("1_0", waiting), ("1_1", waiting)]
    for row in report.rows[2:]:
        assert row.failure is not None
        assert f"task {row.task} of {failing.name} was not started" in row.failure.message
        assert "0_1 failed with ProcessingError" in row.failure.message
    assert not read_by_later_tasks(servers, failing)
