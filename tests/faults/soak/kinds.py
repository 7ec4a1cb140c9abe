"""Kinds of campaigns that a soak runs and tallies. Another kind joins them by a class here and an entry in `KINDS`."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Protocol

from demo.kafka_jars import find_java
from demo.processes import Processes
from tests.faults.cycle import Cycles
from tests.faults.meeting.counting import STEPS
from tests.faults.plan import Campaign, campaigns
from tests.interop.kafka_streams import build_driver


class Progress:
    """How far a campaign is.

    Attributes
    ----------
    counts
        How often each point was met, and all was well afterwards.
    point
        What it is at.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.point = "the begin"


class Kind(Protocol):
    """A kind of campaigns, which a seed and a number draw.

    Its name in `KINDS` is what it counts, in the plural: kills.
    """

    def planned(self, seed: int, number: int) -> int:
        """Return how much a campaign will count."""
        ...

    def run(self, seed: int, number: int, servers: str, directory: Path, progress: Progress) -> None:
        """Run a campaign on a broker that others use, too; note how far it is. What is wrong raises an error."""
        ...


class Kills:
    """Kills of one application after the other."""

    def __init__(self, length: int) -> None:
        self._length = length

    def planned(self, seed: int, number: int) -> int:
        """Return how many processes a campaign kills."""
        return self._campaign(seed, number).kills

    def run(self, seed: int, number: int, servers: str, directory: Path, progress: Progress) -> None:
        """Kill an application again and again."""
        cycles = Cycles(servers, directory, self._campaign(seed, number))
        try:
            for fault in cycles.campaign.faults:
                progress.point = fault.point.name
                cycles.run(fault)
                progress.counts.update(kill.point for kill in fault.kills)
            progress.point = "restored elsewhere"
            cycles.restored_elsewhere()
        finally:
            cycles.subject.delete_topics()  # a broker of a long soak would have thousands of partitions

    def _campaign(self, seed: int, number: int) -> Campaign:
        return next(islice(campaigns(seed, self._length), number, None))


class Steps:
    """Steps of features that meet, each on a task of its own, in sequences; see tests/faults/meeting."""

    def __init__(self, length: int) -> None:
        self._sequences = length

    def planned(self, seed: int, number: int) -> int:
        """Return how many steps a campaign takes, roughly."""
        return self._sequences * STEPS

    def run(self, seed: int, number: int, servers: str, directory: Path, progress: Progress) -> None:
        """Run some sequences."""
        from tests.faults.meeting.machine import run_sequences  # each child imports again what this module does

        with Processes(directory / "streams") as processes:
            driver = build_driver(processes, find_java(), directory / "streams")
            progress.point = "a sequence"
            how = {"counts": progress.counts, "driver": driver}
            run_sequences(servers, directory, self._sequences, seed * 1_000_003 + number, **how)


def kinds(length: int) -> dict[str, Kind]:
    """Return the kinds by name; `length` is of a campaign: its kills, or its sequences of steps."""
    return {"kills": Kills(length), "steps": Steps(length)}
