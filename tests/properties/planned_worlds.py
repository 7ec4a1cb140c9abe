"""Generated store partitions with everything that can be asked about them, and what is planned for each. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from statestore.archive.archive import ArchiveSpec
from statestore.archive.layout import StoreDirectory
from statestore.archive.manifest import Manifest
from statestore.archive.snapshots import History, Listed
from statestore.changelog.epochs import Continuity, LogComparison
from statestore.definitions.store import StoreDefinition
from statestore.errors import ArchiveUnavailableError
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange
from statestore.model import TaskId, TopicPartition
from statestore.partition.archived import ArchivedStore
from statestore.partition.facts import (
    NO_ARCHIVE,
    UNASKED,
    ArchiveFacts,
    Candidate,
    DiskFacts,
    Facts,
    LastKnown,
    LogFacts,
    NamedSnapshot,
    Open,
    Question,
    RebuildLoss,
    Trouble,
)
from statestore.partition.inspection import known_of_store
from statestore.partition.plan import Plan, Refusal, Request, plan
from statestore.partition.snapshots import inadmissible, unlike
from statestore.partition.spec import GLOBAL_TASK, ChangelogSpec, StorePartitionSpec
from statestore.partition.verdict import Verdict, damaged, judge, needs_stream_time, rebuild_loss, unread, with_loss
from statestore.recovery.sources import all_sources
from statestore.reports import Loss, Status
from statestore.statedir.record import StoreRecord
from statestore.verification import check
from statestore.verification.options import VerifyOptions
from tests.archive.snapshots import manifest

END, RETENTION_MS, NOW_MS, TOMBSTONES_MS = 12, 5, 1_000, 100

KINDS = (
    StoreDefinition(name="s"),
    StoreDefinition(name="s", kind="window", retention_ms=RETENTION_MS, window_size_ms=1),
    StoreDefinition(name="s", kind="versioned", retention_ms=60_000),
)
CHANGELOG = ChangelogSpec(topic="app-s-changelog", topic_id="id", delete_retention_ms=TOMBSTONES_MS)
CORRUPT, FOREIGN_FORMAT = Trouble(Status.CORRUPT, "no CURRENT"), Trouble(Status.UNKNOWN_FORMAT, "?", rebuildable=False)
UNCLEAN = Trouble(Status.UNCLEAN, "it was left open")
LOSSES = (
    RebuildLoss(Loss.NONE),
    RebuildLoss(Loss.UNPROVEN, "nothing was recorded"),
    RebuildLoss(Loss.LIKELY, "its topic is empty", Status.AHEAD),
    RebuildLoss(Loss.LIKELY, "it begins at 3", Status.TRUNCATED),
)


@dataclass(frozen=True)
class Correcting:
    """The tail that a proof gives."""

    before: int
    replaces_unexplained: bool


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of the archive; `named` is the one that a request can name."""

    committed: int | None
    record: StoreRecord
    suspect: bool
    by_hand: str | None
    generation: int
    bytes: int
    readable: bool


