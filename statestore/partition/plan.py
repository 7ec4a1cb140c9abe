"""What to do with a store partition: a plan, or the reason why it is refused. Pure.

Advice in reports, a dry run, `restore`, `warm`, stores of a node, and a task at its start all call `plan` with another
request and other sources. A plan is data: it crosses processes, and it can be compared with the one that was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from statestore.advice import message
from statestore.errors import InputError, LockedError, StateStoreError
from statestore.partition.advice import advise
from statestore.partition.facts import UNASKED, ArchiveFacts, Facts, Needs, Open, Question, RebuildLoss
from statestore.partition.home import Copy, Filling
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import LACKS_VERSIONS, Verdict
from statestore.reports import Action, Loss, Status
from statestore.statedir.record import committed_of
from statestore.statedir.sidecar import Judgement

ACCEPT = "to rebuild it anyway, and keep the present store in quarantine, add --accept-loss"
Mode = Literal["auto", "tail", "snapshot", "full"]
SourceName = Literal["tail", "correction", "snapshot", "parts", "log", "global topic"]


class Request(NamedTuple):
    """What is asked for. The default is what happens unasked.

    Attributes
    ----------
    mode, force, accept_loss, snapshot
        As of `RestoreRequest`.
    diverged
        A report says that its rows are not those of its log, so its snapshots are not trusted either.
    log_read
        Ranges of its log were read for it, so mode `auto` no longer prefers a snapshot.
    parts_built
        Several machines have built parts of it, which are to be put together.
    publishes
        A snapshot of the restored store is published.
    as_application
        What is done is what its application would do at its start: a store of which nothing is here is built from what
        is left of its log, a store that lacks something begins no generation of snapshots, and a short tail is left.
    acceptable_lag
        Offsets that the application reads itself.
    label
        Name of the run.
    """

    mode: Mode = "auto"
    force: bool = False
    accept_loss: bool = False
    snapshot: str | None = None
    diverged: bool = False
    log_read: bool = False
    parts_built: bool = False
    publishes: bool = True
    as_application: bool = False
    acceptable_lag: int = 0
    label: str = ""


class Refusal(NamedTuple):
    """Reason why nothing is done.

    Attributes
    ----------
    error
        The error that `restore` raises.
    """

    error: StateStoreError


class Need(NamedTuple):
    """What a store partition needs.

    Attributes
    ----------
    kind
        `nothing`; the `tail` of its log; a `correction` by the tail that its proof gives; a `rebuild`; or that of a
        global `table`.
    snapshots
        Whether a rebuild starts from a snapshot: `never`, if that is `cheaper` than the log, or `first` of all.
    covers
        What a snapshot must have so that nothing is lost; None if the log is complete or the loss is of another kind.
    log_refused
        Why it is not rebuilt from its log alone; None if it may be.
    loss
        What a rebuild from its log would lose; None if not determined.
    """

    kind: Literal["nothing", "tail", "correction", "rebuild", "table"]
    snapshots: Literal["never", "cheaper", "first"] = "never"
    covers: Needs | None = None
    log_refused: InputError | None = None
    loss: RebuildLoss | None = None


class Offer(NamedTuple):
    """What a source offers.

    Attributes
    ----------
    source
        Name of the source.
    mode
        The mode that reports name.
    fetched, replayed
        Bytes of files to fetch, and changelog offsets to read.
    preferred
        Nothing can be cheaper, or it may have what the other sources lack.
    snapshot
        Name of the snapshot that it starts from.
    after
        Last changelog offset that is not replayed; None if it starts at the log's start.
    against
        What speaks against the snapshot that a user has named; empty if nothing.
    """

    source: SourceName
    mode: Literal["tail", "snapshot", "full"]
    fetched: int = 0
    replayed: int = 0
    preferred: bool = False
    snapshot: str | None = None
    after: int | None = None
    against: str = ""


class Source(Protocol):
    """A way to get a store."""

    @property
    def name(self) -> SourceName:
        """Its name in plans."""

    def offer(self, facts: Facts, need: Need, request: Request) -> Offer | Open | Refusal | None:
        """Return what it offers for what is needed; None if it cannot give that."""


class Plan(BaseModel):
    """What is done with one store partition.

    Attributes
    ----------
    status
        Of the store now.
    source, mode
        Where the new store comes from, and the mode that reports name; None: nothing is done.
    reason
        Why.
    snapshot, after
        As of `Offer`.
    replaced_loss, replaced_why
        What the new store may lack of the one that it replaces, which waits in quarantine accordingly.
    begins
        Why its snapshots begin a generation; empty if they do not.
    begins_if_inexact
        Why they begin one if compaction has removed versions from the log; empty if they do not.
    suspects
        Why the present snapshots become suspect; empty if they do not.
    adopted
        The new store has rows that its log does not give.
    covered
        Its snapshot has everything that the log has lost.
    publishes
        A snapshot of the new store is published.
    topic_id
        The changelog topic that it was made for, which is checked again before the swap; None if there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    application: str
    store: str
    task: str
    status: Status
    source: SourceName | None = None
    mode: Literal["tail", "snapshot", "full"] | None = None
    reason: str = ""
    snapshot: str | None = None
    after: int | None = None
    replaced_loss: Loss = Loss.NONE
    replaced_why: str = ""
    begins: str = ""
    begins_if_inexact: str = ""
    suspects: str = ""
    adopted: bool = False
    covered: bool = False
    publishes: bool = False
    topic_id: str | None = None

    @property
    def replaced(self) -> Judgement:
        """How the store that is replaced was judged."""
        return Judgement(self.status, self.replaced_loss, self.replaced_why)


