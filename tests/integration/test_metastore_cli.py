"""The `statestore` command on the catalogue: apply, list, get, describe, drop, history, metastore."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer

from statestore.changelog.topics import Topics
from statestore.metastore.command_topic import topic_name
from statestore.metastore.metastore import Metastore
from statestore.reports import RestorePlanReport, VerifyReport, read_report
from tests.integration.broker import create_topic, delete_topic, produce, wait_for
from tests.integration.catalogued import BY_VALUE, changed, commands_in, defined, log_end, write
from tests.integration.command_line import Command, settings_of
from tests.integration.commands import at as reaching
from tests.integration.support import Application, put

COMMITTED = "command committed, not in the backup"


@pytest.fixture
def command(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    """The command, for a service of its own."""
    return Command(monkeypatch, capfd, settings_of(bootstrap_servers, tmp_path))


@pytest.fixture(autouse=True)
def loaded_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load no code: that takes a process for each `apply`. tests/integration/test_metastore_loading.py does."""
    monkeypatch.setattr("statestore.metastore.apply.require_loadable", lambda _: None)


def metastore_of(command: Command) -> Metastore:
    return Metastore(command.settings["BOOTSTRAP_SERVERS"], command.settings["SERVICE_ID"], timeout_s=60)


def end_of(command: Command) -> int:
    return log_end(command.settings["BOOTSTRAP_SERVERS"], command.settings["SERVICE_ID"])


def shown(command: Command, *arguments: str) -> Any:
    """What a command says as JSON."""
    ran = command(*arguments, "--json", "-")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


# -- apply --------------------------------------------------------------------------------------------------------