@dataclass(frozen=True)
class World:
    """A store partition, and the answers to all questions about it.

    Attributes
    ----------
    disk
        The store on this disk.
    committed_elsewhere
        Offset that commits of its task show, if this disk shows nothing of the store.
    record_after
        Number of offsets without a record before the next one; None if no record follows.
    found_by_reading
        Damage that is found when its rows are read.
    snapshots
        The newest first.
    global_verdict
        The verdict, of a global store.
    """

    spec: StorePartitionSpec
    disk: DiskFacts
    committed_elsewhere: int | None
    log: LogFacts
    record_after: int | None
    found_by_reading: Status | None
    snapshots: tuple[Snapshot, ...]
    archive_answers: bool
    log_bytes: int
    proof: Correcting | None
    global_loss: RebuildLoss
    global_verdict: Verdict

    # -- what is known at first -----------------------------------------------------------------------------------

    @property
    def facts(self) -> Facts:
        """Facts from a look at the store; the rest is unasked."""
        if self.spec.is_global:
            return Facts(self.spec, self.disk, NOW_MS, self.log, archive=NO_ARCHIVE)
        if not self.spec.home.disks_are_shared:
            return Facts(self.spec, self.archived.seen)
        return Facts(self.spec, self.disk)

    @property
    def archived(self) -> ArchivedStore:
        """The store as its newest usable snapshot has it."""
        newest = self.newest_usable
        if newest is not None:
            known = known_of_store(newest.record, newest.committed, anything=newest.committed is not None)
            empty = newest.committed is None
            seen = DiskFacts(True, newest.committed, empty, newest.record, known=known, installed_by=newest.by_hand)
            return ArchivedStore(seen, self.manifest(newest))
        left = self.newest
        if left is None:
            return ArchivedStore(DiskFacts(present=False), None)
        known = known_of_store(left.record, left.committed, anything=left.committed is not None)
        return ArchivedStore(DiskFacts(present=False, record=left.record, known=known, installed_by=left.by_hand), None)

    # -- answers --------------------------------------------------------------------------------------------------

    def answer(self, question: Question, facts: Facts) -> Facts:
        """Return the facts with the answer to a question."""
        match question:
            case Question.LAST_KNOWN:
                return self._last_known(facts)
            case Question.LOG:
                asked = self.log._replace(stream_time=None, first_time=None, lacks_versions=None, tail_is_complete=None)
                return facts._replace(log=asked, now_ms=NOW_MS)
            case Question.FIRST_RECORD:
                return facts._replace(first=self._first(facts))
            case Question.LOG_TIMES:
                times = {"stream_time": self.log.stream_time, "first_time": self.log.first_time, "times_known": True}
                return self._with_log(facts, **times)
            case Question.LACKS_VERSIONS:
                return self._with_log(facts, lacks_versions=self.log.lacks_versions)
            case Question.TAIL_IS_COMPLETE:
                return self._with_log(facts, tail_is_complete=self.log.tail_is_complete)
            case Question.SNAPSHOTS:
                return facts._replace(archive=self._archive(facts))
            case Question.ARCHIVE_LOSS:
                return self._with_archive(facts, loss=self._archive_loss())
            case Question.MORE_SNAPSHOTS:
                return self._more(facts)
            case Question.LOG_BYTES:
                return facts._replace(log_bytes=self.log_bytes)
            case Question.REBUILD_LOSS:
                return facts._replace(rebuild_loss=self.global_loss)
            case Question.PROOF:
                return facts._replace(proof=self.proof)

    def _last_known(self, facts: Facts) -> Facts:
        disk, newest = facts.disk, self.newest if self.archive_answers else None
        unreadable = (
            self.archive_answers and self.spec.home.offers_snapshots and bool(self.snapshots) and newest is None
        )
        if unreadable and disk.known.is_unknown and self.spec.home.disks_are_shared:
            disk = disk._replace(record=None, known=LastKnown(anything=True))
        elif disk.known.is_unknown and newest is not None and self.spec.home.disks_are_shared:
            known = known_of_store(newest.record, newest.committed, anything=newest.committed is not None)
            disk = disk._replace(record=newest.record, known=known)
        elif disk.known.is_unknown and self.committed_elsewhere is not None:
            disk = disk._replace(known=LastKnown(True, self.committed_elsewhere, disk.known.record))
        return facts._replace(disk=disk, elsewhere=True)

    def _first(self, facts: Facts) -> int | None:
        asked = unread(facts)
        if asked is None or self.record_after is None:
            return None
        start, end = asked
        return start + self.record_after if start + self.record_after < end else None

    @staticmethod
    def _with_log(facts: Facts, **changes: Any) -> Facts:
        assert facts.log is not UNASKED
        return facts._replace(log=facts.log._replace(**changes))

    @staticmethod
    def _with_archive(facts: Facts, **changes: Any) -> Facts:
        assert facts.archive is not UNASKED
        return facts._replace(archive=facts.archive._replace(**changes))

    # -- the archive ----------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The newest generation."""
        return max((one.generation for one in self.snapshots), default=0)

    def is_usable(self, snapshot: Snapshot) -> bool:
        """Return whether the listing does not rule it out."""
        return snapshot.generation == self.generation and not snapshot.suspect

    @property
    def newest(self) -> Snapshot | None:
        """The newest that can be read: evidence."""
        if not self.spec.home.offers_snapshots:
            return None
        current = (one for one in self.snapshots if one.generation == self.generation and one.readable)
        return next(current, None)

    @property
    def newest_usable(self) -> Snapshot | None:
        """The newest that can be read and is not suspect."""
        return next((one for one in self.snapshots if self.is_usable(one) and one.readable), None)

    def manifest(self, snapshot: Snapshot) -> Manifest:
        """Return the manifest of a snapshot."""
        return self._manifests[self.snapshots.index(snapshot)]

    @cached_property
    def _manifests(self) -> list[Manifest]:
        return [self._manifest(at, one) for at, one in enumerate(self.snapshots)]

    def _manifest(self, at: int, snapshot: Snapshot) -> Manifest:
        return manifest(
            {"000007.sst": bytes(snapshot.bytes)},
            application="app",
            definition=self.spec.store,
            task="0_0",
            generation=snapshot.generation,
            uuid=UUID(int=len(self.snapshots) - at).hex,
            topic=CHANGELOG.topic,
            partition=0,
            committed=snapshot.committed,
            record=snapshot.record,
            by_hand=snapshot.by_hand,
        )

    def _listed(self, snapshot: Snapshot) -> Listed:
        directory = StoreDirectory("c", self.spec.store_partition)
        return Listed(directory, self.manifest(snapshot).name, 0, snapshot.suspect)

    def _archive(self, facts: Facts) -> ArchiveFacts:
        if not self.spec.home.offers_snapshots:
            return NO_ARCHIVE
        if not self.archive_answers:
            return ArchiveFacts(error=ArchiveUnavailableError("no answer"))
        listed = tuple(map(self._listed, self.snapshots))
        found = History(StoreDirectory("c", self.spec.store_partition), self.generation, listed)
        return ArchiveFacts(
            newest=None if self.newest is None else self.manifest(self.newest),
            history=found,
            complete=not found.usable,
        )

    def with_named(self, facts: Facts, number: int) -> Facts:
        """Return the facts with the snapshot that a request names."""
        archive, chosen = facts.archive, self.snapshots[number % len(self.snapshots)]
        if archive is UNASKED or archive.history is None:
            return facts
        found, candidate = self.manifest(chosen), self._candidate(facts, chosen)
        named = NamedSnapshot(self._listed(chosen), self.generation, candidate, unlike(self.spec, found))
        return facts._replace(archive=archive._replace(named=named))

    def _candidate(self, facts: Facts, snapshot: Snapshot) -> Candidate:
        assert facts.log is not UNASKED
        found, log = self.manifest(snapshot), facts.log.log
        if not snapshot.readable:
            return Candidate(str(found.name), refused="it cannot be read")
        cut = facts.log.cut_at
        comparison = None if cut is None else LogComparison(Continuity.CUT, cut)
        return Candidate(
            str(found.name),
            found.committed,
            found.record,
            refused=inadmissible(self.spec, found, log, comparison, NOW_MS),
            installed_by=found.by_hand,
            fetched=snapshot.bytes,
            replayed=max(log.last_stable - max((found.committed or 0) + 1, log.start), 0),
            manifest=found,
        )

    def _more(self, facts: Facts) -> Facts:
        assert facts.archive is not UNASKED
        usable, seen = [one for one in self.snapshots if self.is_usable(one)], list(facts.archive.candidates)
        for snapshot in usable[len(seen) :]:
            seen.append(self._candidate(facts, snapshot))
            if seen[-1].refused is None:
                break
        return self._with_archive(facts, candidates=tuple(seen), complete=len(seen) == len(usable))

    def _archive_loss(self) -> RebuildLoss | None:
        newest = self.newest
        if newest is None:
            unread_ones = any(one.generation == self.generation for one in self.snapshots)
            return RebuildLoss(Loss.LIKELY, "none of its snapshots can be read") if unread_ones else None
        if self.spec.changelog is None:
            return RebuildLoss(Loss.LIKELY, "its changelog topic does not exist")
        known = LastKnown(newest.committed is not None, newest.committed, newest.record)
        timed = needs_stream_time(self.spec, newest.record, self.log.log)
        log = self.log if timed else self.log._replace(stream_time=None, first_time=None)
        lost = rebuild_loss(known, log, retention_ms=self.spec.store.row_retention_ms, now_ms=NOW_MS)
        if lost.loss is Loss.NONE and newest.by_hand is not None:
            return RebuildLoss(Loss.UNPROVEN, f"it was put in place by {newest.by_hand}")
        return lost

    # -- decisions ------------------------------------------------------------------------------------------------

    def judged(self, *, early: bool = False) -> tuple[Facts, Verdict]:
        """Return the verdict that a restore works with; `early`: everything was asked for before."""
        if self.spec.is_global:
            return self.facts, self.global_verdict
        begun = self._asked(self.facts, JUDGED) if early else self.facts
        facts, verdict = self.resolved(begun, judge)
        readable = facts.disk.present and facts.disk.trouble is None and self.spec.changelog is not None
        if self.found_by_reading is not None and readable:
            verdict = damaged(verdict, self.found_by_reading, "block 7")
        if not self.spec.home.disks_are_shared:
            options = VerifyOptions(depth="offsets")
            verdict = check._of_archived(facts, self.archived, verdict, options, None)  # type: ignore[arg-type]
        return facts, verdict

    def _asked(self, facts: Facts, questions: tuple[Question, ...]) -> Facts:
        for question in questions:
            if question is not Question.LAST_KNOWN or facts.disk.known.is_unknown:
                facts = self.answer(question, facts)
        return facts

    def decided(self, request: Request, *, early: bool = False) -> tuple[Facts, Verdict, Plan | Refusal]:
        """Return what is planned; `early` as of `judged`."""
        facts, verdict = self.judged(early=early)
        if early and not self.spec.is_global:
            facts = self._asked(facts, PLANNED)
            if request.snapshot is not None:
                facts = self.with_named(facts, len(request.snapshot))
            if facts.archive is not UNASKED and facts.archive.history is not None:
                facts = self.answer(Question.ARCHIVE_LOSS, facts)

        def planned(found: Facts) -> Plan | Refusal | Open:
            return plan(found, verdict, request, all_sources())

        facts, made = self.resolved(facts, planned, request)
        return facts, verdict, made

    def resolved(self, facts: Facts, decide: Any, request: Request | None = None) -> tuple[Facts, Any]:
        """Answer questions until there is a result; none is asked twice, but for the next older snapshot."""
        asked: Counter[Question] = Counter()
        while isinstance(result := decide(facts), Open):
            assert result.questions, "no question, and no result"
            for question in sorted(result.questions):
                asked[question] += 1
                most = len(self.snapshots) if question is Question.MORE_SNAPSHOTS else 1
                assert asked[question] <= most, f"asked again: {question}"
                facts = self.answer(question, facts)
                if question is Question.SNAPSHOTS and request is not None and request.snapshot is not None:
                    facts = self.with_named(facts, len(request.snapshot))
        return facts, result


