"""Directories of a former topology: the application's group shows which are live (`group.protocol=streams`)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.command_line import command_on
from tests.integration.streams_member import join_streams_group
from tests.integration.support import Application

Verified = Callable[[], tuple[int, dict[str, str], str]]


@pytest.fixture
def moved(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application with the same store in sub-topologies 0 and 1, both with the same records."""
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1")])
    application.forget_group()
    task = application.store_spec().paths.task_dir
    shutil.copytree(task, task.with_name("1_0"))
    return application


@pytest.fixture
def verified(
    moved: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Verified:
    """Verify, and return the exit code, the statuses by task, and the details."""
    command, _ = command_on(moved, tmp_path, monkeypatch, capfd)

    def verified() -> tuple[int, dict[str, str], str]:
        ran = command("verify", "--application", moved.name, "--depth", "offsets", "--json", "-")
        rows = json.loads(ran.out)["rows"]
        return ran.code, {row["task"]: row["status"] for row in rows}, "\n".join(row["detail"] for row in rows)

    return verified


@pytest.mark.parametrize("live", [0, 1])
def test_the_group_shows_which_directory_is_live(moved: Application, verified: Verified, live: int) -> None:
    code, statuses, detail = verified()
    assert (code, statuses) == (1, {"0_0": "UNDETERMINED", "1_0": "UNDETERMINED"})
    assert "--store counts:subtopology=0|1" in detail

    join_streams_group(moved.servers, moved.name, moved.input, {moved.changelog: live})
    code, statuses, detail = verified()
    assert (code, statuses) == (0, {f"{live}_0": "OK", f"{1 - live}_0": "STALE"})
    assert f"the application's group has the store in sub-topology {live}" in detail

    shutil.rmtree(moved.live.parents[2] / f"{live}_0" / "rocksdb" / "counts")
    code, statuses, _ = verified()
    assert (code, statuses) == (1, {f"{live}_0": "MISSING", f"{1 - live}_0": "STALE"})
