"""A soak that is killed goes on where it was: nothing is counted twice or lost, and no failure is forgotten."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo.installation import REPOSITORY
from demo.processes import running
from tests.faults.soak.tally import Tally, TallyError, load_tally, save_tally
from tests.integration.broker import wait_for

pytestmark = pytest.mark.timeout(1_800)

SEED, KILLS = 5, 3
_RUN_S = 540.0


class Soak:
    """A soak with a tally of its own, in campaigns of one kill."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory = directory
        self.tally = directory / "tally.json"
        self.log = directory / "log"
        self._environment = {**os.environ, **environment}

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.faults.soak", "--tally", str(self.tally), "--length", "1"]
        self.directory.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*command, "--kills", str(KILLS), "--steps", "0", *arguments],
                cwd=REPOSITORY,
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def run(self, *arguments: str) -> int:
        return self.start(*arguments).wait(_RUN_S)

    @property
    def runs(self) -> list[Path]:
        return list(self.directory.glob("run-*"))


def _whole(tally: Tally, seed: int) -> bool:
    """Whether the first campaigns of a seed are there, each once."""
    return sorted(each.number for each in tally.campaigns if each.seed == seed) == list(range(len(tally.campaigns)))


def test_a_soak_that_is_killed_goes_on_with_what_is_not_done(tmp_path: Path) -> None:
    soak = Soak(tmp_path / "soak")
    killed = soak.start("--seed", str(SEED))
    wait_for(lambda: load_tally(soak.tally).campaigns or killed.poll(), "the first campaign to end", _RUN_S)
    assert killed.poll() is None, soak.log.read_text()
    (run,) = soak.runs
    campaigns_under_way = list((soak.directory / "campaigns").iterdir())
    killed.send_signal(signal.SIGKILL)
    assert killed.wait(_RUN_S) == -signal.SIGKILL
    before = load_tally(soak.tally)
    assert 0 < before.totals["kills"].count < KILLS, "O8: it was not killed in the middle"
    assert campaigns_under_way, "O8: nothing was under way"

    assert soak.run() == 0, soak.log.read_text()
    assert not running(run), "the broker of the killed soak is still there"
    assert soak.runs == []
    after = load_tally(soak.tally)
    assert after.campaigns[: len(before.campaigns)] == before.campaigns
    assert _whole(after, SEED), after.campaigns
    assert {sum(each.counts.values()) for each in after.campaigns} <= {1, 2}
    assert KILLS <= after.totals["kills"].count <= KILLS + 1
    assert after.totals["kills"].failures == 0
    assert not list((soak.directory / "campaigns").iterdir())

    content = soak.tally.read_bytes()
    assert soak.run() == 0
    assert soak.tally.read_bytes() == content, "there was nothing left to do"


def test_a_soak_that_fails_says_so_keeps_the_tally_and_can_be_gone_on_with(tmp_path: Path) -> None:
    # Every process that runs tasks dies when one begins, whatever the campaign wants.
    failing = Soak(tmp_path / "soak", STATESTORE_KILL_AT="task begun")
    assert failing.run("--seed", str(SEED), "--workers", "1", "--failures", "1") == 1, failing.log.read_text()
    before = load_tally(failing.tally)
    (campaign,) = before.campaigns
    assert (campaign.number, campaign.counts) == (0, {})
    assert "exit code -9" in campaign.failure.error
    assert campaign.failure.repeat in failing.log.read_text()
    assert (failing.directory / "campaigns" / f"kills-{SEED}-0" / "log").exists()

    soak = Soak(tmp_path / "soak")
    assert soak.run("--campaign", "0", "--seed", str(SEED)) == 0, soak.log.read_text()
    # What is repeated is not counted.
    assert load_tally(soak.tally) == before
    assert soak.run("--kills", "1") == 0
    after = load_tally(soak.tally)
    assert after.campaigns[:1] == before.campaigns
    assert _whole(after, SEED)
    assert after.totals["kills"].count in (1, 2)


@pytest.mark.share_for(why="the others take long")
def test_a_damaged_tally_is_not_overwritten(tmp_path: Path) -> None:
    soak = Soak(tmp_path)
    save_tally(soak.tally, Tally())
    damaged = soak.tally.read_bytes()[:-5]
    soak.tally.write_bytes(damaged)
    with pytest.raises(TallyError) as refused:
        load_tally(soak.tally)
    assert soak.run() == 2
    assert str(refused.value) in soak.log.read_text()
    assert soak.tally.read_bytes() == damaged


def test_two_soaks_do_not_share_a_tally(tmp_path: Path) -> None:
    soak = Soak(tmp_path)
    first = soak.start("--seed", "1", "--kills", "1000")  # far more than it does while the second one begins
    try:
        wait_for(lambda: soak.runs or first.poll(), "the first soak to begin")
        assert soak.run() == 2
        assert "Another soak uses" in soak.log.read_text()
    finally:
        first.send_signal(signal.SIGINT)
        assert first.wait(_RUN_S) == 130
    assert soak.runs == []