JUDGED = (
    Question.LAST_KNOWN,
    Question.LOG,
    Question.FIRST_RECORD,
    Question.LOG_TIMES,
    Question.LACKS_VERSIONS,
    Question.TAIL_IS_COMPLETE,
)
PLANNED = (Question.SNAPSHOTS, Question.LOG_BYTES, Question.PROOF)


# -- drawn worlds -----------------------------------------------------------------------------------------------------


def _offset(rnd: Random) -> int:
    return rnd.randint(0, END)


def _offset_or_none(rnd: Random) -> int | None:
    return rnd.choice([None, _offset(rnd)])


def _time(rnd: Random) -> int | None:
    return rnd.choice([None, rnd.randint(0, 20)])


def _flag(rnd: Random) -> bool:
    return rnd.choice([False, True])


def records(rnd: Random, committed: int | None) -> StoreRecord:
    """Draw a record of a store that was once as far as a committed offset, or elsewhere."""
    was = rnd.choice([committed, committed, _offset_or_none(rnd)])
    seen = 0 if was is None else was + rnd.randint(1, 2)
    return StoreRecord(
        topic_id=rnd.choice(["id", "id", "id", "another"]),
        caught_up_ms=rnd.choice([0, NOW_MS - TOMBSTONES_MS, NOW_MS - 1]),
        committed=was,
        end=rnd.choice([None, seen]),
        needed_from=rnd.choice([None, rnd.randint(0, seen)]),
        stream_time=_time(rnd),
        adopted=_flag(rnd),
        restored_by=rnd.choice([None, "restore"]),
    )


