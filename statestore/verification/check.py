"""Verifying store partitions: can they be read, do they have all of their changelogs, and, on request, its contents?

A store is looked at under its task's lock, so that it does not move meanwhile. Nothing is changed. If a run of
`process` waits for the lock, reading ends, and the row says that the store was in use.

Many store partitions are verified by their offsets in two passes. The first holds each lock just for the look at the
store; the ends of all logs are asked for afterwards, so who is at the end then is whole. The others may only have been
passed by records that came in between, and are looked at again, with their locks held until Kafka has answered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from typing import TypeVar

from statestore.archive.grown_from import put_in_place_by
from statestore.changelog import brokers_clock
from statestore.changelog.kept import keep_connections
from statestore.changelog.topics import APPEND_TIME, TIMESTAMP_TYPE
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
from statestore.partition.archived import (
    ArchivedStore,
    copied,
    lives_in_archive,
    look_into_archive,
    with_archived_evidence,
)
from statestore.partition.changelog_time import LogTimes, log_times
from statestore.partition.committed_changelogs import with_committed_changelogs
from statestore.partition.inspection import damaged_file, inspect
from statestore.partition.judgement import (
    Inspection,
    Lost,
    Supply,
    in_trouble,
    judge,
    needs_stream_time,
    not_now,
    repartitioned,
    row,
    unread,
    with_contents,
    with_loss,
)
from statestore.partition.replacement import has_lost_none, may_follow, may_lack_versions
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Action, Contents, Loss, Status, VerifyRow
from statestore.statedir.lock import give_way
from statestore.statedir.swap import locked_task
from statestore.verification.contents import compare_contents, count_rows
from statestore.verification.logs import Cluster
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.bounds import noted, with_lower_bounds
from statestore.verification.unlogged import verify_unlogged

_log = logging.getLogger(__name__)

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
    """Verify store partitions, each under its task's lock. Global stores: see `global_stores.py`.

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
    left: dict[tuple[str, float], list[int]] = {}
    for at, spec in enumerate(specs):
        count = tasks.get((spec.application, spec.task.subtopology))
        if (found := repartitioned(spec, count)) is not None:
            rows[at] = found.model_copy(update={"depth": options.depth})
        else:
            left.setdefault((spec.bootstrap_servers, spec.kafka_timeout_s), []).append(at)
    try:
        with keep_connections():
            for where, asked in left.items():
                cluster = Cluster(*where)
                for at in [at for at in asked if not specs[at].store.logged]:
                    rows[at] = verify_unlogged(specs[at], options)
                asked = [at for at in asked if at not in rows]
                archived = {at for at in asked if lives_in_archive(specs[at])}
                for part in _parts(sorted(archived), _ASKED):
                    rows.update(zip(part, _in_archive([specs[at] for at in part], options, cluster), strict=True))
                for part in _parts([at for at in asked if at not in archived], _ASKED):
                    chosen = [specs[at] for at in part]
                    if options.depth == "offsets":
                        verified = _by_offsets(chosen, options, cluster)
                    else:
                        verified = [_verify(spec, options, cluster) for spec in chosen]
                    rows.update(zip(part, verified, strict=True))
    except OSError as error:
        raise of_os_error(error) from error
    return [noted(specs[at], _with_left_over(specs[at], rows[at])) for at in range(len(specs))]


def _with_left_over(spec: StorePartitionSpec, found: VerifyRow) -> VerifyRow:
    """Name the segments that were left out, because Kafka Streams does not use them."""
    if spec.owned or found.committed is None:
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
        detail=str(found.error),
    )


def check(spec: StorePartitionSpec, options: VerifyOptions = _SCAN, cluster: Cluster | None = None) -> VerifyRow:
    """Verify one store partition; the caller holds the task's lock.

    Parameters
    ----------
    cluster
        Whom to ask for the log; None: a client of its own.
    """
    started = time.monotonic()
    cluster = cluster or Cluster(spec.bootstrap_servers, spec.kafka_timeout_s)
    seen = _look(spec, options)
    for _ in range(_ATTEMPTS):
        [found] = _judged([spec], [seen], cluster, offsets_only=options.depth == "offsets")
        if not seen.present or seen.trouble is not None or spec.changelog is None or options.depth == "offsets":
            break
        try:
            found = _read(spec, seen, found, options, cluster)
            break
        except StoreBehindLogStartError as error:  # retention has moved the log's start since it was asked for
            moving = f"{error}; the log's start moved during each of {_ATTEMPTS} attempts to compare the store with it"
            found = row(spec, Status.LOCKED, Action.LATER, moving)
    return found.model_copy(update={"seconds": round(time.monotonic() - started, 3), "depth": options.depth})


