"""Scratch space: gone afterwards, and what a killed process left goes when the next one begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from statestore.statedir.scratch import default_scratch, scratch_directory

_HOLD = """
import sys
from pathlib import Path
from statestore.statedir.scratch import scratch_directory
with scratch_directory(Path(sys.argv[1])) as directory:
    (directory / "store").mkdir()
    print(directory, flush=True)
    sys.stdin.read()
"""


def test_a_directory_of_ones_own_is_gone_afterwards_also_if_the_work_fails(tmp_path: Path) -> None:
    scratch = tmp_path / "deep" / "scratch"
    with pytest.raises(FileNotFoundError), scratch_directory(scratch) as directory:
        (directory / "missing" / "store").mkdir()
    assert list(scratch.iterdir()) == []


def test_what_is_in_use_stays_and_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        held = Path(holder.stdout.readline().strip())
        with scratch_directory(tmp_path):
            assert (held / "store").exists()
        holder.kill()
    assert held.exists()
    with scratch_directory(tmp_path):
        assert not held.exists()
    assert list(tmp_path.iterdir()) == []


def test_stores_are_built_beside_the_applications_where_nobody_says(tmp_path: Path) -> None:
    assert default_scratch(tmp_path) == tmp_path / ".statestore" / ".scratch"
