"""Clauses of `plan`, over generated store partitions and requests; each is shown to notice a planted defect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.archive.archive import ArchiveSpec
from statestore.errors import ArchiveUnavailableError
from statestore.partition import plan as plan_module
from statestore.partition.facts import (
    NO_ARCHIVE,
    UNASKED,
    Facts,
    LastKnown,
    LogFacts,
    Needs,
    Open,
    Question,
    RebuildLoss,
)
from statestore.partition.plan import (
    Need,
    Plan,
    Refusal,
    Request,
    advised,
    bolder,
    is_made_empty,
    is_nowhere_else,
    plan,
)
from statestore.partition.spec import StorePartitionSpec, on_this_disk
from statestore.partition.verdict import Verdict, judge
from statestore.recovery.sources import all_sources
from statestore.reports import Action, Loss
from statestore.statedir.record import StoreRecord
from statestore.tasks.task_sources import TASK_SOURCES
from tests.properties.planned_worlds import NOW_MS, World, requests, without, worlds
from tests.session.examples import examples

DEFAULT = Request()
RANK = {Loss.NONE: 0, Loss.UNPROVEN: 1, Loss.LIKELY: 2}
WHOLE_LOG = ("log", "parts", "global topic")
#: Worlds of one case of `test_the_clauses_hold_in_many_worlds`, and cases.
WORLDS, CASES = 1_000, 100

#: Questions that a task answers.
BY_TASK = {Question.LAST_KNOWN, Question.FIRST_RECORD, Question.LOG_TIMES, Question.LACKS_VERSIONS}

Clause = Callable[[World, Request], None]


def the_plan_that_is_shown_is_the_plan_that_runs(world: World, request: Request) -> None:
    facts, verdict, made = world.decided(request)
    again = world.decided(request)[2]
    assert same(made, again)
    assert same(made, plan(facts, verdict, request, all_sources())), "its own facts give another one"
    early_facts, early_verdict, early = world.decided(request, early=True)
    assert early_verdict == verdict
    assert same(made, early), f"facts that were asked for early change it: {early_facts}"
    if isinstance(made, Plan):
        assert Plan.model_validate_json(made.model_dump_json()) == made


def nothing_is_replaced_that_would_be_lost(world: World, request: Request) -> None:
    """Unless that is accepted, or a snapshot covers it, or a user has named the snapshot.

    An application itself builds a store of which nothing is here from what is left of its log.
    """
    request = request._replace(accept_loss=False)
    facts, verdict, made = world.decided(request)
    if not isinstance(made, Plan) or made.source is None:
        return
    if request.as_application and is_nowhere_else(world.spec, verdict):
        return
    chosen = request.snapshot is not None and made.source == "snapshot"
    if made.source == "correction":
        # Only a store whose offset is unknown, and whose log has lost its start, is corrected although it loses.
        assert not verdict.loses or verdict.lost_its_start
        assert made.replaced_loss is not Loss.LIKELY, "it replaces rows that its log no longer explains"
    elif made.source != "tail" and not chosen:
        assert made.covered or made.replaced_loss is not Loss.LIKELY, "a loss that nobody accepted"
        lost = verdict.loses or archived_loss_is_likely(facts)
        if made.source in WHOLE_LOG:
            assert not lost, "rebuilt from a log that has lost something"
        elif verdict.loses:
            assert made.covered, "rebuilt from a snapshot that may lack what the log has lost"
            assert verdict.lost_its_start, "no snapshot has what was lost otherwise"
    if made.covered:
        assert covers(world, made), "the snapshot lacks what the log has lost"


def archived_loss_is_likely(facts: Facts) -> bool:
    archive = facts.archive
    return archive is not UNASKED and isinstance(archive.loss, RebuildLoss) and archive.loss.loss is Loss.LIKELY


def covers(world: World, made: Plan) -> bool:
    """Return whether the planned snapshot has all that the record here, or the newest snapshot, shows."""
    chosen = next(one for one in world.snapshots if str(world.manifest(one).name) == made.snapshot)
    newest, record = world.newest, world.disk.record
    own = Needs.of(record) if world.spec.home.disks_are_shared else None
    by_archive = None if newest is None else Needs.of(newest.record)
    return any(needs is not None and has_all(chosen.record, needs) for needs in (own, by_archive))


def has_all(record: StoreRecord, needs: Needs) -> bool:
    begins = record.needed_from
    return begins is not None and begins <= needs.offset and (record.adopted or not needs.adopted)


def what_is_replaced_is_kept_by_its_loss(world: World, request: Request) -> None:
    """The loss decides how long a replaced store stays in quarantine, so it is never understated."""
    _, verdict, made = world.decided(request)
    if not isinstance(made, Plan) or made.source is None or verdict.loss is None:
        return
    if made.source in WHOLE_LOG or (made.source == "snapshot" and not made.covered):
        assert RANK[made.replaced_loss] >= RANK[verdict.loss.loss]


def only_damage_is_repaired_and_each_refusal_says_why(world: World, request: Request) -> None:
    facts, verdict, made = world.decided(DEFAULT)
    if isinstance(made, Refusal):
        assert str(made.error), "a refusal without a reason"
        if is_left_to_kafka_streams(world.spec):
            return
        assert not verdict.status.healthy or "archive has more" in str(made.error) or archive_is_away(world)
        return
    healthy = verdict.status.healthy or verdict.refills
    if healthy and made.source is not None:
        begun = world.spec.origin.makes_empty_stores and is_made_empty(facts, verdict)
        from_archive = verdict.committed is None and world.newest is not None
        assert begun or from_archive, f"{verdict.status} is replaced from {made.source}"
    if not healthy:
        assert made.source is not None, f"{verdict.status} is left as it is"
        assert made.reason


def archive_is_away(world: World) -> bool:
    return world.spec.home.offers_snapshots and not world.archive_answers


def accepting_a_loss_changes_no_plan_that_loses_nothing(world: World, request: Request) -> None:
    unaccepted = world.decided(request._replace(accept_loss=False))[2]
    if isinstance(unaccepted, Plan) and (unaccepted.source is None or unaccepted.replaced_loss is not Loss.LIKELY):
        assert same(unaccepted, world.decided(request._replace(accept_loss=True))[2])


def an_application_would_do_the_same(world: World, request: Request) -> None:
    """Unless nothing of the store is here: a store that is here is replaced as for anybody else."""
    request = request._replace(as_application=False)
    _, verdict, unasked = world.decided(request)
    made = world.decided(request._replace(as_application=True))[2]
    if not is_nowhere_else(world.spec, verdict):
        if isinstance(made, Plan) and isinstance(unasked, Plan):
            made = made.model_copy(update={"begins": unasked.begins})
        assert same(made, unasked)
        return
    assert not world.disk.present or world.disk.committed is None, "the store here is replaced"


def less_that_is_known_makes_no_bolder_plan(world: World, request: Request) -> None:
    """A fact that cannot be had any more, or is lost, makes nothing happen that would be lost for good.

    A store with less evidence may be rebuilt instead of caught up, as its tail can no longer be trusted, and from what
    was proven to have lost nothing becomes what nothing proves. Both keep the store in quarantine. If its snapshot is
    gone, it is built from its log and begins a generation.
    """
    request = request._replace(accept_loss=False, as_application=False, snapshot=None)
    made = world.decided(request)[2]
    for name, poorer in poorer_worlds(world):
        found = poorer.decided(request)[2]
        if isinstance(found, Refusal) or found.source is None:
            continue
        if isinstance(made, Refusal) or made.source is None:
            # A tail loses nothing; a correction replaces only rows that no record explains, and keeps the store then.
            lost = world.judged()[1].loses and found.source not in ("tail", "correction")
            assert not lost or found.covered, f"without {name}, {found.source} replaces what would be lost"
            continue
        assert RANK[found.replaced_loss] <= max(RANK[made.replaced_loss], 1), f"without {name}: {bolder(found, made)}"
        if "archive" in name:
            alike = found.model_copy(update={"replaced_loss": made.replaced_loss, "begins": made.begins})
            assert bolder(alike, made) is None, f"without {name}: {bolder(alike, made)}"


def poorer_worlds(world: World) -> list[tuple[str, World]]:
    """Return worlds with one fact fewer, each with the name of that fact.

    A record, or an offset, may be all that shows that a log was recreated, cut, or emptied. If the log has lost its
    start, that shows by itself.
    """
    spec, disk = world.spec, world.disk
    found: list[tuple[str, World]] = []
    if spec.is_global:
        return found
    if spec.home.offers_snapshots:
        counts = {None if one is None else world.snapshots.index(one) for one in (world.newest, world.newest_usable)}
        found.append(("archive that answers", without(world, archive_answers=False)))
        found += [
            ("archived snapshot", without(world, snapshots=(*world.snapshots[:at], *world.snapshots[at + 1 :])))
            for at in range(len(world.snapshots))
            if at not in counts and world.newest is not None and world.snapshots[at].generation == world.generation
        ]
    if log_shows_its_loss(world):
        bare = LastKnown(disk.known.anything, disk.known.committed, foreign=disk.known.foreign)
        if not spec.home.offers_snapshots:  # the newest snapshot is evidence of an unknown store
            found.append(("record", without(world, disk=disk._replace(record=None, known=bare))))
        found.append(("commits", without(world, committed_elsewhere=None)))
        if disk.trouble is not None:
            nothing = LastKnown(disk.known.anything, None, disk.record, foreign=disk.known.foreign)
            found.append(("offset", without(world, disk=disk._replace(known=nothing))))
    return found


def log_shows_its_loss(world: World) -> bool:
    """Return whether the start of the log alone shows that it has lost something that the store needs."""
    verdict = world.judged()[1]
    if not verdict.lost_its_start or world.spec.store.row_retention_ms is not None:
        return False
    return world.log.cut_at is None


def advice_is_the_plan_of_the_default_request(world: World, request: Request) -> None:
    """Without an archive, and without a proof of the rows, which reports do not make."""
    spec = world.spec.model_copy(update={"archive": None})
    alone = without(world, spec=spec, snapshots=(), proof=None)
    facts, verdict, made = alone.decided(DEFAULT)
    advice = advised(verdict)
    begun = spec.origin.makes_empty_stores and is_made_empty(facts, verdict)
    if is_left_to_kafka_streams(spec) or begun:
        return
    if advice in (Action.BY_HAND, Action.LATER):
        assert isinstance(made, Refusal), f"{advice}, but {made}"
        return
    assert isinstance(made, Plan), f"{advice}, but it is refused: {made.error}"
    expected = {Action.NONE: None, Action.TAIL: "tail", Action.FULL: "full"}[advice]
    assert made.mode == expected


def a_task_asks_what_it_can_answer_and_replays_what_only_lags(world: World, request: Request) -> None:
    """A task looks at the store on its disk, whatever the home of the store is."""
    disk = world.disk
    if world.spec.is_global or world.spec.changelog is None or not disk.present or disk.trouble is not None:
        return
    archive = ArchiveSpec(url="file:///a", cluster="c", node_local=True)
    spec = on_this_disk(world.spec.model_copy(update={"owned": True, "archive": archive}))
    opened = Facts(spec, disk, NOW_MS, without_answers(world.log), archive=NO_ARCHIVE)
    facts, verdict = resolved_by_task(world, opened, partial(judge, if_unusable=True))
    _, made = resolved_by_task(world, facts, lambda found: plan(found, verdict, DEFAULT, TASK_SOURCES))
    if verdict.catches_up and disk.committed is not None:
        assert isinstance(made, Plan), f"{verdict.status} is refused: {made.error}"
        assert made.source == "tail", f"it only lags, and is built from {made.source}"


def without_answers(log: LogFacts) -> LogFacts:
    return log._replace(stream_time=None, first_time=None, lacks_versions=None, tail_is_complete=None)


def resolved_by_task(world: World, facts: Facts, decide: Callable[[Facts], Any]) -> tuple[Facts, Any]:
    while isinstance(result := decide(facts), Open):
        assert result.questions <= BY_TASK, f"a task cannot answer {result.questions - BY_TASK}"
        for question in result.questions:
            facts = world.answer(question, facts)
    return facts, result


def is_left_to_kafka_streams(spec: StorePartitionSpec) -> bool:
    return spec.is_global and spec.global_kind != "table"


def same(one: Plan | Refusal, other: Plan | Refusal) -> bool:
    if isinstance(one, Refusal) or isinstance(other, Refusal):
        refusals = isinstance(one, Refusal) and isinstance(other, Refusal)
        return refusals and repr(one.error) == repr(other.error)  # type: ignore[union-attr]
    return one == other


CLAUSES: tuple[Clause, ...] = (
    the_plan_that_is_shown_is_the_plan_that_runs,
    nothing_is_replaced_that_would_be_lost,
    what_is_replaced_is_kept_by_its_loss,
    only_damage_is_repaired_and_each_refusal_says_why,
    accepting_a_loss_changes_no_plan_that_loses_nothing,
    an_application_would_do_the_same,
    less_that_is_known_makes_no_bolder_plan,
    advice_is_the_plan_of_the_default_request,
    a_task_asks_what_it_can_answer_and_replays_what_only_lags,
)


@pytest.mark.parametrize("clause", CLAUSES)
@settings(max_examples=examples(800))
@given(rnd=st.randoms(use_true_random=False))
def test_a_clause_holds(clause: Clause, rnd: Random) -> None:
    world = worlds(rnd)
    clause(world, requests(rnd, world))


@pytest.mark.short_for("0")
@pytest.mark.parametrize("case", range(CASES))
def test_the_clauses_hold_in_many_worlds(case: int) -> None:
    """100,000 in `make faults`."""
    drawn = check(CLAUSES, Random(case), WORLDS)
    assert len(drawn) >= 6, f"too few sources were drawn: {drawn}"


def check(clauses: tuple[Clause, ...], rnd: Random, number: int) -> Counter[str]:
    """Check clauses in worlds; return how often each outcome was drawn."""
    drawn: Counter[str] = Counter()
    for at in range(number):
        world = worlds(rnd)
        request = requests(rnd, world)
        made = world.decided(request)[2]
        drawn["refusal" if isinstance(made, Refusal) else str(made.source)] += 1
        for clause in clauses:
            try:
                clause(world, request)
            except AssertionError as error:
                error.add_note(f"world {at}: {world}\n{request}\n{made}")
                raise
    return drawn


# -- each clause notices a defect -------------------------------------------------------------------------------------


def _plans_by_its_memory(patch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def reason(facts: Facts, verdict: Verdict) -> str:
        seen.append(1)
        return f"plan {len(seen)}"

    patch.setattr(plan_module, "_reason", reason)


def _depends_on_what_was_asked(patch: pytest.MonkeyPatch) -> None:
    begins = plan_module._begins
    patch.setattr(
        plan_module,
        "_begins",
        lambda archive, request, loss, offer: "" if archive.loss is UNASKED else begins(archive, request, loss, offer),
    )


def _asks_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan_module, "_by_archive", lambda *_: Open.of(Question.ARCHIVE_LOSS))


def _nothing_would_be_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan_module, "_refused", lambda *_: None)
    patch.setattr(Verdict, "loses", False)


def _every_snapshot_covers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Needs, "met_by", lambda *_: True)


def _the_log_is_never_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan_module, "_log_refused", lambda *_: None)


def _losses_are_understated(patch: pytest.MonkeyPatch) -> None:
    planned = plan_module._planned

    def understated(*given: Any) -> Plan | Open:
        made = planned(*given)
        return made if isinstance(made, Open) else made.model_copy(update={"replaced_loss": Loss.NONE})

    patch.setattr(plan_module, "_planned", understated)


def _healthy_stores_are_rebuilt(patch: pytest.MonkeyPatch) -> None:
    needed = plan_module.needed

    def rebuilt(*given: Any, **how: Any) -> Need | Refusal | Open:
        found = needed(*given, **how)
        return Need("rebuild") if isinstance(found, Need) and found.kind == "nothing" else found

    patch.setattr(plan_module, "needed", rebuilt)


def _damage_is_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan_module, "_by_verdict", lambda *_: Need("nothing"))


def _accepted_losses_lead_to_the_log(patch: pytest.MonkeyPatch) -> None:
    unasked = plan_module._unasked
    patch.setattr(plan_module, "_unasked", lambda request: "never" if request.accept_loss else unasked(request))


def _an_application_accepts_each_loss(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan_module, "is_nowhere_else", lambda spec, verdict: verdict.loses)


def _an_archive_without_an_answer_has_nothing(patch: pytest.MonkeyPatch) -> None:
    by_archive = plan_module._by_archive

    def found(facts: Facts, verdict: Verdict, request: Request) -> Need | Refusal | Open | None:
        made = by_archive(facts, verdict, request)
        return None if isinstance(made, Refusal) and isinstance(made.error, ArchiveUnavailableError) else made

    patch.setattr(plan_module, "_by_archive", found)


def _advice_is_always_full(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(f"{__name__}.advised", lambda verdict: Action.FULL)


def _a_task_has_the_archive(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(f"{__name__}.on_this_disk", lambda spec: spec)


@pytest.mark.parametrize(
    ("clause", "defect"),
    [
        (the_plan_that_is_shown_is_the_plan_that_runs, _plans_by_its_memory),
        (the_plan_that_is_shown_is_the_plan_that_runs, _depends_on_what_was_asked),
        (the_plan_that_is_shown_is_the_plan_that_runs, _asks_for_ever),
        (nothing_is_replaced_that_would_be_lost, _nothing_would_be_lost),
        (nothing_is_replaced_that_would_be_lost, _every_snapshot_covers),
        (nothing_is_replaced_that_would_be_lost, _the_log_is_never_refused),
        (what_is_replaced_is_kept_by_its_loss, _losses_are_understated),
        (only_damage_is_repaired_and_each_refusal_says_why, _healthy_stores_are_rebuilt),
        (only_damage_is_repaired_and_each_refusal_says_why, _damage_is_left),
        (accepting_a_loss_changes_no_plan_that_loses_nothing, _accepted_losses_lead_to_the_log),
        (an_application_would_do_the_same, _an_application_accepts_each_loss),
        (less_that_is_known_makes_no_bolder_plan, _an_archive_without_an_answer_has_nothing),
        (a_task_asks_what_it_can_answer_and_replays_what_only_lags, _a_task_has_the_archive),
        (a_task_asks_what_it_can_answer_and_replays_what_only_lags, _asks_for_ever),
        (advice_is_the_plan_of_the_default_request, _advice_is_always_full),
        (advice_is_the_plan_of_the_default_request, _damage_is_left),
    ],
)
def test_a_clause_notices_a_planted_defect(
    clause: Clause, defect: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    defect(monkeypatch)
    with pytest.raises(AssertionError):
        check((clause,), Random(1), 5_000)
