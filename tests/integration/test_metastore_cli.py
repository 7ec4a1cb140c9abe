"""The `statestore` command on the catalogue: apply, list, get, describe, drop, history, metastore."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import yaml

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.metastore.command_topic import topic_name
from statestore.reports import RestorePlanReport, VerifyReport, read_report
from tests.integration.broker import create_topic, delete_topic, member_of, produce, unique
from tests.integration.catalogued import BY_VALUE, CatalogueCommand, changed, commands_in
from tests.integration.commands import at as reaching
from tests.integration.support import Application, put

COMMITTED = "command committed, not in the backup"


@pytest.fixture(autouse=True)
def loaded_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load no code: that takes a process for each `apply`. tests/integration/test_metastore_loading.py does."""
    monkeypatch.setattr("statestore.metastore.apply.require_loadable", lambda _: None)


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


# -- apply --------------------------------------------------------------------------------------------------------


def test_what_is_applied_is_shown_as_a_plan_and_is_then_in_the_catalogue(command: CatalogueCommand) -> None:
    first, second = command.define(), command.define(aggregations=[BY_VALUE])
    ran = command.apply(first, second)
    assert {f"+ create {first.name}", f"+ create {second.name}", "2 to create, 0 to change, 0 unchanged"} < set(
        lines(ran.out)
    )
    assert f"input_topic: {first.input_topic}" in lines(ran.out)
    assert "commit_interval_ms" not in ran.out, "defaults are not repeated"
    assert command.catalogue.definitions() == {
        item.name: item for item in sorted((first, second), key=lambda item: item.name)
    }
    listed = command("list").out
    for definition in (first, second):
        for store in definition.stores:
            assert any(definition.name in line and store.name in line for line in listed.splitlines())


def test_a_change_is_shown_field_by_field_and_the_same_again_logs_nothing(command: CatalogueCommand) -> None:
    definition = command.applied()
    owned = changed(definition, stores=[{"name": "counts", "owner": "data-team"}], commit_interval_ms=500)
    ran = command.apply(owned)
    assert {
        f"~ change {definition.name}",
        "stores.counts.owner: - -> data-team",
        "commit_interval_ms: 1s -> 0.5s",
        "0 to create, 1 to change, 0 unchanged",
    } < set(lines(ran.out))
    end = command.log_end
    ran = command("apply", command.file(owned), "--yes")
    assert (ran.code, "0 to create, 0 to change, 1 unchanged" in ran.out) == (0, True)
    assert command.log_end == end


@pytest.mark.long
def test_a_dry_run_shows_the_plan_and_writes_nothing(command: CatalogueCommand) -> None:
    definition = command.define()
    ran = command("apply", command.file(definition), "--dry-run")
    assert ran.code == 0
    assert f"+ create {definition.name}" in ran.out
    there = command.topics.names()
    assert command.topic not in there
    assert f"{definition.name}-counts-changelog" not in there


@pytest.mark.short_for("y-True")
@pytest.mark.parametrize(("answer", "applied"), [("n", False), ("y", True)])
def test_somebody_at_a_terminal_is_asked(command: CatalogueCommand, answer: str, applied: bool) -> None:
    definition = command.define()
    ran = command.answered(answer, "apply", command.file(definition))
    assert "Apply this?" in ran.err
    assert ran.code == (0 if applied else 2)
    assert (definition.name in command.catalogue.applications) is applied


def test_without_a_terminal_nothing_is_changed_unless_yes_is_said(command: CatalogueCommand) -> None:
    definition = command.define()
    path = command.file(definition)
    ran = command("apply", path)
    assert (ran.code, "nothing was applied: there is no terminal to ask for confirmation. Add --yes" in ran.err) == (
        2,
        True,
    ), ran.err
    assert command.metastore.view().topic_id is None
    command.apply(definition)
    ran = command("drop", definition.name)
    assert (ran.code, "nothing was dropped: there is no terminal to ask for confirmation. Add --yes" in ran.err) == (
        2,
        True,
    ), ran.err
    assert command("apply", path).code == 0, "nothing changes"
    assert list(command.catalogue.applications) == [definition.name]


