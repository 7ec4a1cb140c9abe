"""`statestore survey` as a user meets it, on one broker: an application, its snapshots, and its verification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statestore.errors import RetryError
from tests.integration.broker import NO_BROKER, create_topic, member_of, unique
from tests.integration.command_line import Command, command_on, settings_of
from tests.integration.support import Application


@pytest.fixture
def command(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    return Command(monkeypatch, capfd, settings_of(bootstrap_servers, tmp_path))


def risks_of(report: dict[str, Any], application: str) -> set[str]:
    """Return the risks of an application without the one that all have on one broker."""
    found = {risk["advice"]["situation"] for risk in report["risks"] if risk["application"] == application}
    return found - {"cluster has one broker"}


def test_a_verified_application_with_snapshots_has_no_risk(
    whole: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command, definitions = command_on(whole, tmp_path, monkeypatch, capfd)
    copies = ("--archive", f"file://{tmp_path}/archive", "--reports-dir", str(tmp_path / "reports"))
    defined = ("--definitions", str(definitions), *copies)
    before = command.shown("survey", code=1)
    assert set(before["left_out"]) == {"snapshots", "verifications"}
    assert risks_of(before, whole.name) == set()
    assert command("verify", *defined).code == 0
    unarchived = command.shown("survey", *copies[2:], code=1)
    assert risks_of(unarchived, whole.name) == set()
    assert command("snapshot", "create", "--application", whole.name, *defined).code == 0
    html = tmp_path / "survey.html"
    after = command.shown("survey", *copies, "--statestore-rate", "1", "--html", str(html), code=1)
    assert risks_of(after, whole.name) == set()
    (found,) = (each for each in after["surveyed"] if each["name"] == whole.name)
    (store,) = found["stores"]
    assert (found["kind"], found["group_state"], found["members"]) == ("statestore", "Empty", 0)
    assert store["records"] == found["statestore_s"] > 0
    assert store["bytes"] > 0
    assert store["snapshots"] == store["verified"] == store["partitions"]
    assert whole.name in html.read_text(encoding="utf-8")


def test_an_archive_that_does_not_exist_is_named_as_not_read(
    command: Command, bootstrap_servers: str, tmp_path: Path
) -> None:
    name = unique("running")
    topic = create_topic(bootstrap_servers, f"{name}-totals-changelog", config={"cleanup.policy": "compact"})
    archive = f"file://{tmp_path}/archive"
    read = create_topic(bootstrap_servers, unique("read"))
    with member_of(bootstrap_servers, name, read):
        report = command.shown("survey", "--archive", archive, code=1)
    (found,) = (each for each in report["surveyed"] if each["name"] == name)
    assert (found["group_state"], found["members"]) == ("Stable", 1)
    assert risks_of(report, name) == set()
    (unread,) = report["unread"]
    assert unread["subject"] == f"archive {archive}", "it does not exist"
    assert found["stores"][0]["topic"] == topic


def test_brokers_that_do_not_answer_leave_no_report(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "survey.json"
    ran = command("survey", "--bootstrap-servers", NO_BROKER, "--kafka-timeout-s", "2", "--json", str(path))
    assert ran.code == RetryError.exit_code
    assert "KafkaUnavailableError" in ran.err
    assert not path.exists()


def test_the_table_shows_the_assumption_and_the_exit_code_shows_risks(command: Command, whole: Application) -> None:
    ran = command("survey")
    assert ran.code == 1
    assert "docs/benchmarks.md" in ran.out
    assert "Not looked at: snapshots" in ran.out
    assert whole.name in ran.out