_RANK = {Loss.NONE: 0, Loss.UNPROVEN: 1, Loss.LIKELY: 2}


def bolder(made: Plan, approved: Plan) -> str | None:
    """Return in what a plan goes beyond an approved one; None if it does not.

    A plan that is made anew runs only if it is no bolder; otherwise it goes back to whoever approved the other one.
    """
    if made.source is None:
        return None
    if approved.source is None:
        return "nothing was to be done"
    beyond = (
        (_RANK[made.replaced_loss] > _RANK[approved.replaced_loss], f"it may lose more: {made.replaced_why}"),
        (bool(made.begins) > bool(approved.begins), f"it begins a generation of snapshots: {made.begins}"),
        (bool(made.suspects) > bool(approved.suspects), f"it marks snapshots as suspect: {made.suspects}"),
        (made.publishes > approved.publishes, "it publishes a snapshot"),
        ((made.mode, approved.mode) == ("full", "tail"), "it rebuilds the store instead of catching it up"),
    )
    return next((why for goes_beyond, why in beyond if goes_beyond), None)


def plan(facts: Facts, verdict: Verdict, request: Request, sources: Sequence[Source]) -> Plan | Refusal | Open:
    """Return what to do with a store partition.

    Parameters
    ----------
    sources
        In the order of preference between equal offers.

    Returns
    -------
    Plan, Refusal, or Open
        `Open` if facts are missing that decide.
    """
    need = needed(facts, verdict, request, corrects=any(source.name == "correction" for source in sources))
    if isinstance(need, Refusal | Open):
        return need
    if need.kind == "nothing":
        return _plan(facts, verdict, verdict.detail or "intact")
    offers: list[Offer] = []
    for source in sources:
        offer = None if source.name in facts.failed else source.offer(facts, need, request)
        if isinstance(offer, Open | Refusal):
            return offer
        if offer is not None:
            offers.append(offer)
            if offer.preferred:
                return _planned(facts, verdict, request, need, offer)
    if not offers:
        what = f"{facts.spec.store_partition} is {verdict.status}: {verdict.detail}"
        return Refusal(need.log_refused or InputError(f"{what}. Mode {request.mode} cannot restore it"))
    if len(offers) > 1 and facts.log_bytes is UNASKED:
        return Open.of(Question.LOG_BYTES)
    return _planned(facts, verdict, request, need, min(offers, key=lambda offer: _cost(facts, offer)))


