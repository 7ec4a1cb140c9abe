"""Commits that are killed half way, 1,000 in all: no reader of the files and no later process sees half of one."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.faults.half_commits import KINDS, commit_until_killed, seen
from tests.forked import child, received

SEED = int(os.environ.get("FAULTS_SEED", "1"))
KILLS = int(os.environ.get("FAULTS_COMMIT_KILLS", "1000"))
_A_CAMPAIGN = 50
#: Reading takes milliseconds, so some kills come before the first read of a process.
_LONGEST_S = 0.25


@pytest.mark.behaviour("T9", "T3", "S4")
@pytest.mark.share_for(every=7, why="one of each kind")
@pytest.mark.parametrize("number", range(-(-KILLS // _A_CAMPAIGN)))
def test_no_reader_and_no_later_process_sees_half_of_a_commit(tmp_path: Path, number: int) -> None:
    kind = KINDS[number % len(KINDS)]
    chosen = random.Random(f"{SEED}-{number}")
    last, reads = 0, 0
    for _ in range(_A_CAMPAIGN):
        with child(commit_until_killed, kind, tmp_path) as (process, connection):
            begun = received(connection)
            assert begun >= last, "a commit that a reader has seen is lost"
            last = begun
            until = time.monotonic() + chosen.uniform(0, _LONGEST_S)
            while time.monotonic() < until:
                found = seen(kind, tmp_path)
                assert found >= last, "a reader has gone back"
                last, reads = found, reads + 1
            process.kill()
            process.join()
        found = seen(kind, tmp_path)
        assert found >= last
        last = found
    assert reads > 0
    assert last > 3, "O8: processes were killed before they committed"
