"""From a requested restore of a store partition to its plan: the same for a dry run, `restore`, and `warm`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from statestore.archive.manifest import Manifest
from statestore.archive.server_time import server_time_ms
from statestore.archive.snapshots import History, Listed, read_snapshot, read_usable
from statestore.changelog import brokers_clock
from statestore.errors import ArchiveAccessError, ArchiveUnavailableError, InputError, SnapshotError, StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.objects.store import ObjectStore
from statestore.partition.archived import listed_snapshots
from statestore.partition.facts import (
    NO_ARCHIVE,
    ArchiveFacts,
    Candidate,
    Facts,
    NamedSnapshot,
    Open,
    Question,
)
from statestore.partition.generations import snapshots_of
from statestore.partition.home import Filling
from statestore.partition.plan import Need, Plan, Refusal, Request, SourceName, bolder, needed, plan
from statestore.partition.snapshots import archived_loss, compared_end, inadmissible, unlike
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import Verdict, judge
from statestore.recovery.catch_up import find_correction
from statestore.recovery.disk_space import bytes_from, estimated_bytes
from statestore.recovery.snapshot import find_snapshot
from statestore.recovery.sources import all_sources
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.tail import tail_logs
from statestore.reports import Loss, RestorePlanRow, Status
from statestore.requests.verify import Depth
from statestore.statedir.swap import locked_task
from statestore.verification.check import EXAMINE, examine
from statestore.verification.gathering import ANSWERS, Answer, resolve
from statestore.verification.global_stores import examine_global, loss_of_rebuild
from statestore.verification.options import VerifyOptions

_log = logging.getLogger(__name__)


def examine_store(spec: RestoreSpec, options: VerifyOptions, cluster: Cluster) -> tuple[Facts, Verdict]:
    """Look at a store partition that is to be restored, and judge it; the caller holds the task's lock."""
    return _EXAMINE[spec.store.origin.filling](spec, options, cluster)


def _examine_table(spec: RestoreSpec, options: VerifyOptions, cluster: Cluster) -> tuple[Facts, Verdict]:
    # Whether it is a table is known only from its rows, so they are compared again before they are replaced.
    depth: Depth = "scan" if spec.store.global_said else "deep"
    return examine_global(spec.store, VerifyOptions(depth, run_bytes=spec.run_bytes))


def _examine_counting_copy(spec: RestoreSpec, options: VerifyOptions, cluster: Cluster) -> tuple[Facts, Verdict]:
    facts, verdict = EXAMINE[spec.store.home.copy](spec.store, options)
    if verdict.loss is None and verdict.observed:  # no rebuild seemed to be needed
        [(facts, verdict)] = resolve([facts], judge, cluster)
    return facts, verdict


_EXAMINE = {Filling.CHANGELOG: _examine_counting_copy, Filling.TOPIC: _examine_table}


def decide(
    spec: RestoreSpec,
    facts: Facts,
    verdict: Verdict,
    cluster: Cluster,
    answers: Mapping[Question, Answer] = MappingProxyType({}),
) -> tuple[Facts, Plan]:
    """Return the plan of a requested restore, with the facts that it is based on.

    Parameters
    ----------
    answers
        Questions that are answered in another way than usual.

    Raises
    ------
    StateStoreError
        Why it is refused.
    """
    request = request_of(spec)
    known = {**answers_for(spec), **answers}

    def planned(found: Facts) -> Plan | Refusal | Open:
        return plan(found, verdict, request, all_sources())

    found: list[tuple[Facts, Plan | Refusal]] = resolve([facts], planned, cluster, known)
    ((facts, made),) = found
    if isinstance(made, Refusal):
        raise made.error
    if spec.approved is not None and (why := bolder(made, plan_of(spec.approved))) is not None:
        raise no_longer_approved(spec, why)
    return facts, made


def examine_needs(spec: RestoreSpec, store: StorePartitionSpec, request: Request) -> tuple[Verdict, Need | Refusal]:
    """Judge a store partition by its offsets, and return what it needs; the caller holds the task's lock."""
    cluster = store.cluster
    facts, verdict = examine(store, VerifyOptions(depth="offsets"))
    decide: Callable[[Facts], Need | Refusal | Open] = partial(needed, verdict=verdict, request=request)
    found: list[tuple[Facts, Need | Refusal]] = resolve([facts], decide, cluster, answers_for(spec))
    return verdict, found[0][1]


