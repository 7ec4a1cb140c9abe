"""A snapshot of the archive, and the rest of the log."""

from __future__ import annotations

import logging

from statestore.archive.snapshots import mistrusted
from statestore.errors import InputError, SnapshotError, StateStoreError, StoreBehindLogStartError, StoreCorruptedError
from statestore.partition.facts import UNASKED, Candidate, Facts, NamedSnapshot, Open, Question, of_log
from statestore.partition.plan import Need, Offer, Refusal, Request
from statestore.recovery.disk_space import require_disk_for_snapshot
from statestore.recovery.full import Built
from statestore.recovery.snapshot import build_from_snapshot
from statestore.recovery.sources.source import BuildResult, BuildSource, Work
from statestore.statedir.record import StoreRecord

_log = logging.getLogger(__name__)


class SnapshotSource(BuildSource):
    """Fetches a snapshot, and replays what was logged after it."""

    name = "snapshot"
    order = 20

    def offer(self, facts: Facts, need: Need, request: Request) -> Offer | Open | Refusal | None:
        """Offer the newest snapshot that the log still continues, and that has what is needed."""
        if need.kind != "rebuild" or need.snapshots == "never":
            return None
        if not facts.spec.home.offers_snapshots:
            return Refusal(_no_archive(facts)) if need.snapshots == "first" else None
        archive = facts.archive
        if archive is UNASKED:
            return Open.of(Question.SNAPSHOTS)
        if archive.error is not None:
            return Refusal(archive.error)
        if archive.named is not None:
            return _named(facts, need, request, archive.named)
        for candidate in archive.candidates:
            if candidate.refused is None and candidate.name not in facts.failed and _covers(need, candidate):
                return _offered(facts, need, candidate)
        return None if archive.complete else Open.of(Question.MORE_SNAPSHOTS)

    def build(self, work: Work) -> BuildResult:
        """Fetch the snapshot, bring it to the end of the log, and check it."""
        snapshot = work.snapshot
        assert snapshot is not None, "the plan names one"
        require_disk_for_snapshot(work.spec, snapshot)
        built, keys = build_from_snapshot(
            work.spec, snapshot, work.logs, work.progress, work.asked_ms, by_hand=work.plan.adopted
        )
        return BuildResult(built, keys)

    def record(self, work: Work, built: Built) -> StoreRecord:
        """Return the record: the new store needs of its log what the snapshot needs."""
        assert work.snapshot is not None
        kept = work.snapshot.record.model_dump(include={"needed_from", "adopted"})
        return super().record(work, built).model_copy(update=kept)

    def may_replan(self, work: Work, error: StateStoreError) -> bool:
        """Try the next snapshot, unless a user has named this one."""
        known = isinstance(error, SnapshotError | StoreBehindLogStartError | StoreCorruptedError)
        if not known or work.spec.request.snapshot is not None:
            return False
        label, name = work.store.store_partition, work.plan.snapshot
        _log.warning("restore: %s: snapshot %s is not used: %s", label, name, error)
        return True


def _covers(need: Need, candidate: Candidate) -> bool:
    return need.covers is None or (candidate.record is not None and need.covers.met_by(candidate.record))


def _offered(facts: Facts, need: Need, candidate: Candidate) -> Offer:
    return Offer(
        "snapshot",
        "snapshot",
        fetched=candidate.fetched,
        replayed=candidate.replayed,
        # The log need not give what a user has installed, nor versions that compaction has removed.
        preferred=need.snapshots == "first"
        or candidate.installed_by is not None
        or not facts.spec.store.compaction_keeps_rows,
        snapshot=candidate.name,
        after=candidate.committed,
    )


def _named(facts: Facts, need: Need, request: Request, named: NamedSnapshot) -> Offer | Refusal:
    """Offer the snapshot that a user has named, with what speaks against it."""
    label, candidate = facts.spec.store_partition, named.candidate
    if named.differs:
        return Refusal(InputError(f"{label}: snapshot {candidate.name} is {named.differs}"))
    if elsewhere := _of_another_log(facts, candidate):
        return Refusal(
            InputError(
                f"{label}: snapshot {candidate.name} cannot be put in place: {elsewhere}. The changelog would never "
                "give its rows again. Build the store elsewhere with mode as-of and the same snapshot"
            )
        )
    against = mistrusted(named.listed, named.generation) or candidate.refused
    if against is None and not _covers(need, candidate):
        against = "it lacks some of what the log has lost"
    if against and not request.accept_loss:
        return Refusal(
            InputError(
                f"{label}: snapshot {candidate.name} is not used: {against}. To begin with it anyway, and keep "
                "the present store in quarantine, add --accept-loss"
            )
        )
    return _offered(facts, need, candidate)._replace(preferred=True, against=against or "")


def _of_another_log(facts: Facts, candidate: Candidate) -> str:
    changelog, committed, record = facts.spec.changelog, candidate.committed, candidate.record
    end = facts.asked_log.log.high_watermark
    if committed is not None and committed >= end:
        return f"it has offsets up to {committed}, and the log ends at {end}"
    if record is not None and of_log(record, changelog) is None:
        return f"its changelog was topic {record.topic_id}, which no longer exists"
    return ""


def _no_archive(facts: Facts) -> InputError:
    return InputError(
        f"{facts.spec.store_partition} cannot be restored from a snapshot: there is no archive; set STATESTORE_ARCHIVE"
    )


SOURCE = SnapshotSource()