def _cost(facts: Facts, offer: Offer) -> int:
    """Return the bytes that an offer fetches and reads."""
    if facts.log_bytes is UNASKED:
        return 0
    offsets = sum(log.last_stable - log.start for log in facts.asked_log.all_logs.values())
    return offer.fetched + facts.log_bytes * offer.replayed // max(offsets, 1)


def advised(verdict: Verdict) -> Action:
    """Return the action that reports show: that of the default request."""
    if not verdict.observed:
        return Action.LATER
    if verdict.is_settled:
        return Action.NONE
    if verdict.catches_up:
        return Action.TAIL
    return Action.FULL if verdict.rebuildable and not verdict.loses else Action.BY_HAND


# -- what is needed ---------------------------------------------------------------------------------------------------


def needed(facts: Facts, verdict: Verdict, request: Request, *, corrects: bool = False) -> Need | Refusal | Open:
    """Return what a store partition needs, whichever source gives it.

    Parameters
    ----------
    corrects
        It may be caught up from the tail that its rows prove, if its own offset does not tell.
    """
    if request.as_application and is_nowhere_else(facts.spec, verdict):
        request = request._replace(accept_loss=True)
    return _NEEDED[facts.spec.origin.filling](facts, verdict, request, corrects)


def is_nowhere_else(spec: StorePartitionSpec, verdict: Verdict) -> bool:
    """Return whether nothing of a store is here, and its log has lost its start.

    Its application would begin with the rest of the log, and no copy here is replaced.
    """
    if not spec.home.disks_are_shared:  # the verdict is about its snapshots
        return False
    nothing_here = verdict.committed is None and verdict.status in (Status.MISSING, Status.TRUNCATED)
    return nothing_here and verdict.waits_for_loss and verdict.lost_its_start


def _needed_of_store(facts: Facts, verdict: Verdict, request: Request, corrects: bool) -> Need | Refusal | Open:
    if corrects and _is_correctable(facts, verdict, request):
        if facts.proof is UNASKED:
            return Open.of(Question.PROOF)
        if facts.proof is not None and not (facts.proof.replaces_unexplained and verdict.loses):
            loss = verdict.loss if facts.proof.replaces_unexplained else RebuildLoss(Loss.NONE)
            return Need("correction", loss=loss)
    found = _by_archive(facts, verdict, request) or _by_verdict(facts, verdict, request)
    if not isinstance(found, Need) or found.kind != "rebuild":
        return found
    refused = found.log_refused or _installed(facts, verdict, request)
    if refused is not None and found.snapshots != "first":
        return Refusal(refused)
    return found._replace(log_refused=refused)


def _needed_of_global(facts: Facts, verdict: Verdict, request: Request, corrects: bool) -> Need | Refusal | Open:
    """Return what a global store needs: only a table is rebuilt, and if it only lags, only in mode `full`."""
    spec, label = facts.spec, facts.spec.store_partition
    if (refused := refused_global(spec)) is not None:
        return Refusal(refused)
    if request.mode not in ("auto", "full"):
        return Refusal(InputError(f"{label} is a global table: restore it in mode full, not {request.mode}"))
    if not verdict.observed:
        return Refusal(LockedError(_not_verified(facts, verdict)))
    filled = verdict.refills and request.mode == "auto"  # by its application, at its next start
    if (verdict.status in (Status.OK, Status.EMPTY) or filled) and not request.force:
        return Need("nothing")
    loss = verdict.loss or facts.rebuild_loss
    if loss is UNASKED:
        return Open.of(Question.REBUILD_LOSS)
    verdict = verdict._replace(loss=loss)
    if verdict.loses and not request.accept_loss:
        return Refusal(_would_lose(facts, verdict))
    decided = request.force and spec.global_said
    if not (verdict.usable or verdict.rebuildable or decided):
        return Refusal(InputError(f"{label} is {verdict.status} and needs a manual decision: {verdict.detail}"))
    return Need("table", loss=loss)


