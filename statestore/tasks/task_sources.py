"""The ways in which a task itself gets a store: the rest of its log, or all of it, by a replay."""

from __future__ import annotations

from typing import Final

from statestore.partition.facts import Facts
from statestore.partition.plan import Need, Offer, Request, Source, SourceName


class ReplayedTail:
    """Replays what an open store has not seen."""

    name: Final[SourceName] = "tail"

    def offer(self, facts: Facts, need: Need, request: Request) -> Offer | None:
        """Offer the rest of the log to a store with an offset."""
        if need.kind != "tail" or facts.disk.committed is None:
            return None
        return Offer("tail", "tail", preferred=True, after=facts.disk.committed)


class ReplayedLog:
    """Replays the whole log into a new store."""

    name: Final[SourceName] = "log"

    def offer(self, facts: Facts, need: Need, request: Request) -> Offer | None:
        """Offer the whole log."""
        return Offer("log", "full", preferred=True) if need.log_refused is None else None


TASK_SOURCES: tuple[Source, ...] = (ReplayedTail(), ReplayedLog())