def disks(rnd: Random) -> DiskFacts:
    """Draw a store on a disk."""
    here = rnd.choice(["absent", "empty", "usable", "usable", "trouble"])
    committed = _offset_or_none(rnd) if here in ("usable", "trouble") else None
    record = rnd.choice([None, records(rnd, committed)])
    anything = here == "usable" or (here == "trouble" and _flag(rnd))
    known = known_of_store(record, committed, anything=anything, readable=_flag(rnd))
    if rnd.randint(0, 9) == 0:
        known = known._replace(foreign=True)
    if here == "absent":
        return DiskFacts(present=False, record=record, known=known)
    installed = rnd.choice([None, None, "a rollback"])
    has_database = _flag(rnd)
    if here == "empty":
        by = installed if has_database else None
        return DiskFacts(True, record=record, known=known, installed_by=by, has_database=has_database)
    trouble = rnd.choice([CORRUPT, UNCLEAN, FOREIGN_FORMAT]) if here == "trouble" else None
    return DiskFacts(
        True,
        None if trouble else committed,
        empty=False,
        record=record,
        sealed=rnd.choice([None, False, True]),
        upgrade_pending=_flag(rnd),
        trouble=trouble,
        known=known,
        installed_by=installed,
        has_database=True,
    )


def logs(rnd: Random, spec: StorePartitionSpec) -> LogFacts:
    """Draw a log; it often begins at 0, and sometimes it is empty, shorter than the store, or cut."""
    end = rnd.choice([END + 1, END + 1, END + 1, _offset(rnd)])
    stable = rnd.choice([end, end, rnd.randint(0, end)])
    start = min(rnd.choice([0, 0, 0, 3, 8]), stable)
    log = LogRange(0, 0, 0) if spec.changelog is None else LogRange(start, stable, end)
    return LogFacts(
        spec.changelog,
        log,
        cut_at=rnd.choice([None, None, None, 4]) if spec.changelog is not None else None,
        stream_time=_time(rnd),
        first_time=_time(rnd),
        lacks_versions=not spec.store.compaction_keeps_rows and _flag(rnd),
        tail_is_complete=_flag(rnd),
        asked_ms=NOW_MS,
        all_logs={TopicPartition(CHANGELOG.topic, 0): log},
    )