#: By what a store is filled from.
_NEEDED = {Filling.CHANGELOG: _needed_of_store, Filling.TOPIC: _needed_of_global}


def refused_global(spec: StorePartitionSpec) -> InputError | None:
    """Return why a global store is not rebuilt from the bytes of its topic; None for a table."""
    label = spec.store_partition
    if spec.global_kind == "processor":
        return InputError(
            f"{label} is not restored: a processor of the application fills it, and its topic does "
            f"not show with what. Remove its directory: Kafka Streams fills it when it starts"
        )
    if spec.global_kind is None:
        return InputError(
            f"{label} is not restored: it is unknown whether it is a global table or a processor "
            f"fills it. While it is intact, run `statestore verify --depth deep`, which compares it with its topic. "
            f"Or {what_decides(spec.store.name)}"
        )
    return None


def what_decides(store: str) -> str:
    """Return how a user tells whether a global store is a table."""
    return (
        f"if it is a global table (StreamsBuilder.globalTable), add --store {store}:global=table; if a processor fills "
        f"it (addGlobalStore), add --store {store}:global=processor"
    )


def _is_correctable(facts: Facts, verdict: Verdict, request: Request) -> bool:
    """Return whether a proof of its rows may show a tail that corrects the store.

    It can be read, but its committed offset does not determine the tail, or a report says that its rows are wrong.
    """
    if request.mode != "auto" or (request.force and not request.diverged) or request.log_read:
        return False
    lost_its_offset = verdict.status is Status.UNCLEAN or (
        verdict.status is Status.LAGGING and not verdict.catches_up and verdict.rebuildable and not verdict.loses
    )
    if not (request.diverged or lost_its_offset) or (verdict.loses and not verdict.lost_its_start):
        return False
    # The rows of an installed store may differ from its log.
    here = facts.disk.present and facts.spec.home.proves_rows
    return here and facts.disk.installed_by is None and verdict.log is not None


def _by_archive(facts: Facts, verdict: Verdict, request: Request) -> Need | Refusal | Open | None:
    """Return what a store needs of which only the archive knows more than its log; None if that is not so."""
    if not _is_lost_here(facts, verdict):
        return None
    archive = facts.archive
    if archive is UNASKED:
        return Open.of(Question.SNAPSHOTS)
    if archive.error is not None:
        return Refusal(archive.error)
    if archive.history is None or not archive.history.snapshots:
        return None
    if archive.loss is UNASKED:
        return Open.of(Question.ARCHIVE_LOSS)
    lost = _more_in(archive, facts, verdict)
    return None if lost is None else _need_of_lost(facts, request, lost, archive)


def _is_lost_here(facts: Facts, verdict: Verdict) -> bool:
    """Return whether this disk does not show what the store had.

    Where the node was lost, neither store nor record shows it. What `process` began there since, and never committed,
    does not either.
    """
    home = facts.spec.home
    if not home.snapshots_show_more or verdict.committed is not None or not verdict.observed:
        return False
    if facts.disk.installed_by is not None and verdict.usable:
        return False  # a user has installed it, although the archive has more
    if not verdict.usable and (not verdict.rebuildable or verdict.log is None):
        return False
    return committed_of(facts.disk.record) is None or facts.elsewhere


def _more_in(archive: ArchiveFacts, facts: Facts, verdict: Verdict) -> RebuildLoss | None:
    """Return what a rebuild from the log would lose of the newest snapshot; None if it need not be used for that."""
    lost, had = archive.loss, archive.newest_record
    if lost is UNASKED or lost is None or lost.loss is Loss.NONE:
        return None
    if lost.loss is Loss.UNPROVEN:
        # Versions, and rows that were adopted, may be missing from the log.
        has_more = (had is not None and had.adopted) or not facts.spec.store.compaction_keeps_rows
        return lost if has_more and not verdict.loses else None
    # If the store here has lost something else, it has something that its snapshots do not show.
    unlike = verdict.loses and lost.status is Status.TRUNCATED and not verdict.lost_its_start
    return None if unlike else lost