def no_longer_approved(spec: RestoreSpec, why: str) -> InputError:
    """Return the error of a restore whose approved plan no longer holds."""
    return InputError(
        f"{spec.store.store_partition} is not restored: the approved plan no longer holds, because {why}. Show the "
        "plan again with a dry run, and approve that one"
    )


def plan_of(row: RestorePlanRow) -> Plan:
    """Return the plan of a row of a dry run, as far as `bolder` compares it."""
    refused = row.failure is not None or row.mode in (None, "as-of")
    return Plan(
        application=row.application,
        store=row.store,
        task=row.task,
        status=row.status or Status.OK,
        source=None if refused else "log",
        mode=None if row.mode == "as-of" else row.mode,
        replaced_loss=row.loss or Loss.NONE,
        replaced_why=row.loss_detail,
        begins=row.begins,
        suspects=row.suspects,
        publishes=row.publishes,
    )


class _Undecided(Exception):
    """The plan depends on a proof, which only the restore itself makes."""


def planned_source(spec: RestoreSpec) -> SourceName | None:
    """Return the source of a restore, as far as it is known without a proof of the rows; None if there is none.

    A failure counts as none: the restore says why.
    """
    store = spec.store
    cluster = store.cluster
    depth: Depth = "offsets" if spec.request.force else "scan"
    try:
        with locked_task(store.paths, store.lock_wait_s, reading=True):
            facts, verdict = examine_store(spec, VerifyOptions(depth=depth), cluster)
        _, made = decide(spec, facts, verdict, cluster, {Question.PROOF: _no_proof})
    except _Undecided:
        return "correction"
    except (StateStoreError, OSError):
        return None
    return made.source


def _no_proof(facts: Sequence[Facts], cluster: Cluster) -> Iterable[Facts]:
    raise _Undecided


def request_of(spec: RestoreSpec) -> Request:
    """Return what is asked for, as `plan` takes it."""
    asked = spec.request
    assert asked.mode != "as-of", "a store as of a point is not planned from its verdict"
    return Request(
        mode=asked.mode,
        force=asked.force,
        accept_loss=asked.accept_loss,
        snapshot=asked.snapshot if asked.mode == "snapshot" else None,
        diverged=spec.diverged,
        log_read=spec.from_log,
        parts_built=spec.build is not None,
        publishes=spec.publish,
        as_application=spec.as_application,
        acceptable_lag=spec.acceptable_lag,
        label=spec.label,
    )


def answers_for(spec: RestoreSpec) -> dict[Question, Answer]:
    """Return how the questions of a restore are answered."""
    return {
        **ANSWERS,
        Question.SNAPSHOTS: partial(_snapshots, spec),
        Question.MORE_SNAPSHOTS: partial(_more_snapshots, spec),
        Question.ARCHIVE_LOSS: _archive_loss,
        Question.LOG_BYTES: _log_bytes,
        Question.PROOF: partial(_proof, spec),
        Question.REBUILD_LOSS: _rebuild_loss,
    }


def _log_bytes(facts: Sequence[Facts], cluster: Cluster) -> Iterable[Facts]:
    return [found._replace(log_bytes=estimated_bytes(found.spec, found.asked_log.all_logs)) for found in facts]


def _rebuild_loss(facts: Sequence[Facts], cluster: Cluster) -> Iterable[Facts]:
    return [found._replace(rebuild_loss=loss_of_rebuild(found.spec, found.asked_log.all_logs)) for found in facts]


def _proof(spec: RestoreSpec, facts: Sequence[Facts], cluster: Cluster) -> Iterable[Facts]:
    for found in facts:
        correction, log = find_correction(spec, cluster)
        if correction is None or log is None:
            yield found._replace(proof=None)
            continue
        # The proof has read the log up to a later end.
        asked = found.asked_log._replace(log=log, all_logs={found.spec.partition: log}, asked_ms=correction.asked_ms)
        yield found._replace(proof=correction, log=asked)


