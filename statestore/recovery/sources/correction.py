"""The live store, linked, and the tail that its rows prove: for a store whose own offset cannot be trusted."""

from __future__ import annotations

from statestore.partition.facts import UNASKED, Facts
from statestore.partition.plan import Need, Offer, Request
from statestore.recovery.catch_up import CatchUp, build_caught_up
from statestore.recovery.disk_space import require_disk
from statestore.recovery.sources.source import BuildResult, BuildSource, Work
from statestore.recovery.tail import tail_logs


class CorrectionSource(BuildSource):
    """Replays the shortest tail that corrects every row, and deletes rows that have no record."""

    name = "correction"
    order = 10

    def offer(self, facts: Facts, need: Need, request: Request) -> Offer | None:
        """Offer the tail that the proof gives."""
        if need.kind != "correction" or facts.proof is UNASKED or facts.proof is None:
            return None
        return Offer("correction", "tail", preferred=True, after=facts.proof.before)

    def build(self, work: Work) -> BuildResult:
        """Replay the tail into a linked copy, without the rows that no record explains."""
        assert isinstance(work.facts.proof, CatchUp), "the offer was made by it"
        require_disk(work.spec, "tail", tail_logs(work.logs, work.plan.after))
        built = build_caught_up(work.spec, work.facts.proof, work.logs, work.progress)
        return BuildResult(built, self.checked(work, built))


SOURCE = CorrectionSource()
