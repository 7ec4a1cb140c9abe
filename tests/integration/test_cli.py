"""The `statestore` command on applications of ours: what it prints, what it does, and its exit codes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, commit_offsets
from statestore.model import TopicPartition
from statestore.reports import Loss, RestorePlanReport, RestoreReport, Status, VerifyReport, read_report
from statestore.statedir.lock import locked
from statestore.statedir.seal import break_seal
from statestore.stores.open import open_key_value_store
from statestore.tasks import ValueAndTimestamp
from statestore.verification.history import read_history
from tests.integration.broker import NO_BROKER, T0, add_partitions, create_topic, produce, unique, wait_for
from tests.integration.command_line import Ran, command_on
from tests.integration.support import STORE, Application
from tests.otlp import receiving

PARTITIONS = 2
#: As of an offset there is a state only while nothing was compacted away.
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}


Run = Callable[..., Ran]


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application that has processed some input in both partitions."""
    made = Application(bootstrap_servers, tmp_path, partitions=PARTITIONS, changelog_config=KEPT)
    for partition in range(PARTITIONS):
        made.send([(b"key", b"1"), (b"key", b"2"), (b"%d" % partition, b"1")], partition)
        row = made.run(partition)
        assert row.failure is None
    return made


@pytest.fixture
def run(application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> Run:
    """Run the command on the application, with its definition."""
    command, written = command_on(application, tmp_path, monkeypatch, capfd)

    def run(*arguments: str, definitions: Path | None = written, **settings: str) -> Ran:
        return command(*arguments, *(("--definitions", str(definitions)) if definitions else ()), **settings)

    return run


def live(application: Application, partition: int) -> Path:
    return application.store_spec(partition).live


# -- partitions ---------------------------------------------------------------------------------------------------


def test_each_store_partition_is_listed_with_where_it_stands(application: Application, run: Run) -> None:
    ran = run("partitions")
    assert ran.code == 0
    for partition in range(PARTITIONS):
        (line,) = [line for line in ran.out.splitlines() if f"{application.name}/{STORE}/0_{partition}" in line]
        cells = [cell.strip() for cell in line.strip("│┃ ").split("│")]
        assert cells[1:5] == ["key-value", "timestamped", "", application.changelog]
        assert cells[5] == str(application.committed(partition))
        assert cells[8] == "sealed"


@pytest.fixture
def rows_of(run: Run) -> Callable[..., list[dict[str, str]]]:
    """Run a command, and return the rows of its report."""

    def rows_of(*arguments: str, code: int) -> list[dict[str, str]]:
        ran = run(*arguments, "--json", "-")
        assert ran.code == code, ran.err
        return list(json.loads(ran.out)["rows"])

    return rows_of


@pytest.fixture
def outside(application: Application) -> Path:
    """Directory of a partition that the topics, created again with fewer partitions, do not have."""
    task = application.store_spec(0).paths.task_dir
    return Path(shutil.copytree(task, task.with_name("0_7")))


def test_a_directory_of_a_partition_that_no_topic_has_is_a_row(
    application: Application, rows_of: Callable[..., list[dict[str, str]]], outside: Path
) -> None:
    assert [row["task"] for row in rows_of("partitions", code=0)] == ["0_0", "0_1", "0_7"]
    statuses = {row["task"]: row["status"] for row in rows_of("verify", "--depth", "offsets", code=1)}
    assert statuses == {"0_0": "OK", "0_1": "OK", "0_7": "REPARTITIONED"}


def test_a_directory_of_a_partition_that_no_topic_has_does_not_stop_restores(
    application: Application, rows_of: Callable[..., list[dict[str, str]]], outside: Path
) -> None:
    shutil.rmtree(live(application, 0))
    outcomes = {row["task"]: row["outcome"] for row in rows_of("restore", code=1)}
    assert outcomes == {"0_0": "restored", "0_1": "skipped", "0_7": "failed"}
    assert live(application, 7).exists()


def test_the_list_tells_what_is_missing_and_what_is_in_use(application: Application, run: Run) -> None:
    shutil.rmtree(live(application, 0))
    with locked(application.store_spec(1).paths, 1):
        lines = [line for line in run("partitions").out.splitlines() if application.name in line]
    assert ["missing" in lines[0], "in use" in lines[1]] == [True, True]


# -- verify -------------------------------------------------------------------------------------------------------


@pytest.mark.short_for("deep")
@pytest.mark.parametrize("depth", ["offsets", "scan", "deep"])
def test_healthy_stores_end_with_0_and_leave_a_report_and_history(
    application: Application, run: Run, tmp_path: Path, depth: str
) -> None:
    report = tmp_path / "report.json"
    reports_dir = str(tmp_path / "reports")
    ran = run("verify", "--depth", depth, "--json", str(report), "--parallel", "1", REPORTS_DIR=reports_dir)
    assert ran.code == 0, ran.out + ran.err
    rows = read_report(report, VerifyReport).rows
    assert [(row.task, row.status, row.depth) for row in rows] == [
        (f"0_{partition}", Status.OK, depth) for partition in range(PARTITIONS)
    ]
    assert read_history(Path(reports_dir)).num_rows == PARTITIONS


def test_damage_ends_with_1_and_is_named(application: Application, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(live(application, 1))
    (application.state_dir / "of-kafka-streams" / "0_0").mkdir(parents=True)
    with receiving() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        ran = run("verify", "--parallel", "2")
        assert run("verify", f"{STORE}/0", "--parallel", "1").code == 0
        monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    assert ran.code == 1
    of = {"application": application.name, "store": STORE}
    missing = [value for value in collector.values if value.attributes.items() >= {"status": "MISSING", **of}.items()]
    assert [value.value for value in missing] == [1], "and one partition of a store is not exported as the store"
    assert collector.last("statestore.job.exit_code", job_name="verify") == 1
    assert "left out: application of-kafka-streams: it has no definition; to include it, name it" in ran.err
    assert f"Next: statestore restore --application {application.name} --definitions" in ran.err
    quiet = run("verify", "--depth", "offsets", f"{STORE}/1", "--parallel", "1", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (1, "", "")
    (line,) = [line for line in ran.out.splitlines() if "MISSING" in line]
    assert f"{application.name}/{STORE}/0_1" in line
    assert "full" in line


@pytest.fixture
def beside_sick(application: Application, run: Run, tmp_path: Path) -> Run:
    """Run the command on two applications. One has no input topic."""
    sick = application.definition.model_copy(update={"name": unique("sick"), "input_topic": unique("gone")})
    (tmp_path / "definitions").mkdir()
    for definition in (application.definition, sick):
        (tmp_path / "definitions" / f"{definition.name}.yaml").write_text(definition.model_dump_json())

    def beside_sick(*arguments: str) -> Ran:
        ran = run(*arguments, definitions=tmp_path / "definitions")
        assert ran.code == 1
        assert f"left out: application {sick.name}: topic {sick.input_topic} does not exist" in ran.err
        return ran

    return beside_sick


def test_an_application_without_its_input_topic_does_not_stop_the_verification_of_others(
    application: Application, beside_sick: Run
) -> None:
    rows = json.loads(beside_sick("verify", "--depth", "offsets", "--json", "-").out)["rows"]
    healthy = [(row["task"], row["status"]) for row in rows if row["application"] == application.name]
    assert healthy == [("0_0", Status.OK), ("0_1", Status.OK)]
    (sick,) = [row for row in rows if row["application"] != application.name]
    assert (sick["store"], sick["task"], sick["status"], sick["action"]) == (STORE, "-", "UNDETERMINED", "manual")


@pytest.mark.short_for("partitions")
@pytest.mark.parametrize("command", [("partitions",), ("restore", "--dry-run"), ("restore",)], ids=" ".join)
def test_an_application_without_its_input_topic_does_not_stop_the_others(
    application: Application, beside_sick: Run, command: tuple[str, ...]
) -> None:
    shutil.rmtree(live(application, 1))
    rows = json.loads(beside_sick(*command, "--json", "-").out)["rows"]
    assert [row["task"] for row in rows if row["application"] == application.name] == ["0_0", "0_1"]
    assert len([row for row in rows if row["application"] != application.name]) == 1
    assert live(application, 1).exists() is (command == ("restore",))


def test_a_changelog_with_other_partitions_than_there_are_tasks_ends_with_1(application: Application, run: Run) -> None:
    add_partitions(application.servers, application.changelog, PARTITIONS + 1)
    ran = run("verify", "--depth", "offsets", "--parallel", "1")
    assert ran.code == 1
    assert ran.out.count("REPARTITIONED") == PARTITIONS


@pytest.mark.short_for("--json-verify", "--reports-dir-restore")
@pytest.mark.parametrize("command", ["verify", "restore"])
@pytest.mark.parametrize("option", ["--json", "--reports-dir"])
def test_a_place_that_no_report_can_be_written_to_ends_with_2_before_the_work(
    application: Application, run: Run, tmp_path: Path, command: str, option: str
) -> None:
    shutil.rmtree(live(application, 1))
    (tmp_path / "file").touch()
    ran = run(command, option, str(tmp_path / "file" / "report"))
    assert ran.code == 2
    assert f"{option}: expected a directory, found the file" in ran.err
    assert not live(application, 1).exists()


@pytest.mark.short_for("1")
@pytest.mark.parametrize("offset", [None, 1])
def test_a_changelog_named_otherwise_ends_where_the_group_is_only_if_it_is_an_input(
    application: Application, run: Run, offset: int | None
) -> None:
    written = create_topic(application.servers, unique("written"), PARTITIONS, KEPT)
    for partition in range(PARTITIONS):
        produce(application.servers, written, [(b"a", b"1"), (b"b", b"1")], partition)
    if offset is not None:
        commit_offsets(
            Cluster(application.servers), application.name, {TopicPartition(written, 0): GroupOffset(offset)}
        )
    said = ("--application", application.name, "--changelog", f"{STORE}={written}")
    for partition in range(PARTITIONS):
        shutil.rmtree(live(application, partition))
    described = ("--store", f"{STORE}:kind=key-value,format=plain,subtopology=0")
    ran = run("verify", *said, *described, "--parallel", "1", definitions=None)
    if offset is None:
        assert ran.code == 1
        assert ran.out.count("MISSING") == PARTITIONS
    else:
        assert ran.code == 2
        assert "has no committed offset for it" in ran.err
        assert f"add --changelog {STORE}={written}" in ran.err


def test_a_store_in_use_is_verified_without_its_lock(
    application: Application, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered: list[bool] = []  # the priority of the process that runs the other tests stays as it is
    monkeypatch.setattr("statestore.verification.live.pace.use_lowest_priority", lambda: lowered.append(True))
    with locked(application.store_spec(0).paths, 1):
        ran = run("verify", "--partition", "0")
        assert (ran.code, "IN_USE" in ran.out) == (0, True)
        ran = run("verify", "--partition", "0", "--live", "--depth", "deep", "--rate", "50", "--confirm-within-s", "0")
        assert (ran.code, "PROVEN" in ran.out) == (0, True)
    assert lowered == [True] * 3  # for the locked store, and for the one with --live: its process, and its work
    ran = run("verify", "--live", "--depth", "deep", "--sample", "0.5")
    assert (ran.code, "leave it out" in ran.err) == (2, True)


def test_a_broker_that_is_away_ends_with_3_and_says_so(run: Run) -> None:
    ran = run("verify", BOOTSTRAP_SERVERS=NO_BROKER, KAFKA_TIMEOUT_S="1")
    assert ran.code == 3
    assert "KafkaUnavailableError" in ran.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--application", "no-such"], "no application 'no-such'"),
        (["--application", "../etc"], "is not a valid name"),
        (["--store", "no-such"], f"no store 'no-such'; the stores are: {STORE}"),
        (["--store", f"{STORE}:kind=window"], "apply to one application without a definition"),
        (["--retention", f"{STORE}=5"], "apply to one application without a definition"),
        (["--partition", "7"], "partitions [7] do not exist; there are 0 to 1"),
        ([f"{STORE}/7"], f"store {STORE} has no partition 7; it has 0_0, 0_1"),
        (["--sample", "0.5"], "only depth deep compares a sample"),
        (["--depth", "guess"], "guess"),
        (["--parallel", "0"], "parallel"),
    ],
)
def test_bad_input_ends_with_2_and_says_what_was_expected(run: Run, arguments: list[str], expected: str) -> None:
    ran = run("verify", *arguments)
    assert ran.code == 2
    assert expected in " ".join(ran.err.replace("│", " ").split())


def test_a_state_directory_that_the_system_refuses_ends_with_2(application: Application, run: Run) -> None:
    ran = run("verify", STATE_DIR="/" + "x" * 5_000, definitions=None)
    assert ran.code == 2
    assert "StoreAccessError" in ran.err


def test_definitions_that_are_not_there_end_with_2(run: Run, tmp_path: Path) -> None:
    ran = run("verify", definitions=tmp_path / "none.yaml")
    assert ran.code == 2
    assert "none.yaml does not exist" in ran.err


# -- restore ------------------------------------------------------------------------------------------------------


def test_a_plan_does_nothing_and_a_restore_does_what_it_says(
    application: Application, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = application.contents(1)
    shutil.rmtree(live(application, 1))
    report = tmp_path / "report.json"
    ran = run("restore", "--dry-run", "--parallel", "1", "--json", str(report))
    assert ran.code == 0, ran.out + ran.err
    assert [(row.task, row.mode) for row in read_report(report, RestorePlanReport).rows] == [
        ("0_0", None),
        ("0_1", "full"),
    ]
    assert not live(application, 1).exists()

    with receiving() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        ran = run("restore", "--parallel", "2", "--json", str(report))
        monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    assert ran.code == 0, ran.out + ran.err
    outcomes = [
        collector.last("statestore.restore.partitions", outcome=what) for what in ("restored", "skipped", "failed")
    ]
    assert outcomes == [1, 1, 0]
    rows = read_report(report, RestoreReport).rows
    assert [(row.task, row.outcome) for row in rows] == [("0_0", "skipped"), ("0_1", "restored")]
    assert application.contents(1) == contents
    assert run("verify", "--depth", "deep", "--parallel", "1").code == 0


def test_an_approved_plan_is_carried_out_and_nothing_bolder_is_done(
    application: Application, run: Run, tmp_path: Path
) -> None:
    contents, plan = application.contents(1), tmp_path / "plan.json"
    shutil.rmtree(live(application, 1))
    ran = run("restore", "--dry-run", "--parallel", "1", "--json", str(plan))
    assert "--plan" in ran.err
    assert "do nothing bolder" in ran.err
    (row,) = [found for found in read_report(plan, RestorePlanReport).rows if found.mode is not None]
    assert (row.loss, row.begins, row.publishes) == (Loss.NONE, "", False)
    (live(application, 0) / "CURRENT").unlink()  # it was healthy when the plan was approved
    refused = run("restore", "--parallel", "1", "--plan", str(plan))
    assert refused.code == 1
    assert "the approved plan no longer holds, because nothing was to be done" in refused.out
    assert application.contents(1) == contents
    assert not (live(application, 0) / "CURRENT").exists()
    assert run("restore", "--parallel", "1", "--dry-run", "--plan", str(plan)).code == 2
    assert run("restore", "--parallel", "1").code == 0


def test_only_what_a_report_advises_is_restored_and_what_diverged_for_sure(
    application: Application, run: Run, tmp_path: Path
) -> None:
    spec = application.store_spec(1)
    committed = application.committed(1)
    contents = application.contents(1)
    break_seal(spec.paths, STORE)
    store = open_key_value_store(spec.store, spec.live)
    store.put(b"key", ValueAndTimestamp(b"wrong", T0))
    store.commit({spec.partition: committed})
    store.close()
    report = tmp_path / "verified.json"
    assert run("verify", "--parallel", "1").code == 0, "no offset tells, and every row can be read"
    assert run("verify", "--depth", "deep", "--parallel", "1", "--json", str(report)).code == 1

    ran = run("restore", "--verify-report", str(report), "--parallel", "1", "--json", str(tmp_path / "restored.json"))
    assert ran.code == 0, ran.out + ran.err
    rows = read_report(tmp_path / "restored.json", RestoreReport).rows
    assert [(row.task, row.outcome) for row in rows] == [("0_1", "restored")]
    assert application.contents(1) == contents
    assert run("verify", "--depth", "deep", "--parallel", "1", "--json", str(report)).code == 0
    ran = run("restore", "--verify-report", str(report))
    assert ran.code == 2
    assert "advises restoring none of 2 store partitions" in ran.err


@pytest.mark.long
def test_ranges_are_read_by_processes_of_their_own(application: Application, run: Run, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = ["--mode", "full", "--force", "--ranges", "2", "--parallel", "2", "--check", "deep"]
    ran = run("restore", *arguments, "--json", str(report), REPORTS_DIR=str(tmp_path / "reports"))
    assert ran.code == 0, ran.out + ran.err
    rows = read_report(report, RestoreReport).rows
    assert [(row.outcome, row.checked, row.resumed) for row in rows] == [
        ("restored", "deep", row.records) for row in rows
    ]
    assert not list((tmp_path / "reports" / "restore").glob(".progress-*"))
    assert run("verify", "--depth", "deep", "--parallel", "1").code == 0


def test_a_store_as_of_an_offset_is_built_elsewhere(application: Application, run: Run, tmp_path: Path) -> None:
    target = tmp_path / "then"
    point = ["--mode", "as-of", "--as-of-offset", "0", "--partition", "0", "--parallel", "1"]
    ran = run("restore", *point, "--target", str(target))
    assert ran.code == 0, ran.out + ran.err
    ran = run("read", STORE, "6b6579", "--partition", "0", STATE_DIR=str(target))
    assert ran.code == 0, ran.out + ran.err
    assert b"1".hex() in ran.out
    assert application.contents(0)[b"key"].value == b"2"
    ran = run("restore", "--mode", "as-of", "--as-of-offset", "1", "--partition", "0", "--target", str(target))
    assert ran.code == 2
    assert "name another directory" in ran.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--mode", "as-of"], "expected --as-of-offset or --as-of-timestamp or --snapshot, and --target"),
        (["--as-of-offset", "1"], "--as-of-offset: expected mode as-of, found mode auto"),
        (["--mode", "as-of", "--as-of-offset", "1", "--as-of-timestamp", "2"], "found both"),
        (["--mode", "sideways"], "sideways"),
        (["--ranges", "0"], "ranges"),
    ],
)
def test_a_restore_that_makes_no_sense_ends_with_2(run: Run, arguments: list[str], expected: str) -> None:
    ran = run("restore", *arguments)
    assert ran.code == 2
    assert expected in " ".join(ran.err.replace("│", " ").split())


@pytest.mark.long
def test_a_store_in_use_is_not_restored_and_ends_with_3(application: Application, run: Run) -> None:
    shutil.rmtree(live(application, 0))
    with locked(application.store_spec(0).paths, 1):
        ran = run("restore", "--partition", "0", "--parallel", "1")
    assert ran.code == 3
    assert not live(application, 0).exists()


# -- read ---------------------------------------------------------------------------------------------------------


def test_read_finds_a_key_in_every_partition_that_has_it_and_rows_in_ranges(application: Application, run: Run) -> None:
    text = ("--key-serde", "utf8", "--value-serde", "utf8")
    ran = run("read", STORE, "key", *text)
    assert ran.code == 0
    lines = [line for line in ran.out.splitlines() if application.name in line]
    cells = [[cell.strip() for cell in line.strip("│ ").split("│")][1:] for line in lines]
    assert cells == [["key", "2", str(T0 + 1)]] * 2

    def found(*arguments: str) -> list[tuple[str, str]]:
        ran = run("read", *arguments, "--json", "-")
        return [(row["task"], row["key"]) for row in json.loads(ran.out)["rows"]]

    assert found(STORE, *text) == [("0_0", "0"), ("0_0", "key"), ("0_1", "1"), ("0_1", "key")]
    assert found(STORE, *text, "--key-from", "1", "--key-to", "l") == [("0_0", "key"), ("0_1", "1"), ("0_1", "key")]
    for name in (f"{application.name}/{STORE}/0_1", f"{STORE}/0_1", f"{STORE}/1"):
        assert found(name, *text) == [("0_1", "1"), ("0_1", "key")]
    limited = run("read", STORE, *text, "--limit", "3", "--json", "-")
    assert (len(json.loads(limited.out)["rows"]), json.loads(limited.out)["more"]) == (3, True)
    assert "these are the first 3 rows; add --limit" in limited.err
    assert application.name not in limited.err, "a program that reads the rows needs no table"
    values = run("read", STORE, *text[:2], "--value-serde", "json", "--json", "-")
    assert {type(row["value"]) for row in json.loads(values.out)["rows"]} == {int}
    other = run("read", STORE, "key", "--key-serde", "utf8", "--value-serde", "int64", "--json", "-")
    assert [(row["value"], row["value_bytes"]) for row in json.loads(other.out)["rows"]] == [(None, b"2".hex())] * 2
    assert "2 rows have a key or a value that its serde cannot decode" in other.err
    assert "Correct --key-serde or --value-serde" in other.err
    absent = run("read", STORE, "key", "--key-serde", "utf8", "--value-serde", "absent:EUROS")
    assert absent.code == 0
    assert "serde absent:EUROS cannot be used: ModuleNotFoundError" in absent.err
    assert "Correct --key-serde" not in absent.err
    for arguments, expected in (
        (("--time-from", "5"), "is a key-value store, whose keys have no times"),
        (("--time-from", "5", "--time-to", "5"), "--time-to: expected a time after --time-from 5, found 5"),
        (("key", "--key-to", "l"), "KEY, --key-from, --key-to: expected a key or a range of keys, found both"),
    ):
        refused = run("read", STORE, *arguments)
        assert (refused.code, expected in refused.err) == (2, True), refused.err


def test_read_takes_the_definitions_serdes_which_are_bytes_in_hex(run: Run) -> None:
    assert b"2".hex() in run("read", STORE, b"key".hex(), "--partition", "1").out
    ran = run("read", STORE, "key")
    assert ran.code == 2
    assert "is not hexadecimal digits, as --key-serde bytes requires" in ran.err


def test_a_key_that_is_not_there_ends_with_1(run: Run) -> None:
    ran = run("read", STORE, "00")
    assert ran.code == 1
    assert f"no partition of {STORE} has the key '00'" in ran.err


@pytest.mark.parametrize("said", [["--history"], ["--as-of", "5"]])
def test_a_store_without_versions_has_no_history(run: Run, said: list[str]) -> None:
    ran = run("read", STORE, "00", *said)
    assert ran.code == 2
    assert f"is a key-value store. Only versioned stores have the history that {said[0]} needs" in ran.err


# -- processes ----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_report_says_the_same_whatever_the_number_of_processes(run: Run, tmp_path: Path) -> None:
    found = []
    for processes in ("1", "2"):
        report = tmp_path / f"{processes}.json"
        assert run("verify", "--parallel", processes, "--json", str(report)).code == 0
        rows = json.loads(report.read_text())["rows"]
        found.append([{**row, "seconds": 0} for row in rows])
    assert found[0] == found[1]


@pytest.mark.long
@pytest.mark.short_for("9")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_a_command_that_is_ended(
    application: Application, run: Run, tmp_path: Path, how: signal.Signals
) -> None:
    with ExitStack() as in_use:
        for partition in range(PARTITIONS):
            in_use.enter_context(locked(application.store_spec(partition).paths, 1))
        command = subprocess.Popen(
            [
                *(sys.executable, "-m", "statestore.cli", "verify", "--parallel", "2"),
                *("--bootstrap-servers", application.servers, "--state-dir", str(application.state_dir)),
                *("--definitions", str(tmp_path / "application.yaml")),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # Whoever started the tests in the background may have it ignored, which children inherit.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        parent = psutil.Process(command.pid)
        children = wait_for(
            lambda: len(found := parent.children(recursive=True)) >= PARTITIONS and found, "workers", 120
        )
        command.send_signal(how)
        command.communicate(timeout=120)
        assert command.returncode == (130 if how is signal.SIGINT else -how)
        gone, alive = psutil.wait_procs(children, timeout=120)
        assert (len(gone), alive) == (len(children), [])
