"""Changes of live stores are recorded with their user before they begin, and a command shows and exports them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from statestore.reports import Status
from tests.integration.command_line import Command, command_on
from tests.integration.support import STORE, Application


@pytest.fixture
def replaced(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application whose store was rebuilt."""
    made = Application(bootstrap_servers, tmp_path)
    made.process([(b"key-%03d" % number, b"1") for number in range(20)])
    return made


@pytest.fixture
def run(
    replaced: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    """The command with a reports directory, as the user alice."""
    made, _ = command_on(replaced, tmp_path, monkeypatch, capfd)
    made.settings["REPORTS_DIR"] = str(tmp_path / "reports")  # type: ignore[index]
    monkeypatch.setenv("LOGNAME", "alice")
    return made


@pytest.mark.long
def test_each_change_of_a_live_store_has_one_audit_record(replaced: Application, run: Command, tmp_path: Path) -> None:
    definitions = ("--definitions", str(tmp_path / "application.yaml"))
    label = f"{replaced.name}/{STORE}/0_0"
    for given in (
        ("restore", "--mode", "full", "--force", "--dry-run"),
        ("restore", "--mode", "full", "--force", "--accept-loss"),
        ("restore", "--rollback", STORE, "--dry-run"),
        ("restore", "--rollback", STORE),
        ("verify",),
        ("restore", "--release", STORE),
    ):
        assert (ran := run(*given, *definitions)).code == 0, ran.err

    records = run.shown("audit")["records"]
    assert [(record["action"], record["accepts_loss"]) for record in records] == [
        ("restore", True),
        ("rollback", False),
        ("release", True),
    ]
    for record in records:
        assert (record["by"], record["applications"]) == ("alice", [replaced.name])
        assert record["store_partitions"] == [label]
    assert "--accept-loss" in records[0]["request"]
    assert run("report", "restore").code == 0
    assert (tmp_path / "reports" / "restore" / f"{records[0]['run_id']}.json").exists()
    exported = csv.DictReader(io.StringIO(run("audit", "--csv", "--application", replaced.name).out))
    assert [row["action"] for row in exported] == ["restore", "rollback", "release"]
    assert run.shown("audit", "--application", "another")["records"] == []
    assert run.shown("audit", "--until", "2020-01-01T00:00:00+00:00")["records"] == []


def test_without_its_audit_record_nothing_is_restored(replaced: Application, run: Command, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "audit").write_text("")
    inode = replaced.live.stat().st_ino
    definitions = ("--definitions", str(tmp_path / "application.yaml"))
    ran = run("restore", "--mode", "full", "--force", *definitions)
    assert ran.code == 2
    assert "audit" in ran.err
    assert replaced.live.stat().st_ino == inode
    assert replaced.verify().status is Status.OK