def test_what_is_applied_is_shown_as_a_plan_and_is_then_in_the_catalogue(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    first, second = defined(bootstrap_servers), defined(bootstrap_servers, aggregations=[BY_VALUE])
    ran = command("apply", write(tmp_path, first, second))
    assert ran.code == 0, ran.err
    assert {f"+ create {first.name}", f"+ create {second.name}", "2 to create, 0 to change, 0 unchanged"} < set(
        lines(ran.out)
    )
    assert f"input_topic: - -> {first.input_topic}" in lines(ran.out)
    assert metastore_of(command).view().catalogue.definitions() == {
        item.name: item for item in sorted((first, second), key=lambda item: item.name)
    }
    listed = command("list").out
    for definition in (first, second):
        for store in definition.stores:
            assert any(definition.name in line and store.name in line for line in listed.splitlines())


def test_a_change_is_shown_field_by_field_and_the_same_again_logs_nothing(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    definition = defined(bootstrap_servers)
    assert command("apply", write(tmp_path, definition)).code == 0
    owned = changed(definition, stores=[{"name": "counts", "owner": "data-team"}], commit_interval_ms=500)
    ran = command("apply", write(tmp_path, owned))
    assert ran.code == 0, ran.err
    assert {
        f"~ change {definition.name}",
        "stores.counts.owner: - -> data-team",
        "commit_interval_ms: 1000 -> 500",
        "0 to create, 1 to change, 0 unchanged",
    } < set(lines(ran.out))
    end = end_of(command)
    ran = command("apply", write(tmp_path, owned))
    assert (ran.code, "0 to create, 0 to change, 1 unchanged" in ran.out) == (0, True)
    assert end_of(command) == end


def test_a_dry_run_shows_the_plan_and_writes_nothing(command: Command, bootstrap_servers: str, tmp_path: Path) -> None:
    definition = defined(bootstrap_servers)
    ran = command("apply", write(tmp_path, definition), "--dry-run")
    assert ran.code == 0
    assert f"+ create {definition.name}" in ran.out
    there = Topics(bootstrap_servers, 10).names()
    assert topic_name(command.settings["SERVICE_ID"]) not in there
    assert f"{definition.name}-counts-changelog" not in there


@pytest.mark.parametrize(("answer", "applied"), [("n", False), ("y", True)])
def test_somebody_at_a_terminal_is_asked(
    command: Command, bootstrap_servers: str, tmp_path: Path, answer: str, applied: bool
) -> None:
    definition = defined(bootstrap_servers)
    ran = command.answered(answer, "apply", write(tmp_path, definition))
    assert "Apply this?" in ran.err
    assert ran.code == (0 if applied else 2)
    assert (definition.name in metastore_of(command).view().catalogue.applications) is applied


def test_nobody_is_asked_who_has_said_yes_or_where_nothing_changes(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    path = write(tmp_path, defined(bootstrap_servers))
    for options in (["--yes"], []):
        ran = command.answered("n", "apply", path, *options)
        assert (ran.code, "Apply this?" in ran.err) == (0, False)


def test_all_is_checked_before_the_first_is_submitted(command: Command, bootstrap_servers: str, tmp_path: Path) -> None:
    good, bad, odd = (defined(bootstrap_servers) for _ in range(3))
    missing = changed(bad, input_topic="no-such-input")
    odd = changed(odd, stores=[{"name": "counts", "partitions": 7}])
    ran = command("apply", write(tmp_path, good), write(tmp_path, missing, odd))
    assert ran.code == 2
    assert "input topic no-such-input does not exist" in ran.err
    ran = command("apply", write(tmp_path, good), write(tmp_path, odd))
    assert ran.code == 2
    assert "stores.counts.partitions: expected 7, found 2" in ran.err
    assert metastore_of(command).view().topic_id is None


def test_a_change_that_needs_a_rebuild_is_refused_with_path_and_reason(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    definition = defined(bootstrap_servers)
    assert command("apply", write(tmp_path, definition)).code == 0
    end = end_of(command)
    session = {"name": "counts", "kind": "session", "retention_ms": 1_000}
    ran = command("apply", write(tmp_path, changed(definition, stores=[session])))
    assert ran.code == 2
    assert "stores.counts.kind: key-value -> session" in ran.err
    assert end_of(command) == end


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
def test_definitions_that_are_none_are_refused(command: Command, text: str | bytes, expected: str) -> None:
    ran = command.fed(text, "apply", "-")
    assert ran.code == 2
    assert "DefinitionError" in ran.err
    assert expected in ran.err


def test_an_application_that_two_files_define_is_refused(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    definition = defined(bootstrap_servers)
    ran = command("apply", write(tmp_path, definition), write(tmp_path, definition))
    assert ran.code == 2
    assert f"defines {definition.name}, which another of the files defines" in ran.err


def test_a_service_beside_whose_topic_kafka_has_one_of_the_same_name_to_it_is_refused(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    service_id = command.settings["SERVICE_ID"].replace("-", ".")
    create_topic(bootstrap_servers, topic_name(service_id))
    path = write(tmp_path, defined(bootstrap_servers))
    ran = command("apply", path, SERVICE_ID=service_id.replace(".", "_"))
    assert (ran.code, "choose another service id" in ran.err) == (2, True)


def test_a_command_that_is_committed_is_told_of_although_its_topics_cannot_be_made(
    command: Command, bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition, report = defined(bootstrap_servers), tmp_path / "applied.json"
    changelog = f"{definition.name}-counts-changelog"
    with reaching(monkeypatch, COMMITTED, lambda: create_topic(bootstrap_servers, changelog, 5)):
        ran = command("apply", write(tmp_path, definition), "--json", str(report))
    assert ran.code == 2
    assert f"{definition.name}: command 1 at offset 0" in lines(ran.out)
    assert f"application {definition.name} is in the catalogue; apply it again when" in ran.err
    content = json.loads(report.read_text())
    assert content["commands"] == [{"application": definition.name, "id": 1, "offset": 0}]
    assert (content["applied"], content["catalogue"]) == (False, str(metastore_of(command).view().pin))


def test_what_was_applied_before_another_was_refused_is_told_of(
    command: Command, bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (defined(bootstrap_servers) for _ in range(2))
    other = changed(second, commit_interval_ms=77)
    with reaching(monkeypatch, COMMITTED, lambda: put(metastore_of(command), other, {other.input_topic: 2})):
        ran = command("apply", write(tmp_path, first), write(tmp_path, second), "--json", "-")
    assert (ran.code, f"application {second.name} was changed by" in ran.err) == (2, True), ran.err
    content = json.loads(ran.out)
    assert [done["application"] for done in content["commands"]] == [first.name]
    assert content["applied"] is False
    assert [step["application"] for step in content["plan"]] == [first.name, second.name]
    assert metastore_of(command).view().catalogue.definitions() == {first.name: first, second.name: other}
    # Its topics were made: they are made before the next is submitted.
    assert metastore_of(command).view().catalogue.entry(first.name).topics


# -- list, get, describe, history ---------------------------------------------------------------------------------


def test_what_get_prints_is_what_apply_takes(command: Command, bootstrap_servers: str, tmp_path: Path) -> None:
    first = defined(bootstrap_servers, stores=[{"name": "counts", "owner": "zoë", "value_serde": "int64"}])
    second = defined(bootstrap_servers, aggregations=[BY_VALUE])
    assert command("apply", write(tmp_path, first, second)).code == 0
    end = end_of(command)
    one = command("get", first.name).out
    assert yaml.safe_load(one)["stores"][0]["owner"] == "zoë"
    for printed in (one, command("get").out):
        ran = command.fed(printed, "apply", "-")
        assert ran.code == 0, ran.err
        assert "0 to create, 0 to change" in ran.out
    assert end_of(command) == end
    assert list(shown(command, "get")) == sorted([first.name, second.name])


def test_the_catalogue_is_read_as_it_was_at_an_offset_and_as_it_was_pinned(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    definition = defined(bootstrap_servers)
    assert command("apply", write(tmp_path, definition)).code == 0
    pin = shown(command, "list")["catalogue"]
    assert command("apply", write(tmp_path, changed(definition, commit_interval_ms=500))).code == 0
    for at in (pin, pin.partition(":")[0]):
        assert shown(command, "get", "--at", at)[definition.name]["commit_interval_ms"] == 1000
        assert shown(command, "describe", definition.name, "--at", at)["definition"]["commit_interval_ms"] == 1000
        assert shown(command, "list", "--at", at)["catalogue"] == pin
        assert len(shown(command, "history", "--at", at)["commands"]) == 2
    assert shown(command, "get")[definition.name]["commit_interval_ms"] == 500
    assert shown(command, "list", "--at", "0")["applications"] == {}


@pytest.mark.parametrize("at", ["-1", "x", "5:abc", "999999", "9" * 30])
def test_an_offset_that_is_none_is_refused(command: Command, bootstrap_servers: str, tmp_path: Path, at: str) -> None:
    assert command("apply", write(tmp_path, defined(bootstrap_servers))).code == 0
    for name in ("list", "history"):
        assert command(name, f"--at={at}").code == 2


def test_history_up_to_a_pin_is_refused_where_it_is_another_catalogue(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    definition = defined(bootstrap_servers)
    assert command("apply", write(tmp_path, definition)).code == 0
    offset, digest = shown(command, "list")["catalogue"].split(":")
    assert command("apply", write(tmp_path, changed(definition, commit_interval_ms=500))).code == 0
    assert command("history", "--at", f"{offset}:{digest}").code == 0
    ran = command("history", "--at", f"{offset}:{digest[::-1]}")
    assert (ran.code, f"has digest {digest}" in ran.err) == (2, True)


def test_describe_shows_stores_topics_and_who_changed_it(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    definition = defined(bootstrap_servers, aggregations=[BY_VALUE])
    assert command("apply", write(tmp_path, definition)).code == 0
    changelog = f"{definition.name}-by-value-changelog"
    topic_id = Topics(bootstrap_servers, 10).require(changelog).topic_id
    out = command("describe", definition.name).out
    entry = metastore_of(command).view().catalogue.entry(definition.name)
    for expected in (definition.input_topic, changelog, topic_id, "1_0 to 1_1", entry.changed_by):
        assert expected in out
    ran = command("describe", "no-such")
    assert (ran.code, f"no application 'no-such' is in the catalogue; there are: {definition.name}" in ran.err) == (
        2,
        True,
    )


def test_history_tells_what_each_command_changed(command: Command, bootstrap_servers: str, tmp_path: Path) -> None:
    definition, other = defined(bootstrap_servers), defined(bootstrap_servers)
    name = definition.name
    assert command("apply", write(tmp_path, definition)).code == 0
    assert command("apply", write(tmp_path, other)).code == 0
    more = changed(definition, stores=[{"name": "counts", "owner": "data-team"}, {"name": "more"}])
    assert command("apply", write(tmp_path, more)).code == 0
    assert command("drop", f"{name}/more").code == 0
    assert command("drop", name).code == 0
    out = command("history", name).out
    assert other.name not in out
    told = [line.split("│")[-2].strip() for line in out.splitlines() if f" {name} " in line]
    assert told[0] == "created"
    assert told[1] == "recorded 1 topics"
    assert "stores.counts.owner: - -> data-team" in told[2]
    assert told[3:] == ["recorded 1 topics", "dropped store more", "dropped"]
    commands = shown(command, "history", name)["commands"]
    assert [item["command"]["kind"] for item in commands][-2:] == ["drop-store", "drop-application"]
    assert shown(command, "history", other.name)["commands"][0]["command"]["definition"]["name"] == other.name


# -- drop ---------------------------------------------------------------------------------------------------------


def test_what_is_dropped_leaves_its_topics_and_directories(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    definition = defined(bootstrap_servers)
    assert command("apply", write(tmp_path, definition)).code == 0
    directory = tmp_path / "state" / definition.name / "0_0"
    directory.mkdir(parents=True)
    ran = command("drop", definition.name)
    assert ran.code == 0, ran.err
    changelog = f"{definition.name}-counts-changelog"
    assert changelog in ran.out
    assert "`statestore drift` lists them" in ran.out
    assert metastore_of(command).view().catalogue.applications == {}
    assert Topics(bootstrap_servers, 10).describe([changelog])
    assert directory.exists()
    assert command("apply", write(tmp_path, definition)).code == 0, "what is left is taken over"


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


@pytest.mark.short_for(every=2)
@pytest.mark.parametrize("running", [_kafka_streams, _task])
@pytest.mark.parametrize("store", ["", "/more"])
def test_what_is_running_is_not_dropped_and_whoever_runs_it_is_named(
    command: Command,
    bootstrap_servers: str,
    tmp_path: Path,
    running: Callable[[Path, str], AbstractContextManager[str]],
    store: str,
) -> None:
    definition = defined(bootstrap_servers, stores=[{"name": "counts"}, {"name": "more"}])
    assert command("apply", write(tmp_path, definition)).code == 0
    with running(tmp_path / "state", definition.name) as pid:
        ran = command("drop", definition.name + store)
    assert ran.code == 3
    assert f"application {definition.name} is in use" in ran.err
    assert f"process {pid} (" in ran.err
    assert metastore_of(command).view().catalogue.entry(definition.name).definition == definition
    assert command("drop", definition.name + store).code == 0


@pytest.mark.short_for(every=2)
@pytest.mark.parametrize("running", [_kafka_streams, _task])
def test_apply_takes_no_store_out_of_what_is_running(
    command: Command,
    bootstrap_servers: str,
    tmp_path: Path,
    running: Callable[[Path, str], AbstractContextManager[str]],
) -> None:
    two = defined(bootstrap_servers, stores=[{"name": "counts"}, {"name": "more"}])
    assert command("apply", write(tmp_path, two)).code == 0
    one = write(tmp_path, changed(two, stores=[{"name": "counts"}]))
    with running(tmp_path / "state", two.name) as pid:
        ran = command("apply", one)
        assert (ran.code, f"process {pid} (" in ran.err) == (3, True), ran.err
        owned = changed(two, stores=[{"name": "counts", "owner": "data-team"}, {"name": "more"}])
        assert command("apply", write(tmp_path, owned)).code == 0, "that takes nothing away"
    ran = command("apply", one, STATE_DIR="")
    assert (ran.code, f"{two.name} loses more. Say --state-dir" in ran.err) == (2, True)
    assert metastore_of(command).view().catalogue.entry(two.name).definition == owned
    assert command("apply", one).code == 0


def test_an_application_whose_group_has_members_is_not_dropped(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    definition = defined(bootstrap_servers)
    assert command("apply", write(tmp_path, definition)).code == 0
    member = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": definition.name, "client.id": "somebody-else"}
    )
    try:
        member.subscribe([definition.input_topic])
        wait_for(lambda: member.poll(0.1) or member.assignment(), "the member to have joined")
        ran = command("drop", definition.name)
    finally:
        member.close()
    assert ran.code == 2
    assert "has active members: somebody-else" in ran.err
    assert definition.name in metastore_of(command).view().catalogue.applications


def test_a_store_that_is_written_by_an_aggregation_is_not_dropped(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    definition = defined(bootstrap_servers, aggregations=[BY_VALUE])
    assert command("apply", write(tmp_path, definition)).code == 0
    end = end_of(command)
    for name, expected in (
        (f"{definition.name}/by-value", "is in use: aggregations.0 writes it"),
        (f"{definition.name}/none", "has no store 'none'; its stores are: counts, by-value"),
        (f"{definition.name}/", "has no store ''"),
        ("none", "no application 'none'"),
    ):
        ran = command("drop", name)
        assert (ran.code, expected in ran.err) == (2, True), ran.err
    assert end_of(command) == end


@pytest.mark.parametrize(("answer", "dropped"), [("n", False), ("y", True)])
def test_somebody_at_a_terminal_is_asked_before_a_drop(
    command: Command, bootstrap_servers: str, tmp_path: Path, answer: str, dropped: bool
) -> None:
    definition = defined(bootstrap_servers)
    assert command("apply", write(tmp_path, definition)).code == 0
    ran = command.answered(answer, "drop", definition.name)
    assert ran.code == (0 if dropped else 2)
    assert (definition.name not in metastore_of(command).view().catalogue.applications) is dropped


def test_an_application_that_feeds_another_is_not_dropped_silently(
    command: Command, bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = defined(bootstrap_servers)
    second = changed(defined(bootstrap_servers), input_topic=first.output_topics[0])
    third = changed(defined(bootstrap_servers), input_topic=first.output_topics[0])
    assert command("apply", write(tmp_path, first, second)).code == 0
    fed = f"application {first.name} feeds {second.name} (through topic {second.input_topic})"
    ran = command("drop", first.name)
    assert (ran.code, fed in ran.err, "Say --yes" in ran.err) == (2, True, True)
    ran = command.answered("n", "drop", first.name)
    assert (ran.code, fed in ran.err) == (2, True)

    def come_between() -> None:
        put(metastore_of(command), third, {third.input_topic: 2})

    with reaching(monkeypatch, "command made, nobody fenced", come_between):
        ran = command.answered("y", "drop", first.name)
    assert (ran.code, f"feeds {third.name} (through topic {third.input_topic}) since" in ran.err) == (2, True)
    assert first.name in metastore_of(command).view().catalogue.applications

    assert command("drop", second.name).code == 0, "who is only fed is dropped as ever"
    ran = command("drop", first.name, "--yes")
    assert (ran.code, f"feeds {third.name}" in ran.err) == (0, True)
    assert list(metastore_of(command).view().catalogue.applications) == [third.name]


# -- the command topic --------------------------------------------------------------------------------------------


def test_a_degraded_metastore_is_read_with_a_warning_and_takes_nothing(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    definition, other = defined(bootstrap_servers), defined(bootstrap_servers)
    assert command("apply", write(tmp_path, definition)).code == 0
    assert command("metastore", "status").code == 0
    produce(bootstrap_servers, topic_name(command.settings["SERVICE_ID"]), [(b"application/x", b"{")])
    for arguments in (["list"], ["get"], ["describe", definition.name], ["history"], ["partitions"]):
        ran = command(*arguments)
        assert ran.code == 0, ran.err
        assert "the metastore is DEGRADED: " in ran.err
        assert definition.name in ran.out or arguments == ["partitions"]
    assert "unreadable" in command("history").out
    end = end_of(command)
    for arguments in (
        ["apply", write(tmp_path, other)],
        ["drop", definition.name],
        ["metastore", "compact"],
        ["restore", "--application", definition.name],
    ):
        ran = command(*arguments)
        assert (ran.code, "MetastoreDegradedError" in ran.err) == (2, True), ran.err
    assert end_of(command) == end
    status = command("metastore", "status", "--json", "-")
    assert (status.code, json.loads(status.out)["health"]) == (1, "DEGRADED")
    assert command("apply", write(tmp_path, other), "--dry-run").code == 0


@pytest.mark.behaviour("C15")
def test_the_command_topic_is_made_anew_from_its_backup_only_by_somebody_who_says_so(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    definition = defined(bootstrap_servers)
    assert command("apply", write(tmp_path, definition)).code == 0
    before = shown(command, "list")["applications"]
    topic = topic_name(command.settings["SERVICE_ID"])
    delete_topic(bootstrap_servers, topic)
    assert command("metastore", "status").code == 1
    for ran in (
        command("metastore", "restore-backup"),
        command.answered("n", "metastore", "restore-backup"),
    ):
        assert ran.code == 2
        assert f"{topic} stays as it is" in ran.err
        assert topic not in Topics(bootstrap_servers, 10).names()
    ran = command.answered("y", "metastore", "restore-backup")
    assert ran.code == 0, ran.err
    assert f"{topic} has 2 commands of" in ran.out
    assert shown(command, "list")["applications"] == before
    assert command("metastore", "restore-backup", "--yes").code == 2, "there is nothing to restore"


def test_a_compacted_log_begins_with_its_snapshot(command: Command, bootstrap_servers: str, tmp_path: Path) -> None:
    definition = defined(bootstrap_servers)
    assert command("apply", write(tmp_path, definition)).code == 0
    before = shown(command, "list")
    assert "snapshot of catalogue" in command("metastore", "compact").out
    after = shown(command, "list")
    assert (after["applications"], after["health"]) == (before["applications"], "RUNNING")
    assert commands_in(metastore_of(command)) == ["snapshot"]
    assert "nothing to compact" in command("metastore", "compact").out
    assert "snapshot of 1 applications" in command("history").out
    assert command("list", "--at", "1").code == 2


def test_a_service_id_that_is_no_name_is_refused(command: Command) -> None:
    ran = command("list", SERVICE_ID="../x")
    assert (ran.code, "--service-id: '../x' is not a valid name" in ran.err) == (2, True)


def test_where_nothing_was_ever_applied_the_catalogue_is_empty_and_nothing_is_made(
    command: Command, bootstrap_servers: str
) -> None:
    content = shown(command, "list")
    assert (content["applications"], content["health"]) == ({}, "RUNNING")
    assert command("get").out == ""
    assert shown(command, "history") == {"commands": []}
    assert topic_name(command.settings["SERVICE_ID"]) not in Topics(bootstrap_servers, 10).names()


# -- commands on stores -------------------------------------------------------------------------------------------


def test_commands_on_stores_go_by_the_catalogue_and_their_reports_name_it(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"key", b"1"), (b"key", b"2")])
    assert command("apply", write(tmp_path, application.definition)).code == 0
    pin = shown(command, "list")["catalogue"]
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
