"""Verifying store partitions: can they be read, do they have all of their changelogs, and, on request, its contents?

A store is looked at under its task's lock, so that it does not move meanwhile. Nothing is changed. If a run of
`process` waits for the lock, reading ends, and the row says that the store was in use.

Many store partitions are verified by their offsets in two passes. The first holds each lock just for the look at the
store; the ends of all logs are asked for afterwards, so who is at the end then is whole. The others may only have been
passed by records that came in between, and are looked at again, with their locks held until Kafka has answered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain, groupby
from typing import TypeVar

from statestore.advice import Situation, Target, advice
from statestore.discovery.changelogs import log_ranges
from statestore.discovery.partitions import FailedStore
from statestore.errors import (
    ArchiveAccessError,
    ArchiveUnavailableError,
    InputError,
    InvalidStateError,
    LockedError,
    SnapshotError,
    StoreBehindLogStartError,
    StoreCorruptedError,
    of_os_error,
)
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import APPEND_TIME, TIMESTAMP_TYPE
from statestore.partition.advice import lost_logs
from statestore.partition.archived import ArchivedStore, copied, look_into_archive
from statestore.partition.facts import UNASKED, DiskFacts, Facts, RebuildLoss
from statestore.partition.home import Copy, Filling
from statestore.partition.inspection import damaged_file, inspect
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import (
    Verdict,
    damaged,
    judge,
    locked,
    repartitioned,
    with_contents,
    with_loss,
)
from statestore.reports import Action, Contents, Loss, Status, VerifyRow
from statestore.statedir.swap import locked_task
from statestore.verification.contents import compare_contents, count_rows
from statestore.verification.gathering import resolve
from statestore.verification.global_stores import verify_global
from statestore.verification.left_open import with_position
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.bounds import noted, with_lower_bounds
from statestore.verification.proof.closed import why_not_comparable
from statestore.verification.proof.unproven import unproven_keys
from statestore.verification.report_row import report_row, under_lock, unobserved
from statestore.verification.unlogged import verify_unlogged

T = TypeVar("T")
_SCAN = VerifyOptions()
_NO_TASKS: Mapping[tuple[str, int], int] = {}
#: Store partitions whose logs are asked for at once, and tasks whose locks are held at once.
_ASKED = 1_000
_HELD = 32
_ATTEMPTS = 3
_BROKERS_TIMESTAMPS = f"timestamps are the brokers' ({TIMESTAMP_TYPE}={APPEND_TIME}), not compared"


def verify(spec: StorePartitionSpec, options: VerifyOptions = _SCAN) -> VerifyRow:
    """Lock the task and verify one store partition; see `verify_many`."""
    return verify_many([spec], options)[0]


def verify_many(
    specs: Sequence[StorePartitionSpec],
    options: VerifyOptions = _SCAN,
    tasks: Mapping[tuple[str, int], int] = _NO_TASKS,
) -> list[VerifyRow]:
    """Verify store partitions, each under its task's lock.

    Parameters
    ----------
    tasks
        How many tasks there are, by application and subtopology, where that is known: changelogs with another number of
        partitions are told (conformance R10).

    Returns
    -------
    list of VerifyRow
        In the order of the specs.

    Raises
    ------
    KafkaUnavailableError
        If Kafka cannot be asked: that says nothing about the stores.
    StoreAccessError
        If the operating system refuses access: that neither.
    """
    rows: dict[int, VerifyRow] = {}
    left: dict[Cluster, list[int]] = {}
    for at, spec in enumerate(specs):
        count = tasks.get((spec.application, spec.task.subtopology))
        if (found := repartitioned(spec, count)) is not None:
            rows[at] = report_row(spec, found, options.depth)
        else:
            left.setdefault(spec.cluster, []).append(at)
    try:
        for cluster, asked in left.items():
            by_copy: dict[Copy, list[int]] = {}
            for at in asked:
                spec = specs[at]
                alone = _ALONE.get(spec.origin.filling) or (None if spec.store.logged else verify_unlogged)
                if alone is not None:
                    rows[at] = alone(spec, options)
                else:
                    by_copy.setdefault(spec.home.copy, []).append(at)
            for copy, of_copy in by_copy.items():
                for part in _parts(of_copy, _ASKED):
                    verified = _VERIFY[copy]([specs[at] for at in part], options, cluster)
                    rows.update(zip(part, verified, strict=True))
    except OSError as error:
        raise of_os_error(error) from error
    return [noted(specs[at], _with_left_over(specs[at], rows[at])) for at in range(len(specs))]


def _with_left_over(spec: StorePartitionSpec, found: VerifyRow) -> VerifyRow:
    """Name the segments that were left out, because Kafka Streams does not use them."""
    if found.committed is None:
        return found
    with suppress(OSError, InputError):
        here = spec.store.store_kind.segments(spec.live)
        if left_over := spec.left_over(here):
            names = ", ".join(here[start].name for start in left_over)
            said = (
                f"left out: {names}, left over from another retention: Kafka Streams neither uses nor deletes these "
                f"segments with a retention of {spec.store.retention_ms} ms"
            )
            return found.model_copy(update={"detail": "; ".join(filter(None, [found.detail, said]))})
    return found


def undetermined(found: FailedStore) -> VerifyRow:
    """Return the row of a store whose application failed."""
    return VerifyRow(
        application=found.application,
        store=found.store,
        task="-",
        status=Status.UNDETERMINED,
        action=Action.BY_HAND,
        advice=advice(Situation.UNDETERMINED, Target(found.application)),
        detail=str(found.error),
    )


def examine(spec: StorePartitionSpec, options: VerifyOptions = _SCAN) -> tuple[Facts, Verdict]:
    """Look at one store partition, and judge it; the caller holds the task's lock."""
    cluster = spec.cluster
    by_offsets = options.depth == "offsets"
    facts = Facts(spec, _look(spec, options))
    for _ in range(_ATTEMPTS):
        [(facts, verdict)] = resolve([facts], partial(judge, by_offsets=by_offsets), cluster, before=options.before)
        if options.depth == "deep" and verdict.status is Status.UNCLEAN and spec.changelog is not None:
            log = log_ranges(cluster.topics, [spec])[spec.partition]
            return facts, with_position(spec, verdict, log, options)
        if not facts.disk.present or facts.disk.trouble is not None or spec.changelog is None or by_offsets:
            break
        try:
            verdict = _read(facts, verdict, options, cluster)
            break
        except StoreBehindLogStartError as error:  # retention has moved the log's start since it was asked for
            moving = f"{error}; the log's start moved during each of {_ATTEMPTS} attempts to compare the store with it"
            verdict, facts = locked(InputError(moving)), facts._replace(log=UNASKED, first=UNASKED)
    return facts, verdict


