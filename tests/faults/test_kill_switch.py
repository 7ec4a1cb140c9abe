"""The kill switch: where it acts, how often, and that it is nothing where it is not armed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from statestore import kill_switch

_CODE = """
from statestore import kill_switch
for task in ("0_0", "0_1"):
    kill_switch.enter(task)
    for number in range(3):
        kill_switch.reached("here")
        kill_switch.reached("there")
        print(task, number, flush=True)
"""


def _run(mark: Path | None = None, **environment: str) -> tuple[int, list[str]]:
    if mark is not None:
        environment["STATESTORE_KILL_MARK"] = str(mark)
    ended = subprocess.run(
        [sys.executable, "-c", _CODE],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout.splitlines()


def test_unarmed_it_does_nothing() -> None:
    code, printed = _run()
    assert (code, len(printed)) == (0, 6)
    assert kill_switch.reached is kill_switch.soon  # the function without a body


@pytest.mark.parametrize(
    ("where", "printed"),
    [("here", 0), ("here:3", 2), ("there:4", 3), ("here@0_1", 3), ("here:2@0_1", 4)],
)
def test_armed_it_kills_at_the_nth_time_and_leaves_a_mark(tmp_path: Path, where: str, printed: int) -> None:
    mark = tmp_path / "mark"
    code, lines = _run(mark, STATESTORE_KILL_AT=where)
    assert (code, len(lines)) == (-signal.SIGKILL, printed)
    assert mark.read_text().splitlines()[0] == where.partition("@")[0].partition(":")[0]


@pytest.mark.parametrize("where", ["here:7", "nowhere", "here@1_0"])
def test_a_point_that_is_not_reached_leaves_no_mark(tmp_path: Path, where: str) -> None:
    code, lines = _run(tmp_path / "mark", STATESTORE_KILL_AT=where)
    assert (code, len(lines)) == (0, 6)
    assert not (tmp_path / "mark").exists()


def test_it_acts_once_for_all_processes_with_one_mark(tmp_path: Path) -> None:
    codes = [_run(tmp_path / "mark", STATESTORE_KILL_AT="here")[0] for _ in range(2)]
    assert codes == [-signal.SIGKILL, 0]