def _need_of_lost(facts: Facts, request: Request, lost: RebuildLoss, archive: ArchiveFacts) -> Need | Refusal:
    likely, cut = lost.loss is Loss.LIKELY, lost.status is Status.TRUNCATED
    covers = None
    if cut or not likely:
        covers = Needs.of(archive.newest_record)
    if request.mode in ("auto", "snapshot") and (not likely or cut or request.accept_loss or request.snapshot):
        return _from_snapshot(facts, lost, request, covers)
    if request.mode == "full" and (request.accept_loss or not likely):
        return Need("rebuild", "never", covers, loss=lost)
    way = "mode snapshot, or " if cut else ""
    return Refusal(
        InputError(
            f"{facts.spec.store_partition} is not rebuilt from its log: {lost.why}, and the archive has more; use {way}"
            "mode full and --accept-loss"
        )
    )


def _by_verdict(facts: Facts, verdict: Verdict, request: Request) -> Need | Refusal | Open:
    spec, mode = facts.spec, request.mode
    covers = _covered(facts, verdict, request)
    if isinstance(covers, Open):
        return covers
    if spec.origin.makes_empty_stores and is_made_empty(facts, verdict) and mode != "tail":
        return Need("rebuild", _unasked(request), loss=verdict.loss)
    if _continues(facts, verdict, request) or _may_be_covered(facts, verdict, request):
        return _from_snapshot(facts, verdict.loss, request, covers)
    if (refused := _refused(facts, verdict, request)) is not None:
        return Refusal(refused)
    is_short = verdict.catches_up and verdict.lag is not None and verdict.lag <= request.acceptable_lag
    untouched = verdict.is_settled or (request.as_application and is_short)
    if untouched and (mode == "tail" or not request.force):
        return Need("nothing")
    if mode in ("full", "snapshot") or (mode == "auto" and (request.force or not verdict.usable)):
        return _rebuilt(facts, verdict, request, covers)
    return _CAUGHT_UP[spec.home.copy](facts, verdict.loss, request, covers)


def _rebuilt(facts: Facts, verdict: Verdict, request: Request, covers: Needs | None) -> Need | Refusal:
    """Return what a store needs that is rebuilt because it is damaged, or because that was asked for."""
    if verdict.loses and not request.accept_loss:
        return Refusal(_would_lose(facts, verdict))
    if request.mode == "snapshot":
        return _from_snapshot(facts, verdict.loss, request, covers)
    return Need("rebuild", _unasked(request), covers, loss=verdict.loss)


def _from_snapshot(facts: Facts, loss: RebuildLoss | None, request: Request, covers: Needs | None) -> Need:
    """Return the need of a rebuild that starts from a snapshot if there is one."""
    return Need("rebuild", "first", covers, _log_refused(facts, loss, request), loss)


def _from_tail(facts: Facts, loss: RebuildLoss | None, request: Request, covers: Needs | None) -> Need:
    return Need("tail", loss=loss)


#: How a store that only lags is completed.
_CAUGHT_UP = {Copy.DISK: _from_tail, Copy.SNAPSHOT: _from_snapshot}


def _covered(facts: Facts, verdict: Verdict, request: Request) -> Needs | Open | None:
    """Return what a snapshot must have, if the log has lost its start; None otherwise.

    That is what the store had by its record, or by the archive that is its home.
    """
    return _NEEDS[facts.spec.home.copy](facts) if verdict.lost_its_start and not request.diverged else None


def _by_record(facts: Facts) -> Needs:
    return Needs.of(facts.disk.record)