def snapshots(rnd: Random, latest: int) -> Snapshot:
    """Draw a snapshot."""
    committed = _offset_or_none(rnd)
    record = records(rnd, committed).model_copy(update={"committed": committed})
    return Snapshot(
        committed,
        record,
        suspect=rnd.randint(0, 4) == 0,
        by_hand=rnd.choice([None, None, "a rollback"]),
        generation=latest,
        bytes=rnd.choice([0, 500, 10_000]),
        readable=rnd.randint(0, 5) > 0,
    )


def archived_snapshots(rnd: Random) -> tuple[Snapshot, ...]:
    """Draw the snapshots of a store, of one or two generations, the newest first."""
    generations = sorted((rnd.choice([0, 1]) for _ in range(rnd.randint(0, 3))), reverse=True)
    return tuple(snapshots(rnd, generation) for generation in generations)


def specs(rnd: Random) -> StorePartitionSpec:
    """Draw a store partition: kind, origin, and home."""
    home = rnd.choice(["disk", "disk and archive", "archive"])
    archive = None if home == "disk" else ArchiveSpec(url="file:///a", cluster="c", node_local=home == "archive")
    changelog = None
    if rnd.randint(0, 9):
        compacted = rnd.randint(0, 3) > 0
        changelog = CHANGELOG.model_copy(update={"compacted": compacted})
    return _spec(
        store=rnd.choice(KINDS),
        changelog=changelog,
        exactly_once=_flag(rnd),
        owned=_flag(rnd),
        archive=archive,
        task=GLOBAL_TASK if rnd.randint(0, 9) == 0 else TaskId(0, 0),
        global_kind=rnd.choice([None, "table", "table", "processor"]),
        global_said=_flag(rnd),
        offsets_beside=rnd.randint(0, 9) == 0,
    )