def _look(spec: StorePartitionSpec, options: VerifyOptions) -> DiskFacts:
    offsets = options.depth == "offsets"
    contents = not offsets and options.sample is None
    found = inspect(spec, open_sealed=not offsets, contents=contents, between=options.give_way)
    return with_lower_bounds(spec, found)


def _verify(spec: StorePartitionSpec, options: VerifyOptions) -> VerifyRow:
    started = time.monotonic()
    verdict = under_lock(spec, options, lambda how: examine(spec, how)[1])
    [lost] = lost_logs([spec], [verdict])
    return report_row(spec, verdict, options.depth, started, lost=lost)


def _read(facts: Facts, verdict: Verdict, options: VerifyOptions, cluster: Cluster) -> Verdict:
    """Read the rows of a store: all of them, and its log as well where that shows what they must be."""
    spec, committed = facts.spec, facts.disk.committed
    try:
        if options.depth == "deep" and verdict.usable and committed is not None:
            contents = _compare(facts, committed, options, cluster)
            verdict = _if_installed(facts, with_contents(verdict, contents))
            verdict = _if_another_store(spec, _if_changed_by_rocksdb(spec, verdict), contents)
            return _if_described(spec, verdict, contents)
        return verdict._replace(keys=count_rows(spec, options.give_way))
    except StoreCorruptedError as error:
        return damaged(verdict, Status.CORRUPT, str(error), damaged_file(error, spec.live))


def _if_another_store(spec: StorePartitionSpec, verdict: Verdict, contents: Contents) -> Verdict:
    """Leave a store to a user that no definition names and that has no key in common with its log.

    It may have been taken for another one, and what its log gives to a store of that kind would replace all it has.
    """
    in_common = contents.equal + contents.other_value
    if not spec.origin.may_be_mistaken or in_common or not contents.only_in_store or not contents.only_in_log:
        return verdict
    detail = (
        f"{verdict.detail}; it has no key in common with its changelog, so it may be a different store than assumed"
    )
    return verdict._replace(rebuildable=False, detail=detail)