def _by_newest_snapshot(facts: Facts) -> Needs | Open | None:
    if facts.archive is UNASKED:
        return Open.of(Question.SNAPSHOTS)
    newest = facts.archive.newest
    return None if newest is None else Needs.of(newest.record)


#: What a snapshot must have of the start of a log.
_NEEDS: dict[Copy, Callable[[Facts], Needs | Open | None]] = {
    Copy.DISK: _by_record,
    Copy.SNAPSHOT: _by_newest_snapshot,
}


def _may_be_covered(facts: Facts, verdict: Verdict, request: Request) -> bool:
    """Return whether a snapshot may have what the log has lost at its start."""
    offered = facts.spec.home.offers_snapshots and not request.diverged
    return offered and request.mode in ("auto", "snapshot") and verdict.waits_for_loss and verdict.lost_its_start


def _continues(facts: Facts, verdict: Verdict, request: Request) -> bool:
    """Return whether a store of the archive is brought to a node, or only lags: its snapshot and the tail give it."""
    if facts.spec.home.disks_are_shared:
        return False
    if request.mode == "full" or (request.mode == "auto" and request.force):
        return False
    return request.force if verdict.is_settled else verdict.catches_up


def _unasked(request: Request) -> Literal["never", "cheaper"]:
    """Return whether a rebuild may start from a snapshot that nobody asked for.

    A user who forces the rebuild of a store that may be healthy trusts neither it nor its snapshots.
    """
    trusted = request.mode == "auto" and not (request.force or request.diverged or request.log_read)
    return "cheaper" if trusted else "never"


def _would_lose(facts: Facts, verdict: Verdict) -> InputError:
    assert verdict.loss is not None, "only a loss is refused"
    return InputError(
        f"{facts.spec.store_partition} is {verdict.status}, and is not rebuilt, because a rebuild would lose data: "
        f"{verdict.loss.why}; {ACCEPT}"
    )


def _not_verified(facts: Facts, verdict: Verdict) -> str:
    return f"{facts.spec.store_partition} could not be verified ({verdict.status}): {verdict.detail}; try again later"


def _refused(facts: Facts, verdict: Verdict, request: Request) -> StateStoreError | None:
    label = facts.spec.store_partition
    if not verdict.observed:
        return LockedError(_not_verified(facts, verdict))
    by_hand = not verdict.usable and (not verdict.rebuildable or verdict.loses)
    if by_hand and not (verdict.waits_for_loss and request.accept_loss):
        step = advise(facts.spec, verdict, Action.BY_HAND)
        assert step is not None, "what needs a decision has advice"
        return InputError(message(str(label), step)).with_evidence(f"{verdict.status}: {verdict.detail}")
    if request.mode == "tail" and not verdict.usable:
        return InputError(f"{label} is {verdict.status}, which mode tail cannot repair. Use mode full")
    return None


def _log_refused(facts: Facts, loss: RebuildLoss | None, request: Request) -> InputError | None:
    """Return why the log alone may not take the place of a snapshot."""
    if loss is None or loss.loss is not Loss.LIKELY or (request.accept_loss and request.mode == "auto"):
        return None
    return InputError(
        f"{facts.spec.store_partition}: no snapshot can be used, and a rebuild from its log alone would lose data: "
        f"{loss.why}; to rebuild it anyway, use mode full and --accept-loss, or name a snapshot"
    )


def _installed(facts: Facts, verdict: Verdict, request: Request) -> InputError | None:
    """Return why a manually installed store is not rebuilt from its log alone, unless it is damaged."""
    by = facts.disk.installed_by
    if by is None or not verdict.usable or request.accept_loss:
        return None
    return InputError(
        f"{facts.spec.store_partition} is not rebuilt: it is here by {by}, so its log need not give it; {ACCEPT}"
    )


