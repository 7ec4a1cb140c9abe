"""Kills and stops of tasks on nodes with a disk each, drawn from a seed: `make faults SEED=...` repeats them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.node_cycles import NodeCycles
from tests.faults.repeated import campaigns, repeat

SEED = int(os.environ.get("FAULTS_SEED", "1"))
KILLS = int(os.environ.get("FAULTS_NODE_KILLS", "80"))
CAMPAIGNS = campaigns(KILLS)


@pytest.mark.share_for("campaign-0", why="one application")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("number", CAMPAIGNS, ids=[f"seed-{SEED}-campaign-{at}" for at in CAMPAIGNS])
def test_it_does_not_matter_on_which_node_a_task_runs_or_is_killed(
    bootstrap_servers: str, tmp_path: Path, number: int
) -> None:
    repeat(NodeCycles(bootstrap_servers, tmp_path, SEED, number), SEED, number)