def _look(spec: StorePartitionSpec, options: VerifyOptions) -> Inspection:
    offsets = options.depth == "offsets"
    contents = not offsets and options.sample is None
    found = inspect(spec, open_sealed=not offsets, contents=contents, between=options.give_way)
    return with_lower_bounds(spec, found)


def _verify(spec: StorePartitionSpec, options: VerifyOptions, cluster: Cluster) -> VerifyRow:
    try:
        with locked_task(spec.paths, spec.lock_wait_s, reading=True):
            return check(spec, replace(options, give_way=partial(give_way, spec.paths)), cluster)
    except (LockedError, InvalidStateError) as error:
        return _not_seen(spec, options, error)


def _read(
    spec: StorePartitionSpec, seen: Inspection, found: VerifyRow, options: VerifyOptions, cluster: Cluster
) -> VerifyRow:
    """Read the rows of a store: all of them, or beside its log where that can tell what they must be."""
    comparable = found.healthy or (found.status is Status.LAGGING and found.action is Action.TAIL)
    try:
        if options.depth == "deep" and comparable and seen.committed is not None:
            contents = _compare(spec, seen.committed, options, cluster)
            found = _as_taken(spec, _as_put_there(spec, with_contents(found, contents)), contents)
            found = _as_described(spec, found)
            said = [found.detail, _BROKERS_TIMESTAMPS if contents.brokers_timestamps else ""]
            return found.model_copy(update={"detail": "; ".join(filter(None, said))})
        return found.model_copy(update={"keys": count_rows(spec, options.give_way)})
    except StoreCorruptedError as error:
        return in_trouble(found, Status.CORRUPT, str(error), damaged_file(error, spec.live))


def _as_taken(spec: StorePartitionSpec, found: VerifyRow, contents: Contents) -> VerifyRow:
    """Leave a store to a person that no definition names and that has no key of its log: it may be taken for another.

    What its log gives to a store of that kind would take the place of all that it has.
    """
    in_common = contents.equal + contents.other_value
    if spec.owned or in_common or not contents.only_in_store or not contents.only_in_log:
        return found
    detail = f"{found.detail}; it has no key in common with its changelog, so it may be a different store than assumed"
    return found.model_copy(update={"action": Action.BY_HAND, "detail": detail})


def _as_put_there(spec: StorePartitionSpec, found: VerifyRow) -> VerifyRow:
    """Leave to a person what a person has put there: its log does not give it."""
    if found.status is not Status.DIVERGED:
        return found
    chosen = put_in_place_by(spec.paths, spec.store.name)
    if chosen is None:
        return found
    return with_loss(found, Lost(Loss.LIKELY, f"it is here by {chosen}", Status.DIVERGED))


def _as_described(spec: StorePartitionSpec, found: VerifyRow) -> VerifyRow:
    """Say where a comparison holds only if what the user says of the store is true."""
    if not spec.described:
        return found
    detail = "; ".join(filter(None, [found.detail, f"compared as you described it: {spec.described}"]))
    return found.model_copy(update={"detail": detail})


def _compare(spec: StorePartitionSpec, committed: int, options: VerifyOptions, cluster: Cluster) -> Contents:
    log = cluster.log_ranges([spec])[spec.partition]
    return compare_contents(spec, committed, log, cluster.topics, options)


# -- what the archive has ---------------------------------------------------------------------------------------------


def check_archived(
    spec: StorePartitionSpec, options: VerifyOptions = _SCAN, cluster: Cluster | None = None
) -> VerifyRow:
    """Verify one store that lives in the archive; `cluster` as of `check`."""
    cluster = cluster or Cluster(spec.bootstrap_servers, spec.kafka_timeout_s)
    (found,) = _in_archive([spec], options, cluster)
    return found


def _in_archive(specs: Sequence[StorePartitionSpec], options: VerifyOptions, cluster: Cluster) -> list[VerifyRow]:
    """Verify stores that live in the archive; copies of them on the disks of nodes are not looked at."""
    started = time.monotonic()
    try:
        seen = look_into_archive(specs, look_at_files=options.depth != "offsets")
    except (ArchiveUnavailableError, ArchiveAccessError) as error:
        return [not_now(spec, error).model_copy(update={"depth": options.depth}) for spec in specs]
    rows = _judged(specs, [found.seen for found in seen], cluster, offsets_only=options.depth == "offsets")
    rows = [
        _of_archived(spec, found, row_found, options, cluster)
        for spec, found, row_found in zip(specs, seen, rows, strict=True)
    ]
    seconds = round((time.monotonic() - started) / max(len(specs), 1), 4)
    return [found.model_copy(update={"seconds": seconds, "depth": options.depth}) for found in rows]