def is_made_empty(facts: Facts, verdict: Verdict) -> bool:
    """Return whether a store is created although its log has nothing for it.

    Exactly once, Kafka Streams 4.3 discards all stores of a task if one of them does not say how far it is. A store
    without a database says nothing, nor does a window or session store without a segment.
    """
    return verdict.status is Status.EMPTY and not facts.disk.has_database and facts.spec.changelog is not None


# -- what follows from a source ---------------------------------------------------------------------------------------


def _planned(facts: Facts, verdict: Verdict, request: Request, need: Need, offer: Offer) -> Plan | Open:
    spec, archive = facts.spec, facts.archive
    if offer.mode == "full" and spec.home.offers_snapshots and archive is UNASKED:
        return Open.of(Question.SNAPSHOTS)
    covered = need.covers is not None and offer.snapshot is not None and not offer.against
    loss = need.loss or RebuildLoss(Loss.UNPROVEN)
    if offer.source == "tail":
        loss = RebuildLoss(Loss.NONE)
    elif covered:
        loss = loss._replace(loss=Loss.UNPROVEN)
    of_its_log = offer.mode != "tail" or (spec.exactly_once and spec.origin.tail_is_trusted)
    made = _plan(facts, verdict)
    return made.model_copy(
        update={
            "source": offer.source,
            "mode": offer.mode,
            "reason": offer.against or _reason(facts, verdict),
            "snapshot": offer.snapshot,
            "after": offer.after,
            "replaced_loss": loss.loss,
            "replaced_why": loss.why,
            "begins": _begins(facts.known_archive, request, loss, offer) if spec.origin.has_lineage else "",
            "begins_if_inexact": _begins_if_inexact(loss, offer),
            "suspects": _suspects(facts, verdict, request),
            "adopted": bool(offer.against),
            "covered": covered,
            "publishes": spec.home.offers_snapshots
            and request.publishes
            and of_its_log
            and spec.origin.offsets_are_inside,
            "topic_id": None if spec.changelog is None else spec.changelog.topic_id,
        }
    )


def _plan(facts: Facts, verdict: Verdict, reason: str = "") -> Plan:
    spec = facts.spec
    return Plan(
        application=spec.application, store=spec.store.name, task=str(spec.task), status=verdict.status, reason=reason
    )


def _reason(facts: Facts, verdict: Verdict) -> str:
    reason = verdict.detail or "asked for"
    if facts.spec.origin.makes_empty_stores and is_made_empty(facts, verdict):
        return f"{reason}, but Kafka Streams needs the empty store"
    return reason


def _begins(archive: ArchiveFacts, request: Request, loss: RebuildLoss, offer: Offer) -> str:
    """Return why the snapshots of the new store begin a generation; empty if they do not."""
    if offer.mode == "tail":
        return ""
    if offer.against:
        return f"snapshot {request.snapshot} by hand: {offer.against}"
    if loss.loss is Loss.LIKELY and not request.as_application:
        return f"an accepted loss: {loss.why}"
    if offer.mode == "full" and archive.newest is not None and archive.newest.by_hand is not None:
        return f"a rebuild from its log alone: before, it was put in place by {archive.newest.by_hand}"
    return ""


def _begins_if_inexact(loss: RebuildLoss, offer: Offer) -> str:
    """Return why they begin one if the log turns out to lack versions: the snapshots before may have these."""
    lacks = offer.mode == "full" and loss.loss is not Loss.NONE
    return f"a rebuild from its log alone: {LACKS_VERSIONS}" if lacks else ""


def _suspects(facts: Facts, verdict: Verdict, request: Request) -> str:
    """Return why the snapshots before are no longer trusted; empty if they are."""
    home = facts.spec.home
    if not home.offers_snapshots:
        return ""
    if request.diverged:
        return f"{verdict.status}: its rows were not what the changelog gives"
    mistrusted = verdict.status is Status.CORRUPT or (request.force and request.mode in ("auto", "full"))
    if home.mistrusts_snapshots and request.publishes and mistrusted:
        return f"{verdict.status}, and built anew from the log by restore {request.label}"
    return ""
