"""Campaigns beside each other, each in a process of its own, and what comes of them."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from demo.processes import Processes, ServiceProcess
from tests.everything.suites import SOAK
from tests.everything.tree import commit, tree_hash
from tests.faults.soak.tally import Campaign, Failure
from tests.faults.soak.worker import Outcome, outcome_of

_CAMPAIGN_S = 3_600.0
_POLL_S = 0.1
_LOG_CHARACTERS = 2_000


@dataclass(frozen=True)
class Asked:
    """A campaign that is to be run."""

    kind: str
    seed: int
    number: int
    length: int

    @property
    def repeat(self) -> str:
        """The command that runs it alone."""
        return f"make soak-campaign SEED={self.seed} CAMPAIGN={self.number} LENGTH={self.length} KIND={self.kind}"


class Workers:
    """Processes that run campaigns.

    Parameters
    ----------
    directory
        Where each campaign has a directory while it runs, and keeps it if it failed.
    number
        How many campaigns run beside each other.
    """

    def __init__(self, processes: Processes, servers: str, directory: Path, number: int) -> None:
        self._processes = processes
        self._servers = servers
        self._directory = directory
        self._number = number
        self._commit, self._tree = commit(SOAK), tree_hash(SOAK)
        self._running: dict[Asked, tuple[ServiceProcess, datetime, float]] = {}

    @property
    def asked(self) -> list[Asked]:
        """Return the campaigns that run."""
        return list(self._running)

    @property
    def free(self) -> bool:
        """Whether another campaign may begin."""
        return len(self._running) < self._number

    def start(self, asked: Asked) -> None:
        """Begin a campaign."""
        directory = self._home(asked)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        arguments = [str(each) for each in (asked.kind, asked.seed, asked.number, asked.length)]
        command = [sys.executable, "-m", "tests.faults.soak.worker", *arguments, self._servers, str(directory)]
        service = self._processes.start(directory.name, command, os.environ, directory / "log")
        self._running[asked] = service, datetime.now(UTC), time.monotonic() + _CAMPAIGN_S

    def ended(self) -> Iterator[Campaign]:
        """Wait until a campaign has ended; return what came of each that has."""
        while not (found := [asked for asked, running in self._running.items() if _is_over(*running)]):
            time.sleep(_POLL_S)
        for asked in found:
            service, started, _ = self._running.pop(asked)
            over = service.poll() is not None
            self._processes.stop_service(service)
            yield self._campaign(asked, service, started, "" if over else f"not done after {_CAMPAIGN_S:.0f} s")

    def _campaign(self, asked: Asked, service: ServiceProcess, started: datetime, late: str) -> Campaign:
        directory = self._home(asked)
        try:
            outcome = Outcome.model_validate_json(outcome_of(directory).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValidationError):
            ended = late or f"it ended with exit code {service.returncode} and without a word"
            log = service.log_path.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARACTERS:]
            outcome = Outcome(counts={}, point="the worker", error=f"{ended}; the end of its log:\n{log}")
        failure = None
        if outcome.error:
            failure = Failure(point=outcome.point, error=outcome.error, repeat=asked.repeat)
        else:
            shutil.rmtree(directory)
        return Campaign(
            kind=asked.kind,
            seed=asked.seed,
            number=asked.number,
            length=asked.length,
            commit=self._commit,
            tree=self._tree,
            started=started,
            ended=datetime.now(UTC),
            counts=outcome.counts,
            failure=failure,
        )

    def _home(self, asked: Asked) -> Path:
        return self._directory / f"{asked.kind}-{asked.seed}-{asked.number}"


def _is_over(service: ServiceProcess, _: datetime, deadline: float) -> bool:
    return service.poll() is not None or time.monotonic() > deadline