def _if_changed_by_rocksdb(spec: StorePartitionSpec, verdict: Verdict) -> Verdict:
    """Leave a store to a user if its differences may be no damage."""
    if verdict.status is not Status.DIVERGED or not (why := why_not_comparable(spec)):
        return verdict
    return verdict._replace(rebuildable=False, detail=f"{verdict.detail}; {why}, so this may be no damage")


def _if_installed(facts: Facts, verdict: Verdict) -> Verdict:
    """Leave a manually installed store to a user: its log does not give it."""
    chosen = facts.disk.installed_by
    if verdict.status is not Status.DIVERGED or chosen is None:
        return verdict
    return with_loss(verdict, RebuildLoss(Loss.LIKELY, f"it is here by {chosen}", Status.DIVERGED))


def _if_described(spec: StorePartitionSpec, verdict: Verdict, contents: Contents) -> Verdict:
    """Add to the detail that a comparison relies on the user's description of the store, and what it left out."""
    said = [
        verdict.detail,
        f"compared as you described it: {spec.described}" if spec.described else "",
        _BROKERS_TIMESTAMPS if contents.brokers_timestamps else "",
        unproven_keys(contents.unproven),
    ]
    return verdict._replace(detail="; ".join(filter(None, said)))


def _compare(facts: Facts, committed: int, options: VerifyOptions, cluster: Cluster) -> Contents:
    log = log_ranges(cluster.topics, [facts.spec])[facts.spec.partition]
    return compare_contents(facts.spec, committed, log, cluster.topics, options)


# -- stores whose home is the archive ---------------------------------------------------------------------------------


def examine_archived(spec: StorePartitionSpec, options: VerifyOptions = _SCAN) -> tuple[Facts, Verdict]:
    """Look at one store whose home is the archive, and judge it."""
    (found,) = _in_archive([spec], options, spec.cluster)
    return found


def _in_archive(
    specs: Sequence[StorePartitionSpec], options: VerifyOptions, cluster: Cluster
) -> list[tuple[Facts, Verdict]]:
    """Judge stores whose home is the archive; copies of them on the disks of nodes are not looked at."""
    try:
        seen = look_into_archive(specs, look_at_files=options.depth != "offsets")
    except (ArchiveUnavailableError, ArchiveAccessError) as error:
        return [(Facts(spec, DiskFacts(present=False)), locked(error)) for spec in specs]
    asked = [Facts(spec, found.seen) for spec, found in zip(specs, seen, strict=True)]
    found = resolve(asked, partial(judge, by_offsets=options.depth == "offsets"), cluster, before=options.before)
    return [
        (facts, _of_archived(facts, archived, verdict, options, cluster))
        for archived, (facts, verdict) in zip(seen, found, strict=True)
    ]


def _of_archived(
    facts: Facts, archived: ArchivedStore, verdict: Verdict, options: VerifyOptions, cluster: Cluster
) -> Verdict:
    if archived.snapshot is None:
        if verdict.status is not Status.MISSING:
            return verdict
        # A node may have it; whoever needs it elsewhere reads its log.
        status = Status.LAGGING if verdict.rebuildable and not verdict.loses else verdict.status
        return verdict._replace(status=status, detail=_unarchived(verdict))
    if options.depth != "deep" or not verdict.usable:
        return verdict
    try:
        with copied(facts.spec, archived.snapshot) as there:
            _, found = examine(there, options)
            return found
    except SnapshotError as error:
        return damaged(verdict, Status.CORRUPT, str(error))


def _unarchived(verdict: Verdict) -> str:
    said = "the archive has no snapshot of it that can be used"
    return f"{said}; a rebuild would lose data: {verdict.loss.why}" if verdict.loss and verdict.loses else said


def _verify_archived(specs: Sequence[StorePartitionSpec], options: VerifyOptions, cluster: Cluster) -> list[VerifyRow]:
    started = time.monotonic()
    return _rows(specs, [verdict for _, verdict in _in_archive(specs, options, cluster)], options, started)


EXAMINE = {Copy.DISK: examine, Copy.SNAPSHOT: examine_archived}


# -- many by their offsets --------------------------------------------------------------------------------------------


def _verify_on_disk(specs: Sequence[StorePartitionSpec], options: VerifyOptions, cluster: Cluster) -> list[VerifyRow]:
    if options.depth == "offsets":
        return _by_offsets(specs, options, cluster)
    return [_verify(spec, options) for spec in specs]