def test_topics_that_a_definition_names_are_created_if_that_is_asked_for(command: CatalogueCommand) -> None:
    name = unique("app")
    definition = ApplicationDefinition(
        name=name,
        input_topic=f"{name}-in",
        output_topics=(f"{name}-out",),
        dead_letter_topic=f"{name}-failed",
        processor="tests.integration.support:count",
        stores=(StoreDefinition(name="counts"),),
    )
    named = [f"{name}-in", f"{name}-out", f"{name}-failed"]
    path = command.file(definition)
    settings = ("--topic-config", "input:retention.ms=-1", "--topic-config", "retention.ms=9")
    create = ("--create-topics", "--partitions", "3", *settings)
    ran = command("apply", path, "--yes")
    assert (ran.code, f"input topic {name}-in does not exist" in ran.err) == (2, True)
    assert "--create-topics" in ran.err
    for wrong, said in (
        (create[-2:], "add --create-topics"),
        ((*create, "--topic-config", "retention"), "--topic-config: expected NAME=VALUE, found 'retention'"),
        ((*create, "--topic-config", "in:retention.ms=1"), "expected one of the roles input, output, dead-letter"),
    ):
        ran = command("apply", path, *wrong, "--yes")
        assert (ran.code, said.lower() in ran.err.lower()) == (2, True)
    for ran in (command("apply", path, *create, "--dry-run"), command("apply", path, *create)):
        assert lines(ran.out)[:3] == [
            f"+ create input topic {name}-in, 3 partitions, retention.ms=-1",
            f"+ create output topic {name}-out, 3 partitions, retention.ms=9",
            f"+ create dead-letter topic {name}-failed, 3 partitions, retention.ms=9",
        ]
        assert command.topics.describe(named) == {}
    ran = command("apply", path, *create, "--yes", "--json", "-")
    assert ran.code == 0, ran.err
    assert [topic["name"] for topic in json.loads(ran.out)["topics"]] == named
    assert [command.topics.require(each).partitions for each in named] == [3, 3, 3]
    assert [config["retention.ms"] for config in map(command.topics.topic_configs(named).get, named)] == [
        "-1",
        "9",
        "9",
    ]
    assert command.catalogue.entry(name).partitions == {f"{name}-in": 3}
    fed = changed(definition, name=f"{name}-more", output_topics=[f"{name}-more"], dead_letter_topic=None)
    ran = command("apply", command.file(fed), "--create-topics", "--yes", "--json", "-")
    assert json.loads(ran.out)["topics"] == [{"name": f"{name}-more", "role": "output", "partitions": 3, "config": {}}]


@pytest.mark.long
def test_nobody_is_asked_who_has_said_yes_or_where_nothing_changes(command: CatalogueCommand) -> None:
    path = command.file(command.define())
    for options in (["--yes"], []):
        ran = command.answered("n", "apply", path, *options)
        assert (ran.code, "Apply this?" in ran.err) == (0, False)


@pytest.mark.long
def test_all_is_checked_before_the_first_is_submitted(command: CatalogueCommand) -> None:
    good, bad, odd = (command.define() for _ in range(3))
    missing = changed(bad, input_topic="no-such-input")
    odd = changed(odd, stores=[{"name": "counts", "partitions": 7}])
    ran = command("apply", command.file(good), command.file(missing, odd), "--yes")
    assert ran.code == 2
    assert "input topic no-such-input does not exist" in ran.err
    ran = command("apply", command.file(good), command.file(odd), "--yes")
    assert ran.code == 2
    assert "stores.counts.partitions: expected 7, found 2" in ran.err
    assert command.metastore.view().topic_id is None


def test_a_change_that_needs_a_rebuild_is_refused_with_path_and_reason(command: CatalogueCommand) -> None:
    definition = command.applied()
    end = command.log_end
    session = {"name": "counts", "kind": "session", "retention_ms": 1_000}
    ran = command("apply", command.file(changed(definition, stores=[session])))
    assert ran.code == 2
    assert "stores.counts.kind: key-value -> session" in ran.err
    assert command.log_end == end


