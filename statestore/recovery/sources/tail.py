"""The live store, linked, and the rest of its log."""

from __future__ import annotations

from statestore.partition.facts import Facts
from statestore.partition.plan import Need, Offer, Request
from statestore.recovery.disk_space import copied_bytes, require_disk
from statestore.recovery.full import Built
from statestore.recovery.sources.source import BuildResult, BuildSource, DiskNeeded, Work
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.tail import build_replayed, tail_logs
from statestore.statedir.record import StoreRecord


class TailSource(BuildSource):
    """Replays what a usable store has not seen."""

    name = "tail"
    order = 0

    def offer(self, facts: Facts, need: Need, request: Request) -> Offer | None:
        """Offer the rest of the log to a store that its offset determines."""
        if need.kind != "tail":
            return None
        return Offer("tail", "tail", preferred=True, after=facts.disk.committed)

    def disk(self, spec: RestoreSpec, log_bytes: int, offsets: int) -> DiskNeeded:
        """Return the space for what is read, and for a copy of a supplier's store."""
        needed = super().disk(spec, log_bytes, offsets).needed
        return DiskNeeded(needed + copied_bytes(spec, "tail"))

    def build(self, work: Work) -> BuildResult:
        """Replay the tail into a linked copy."""
        after = work.plan.after
        require_disk(work.spec, "tail", tail_logs(work.logs, after))
        built = build_replayed(work.spec, work.logs, after, work.progress, work.asked_ms)
        return BuildResult(built, self.checked(work, built))

    def record(self, work: Work, built: Built) -> StoreRecord:
        """Return the record: the new store needs of its log what the old one needed."""
        before = work.facts.disk.record
        kept = before.model_dump(include={"needed_from", "adopted", "at_least_once"}) if before else _UNKNOWN
        return super().record(work, built).model_copy(update=kept)


_UNKNOWN: dict[str, object] = {"needed_from": None, "adopted": True}
SOURCE = TailSource()
