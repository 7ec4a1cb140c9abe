"""Changelogs in which the brokers put their own time in the place of each record's (LogAppendTime)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import pytest
from statestore_jobs.planning import prepare

from statestore.cli.selection import Where
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import TopicMismatchError
from statestore.formats.timestamped_value import encode
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import Topics
from statestore.metastore.apply import plan_definitions
from statestore.metastore.drift import Kind, Remedy, find_drift, repair
from statestore.metastore.metastore import Metastore
from statestore.model import changelog_topic
from statestore.recovery.restore import restore
from statestore.reports import Status, VerifyRow
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration import broker
from tests.integration.broker import T0, Row
from tests.integration.support import STORE, Application, plain_store, register
from tests.integration.test_verify_deep import WINDOWS, change_behind_its_log

INPUT: list[Row] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"b", None)]
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
COMPACTED = {"cleanup.policy": "compact"}
NOT_COMPARED = "timestamps are the brokers' (message.timestamp.type=LogAppendTime), not compared"


def others(bootstrap_servers: str, directory: Path, **settings: object) -> Application:
    """An application that no definition of ours knows, which has processed some input."""
    application = Application(bootstrap_servers, directory, changelog_config=APPEND_TIME, **settings)  # type: ignore[arg-type]
    application.process(INPUT)
    return application


def deep(application: Application, **options: object) -> VerifyRow:
    spec = application.store_spec(owned=False)
    return verify(spec, VerifyOptions(depth="deep", **options))  # type: ignore[arg-type]


@pytest.mark.short_for("in memory")
@pytest.mark.parametrize("options", [{}, {"sample": 1.0}], ids=["in memory", "a sample"])
def test_rows_are_compared_without_the_brokers_timestamps_and_that_is_said(
    bootstrap_servers: str, tmp_path: Path, options: dict[str, object]
) -> None:
    application = others(bootstrap_servers, tmp_path)
    row = deep(application, **options)
    assert (row.status, row.detail, row.contents.equal, row.contents.differing) == (Status.OK, NOT_COMPARED, 2, 0)
    assert row.contents.store_digest == row.contents.log_digest
    change_behind_its_log(application, {b"c": encode(b"1", T0 + 9)})
    assert deep(application, **options).status is Status.OK
    change_behind_its_log(application, {b"c": encode(b"2", T0)})
    row = deep(application, **options)
    assert (row.status, row.contents.other_value) == (Status.DIVERGED, 1)
    assert row.detail.endswith(f"; {NOT_COMPARED}")


@pytest.mark.long
def test_what_was_logged_before_the_setting_was_put_right_is_compared_in_the_same_way(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application = others(bootstrap_servers, tmp_path)
    broker.set_topic_config(bootstrap_servers, application.changelog, message_timestamp_type="CreateTime")
    row = deep(application)
    assert (row.status, row.detail) == (Status.OK, NOT_COMPARED)


@pytest.mark.long
def test_a_log_that_does_not_fit_into_memory_is_compared_in_the_same_way(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path, changelog_config=APPEND_TIME)
    application.process([(b"%d" % (number % 500), b"1") for number in range(3_000)])
    row = deep(application, run_bytes=4_096)
    assert (row.status, row.keys, row.detail) == (Status.OK, 500, NOT_COMPARED)


@pytest.mark.long
@pytest.mark.parametrize("duplicates", [False, True], ids=["window", "window with duplicates"])
def test_windows_are_compared_without_the_brokers_timestamps(
    bootstrap_servers: str, tmp_path: Path, duplicates: bool
) -> None:
    store = WINDOWS.model_copy(update={"retain_duplicates": duplicates})
    application = Application(bootstrap_servers, tmp_path, stores=[store], changelog_config=APPEND_TIME)
    application.defined(processor="tests.integration.test_verify_deep:write_window")
    application.process([(b"a", b"1"), (b"b", b"1"), (b"a", b"1")])
    row = deep(application)
    assert (row.status, row.detail, row.keys) == (Status.OK, NOT_COMPARED, 3 if duplicates else 2)


def test_a_plain_store_has_no_timestamps_of_which_anything_could_be_said(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application = others(bootstrap_servers, tmp_path, processor="count_plain", stores=[plain_store()])
    row = deep(application)
    assert (row.status, row.detail) == (Status.OK, "")


def test_a_store_is_restored_with_the_brokers_timestamps_as_kafka_streams_does(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    before_ms = time.time() * 1000
    application = others(bootstrap_servers, tmp_path)
    spec = application.restore_spec("full", force=True, check="deep")
    row = restore(spec._replace(store=spec.store.model_copy(update={"owned": False})))
    assert row.outcome == "restored", row.failure
    rows = application.contents()
    assert {key: found.value for key, found in rows.items()} == {b"a": b"2", b"c": b"1"}
    assert all(found.timestamp > before_ms - 600_000 > T0 for found in rows.values())
    assert deep(application).status is Status.OK


# -- our own ----------------------------------------------------------------------------------------------------------


class Ours(NamedTuple):
    definition: ApplicationDefinition
    changelog: str
    service_id: str
    metastore: Metastore
    topics: Topics


@pytest.fixture
def ours(bootstrap_servers: str, tmp_path: Path) -> Ours:
    """An application of ours, whose changelog was changed by somebody."""
    application, service_id = Application(bootstrap_servers, tmp_path), broker.unique("service")
    metastore = register(bootstrap_servers, application.definition, service_id=service_id)
    broker.set_topic_config(bootstrap_servers, application.changelog, message_timestamp_type="LogAppendTime")
    return Ours(
        application.definition, application.changelog, service_id, metastore, Cluster(bootstrap_servers, 60).topics
    )


def refusal(topic: str) -> str:
    return (
        rf"internal topic {topic} has message\.timestamp\.type=LogAppendTime, expected CreateTime: .* "
        rf"--entity-name {topic} --add-config message\.timestamp\.type=CreateTime"
    )


@pytest.mark.long
def test_an_application_of_ours_is_not_processed(ours: Ours) -> None:
    entry = ours.metastore.view().catalogue.entry(ours.definition.name)
    with pytest.raises(TopicMismatchError, match=refusal(ours.changelog)):
        prepare(ours.topics, ours.metastore, [entry])


@pytest.mark.short_for("recorded")
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "found"])
def test_a_definition_is_not_applied_to_it(ours: Ours, bootstrap_servers: str, recorded: bool) -> None:
    definition = ours.definition.model_copy(update={"commit_interval_ms": 5_000})
    if not recorded:
        definition = definition.model_copy(update={"name": broker.unique("app")})
        broker.create_topic(bootstrap_servers, changelog_topic(definition.name, STORE), 1, APPEND_TIME | COMPACTED)
    with pytest.raises(TopicMismatchError, match=refusal(changelog_topic(definition.name, STORE))):
        plan_definitions(ours.topics, ours.metastore.view().catalogue, [definition])


@pytest.mark.long
def test_drift_tells_it_and_mends_it_when_asked(ours: Ours, bootstrap_servers: str, tmp_path: Path) -> None:
    where, view = Where(Cluster(bootstrap_servers, 60), tmp_path / "state"), ours.metastore.view()
    [found] = find_drift(where, ours.service_id, view, ours.topics)
    assert (found.kind, found.subject, found.remedy) == (Kind.SETTINGS, ours.changelog, Remedy.REPAIR)
    assert found.expected == "message.timestamp.type=CreateTime"
    assert found.found == "message.timestamp.type=LogAppendTime"
    repair(found, ours.topics, ours.metastore)
    prepare(ours.topics, ours.metastore, [view.catalogue.entry(ours.definition.name)])