@pytest.mark.short_for(every=3)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "it is empty"),
        ("name: a\nno_such_field: 1", "no_such_field"),
        ("name: a\nname: b", "is there twice"),
        ("a: &a [x, x]\nb: [*a, *a]", "alias"),
        ("x" * (1 << 21), "at most 1048576"),
        (b"name: \xff", "standard input is not YAML in UTF-8"),
        ("name: !!bool x", "tags"),
    ],
)
def test_definitions_that_are_none_are_refused(command: CatalogueCommand, text: str | bytes, expected: str) -> None:
    ran = command.fed(text, "apply", "-", "--yes")
    assert ran.code == 2
    assert "DefinitionError" in ran.err
    assert expected in ran.err


def test_an_application_that_two_files_define_is_refused(command: CatalogueCommand) -> None:
    definition = command.define()
    ran = command("apply", command.file(definition), command.file(definition), "--yes")
    assert ran.code == 2
    assert f"defines {definition.name}, which another file also defines" in ran.err


def test_a_service_beside_whose_topic_kafka_has_one_of_the_same_name_to_it_is_refused(
    command: CatalogueCommand,
) -> None:
    service_id = command.service_id.replace("-", ".")
    create_topic(command.servers, topic_name(service_id))
    path = command.file(command.define())
    ran = command("apply", path, "--yes", SERVICE_ID=service_id.replace(".", "_"))
    assert (ran.code, "choose another service id" in ran.err) == (2, True)