# -- what the archive has ---------------------------------------------------------------------------------------------


def _snapshots(spec: RestoreSpec, facts: Sequence[Facts], cluster: Cluster) -> Iterable[Facts]:
    return [found._replace(archive=_archive_facts(spec, found)) for found in facts]


def _archive_facts(spec: RestoreSpec, facts: Facts) -> ArchiveFacts:
    store = facts.spec
    if not store.home.offers_snapshots:
        return NO_ARCHIVE
    try:
        objects = store.snapshot_archive.open()
        # The verdict is based on what was listed for it.
        found, newest = facts.disk.listed or listed_snapshots(objects, snapshots_of(store))
        named = None if spec.request.snapshot is None else _named(facts, spec.request.snapshot, found)
    except (ArchiveUnavailableError, ArchiveAccessError) as error:
        return ArchiveFacts(error=error)
    return ArchiveFacts(
        newest=newest,
        history=found,
        complete=not found.usable,
        named=named,
    )


def _named(facts: Facts, name: str, found: History) -> NamedSnapshot:
    """Return the snapshot that a user has named.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    named = find_snapshot(facts.spec, name, found)
    manifest = read_snapshot(named.objects, named.listed)
    return NamedSnapshot(named.listed, named.generation, _candidate(facts, manifest), unlike(facts.spec, manifest))


def _archive_loss(facts: Sequence[Facts], cluster: Cluster) -> Iterable[Facts]:
    for found in facts:
        archive = found.known_archive
        assert archive.history is not None
        lost = archived_loss(found.spec, archive.history, archive.newest, found.asked_log.log)
        yield found._replace(archive=archive._replace(loss=lost))


def _more_snapshots(spec: RestoreSpec, facts: Sequence[Facts], cluster: Cluster) -> Iterable[Facts]:
    for found in facts:
        archive, store = found.known_archive, found.spec
        assert archive.history is not None
        objects, left = store.snapshot_archive.open(), archive.history.usable[len(archive.candidates) :]
        seen = list(archive.candidates)
        for listed in left:
            seen.append(_looked_at(found, objects, listed, archive.newest))
            if seen[-1].refused is None:
                break
        complete = len(seen) == len(archive.history.usable)
        yield found._replace(archive=archive._replace(candidates=tuple(seen), complete=complete))


def _looked_at(facts: Facts, objects: ObjectStore, listed: Listed, newest: Manifest | None) -> Candidate:
    """Return a snapshot with the reason why the log does not continue it."""
    try:
        manifest = newest if newest is not None and newest.name == listed.name else read_usable(objects, listed)
        candidate = _candidate(facts, manifest)
    except SnapshotError as error:
        candidate = Candidate(str(listed.name), refused=str(error))
    if candidate.refused is not None:
        label = facts.spec.store_partition
        _log.warning("restore: %s: snapshot %s is not used: %s", label, listed.name, candidate.refused)
    return candidate


def _candidate(facts: Facts, manifest: Manifest) -> Candidate:
    store, log = facts.spec, facts.asked_log
    now_ms = _no_earlier(store, log.asked_ms)
    tail = tail_logs(log.all_logs, manifest.committed)[store.partition]
    return Candidate(
        str(manifest.name),
        manifest.committed,
        manifest.record,
        refused=inadmissible(store, manifest, log.log, compared_end(store, manifest), now_ms),
        installed_by=manifest.by_hand,
        fetched=bytes_from(store, manifest),
        replayed=tail.last_stable - tail.start,
        manifest=manifest,
    )


def _no_earlier(store: StorePartitionSpec, now_ms: int) -> int:
    """Return the brokers' time, or the object store's if that is later and the brokers' is only an estimate."""
    if brokers_clock.is_exact(store.cluster):
        return now_ms
    try:
        return max(now_ms, server_time_ms(store.snapshot_archive.open()))
    except (ArchiveAccessError, ArchiveUnavailableError, SnapshotError) as error:
        _log.warning("restore: %s: the object store's clock cannot be read: %s", store.store_partition, error)
        return now_ms