def _of_archived(
    spec: StorePartitionSpec, archived: ArchivedStore, found: VerifyRow, options: VerifyOptions, cluster: Cluster
) -> VerifyRow:
    if archived.snapshot is None:
        if found.status is not Status.MISSING:
            return found
        # A node may have it; whoever needs it elsewhere reads its log.
        status = Status.LAGGING if found.action is Action.FULL else found.status
        return found.model_copy(update={"status": status, "detail": _unarchived(found)})
    comparable = found.healthy or (found.status is Status.LAGGING and found.action is Action.TAIL)
    if options.depth != "deep" or not comparable:
        return found
    try:
        with copied(spec, archived.snapshot) as there:
            return check(there, options, cluster)
    except SnapshotError as error:
        return in_trouble(found, Status.CORRUPT, str(error))


def _unarchived(found: VerifyRow) -> str:
    said = "the archive has no snapshot of it that can be used"
    return f"{said}; a rebuild would lose data: {found.loss_detail}" if found.loss is Loss.LIKELY else said


# -- many by their offsets --------------------------------------------------------------------------------------------


def _by_offsets(specs: Sequence[StorePartitionSpec], options: VerifyOptions, cluster: Cluster) -> list[VerifyRow]:
    started = time.monotonic()
    seen = _seen(specs, options)
    rows = _judged(specs, seen, cluster, offsets_only=True)
    unsettled = [
        at
        for at, found in enumerate(rows)
        if found.status is Status.LOCKED or (isinstance(seen[at], Inspection) and not found.healthy)
    ]
    deadline = time.monotonic() + max((specs[at].lock_wait_s for at in unsettled), default=0.0)
    unsettled.sort(key=lambda at: specs[at].paths)
    of_tasks = [list(of_task) for _, of_task in groupby(unsettled, lambda at: specs[at].paths)]
    for tasks in _parts(of_tasks, _HELD):
        again = [[specs[at] for at in of_task] for of_task in tasks]
        found_again = _with_locks_held(again, options, cluster, deadline)
        for at, found in zip(chain.from_iterable(tasks), found_again, strict=True):
            rows[at] = found
    seconds = round((time.monotonic() - started) / max(len(specs), 1), 4)
    return [found.model_copy(update={"seconds": seconds, "depth": options.depth}) for found in rows]


def _seen(specs: Sequence[StorePartitionSpec], options: VerifyOptions) -> list[Inspection | VerifyRow]:
    """Look at store partitions, those of a task under one lock: to take it, all databases of the task are looked at."""
    seen: dict[int, Inspection | VerifyRow] = {}
    in_order = sorted(range(len(specs)), key=lambda at: specs[at].paths)
    for paths, of_task in groupby(in_order, lambda at: specs[at].paths):
        task = list(of_task)
        try:
            with locked_task(paths, wait_s=0, reading=True):
                for at in task:
                    seen[at] = _seen_alone(specs[at], options)
        except (LockedError, InvalidStateError) as error:
            seen |= {at: _not_seen(specs[at], options, error) for at in task}
    return [seen[at] for at in range(len(specs))]


def _seen_alone(spec: StorePartitionSpec, options: VerifyOptions) -> Inspection | VerifyRow:
    try:
        return _look(spec, options)
    except (LockedError, InvalidStateError) as error:
        return _not_seen(spec, options, error)


def _with_locks_held(
    tasks: Sequence[Sequence[StorePartitionSpec]], options: VerifyOptions, cluster: Cluster, deadline: float
) -> list[VerifyRow]:
    """Verify store partitions, grouped by task; the locks of all are held meanwhile."""
    seen: list[Inspection | VerifyRow] = []
    with ExitStack() as held:
        for specs in tasks:
            try:
                held.enter_context(locked_task(specs[0].paths, max(0.0, deadline - time.monotonic()), reading=True))
                seen += [_seen_alone(spec, options) for spec in specs]
            except (LockedError, InvalidStateError) as error:
                seen += [_not_seen(spec, options, error) for spec in specs]
        return _judged([spec for specs in tasks for spec in specs], seen, cluster, offsets_only=True)