def _by_offsets(specs: Sequence[StorePartitionSpec], options: VerifyOptions, cluster: Cluster) -> list[VerifyRow]:
    started = time.monotonic()
    seen = _seen(specs, options)
    found = _judged(specs, seen, cluster)
    unsettled = [
        at
        for at, verdict in enumerate(found)
        if not verdict.observed or (isinstance(seen[at], DiskFacts) and not verdict.status.healthy)
    ]
    deadline = time.monotonic() + max((specs[at].lock_wait_s for at in unsettled), default=0.0)
    unsettled.sort(key=lambda at: specs[at].paths)
    of_tasks = [list(of_task) for _, of_task in groupby(unsettled, lambda at: specs[at].paths)]
    for tasks in _parts(of_tasks, _HELD):
        again = [[specs[at] for at in of_task] for of_task in tasks]
        found_again = _with_locks_held(again, options, cluster, deadline)
        for at, verdict in zip(chain.from_iterable(tasks), found_again, strict=True):
            found[at] = verdict
    return _rows(specs, found, options, started)


def _rows(
    specs: Sequence[StorePartitionSpec], verdicts: Sequence[Verdict], options: VerifyOptions, started: float
) -> list[VerifyRow]:
    """Return the rows of store partitions that were verified together, each with its share of the time."""
    seconds = round((time.monotonic() - started) / max(len(specs), 1), 4)
    lost = lost_logs(specs, verdicts)
    rows = [
        report_row(spec, verdict, options.depth, lost=log)
        for spec, verdict, log in zip(specs, verdicts, lost, strict=True)
    ]
    return [found.model_copy(update={"seconds": seconds}) for found in rows]


def _seen(specs: Sequence[StorePartitionSpec], options: VerifyOptions) -> list[DiskFacts | Verdict]:
    """Look at store partitions, those of a task under one lock: to take it, all databases of the task are looked at."""
    seen: dict[int, DiskFacts | Verdict] = {}
    in_order = sorted(range(len(specs)), key=lambda at: specs[at].paths)
    for _, of_task in groupby(in_order, lambda at: specs[at].paths):
        task = list(of_task)
        with ExitStack() as held:
            seen |= zip(task, _seen_with_lock(held, [specs[at] for at in task], options), strict=True)
    return [seen[at] for at in range(len(specs))]


def _seen_with_lock(
    held: ExitStack, specs: Sequence[StorePartitionSpec], options: VerifyOptions, wait_s: float = 0.0
) -> list[DiskFacts | Verdict]:
    """Lock a task as long as `held` is open, and look at its stores."""
    try:
        held.enter_context(locked_task(specs[0].paths, wait_s, reading=True))
    except (LockedError, InvalidStateError) as error:
        return [unobserved(error) for _ in specs]
    return [_seen_alone(spec, options) for spec in specs]


def _seen_alone(spec: StorePartitionSpec, options: VerifyOptions) -> DiskFacts | Verdict:
    try:
        return _look(spec, options)
    except (LockedError, InvalidStateError) as error:
        return unobserved(error)


def _with_locks_held(
    tasks: Sequence[Sequence[StorePartitionSpec]], options: VerifyOptions, cluster: Cluster, deadline: float
) -> list[Verdict]:
    """Verify store partitions, grouped by task; the locks of all are held meanwhile."""
    seen: list[DiskFacts | Verdict] = []
    with ExitStack() as held:
        for specs in tasks:
            seen += _seen_with_lock(held, specs, options, max(0.0, deadline - time.monotonic()))
        return _judged(list(chain(*tasks)), seen, cluster)


def _judged(
    specs: Sequence[StorePartitionSpec], seen: Sequence[DiskFacts | Verdict], cluster: Cluster
) -> list[Verdict]:
    """Ask for the logs of those that were seen, and judge them by their offsets; the others have their verdicts."""
    asked = [Facts(spec, disk) for spec, disk in zip(specs, seen, strict=True) if isinstance(disk, DiskFacts)]
    judged = iter(resolve(asked, partial(judge, by_offsets=True), cluster))
    return [disk if isinstance(disk, Verdict) else next(judged)[1] for disk in seen]


#: How stores are verified that are not judged together with others.
_ALONE = {Filling.TOPIC: verify_global}
_VERIFY = {Copy.SNAPSHOT: _verify_archived, Copy.DISK: _verify_on_disk}


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[at : at + size] for at in range(0, len(items), size))
