"""Campaigns drawn from a seed, one after the other, until the tally has what was asked for.

Each campaign that has ended is in the tally when the next one begins. So a soak can be ended at any time, by Ctrl-C,
kill -9 or a power cut: the next one goes on with the campaigns that are not in the tally.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

from demo.kafka import Kafka
from demo.processes import Processes, stop_run
from tests.everything.suites import SOAK
from tests.everything.tree import tree_hash
from tests.faults.soak.kinds import kinds
from tests.faults.soak.running import Asked, Workers
from tests.faults.soak.tally import Campaign, Tally, load_tally, save_tally

#: So many campaigns fail before a soak ends early: one failure does not end a run of days, and more are of one cause.
FAILURES = 3


def soak(
    path: Path, targets: Mapping[str, int], seed: int | None, length: int, workers: int, failures: int = FAILURES
) -> int:
    """Run campaigns until those of the present files count as much as was asked for, or so many have failed.

    Returns
    -------
    int
        How many have failed.
    """
    tally, known, failed = load_tally(path), kinds(length), 0
    tree = tree_hash(SOAK)
    if seed is None:
        seed = tally.campaigns[-1].seed if tally.campaigns else int(time.time())
    tell(f"SEED={seed}, tally {path}: {_standing(tally, targets, tree)}")
    if next_campaign(tally, targets, {}, seed, length, tree) is None:
        return 0
    with _broker(path.parent) as (processes, servers):
        running = Workers(processes, servers, path.parent / "campaigns", workers)
        while True:
            while running.free and failed < failures:
                planned = {asked: known[asked.kind].planned(asked.seed, asked.number) for asked in running.asked}
                asked = next_campaign(tally, targets, planned, seed, length, tree)
                if asked is None:
                    break
                running.start(asked)
            if not running.asked:
                return failed
            for campaign in running.ended():
                tally = tally.with_campaign(campaign)
                save_tally(path, tally)
                failed += campaign.failure is not None
                tell(_line(campaign) + _standing(tally, targets, tree))


def repeat(asked: Asked, directory: Path) -> int:
    """Run one campaign alone and count it nowhere; return 1 if it failed."""
    with _broker(directory) as (processes, servers):
        workers = Workers(processes, servers, directory / "repeated", 1)
        workers.start(asked)
        (campaign,) = workers.ended()
    tell(_line(campaign))
    return int(campaign.failure is not None)


def next_campaign(
    tally: Tally, targets: Mapping[str, int], planned: Mapping[Asked, int], seed: int, length: int, tree: str
) -> Asked | None:
    """Return a campaign that failed with other files, or the next one of the kind that is farthest from its
    target; None if all are there.

    Parameters
    ----------
    targets
        How much of each kind the campaigns of the present files are to count.
    planned
        What runs now, and how much that will count.
    tree
        The hash of the present files.
    """
    for campaign in tally.campaigns:
        again = Asked(campaign.kind, campaign.seed, campaign.number, campaign.length)
        if campaign.failed_before(tree) and campaign.kind in targets and again not in planned:
            return again
    shares = {}
    for kind, target in targets.items():
        so_far = tally.count(kind, tree) + sum(number for asked, number in planned.items() if asked.kind == kind)
        if so_far < target:
            shares[kind] = so_far / target
    if not shares:
        return None
    kind = min(shares, key=lambda kind: shares[kind])
    taken = {*tally.ids, *((asked.kind, asked.seed, asked.number) for asked in planned)}
    return Asked(kind, seed, next(number for number in count() if (kind, seed, number) not in taken), length)


@contextmanager
def _broker(directory: Path) -> Iterator[tuple[Processes, str]]:
    """Start a broker in a directory that is removed afterwards; end what a soak has left that was killed."""
    directory.mkdir(parents=True, exist_ok=True)
    for left in directory.glob("run-*"):
        stop_run(left)
        shutil.rmtree(left)
    run = Path(mkdtemp(prefix="run-", dir=directory))
    try:
        with Processes(run) as processes:
            yield processes, Kafka(processes, run / "kafka").start()
    finally:
        shutil.rmtree(run, ignore_errors=True)


def _line(campaign: Campaign) -> str:
    took = (campaign.ended - campaign.started).total_seconds()
    counts = f"{sum(campaign.counts.values())} {campaign.kind} in {took:.0f} s"
    if campaign.failure is None:
        return f"campaign {campaign.number}: {counts}. "
    failure = campaign.failure
    return f"campaign {campaign.number} FAILED at {failure.point!r}; {failure.repeat}\n{failure.error}\n"


def _standing(tally: Tally, targets: Mapping[str, int], tree: str) -> str:
    parts = [f"{tally.count(kind, tree):,} of {target:,} {kind}" for kind, target in targets.items()]
    failures = sum(totals.failures for totals in tally.totals.values())
    return f"{', '.join(parts)} of {tree}; {failures} of all {len(tally.campaigns):,} campaigns failed."


def tell(line: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S "), line, sep="", flush=True)
