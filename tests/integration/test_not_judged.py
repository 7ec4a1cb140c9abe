"""Stores that cannot be judged have a row and a separate exit code, until a user acknowledges or describes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from statestore.cli.app import main
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, commit_offsets
from statestore.model import TopicPartition
from tests.integration.broker import create_topic, produce, unique

Command = Callable[..., tuple[int, dict[str, Any]]]
#: In the names of directories that Kafka Streams does not make.
ODD = "o dd"


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> str:
    """Application with a directory that is no store of Kafka Streams, and a changelog without a directory."""
    name = unique("orders")
    (tmp_path / "state" / name / "0_0" / "rocksdb" / ODD).mkdir(parents=True)
    produce(bootstrap_servers, create_topic(bootstrap_servers, f"{name}-totals-changelog"), [(b"a", b"1")])
    return name


@pytest.fixture
def command(
    application: str,
    bootstrap_servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Command:
    """Run a command for the application, and return its exit code and report."""
    monkeypatch.setenv("STATESTORE_BOOTSTRAP_SERVERS", bootstrap_servers)
    monkeypatch.setenv("STATESTORE_STATE_DIR", str(tmp_path / "state"))

    def run(*argv: str) -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr("sys.argv", ["statestore", *argv, "--application", application, "--json", "-"])
        with pytest.raises(SystemExit) as ended:
            main()
        out = capfd.readouterr().out
        return int(ended.value.code or 0), json.loads(out) if out else {}

    return run


def statuses(report: dict[str, Any]) -> Sequence[tuple[str, str, str, bool]]:
    rows = report["rows"]
    return [(row["store"], row["status"], row["action"], bool(row["acknowledged"])) for row in rows]


def test_a_store_that_is_not_judged_is_acknowledged_and_forgotten(command: Command) -> None:
    code, report = command("verify")
    unknown, lost = (ODD, "UNKNOWN_FORMAT", "manual", False), ("totals", "MISSING", "manual", False)
    assert (code, statuses(report)) == (1, [unknown, lost])
    assert command("partitions", "--acknowledge", "totals", "--reason", "no longer there")[0] == 0
    code, report = command("verify")
    gone = ("totals", "MISSING", "none", True)
    assert (code, statuses(report)) == (6, [unknown, gone])
    assert "no longer there" in report["rows"][1]["detail"]
    assert command("partitions", "--acknowledge", ODD)[0] == 0
    code, report = command("verify")
    assert (code, statuses(report)) == (0, [(ODD, "UNKNOWN_FORMAT", "none", True), gone])
    code, report = command("partitions", "--forget", ODD)
    assert (code, [row["store"] for row in report["recorded"]]) == (0, ["totals"])
    assert command("verify")[0] == 6


def test_a_topic_that_may_be_of_another_application_is_not_judged_until_the_user_answers(
    command: Command, application: str, bootstrap_servers: str, tmp_path: Path
) -> None:
    """Given a group `orders-v2` of an unknown program, and a changelog that store `v2-x` of `orders` may have."""
    for name in (ODD, "totals"):
        assert command("partitions", "--acknowledge", name)[0] == 0
    read = TopicPartition(create_topic(bootstrap_servers, unique("read")), 0)
    commit_offsets(Cluster(bootstrap_servers), f"{application}-v2", {read: GroupOffset(0, "")})
    topic = create_topic(bootstrap_servers, f"{application}-v2-x-changelog")
    produce(bootstrap_servers, topic, [(b"a", b"1")])

    code, report = command("verify")
    assert (code, statuses(report)[0]) == (6, ("v2-x", "UNKNOWN_FORMAT", "manual", False))
    answer = f"statestore partitions --application {application} --acknowledge v2-x"
    assert answer in report["rows"][0]["detail"]
    assert report["left_out"] == {}
    assert command("partitions", "--acknowledge", "v2-x")[0] == 0
    code, report = command("verify")
    assert (code, ("v2-x", "UNKNOWN_FORMAT", "none", True) in statuses(report)) == (0, True)


@pytest.mark.parametrize(
    ("config", "cut", "expected"),
    [
        ({"cleanup.policy": "compact"}, False, ("EMPTY", "none")),
        ({"cleanup.policy": "delete"}, True, ("EMPTY", "none")),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, True, ("MISSING", "manual")),
    ],
    ids=["never written", "expired", "cut"],
)
def test_a_store_whose_changelog_is_empty_has_a_row(
    command: Command,
    application: str,
    bootstrap_servers: str,
    config: dict[str, str],
    cut: bool,
    expected: tuple[str, str],
) -> None:
    """Given a changelog without records, and no directory."""
    topic = create_topic(bootstrap_servers, f"{application}-idle-changelog", config=config)
    if cut:
        produce(bootstrap_servers, topic, [(b"a", b"1")])
        Cluster(bootstrap_servers).topics.delete_records({TopicPartition(topic, 0): 1})
    _, report = command("verify")
    assert ("idle", *expected, False) in statuses(report)


def test_only_what_is_not_judged_can_be_acknowledged(command: Command) -> None:
    assert command("partitions", "--acknowledge", "other")[0] == 2
    assert command("partitions", "--forget", "totals")[0] == 2


@pytest.mark.long
def test_warming_requires_each_store(command: Command) -> None:
    assert command("warm")[0] == 0
    code, report = command("warm", "--require")
    assert (code, [(row["store"], row["outcome"]) for row in report["rows"]]) == (
        6,
        [(ODD, "left"), ("totals", "left")],
    )
    for name in (ODD, "totals"):
        assert command("partitions", "--acknowledge", name)[0] == 0
    assert command("warm", "--require")[0] == 0
