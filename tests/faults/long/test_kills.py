"""Kills at every point, drawn from a seed: `make faults SEED=...` repeats them, `make soak` draws more and tallies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.cycle import Cycles
from tests.faults.plan import POINTS, Campaign, plan

SEED = int(os.environ.get("FAULTS_SEED", "1"))
KILLS = int(os.environ.get("FAULTS_KILLS", "180"))
PLAN = plan(SEED, KILLS)


@pytest.mark.share_for("campaign-0", "campaign-2", why="the processor, and the aggregations")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("campaign", PLAN, ids=[f"seed-{SEED}-campaign-{number}" for number in range(len(PLAN))])
def test_killed_anywhere_an_application_goes_on_as_if_nothing_had_happened(
    bootstrap_servers: str, tmp_path: Path, campaign: Campaign
) -> None:
    cycles = Cycles(bootstrap_servers, tmp_path, campaign)
    for number, fault in enumerate(campaign.faults):
        try:
            cycles.run(fault)
        except Exception as error:
            error.add_note(f"fault {number} of FAULTS_SEED={SEED}: {fault.kills}, {campaign.application}")
            raise
    cycles.restored_elsewhere()


@pytest.mark.share_for(why="only draws")
def test_the_plan_reaches_every_point() -> None:
    planned = {fault.point for campaign in PLAN for fault in campaign.faults}
    assert KILLS < 180 or [point.name for point in POINTS if point not in planned] == []
    assert sum(campaign.kills for campaign in PLAN) >= KILLS