@pytest.mark.long
def test_a_command_that_is_committed_is_told_of_although_its_topics_cannot_be_made(
    command: CatalogueCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition, report = command.define(), tmp_path / "applied.json"
    changelog = f"{definition.name}-counts-changelog"
    with reaching(monkeypatch, COMMITTED, lambda: create_topic(command.servers, changelog, 5)):
        ran = command("apply", command.file(definition), "--json", str(report), "--yes")
    assert ran.code == 2
    assert f"{definition.name}: command 1 at offset 0" in lines(ran.out)
    assert f"application {definition.name} is in the catalogue, but its internal topics were not created" in ran.err
    content = json.loads(report.read_text())
    assert content["commands"] == [{"application": definition.name, "id": 1, "offset": 0}]
    assert (content["applied"], content["catalogue"]) == (False, str(command.metastore.view().pin))
    delete_topic(command.servers, changelog)
    command.apply(definition)
    assert set(command.catalogue.entry(definition.name).topics) == {changelog, f"{definition.name}-input-offsets"}


@pytest.mark.long
def test_what_was_applied_before_another_was_refused_is_told_of(
    command: CatalogueCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (command.define() for _ in range(2))
    other = changed(second, commit_interval_ms=77)
    with reaching(monkeypatch, COMMITTED, lambda: put(command.metastore, other, {other.input_topic: 2})):
        ran = command("apply", command.file(first), command.file(second), "--json", "-", "--yes")
    assert (ran.code, f"application {second.name} was changed by" in ran.err) == (2, True)
    content = json.loads(ran.out)
    assert [done["application"] for done in content["commands"]] == [first.name]
    assert content["applied"] is False
    assert [step["application"] for step in content["plan"]] == [first.name, second.name]
    assert command.catalogue.definitions() == {first.name: first, second.name: other}
    # Its topics were made: they are made before the next is submitted.
    assert command.catalogue.entry(first.name).topics


# -- list, get, describe, history ---------------------------------------------------------------------------------


def test_what_get_prints_is_what_apply_takes(command: CatalogueCommand) -> None:
    first = command.define(stores=[{"name": "counts", "owner": "zoë", "value_serde": "int64"}])
    second = command.define(aggregations=[BY_VALUE])
    command.apply(first, second)
    end = command.log_end
    one = command("get", first.name).out
    assert yaml.safe_load(one)["stores"][0]["owner"] == "zoë"
    for printed in (one, command("get").out):
        ran = command.fed(printed, "apply", "-", "--yes")
        assert ran.code == 0, ran.err
        assert "0 to create, 0 to change" in ran.out
    assert command.log_end == end
    assert list(command.shown("get")) == sorted([first.name, second.name])


@pytest.mark.long
def test_the_catalogue_is_read_as_it_was_at_an_offset_and_as_it_was_pinned(command: CatalogueCommand) -> None:
    definition = command.applied()
    pin = command.shown("list")["catalogue"]
    command.apply(changed(definition, commit_interval_ms=500))
    for at in (pin, pin.partition(":")[0]):
        assert command.shown("get", "--at", at)[definition.name]["commit_interval_ms"] == 1000
        assert command.shown("describe", definition.name, "--at", at)["definition"]["commit_interval_ms"] == 1000
        assert command.shown("list", "--at", at)["catalogue"] == pin
        assert len(command.shown("history", "--at", at)["commands"]) == 2
    assert command.shown("get")[definition.name]["commit_interval_ms"] == 500
    assert command.shown("list", "--at", "0")["applications"] == {}


@pytest.mark.short_for("x")
@pytest.mark.parametrize("at", ["-1", "x", "5:abc", "999999", "9" * 30])
def test_an_offset_that_is_none_is_refused(command: CatalogueCommand, at: str) -> None:
    command.apply(command.define())
    for name in ("list", "history"):
        assert command(name, f"--at={at}").code == 2


@pytest.mark.long
def test_history_up_to_a_pin_is_refused_where_it_is_another_catalogue(command: CatalogueCommand) -> None:
    definition = command.applied()
    offset, digest = command.shown("list")["catalogue"].split(":")
    command.apply(changed(definition, commit_interval_ms=500))
    assert command("history", "--at", f"{offset}:{digest}").code == 0
    ran = command("history", "--at", f"{offset}:{digest[::-1]}")
    assert (ran.code, f"has digest {digest}" in ran.err) == (2, True)


@pytest.mark.long
def test_describe_shows_stores_topics_and_who_changed_it(command: CatalogueCommand) -> None:
    definition = command.applied(aggregations=[BY_VALUE])
    changelog = f"{definition.name}-by-value-changelog"
    topic_id = command.topics.require(changelog).topic_id
    out = command("describe", definition.name).out
    entry = command.catalogue.entry(definition.name)
    for expected in (definition.input_topic, changelog, topic_id, "1_0 to 1_1", entry.changed_by):
        assert expected in out
    ran = command("describe", "no-such")
    assert (ran.code, f"'no-such' is in the catalogue; the applications are: {definition.name}" in ran.err) == (
        2,
        True,
    )


@pytest.mark.long
def test_history_tells_what_each_command_changed(command: CatalogueCommand) -> None:
    definition, other = command.define(), command.define()
    name = definition.name
    command.apply(definition)
    command.apply(other)
    more = changed(definition, stores=[{"name": "counts", "owner": "data-team"}, {"name": "more"}])
    command.apply(more)
    assert command("drop", f"{name}/more", "--yes").code == 0
    assert command("drop", name, "--yes").code == 0
    out = command("history", name).out
    assert other.name not in out
    told = [line.split("│")[-2].strip() for line in out.splitlines() if f" {name} " in line]
    assert told[0] == "created"
    assert told[1] == "recorded 2 topics", "its changelog, and its topic of input offsets"
    assert "stores.counts.owner: - -> data-team" in told[2]
    assert told[3:] == ["recorded 1 topic", "dropped store more", "dropped"]
    commands = command.shown("history", name)["commands"]
    assert [item["command"]["kind"] for item in commands][-2:] == ["drop-store", "drop-application"]
    assert command.shown("history", other.name)["commands"][0]["command"]["definition"]["name"] == other.name


# -- drop ---------------------------------------------------------------------------------------------------------


def test_what_is_dropped_leaves_its_topics_and_directories(command: CatalogueCommand) -> None:
    definition = command.applied()
    directory = command.state_dir / definition.name / "0_0"
    directory.mkdir(parents=True)
    ran = command("drop", definition.name, "--yes")
    assert ran.code == 0, ran.err
    changelog = f"{definition.name}-counts-changelog"
    assert changelog in ran.out
    assert "Next: statestore drift  # list them, with the commands that remove them" in ran.err
    assert command.catalogue.applications == {}
    assert command.topics.describe([changelog])
    assert directory.exists()
    command.apply(definition)  # what is left is taken over


@contextmanager
def _process(code: str, *arguments: str) -> Iterator[str]:
    """Run Python code in a process of its own that says when it is there, and give its pid."""
    argv = [sys.executable, "-c", f"{code}\nprint('there', flush=True); sys.stdin.read()", *arguments]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        try:
            assert process.stdout.readline() == "there\n"
            yield str(process.pid)
        finally:
            process.stdin.close()


def _kafka_streams(state_dir: Path, application: str) -> AbstractContextManager[str]:
    code = "import fcntl, sys; file = open(sys.argv[1] + '/.lock', 'w'); fcntl.lockf(file, fcntl.LOCK_EX)"
    (state_dir / application).mkdir(parents=True)
    return _process(code, str(state_dir / application))


def _task(state_dir: Path, application: str) -> AbstractContextManager[str]:
    code = (
        "import pathlib, sys; from statestore.model import TaskId; from statestore.statedir.paths import TaskPaths\n"
        "from statestore.statedir.lock import locked\n"
        "held = locked(TaskPaths(pathlib.Path(sys.argv[1]), sys.argv[2], TaskId(0, 0))); held.__enter__()"
    )
    return _process(code, str(state_dir), application)


@pytest.mark.long
@pytest.mark.parametrize("running", [_kafka_streams, _task])
@pytest.mark.parametrize("store", ["", "/more"])
def test_what_is_running_is_not_dropped_and_whoever_runs_it_is_named(
    command: CatalogueCommand,
    running: Callable[[Path, str], AbstractContextManager[str]],
    store: str,
) -> None:
    definition = command.applied(stores=[{"name": "counts"}, {"name": "more"}])
    with running(command.state_dir, definition.name) as pid:
        ran = command("drop", definition.name + store, "--yes")
    assert ran.code == 3
    assert f"application {definition.name} is in use" in ran.err
    assert f"process {pid} (" in ran.err
    assert command.catalogue.entry(definition.name).definition == definition
    assert command("drop", definition.name + store, "--yes").code == 0


@pytest.mark.long
@pytest.mark.parametrize("running", [_kafka_streams, _task])
def test_apply_takes_no_store_out_of_what_is_running(
    command: CatalogueCommand,
    running: Callable[[Path, str], AbstractContextManager[str]],
) -> None:
    two = command.define(stores=[{"name": "counts"}, {"name": "more"}])
    command.apply(two)
    one = command.file(changed(two, stores=[{"name": "counts"}]))
    with running(command.state_dir, two.name) as pid:
        ran = command("apply", one, "--yes")
        assert (ran.code, f"process {pid} (" in ran.err) == (3, True), ran.err
        owned = changed(two, stores=[{"name": "counts", "owner": "data-team"}, {"name": "more"}])
        command.apply(owned)  # that takes nothing away
    ran = command("apply", one, "--yes", STATE_DIR="")
    assert (ran.code, f"{two.name} loses more. Add --state-dir" in ran.err) == (2, True)
    assert command.catalogue.entry(two.name).definition == owned
    assert command("apply", one, "--yes").code == 0


@pytest.mark.long
def test_an_application_whose_group_has_members_is_not_dropped(command: CatalogueCommand) -> None:
    definition = command.applied()
    with member_of(command.servers, definition.name, definition.input_topic):
        ran = command("drop", definition.name, "--yes")
    assert ran.code == 2
    assert "has active members: somebody-else" in ran.err
    assert definition.name in command.catalogue.applications


@pytest.mark.long
def test_a_store_that_is_written_by_an_aggregation_is_not_dropped(command: CatalogueCommand) -> None:
    definition = command.applied(aggregations=[BY_VALUE])
    end = command.log_end
    for name, expected in (
        (f"{definition.name}/by-value", "is in use: aggregations.0 writes it"),
        (f"{definition.name}/none", "has no store 'none'; its stores are: counts, by-value"),
        (f"{definition.name}/", "has no store ''"),
        ("none", "no application 'none'"),
    ):
        ran = command("drop", name, "--yes")
        assert (ran.code, expected in ran.err) == (2, True)
    assert command.log_end == end


@pytest.mark.short_for("n-False")
@pytest.mark.parametrize(("answer", "dropped"), [("n", False), ("y", True)])
def test_somebody_at_a_terminal_is_asked_before_a_drop(command: CatalogueCommand, answer: str, dropped: bool) -> None:
    definition = command.applied()
    ran = command.answered(answer, "drop", definition.name)
    assert ran.code == (0 if dropped else 2)
    assert (definition.name not in command.catalogue.applications) is dropped


@pytest.mark.long
def test_an_application_that_feeds_another_is_not_dropped_silently(
    command: CatalogueCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = command.define()
    second = changed(command.define(), input_topic=first.output_topics[0])
    third = changed(command.define(), input_topic=first.output_topics[0])
    command.apply(first, second)
    fed = f"application {first.name} feeds {second.name} (through topic {second.input_topic})"
    ran = command("drop", first.name)
    assert (ran.code, fed in ran.err, "Add --yes" in ran.err) == (2, True, True)
    ran = command.answered("n", "drop", first.name)
    assert (ran.code, fed in ran.err) == (2, True)

    def come_between() -> None:
        put(command.metastore, third, {third.input_topic: 2})

    with reaching(monkeypatch, "command made, nobody fenced", come_between):
        ran = command.answered("y", "drop", first.name)
    assert (ran.code, f"feeds {third.name} (through topic {third.input_topic}) since" in ran.err) == (2, True)
    assert first.name in command.catalogue.applications

    assert command("drop", second.name, "--yes").code == 0, "who is only fed is dropped as ever"
    ran = command("drop", first.name, "--yes")
    assert (ran.code, f"feeds {third.name}" in ran.err) == (0, True)
    assert list(command.catalogue.applications) == [third.name]


# -- the command topic --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_degraded_metastore_is_read_with_a_warning_and_takes_nothing(command: CatalogueCommand) -> None:
    definition, other = command.define(), command.define()
    command.apply(definition)
    assert command("metastore", "status").code == 0
    produce(command.servers, command.topic, [(b"application/x", b"{")])
    for arguments in (["list"], ["get"], ["describe", definition.name], ["history"], ["partitions"]):
        ran = command(*arguments)
        assert ran.code == 0, ran.err
        assert "the metastore is DEGRADED: " in ran.err
        assert definition.name in ran.out or arguments == ["partitions"]
    assert "unreadable" in command("history").out
    end = command.log_end
    for arguments in (
        ["apply", command.file(other)],
        ["drop", definition.name],
        ["metastore", "compact"],
        ["restore", "--application", definition.name],
    ):
        ran = command(*arguments)
        assert (ran.code, "MetastoreDegradedError" in ran.err) == (2, True)
    assert command.log_end == end
    status = command("metastore", "status", "--json", "-")
    assert (status.code, json.loads(status.out)["health"]) == (1, "DEGRADED")
    assert command("apply", command.file(other), "--dry-run").code == 0


@pytest.mark.long
@pytest.mark.behaviour("C15")
def test_the_command_topic_is_made_anew_from_its_backup_only_by_somebody_who_says_so(command: CatalogueCommand) -> None:
    command.applied()
    before = command.shown("list")["applications"]
    topic = command.topic
    delete_topic(command.servers, topic)
    assert command("metastore", "status").code == 1
    for ran in (
        command("metastore", "restore-backup"),
        command.answered("n", "metastore", "restore-backup"),
    ):
        assert ran.code == 2
        assert f"{topic} was not changed" in ran.err
        assert topic not in command.topics.names()
    ran = command.answered("y", "metastore", "restore-backup")
    assert ran.code == 0, ran.err
    assert f"{topic} has 2 commands of" in ran.out
    assert command.shown("list")["applications"] == before
    assert command("metastore", "restore-backup", "--yes").code == 2, "there is nothing to restore"


@pytest.mark.long
def test_a_compacted_log_begins_with_its_snapshot(command: CatalogueCommand) -> None:
    command.applied()
    before = command.shown("list")
    assert "snapshot of catalogue" in command("metastore", "compact").out
    after = command.shown("list")
    assert (after["applications"], after["health"]) == (before["applications"], "RUNNING")
    assert commands_in(command.metastore) == ["snapshot"]
    assert "nothing to compact" in command("metastore", "compact").out
    assert "snapshot of 1 application" in command("history").out
    assert command("list", "--at", "1").code == 2


def test_a_service_id_that_is_no_name_is_refused(command: CatalogueCommand) -> None:
    ran = command("list", SERVICE_ID="../x")
    assert (ran.code, "--service-id: '../x' is not a valid name" in ran.err) == (2, True)


def test_where_nothing_was_ever_applied_the_catalogue_is_empty_and_nothing_is_made(command: CatalogueCommand) -> None:
    content = command.shown("list")
    assert (content["applications"], content["health"]) == ({}, "RUNNING")
    assert command("get").out == ""
    assert command.shown("history") == {"commands": []}
    assert command.topic not in command.topics.names()


# -- commands on stores -------------------------------------------------------------------------------------------


def test_commands_on_stores_go_by_the_catalogue_and_their_reports_name_it(
    command: CatalogueCommand, tmp_path: Path
) -> None:
    application = Application(command.servers, tmp_path)
    application.process([(b"key", b"1"), (b"key", b"2")])
    command.apply(application.definition)
    pin = command.shown("list")["catalogue"]
    assert f"{application.name}/counts/0_0" in command("partitions").out
    assert b"2".hex() in command("read", "counts", b"key".hex()).out
    report = tmp_path / "report.json"
    ran = command("verify", "--parallel", "1", "--json", str(report))
    assert ran.code == 0, ran.err
    found = read_report(report, VerifyReport)
    assert ([row.task for row in found.rows], found.catalogue) == (["0_0"], pin)
    assert VerifyReport.model_validate_json(command("verify", "--parallel", "1", "--json", "-").out).catalogue == pin
    ran = command("restore", "--dry-run", "--parallel", "1", "--json", "-")
    assert RestorePlanReport.model_validate_json(ran.out).catalogue == pin


# -- several catalogues -------------------------------------------------------------------------------------------


def test_an_application_moves_to_another_catalogue_by_its_exported_definition(command: CatalogueCommand) -> None:
    definition, other = command.applied(), unique("service")
    exported = command("get", definition.name).out
    path = command.state_dir.parent / "exported.yaml"
    path.write_text(exported, encoding="utf-8")
    refused = command("apply", "--dry-run", str(path), SERVICE_ID=other)
    assert (refused.code, "OtherCatalogueError" in refused.err) == (2, True)
    assert f"{definition.name} belongs to catalogue {command.settings['SERVICE_ID']}" in refused.err
    taken = command("apply", "--yes", str(path), "--take-from", command.settings["SERVICE_ID"], SERVICE_ID=other)
    assert taken.code == 0, taken.err
    refused = command("restore", "--application", definition.name)
    assert (refused.code, f"{definition.name} belongs to catalogue {other}" in refused.err) == (2, True)
    assert command("drop", "--yes", definition.name).code == 0
    assert command("apply", str(path)).code == 2
    assert command("drop", "--yes", definition.name, SERVICE_ID=other).code == 0
    assert command("apply", "--yes", str(path)).code == 0
