"""Kills and stops of tasks on nodes with a disk each, drawn from a seed: `make faults SEED=...` repeats them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.node_cycles import NodeCycles

SEED = int(os.environ.get("FAULTS_SEED", "1"))
KILLS = int(os.environ.get("FAULTS_NODE_KILLS", "80"))
#: Kills and stops of one application.
LENGTH = 8
CAMPAIGNS = -(-KILLS // LENGTH)
#: Some points are not met, and some moments come too late.
_MOST_CYCLES = 5 * LENGTH


@pytest.mark.share_for("campaign-0", why="one application")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("number", range(CAMPAIGNS), ids=[f"seed-{SEED}-campaign-{at}" for at in range(CAMPAIGNS)])
def test_it_does_not_matter_on_which_node_a_task_runs_or_is_killed(
    bootstrap_servers: str, tmp_path: Path, number: int
) -> None:
    cycles = NodeCycles(bootstrap_servers, tmp_path, SEED, number)
    done: list[str] = []
    try:
        while sum(cycles.done.values()) < LENGTH:
            assert len(done) < _MOST_CYCLES, f"O8: only {cycles.done} in {done}"
            done.append(cycles.cycle())
        cycles.end()
    except Exception as error:
        error.add_note(f"after the cycles {done} of campaign {number}, FAULTS_SEED={SEED}")
        raise
    finally:
        cycles.subject.delete_topics()