def _judged(
    specs: Sequence[StorePartitionSpec], seen: Sequence[Inspection | VerifyRow], cluster: Cluster, *, offsets_only: bool
) -> list[VerifyRow]:
    """Ask for the logs of those that were seen, and judge them; the others have their rows."""
    asked = [(spec, found) for spec, found in zip(specs, seen, strict=True) if isinstance(found, Inspection)]
    asked = _with_evidence(asked)
    if not asked:
        return [found for found in seen if isinstance(found, VerifyRow)]
    for attempts_left in reversed(range(_ATTEMPTS)):
        now_ms = brokers_clock.now_ms(cluster)
        supplies = cluster.supplies(asked)
        ranges = [
            (spec.partition, unread(spec, found, supply.log, now_ms))
            for (spec, found), supply in zip(asked, supplies, strict=True)
        ]
        try:
            firsts = cluster.firsts(ranges)
            judged = iter(
                _judge(spec, found, supply, first, now_ms, offsets_only=offsets_only)
                for (spec, found), supply, first in zip(asked, supplies, firsts, strict=True)
            )
            return [next(judged) if isinstance(found, Inspection) else found for found in seen]
        except StoreBehindLogStartError:  # retention has moved a log's start since it was asked for
            if not attempts_left:
                raise
    raise AssertionError("the last attempt returns or raises")


def _with_evidence(
    asked: Sequence[tuple[StorePartitionSpec, Inspection]],
) -> list[tuple[StorePartitionSpec, Inspection]]:
    """Add evidence of unknown stores: their newest snapshots, if the archive answers, and their tasks' commits."""
    specs, found = [spec for spec, _ in asked], [found for _, found in asked]
    try:
        found = with_archived_evidence(specs, found)
    except (ArchiveUnavailableError, ArchiveAccessError) as error:
        _log.warning("verify: it is unknown what snapshots show of stores that do not exist here: %s", error)
    return list(zip(specs, with_committed_changelogs(specs, found), strict=True))


def _judge(
    spec: StorePartitionSpec, seen: Inspection, supply: Supply, first: int | None, now_ms: int, *, offsets_only: bool
) -> VerifyRow:
    found = judge(spec, seen, supply, first, now_ms)
    if not offsets_only and _may_be_followed(spec, seen, supply, found):
        # All deletes are there, as in a log that is not compacted.
        spec, supply = _uncompacted(spec), supply._replace(changelog=_uncompacted(spec).changelog)
        found = judge(spec, seen, supply, first, now_ms)
    timed = needs_stream_time(spec, seen.record, supply.log)
    if supply.changelog is None or not (timed or (seen.had.anything and not spec.store.compaction_keeps_rows)):
        return found
    if offsets_only and found.action is Action.NONE:  # nobody is about to rebuild it, so the log is not read for that
        return found.model_copy(update={"loss": None, "loss_detail": ""})
    times = log_times(spec, supply.log) if timed else LogTimes()
    supply = supply._replace(
        stream_time=times.latest,
        first_time=times.first,
        lacks_versions=may_lack_versions(spec, seen.had.committed, supply.log),
    )
    return judge(spec, seen, supply, first, now_ms)


def _may_be_followed(spec: StorePartitionSpec, seen: Inspection, supply: Supply, found: VerifyRow) -> bool:
    """Tell whether a store lags that may be whole but for the rest of its log, and that is the smaller part of it."""
    log, committed = supply.log, seen.committed
    if found.status is not Status.LAGGING or found.action not in (Action.FULL, Action.BY_HAND) or committed is None:
        return False
    short = 2 * (log.last_stable - committed) <= log.last_stable - log.start
    return short and may_follow(spec) and has_lost_none(spec, committed + 1, log.last_stable)


def _uncompacted(spec: StorePartitionSpec) -> StorePartitionSpec:
    changelog = None if spec.changelog is None else spec.changelog.model_copy(update={"compacted": False})
    return spec.model_copy(update={"changelog": changelog})


def _not_seen(spec: StorePartitionSpec, options: VerifyOptions, error: LockedError | InvalidStateError) -> VerifyRow:
    """Say why nobody could look: the task is in use, or a swap of one of its stores cannot be finished."""
    locked = isinstance(error, LockedError)
    found = not_now(spec, error) if locked else row(spec, Status.CORRUPT, Action.BY_HAND, str(error))
    return found.model_copy(update={"depth": options.depth})


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[at : at + size] for at in range(0, len(items), size))
