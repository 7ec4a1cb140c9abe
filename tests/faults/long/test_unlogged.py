"""Tasks with stores without a changelog are killed at random times: no update is lost or applied twice."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import pytest

from tests.faults.unlogged import Counting

SEED = int(os.environ.get("FAULTS_SEED", "1"))
KILLS = int(os.environ.get("FAULTS_UNLOGGED_KILLS", "60"))
_A_CAMPAIGN = 15
#: Longer than a run takes, so that some runs end before they are killed.
_LONGEST_S = 2.5


@pytest.mark.behaviour("U1")
@pytest.mark.share_for(every=4, why="one campaign")
@pytest.mark.parametrize("number", range(-(-KILLS // _A_CAMPAIGN)))
def test_random_kills_lose_and_double_nothing(bootstrap_servers: str, tmp_path: Path, number: int) -> None:
    draw = Random(f"{SEED}-{number}")
    counting = Counting(
        bootstrap_servers, tmp_path, staged_bytes=draw.choice([2, 8, 64]) * 1024, seed=f"{SEED}-{number}"
    )
    killed = 0
    for _ in range(_A_CAMPAIGN):
        counting.send(draw.choice([100, 300, 600]))
        child = counting.child()
        time.sleep(draw.uniform(0.2, _LONGEST_S))
        child.end()
        killed += child.was_killed()
    counting.run()
    counting.check()
    assert killed > 0, "O8: no run was killed"