_FIELDS = {
    "application": "app",
    "cluster": Cluster("nowhere:9092", 1),
    "state_dir": Path("/state"),
}


def _spec(**changes: Any) -> StorePartitionSpec:
    return StorePartitionSpec(**{**_FIELDS, **changes})


def global_verdicts(rnd: Random, spec: StorePartitionSpec, loss: RebuildLoss) -> Verdict:
    """Draw a verdict on a global store, as `global_stores.py` gives it."""
    found = rnd.choice(
        [
            Verdict(Status.OK),
            Verdict(Status.EMPTY, "it does not exist", refills=True),
            Verdict(Status.MISSING, "it does not exist", refills=True),
            Verdict(Status.LAGGING, "records are to be read", refills=True),
            Verdict(Status.REPLACED, "its topic was another one", rebuildable=False),
            Verdict(Status.LOCKED, "in use"),
            Verdict(Status.DIVERGED, "it has lost rows", rebuildable=False),
            Verdict(Status.CORRUPT, "no CURRENT"),
            Verdict(Status.DIVERGED, "6 rows differ"),
        ]
    )
    if found.status.healthy or found.refills or not found.rebuildable or not found.observed:
        return found
    return with_loss(found, loss) if spec.global_kind == "table" else found._replace(rebuildable=False)


def worlds(rnd: Random) -> World:
    """Draw a store partition with everything that can be asked about it."""
    spec, loss = specs(rnd), rnd.choice(LOSSES)
    return World(
        spec,
        disks(rnd),
        _offset_or_none(rnd),
        logs(rnd, spec),
        rnd.choice([None, 0, 1, 2]),
        rnd.choice([None, None, None, Status.CORRUPT]),
        archived_snapshots(rnd) if spec.archive is not None else (),
        rnd.randint(0, 4) > 0,
        rnd.choice([0, 100, 1_000]),
        rnd.choice([None, Correcting(_offset(rnd), _flag(rnd))]),
        loss,
        global_verdicts(rnd, spec, loss),
    )


def requests(rnd: Random, world: World) -> Request:
    """Draw what is asked for."""
    diverged = rnd.randint(0, 4) == 0
    mode = rnd.choice(["auto", "auto", "full"] if diverged else ["auto", "auto", "tail", "snapshot", "full"])
    named = mode == "snapshot" and world.snapshots and world.spec.home.offers_snapshots and _flag(rnd)
    return Request(
        mode=mode,
        force=_flag(rnd) or diverged,
        accept_loss=_flag(rnd),
        snapshot="x" * rnd.randint(0, 2) if named else None,
        diverged=diverged,
        log_read=rnd.randint(0, 5) == 0,
        parts_built=rnd.randint(0, 5) == 0,
        publishes=_flag(rnd),
        as_application=_flag(rnd),
        label="label",
    )


def without(world: World, **changes: Any) -> World:
    """Return a world with other answers."""
    return replace(world, **changes)
