"""Restoring many store partitions, several at a time, whoever runs the pieces: Spark tasks, or processes.

A log that is long enough is cut into ranges first: each becomes sorted runs by itself, and the piece of work that
restores the store partition then puts them together. Stores of one task belong to one piece of work, as they share its
lock. Where there are many tasks, a piece has several: it keeps its connections from one to the next, and restores those
with short logs beside each other, as most of what they take is waiting for the disk and for Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from statestore.changelog import brokers_clock
from statestore.changelog.fetched_together import Beginnings, fetched_together
from statestore.changelog.kept import keep_connections
from statestore.changelog.topics import Topics
from statestore.errors import InputError, StateStoreError
from statestore.model import TopicPartition
from statestore.objects.path import Location
from statestore.partition.archived import lives_in_archive
from statestore.partition.grouping import by_task, in_order, in_pieces
from statestore.partition.judgement import not_now
from statestore.partition.spec import StorePartitionSpec
from statestore.progress.display import shown
from statestore.recovery.as_of import (
    built_before,
    claim_target,
    in_target,
    point_and_target,
    point_range,
    require_free_target,
)
from statestore.recovery.as_of_source import point_source
from statestore.recovery.distributed import begin_build, merge_key_range, read_log_range
from statestore.recovery.distributed_plan import FoundBuild
from statestore.recovery.planning import (
    is_cut,
    is_distributed,
    plan_restore,
    range_count,
    rebuild_snapshots,
    store_logs,
)
from statestore.recovery.restore import begin_ranges, failed, in_row, restore, restore_range
from statestore.recovery.restore_progress import RESTORES, RestoreProgressWriter, progress_label
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import OffsetRange
from statestore.recovery.unlogged import plan_unlogged, require_changelog
from statestore.reports import Action, RestorePlanRow, RestoreRow, VerifyRow
from statestore.verification.check import verify
from statestore.verification.logs import AskedLogs

_log = logging.getLogger(__name__)

#: So many tasks at most are one piece of work, and so many pieces at least are left for each that is done at a time.
_TASKS_A_PIECE, _PIECES_EACH = 32, 4
#: Stores whose logs have at most so many offsets are restored so many at a time, within the memory of one.
_SHORT_LOG, _BESIDE = 50_000, 4

S = TypeVar("S")
M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", "_RangeOf", "_KeysOf")


class Runner(Protocol):
    """Does the work on every piece, several at a time, and returns the rows in the order of the pieces."""

    def __call__(
        self,
        pieces: Sequence[S],
        work: Callable[[S], M],
        row_type: type[M],
        lost: Callable[[S, StateStoreError], M] | None = None,
        /,
    ) -> list[M]:
        """Return one row for each piece; `lost` makes that of one whose process died, where the others go on."""


class _RangeOf(NamedTuple):
    """A range to read, and what its progress is called."""

    spec: RestoreSpec
    part: OffsetRange
    name: str


class _KeysOf(NamedTuple):
    """A range of keys to merge, where ranges were read on many machines; and what its progress is called."""

    spec: RestoreSpec
    number: int
    name: str


class _OfTask(BaseModel):
    """Rows of the stores of one task."""

    model_config = ConfigDict(frozen=True)


class _Restored(_OfTask):
    rows: tuple[RestoreRow, ...]
    lost: bool = False


class _Verified(_OfTask):
    rows: tuple[VerifyRow, ...]


class _Planned(_OfTask):
    rows: tuple[RestorePlanRow, ...]


def require_points(restores: Sequence[RestoreSpec]) -> None:
    """Refuse points that are not in the logs, and targets that are in use, before anything is made.

    Raises
    ------
    InputError
        With the numbers.
    """
    for spec in restores:
        if spec.request.mode == "as-of":
            require_changelog(spec)
            as_of, target = point_and_target(spec)
            if not require_free_target(target, spec.store.state_dir, as_of) and built_before(in_target(spec)):
                continue  # whatever the log has lost since
            try:
                point_range(spec.store, as_of)
            except InputError:
                point_source(spec)  # a snapshot may have it


def cut_by_length(restores: Sequence[RestoreSpec], parallelism: int) -> list[RestoreSpec]:
    """Decide into how many ranges logs are cut, so that there is work for all.

    Parameters
    ----------
    parallelism
        Pieces of work that are done at the same time.
    """
    tasks = len(by_task(spec.store for spec in restores))
    if tasks >= parallelism:
        return list(restores)
    cut = []
    for spec in restores:
        try:
            logs = (
                store_logs(spec.store).values()
                if spec.store.changelog and spec.request.mode in ("auto", "full")
                else ()
            )
        except (StateStoreError, OSError):
            logs = ()  # the restore, or its plan, says why
        offsets = sum(log.last_stable - log.start for log in logs)
        apart = lives_in_archive(spec.store)
        cut.append(spec._replace(ranges=range_count(offsets, tasks, parallelism, apart=apart)))
    return cut


def plan_many(restores: Sequence[RestoreSpec], run: Runner) -> list[RestorePlanRow]:
    """Say what `restore_many` would do, and do nothing."""
    groups = by_task(spec.store for spec in restores)
    found = run([[restores[at] for at in group] for group in groups], _plan_task, _Planned)
    return in_order(groups, [task.rows for task in found])


def restore_many(
    restores: Sequence[RestoreSpec], run: Runner, progress: Location, parallelism: int = 1
) -> list[RestoreRow]:
    """Restore store partitions, showing how far each is.

    Parameters
    ----------
    progress
        Directory that the restores tell their progress in.
    parallelism
        Pieces of work that are done at the same time.
    """
    for spec in restores[:1]:
        if spec.request.mode == "as-of":
            as_of, target = point_and_target(spec)
            claim_target(target, spec.store.state_dir, as_of)
    restores = _with_ranges_read(restores, run, progress)
    with shown(progress, [progress_label(spec.store.store_partition) for spec in restores], RESTORES):
        tasks = by_task(spec.store for spec in restores)
        pieces = in_pieces(tasks, min(max(len(tasks) // (_PIECES_EACH * parallelism), 1), _TASKS_A_PIECE))

        def done(groups: Sequence[Sequence[int]]) -> list[_Restored]:
            return run([[restores[at] for at in group] for group in groups], _restore_tasks, _Restored, _lost_tasks)

        found = done(pieces)
        # A process that died takes the word of all tasks of its piece along: of most it only was not told.
        lost = [set(piece) for piece, its in zip(pieces, found, strict=True) if its.lost]
        alone = [task for task in tasks if any(set(task) < piece for piece in lost)]
        again = done(alone) if alone else []
    rows = in_order(pieces, [piece.rows for piece in found])
    for task, its in zip(alone, again, strict=True):
        for at, row in zip(task, its.rows, strict=True):
            rows[at] = row
    return rows


def _plan_task(specs: Sequence[RestoreSpec]) -> _Planned:
    return _Planned(
        rows=tuple(plan_restore(spec, None if spec.store.store.logged else plan_unlogged) for spec in specs)
    )


def _restore_tasks(specs: Sequence[RestoreSpec]) -> _Restored:
    with keep_connections():
        tasks = by_task(spec.store for spec in specs)
        asked = _logs_of(specs) if len(tasks) > 1 else AskedLogs(0, {})
        short = [task for task in tasks if all(_is_short(specs[at], asked) for at in task)] if asked.logs else []
        long = [task for task in tasks if task not in short]
        with (
            fetched_together(_read_from_start([specs[at] for task in short for at in task], asked)),
            ThreadPoolExecutor(_BESIDE) as threads,
        ):
            begun = [
                threads.submit(copy_context().run, _restore_task, [_with_less_memory(specs[at]) for at in task], asked)
                for task in short
            ]
            done = [result.result() for result in begun]
        done += [_restore_task([specs[at] for at in task]) for task in long]
    return _Restored(rows=tuple(in_order((*short, *long), done)))


def _restore_task(specs: Sequence[RestoreSpec], asked: AskedLogs | None = None) -> list[RestoreRow]:
    return [restore(spec, asked if _is_whole_log(spec.store) else None) for spec in specs]


def _with_less_memory(spec: RestoreSpec) -> RestoreSpec:
    return spec._replace(run_bytes=spec.run_bytes // _BESIDE)


def _logs_of(specs: Sequence[RestoreSpec]) -> AskedLogs:
    """Ask for the logs of all stores at once; none is returned for several clusters, or if Kafka does not say."""
    by_cluster: dict[tuple[str, float], list[TopicPartition]] = {}
    for store in (spec.store for spec in specs if spec.store.changelog):
        by_cluster.setdefault((store.bootstrap_servers, store.kafka_timeout_s), []).extend(store.partitions)
    if len(by_cluster) != 1:  # each cluster has its own clock
        return AskedLogs(0, {})
    try:
        [((servers, timeout_s), partitions)] = by_cluster.items()
        return AskedLogs(brokers_clock.now_ms(specs[0].store), Topics(servers, timeout_s).log_ranges(partitions))
    except StateStoreError:  # the restores say why
        return AskedLogs(0, {})


def _is_short(spec: RestoreSpec, asked: AskedLogs) -> bool:
    logs = [asked.logs[partition] for partition in spec.store.partitions if spec.store.changelog]
    return sum(log.high_watermark - log.start for log in logs) <= _SHORT_LOG


def _is_whole_log(store: StorePartitionSpec) -> bool:
    """Tell whether a store is made of all of its log, and not of what a group has processed of it."""
    return store.changelog is not None and store.changelog.end_group is None


def _read_from_start(specs: Sequence[RestoreSpec], asked: AskedLogs) -> list[Beginnings]:
    """Return the logs that will be read from where they start, as far as can be told before anybody looks."""
    starts: dict[str, dict[TopicPartition, int]] = {}
    for store in (spec.store for spec in specs if spec.request.mode in ("auto", "full")):
        if _is_whole_log(store) and store.archive is None and not store.live.exists():
            its = {partition: asked.logs[partition].start for partition in store.partitions}
            starts.setdefault(store.bootstrap_servers, {}).update(its)
    return list(map(Beginnings._make, starts.items()))


def _lost_tasks(specs: Sequence[RestoreSpec], error: StateStoreError) -> _Restored:
    return _Restored(rows=tuple(failed(spec, error) for spec in specs), lost=True)


def _lost_part(part: _RangeOf | _KeysOf, error: StateStoreError) -> RestoreRow:
    return failed(part.spec, error)


def _with_ranges_read(restores: Sequence[RestoreSpec], run: Runner, progress: Location) -> list[RestoreSpec]:
    """Read logs that are cut into ranges, and return the restores that are left to do.

    What fails here, the restore reads again, or says why it cannot.
    """
    candidates = [spec for spec in restores if is_cut(spec) and not _has_snapshot(spec)]
    unsure = [spec for spec in candidates if not spec.request.force]
    groups = by_task(spec.store for spec in unsure)
    looked = run([[unsure[at].store for at in group] for group in groups], _look_at_task, _Verified, _not_looked_at)
    found = in_order(groups, [task.rows for task in looked])
    whole = {spec.store for spec, row in zip(unsure, found, strict=True) if not _is_rebuilt(spec, row)}
    left = [spec for spec in candidates if spec.store not in whole]
    here, elsewhere = ([spec for spec in left if is_distributed(spec) is apart] for apart in (False, True))
    done = {spec.store: spec for spec in (*_read_on_one_disk(here, run, progress), *_built(elsewhere, run, progress))}
    return [done[spec.store]._replace(from_log=True) if spec.store in done else spec for spec in restores]


def _read_on_one_disk(specs: Sequence[RestoreSpec], run: Runner, progress: Location) -> list[RestoreSpec]:
    """Read the ranges of logs where all machines see one disk; return the restores that this was done for."""
    parts: list[_RangeOf] = []
    for spec in specs:
        try:
            ranges = begin_ranges(spec)
        except (StateStoreError, OSError):
            continue
        parts += [_RangeOf(spec, part, f"{number}/{len(ranges)}") for number, part in enumerate(ranges, start=1)]
    for row in _run_parts(parts, _read_range, run, progress):
        if row.failure is not None:
            _log.warning("restore: a range of %s is read again: %s", row.label, row.failure.message)
    return list({part.spec.store: part.spec for part in parts}.values())


def _built(specs: Sequence[RestoreSpec], run: Runner, progress: Location) -> list[RestoreSpec]:
    """Have many machines build what is then put together; return the restores that it was done for, all of it."""
    begun: list[tuple[RestoreSpec, FoundBuild]] = []
    for spec in specs:
        try:
            found = begin_build(spec)
        except (StateStoreError, OSError) as error:
            _log.warning("restore: %s is built by one task alone: %s", spec.store.store_partition, error)
            continue
        begun.append((spec._replace(build=found.directory.uuid), found))
    ranges = [
        _RangeOf(spec, part, f"{number}/{len(found.plan.reading.ranges)}")
        for spec, found in begun
        for number, part in enumerate(found.plan.reading.ranges, start=1)
        if part in found.ranges_left
    ]
    failed_of = _failed_of(_run_parts(ranges, _read_log_range, run, progress))
    keys = [
        _KeysOf(spec, number, f"keys {number + 1}/{len(found.plan.key_ranges)}")
        for spec, found in begun
        for number in found.keys_left
        if str(spec.store.store_partition) not in failed_of
    ]
    failed_of |= _failed_of(_run_parts(keys, _merge_key_range, run, progress))
    return [spec for spec, _ in begun if str(spec.store.store_partition) not in failed_of]


def _failed_of(rows: Sequence[RestoreRow]) -> set[str]:
    """Return the store partitions of which a part failed, and say why."""
    found: dict[str, str] = {row.label: row.failure.message for row in rows if row.failure is not None}
    for label, why in found.items():
        _log.warning("restore: %s is built by one task alone: a part of it failed: %s", label, why)
    return set(found)


def _run_parts(
    parts: Sequence[P], work: Callable[[P], RestoreRow], run: Runner, progress: Location
) -> Sequence[RestoreRow]:
    """Do parts of restores, showing how far each is."""
    if not parts:
        return []
    labels = [progress_label(part.spec.store.store_partition, part.name) for part in parts]
    with shown(progress, labels, RESTORES):
        return run(parts, work, RestoreRow, _lost_part)


def _has_snapshot(spec: RestoreSpec) -> bool:
    """True if `restore` will rather begin with a snapshot, as far as can be told now."""
    try:
        asked_ms = brokers_clock.now_ms(spec.store)
        return next(rebuild_snapshots(spec, "full", store_logs(spec.store), asked_ms), None) is not None
    except (StateStoreError, OSError):  # its restore says why
        return False


def _look_at_task(stores: Sequence[StorePartitionSpec]) -> _Verified:
    return _Verified(rows=tuple(map(_look_at, stores)))


def _not_looked_at(stores: Sequence[StorePartitionSpec], error: StateStoreError) -> _Verified:
    return _Verified(rows=tuple(not_now(store, error) for store in stores))


def _look_at(store: StorePartitionSpec) -> VerifyRow:
    """Verify a store partition; one that cannot be verified now is left to its restore, which says why."""
    try:
        return verify(store)
    except (StateStoreError, OSError) as error:
        return not_now(store, error)


def _is_rebuilt(spec: RestoreSpec, row: VerifyRow) -> bool:
    """True if `restore` will read the whole log, as far as can be told before it looks for itself."""
    return row.action is Action.FULL or (spec.request.mode == "full" and row.action is Action.TAIL)


def _read_range(item: _RangeOf) -> RestoreRow:
    return restore_range(item.spec, item.part, item.name)


def _read_log_range(item: _RangeOf) -> RestoreRow:
    def work(row: RestoreRow) -> RestoreRow:
        with RestoreProgressWriter(item.spec.store, item.spec.progress, item.name) as progress:
            done = read_log_range(item.spec, item.part, progress)
        figures = {"outcome": "restored", "start": done.start, "end": done.end, "records": done.records}
        return row.model_copy(update=figures)

    return in_row(item.spec.store, work)


def _merge_key_range(item: _KeysOf) -> RestoreRow:
    def work(row: RestoreRow) -> RestoreRow:
        with RestoreProgressWriter(item.spec.store, item.spec.progress, item.name) as progress:
            done = merge_key_range(item.spec, item.number, progress)
        return row.model_copy(update={"outcome": "restored", "keys": done.rows, "digest": done.digest})

    return in_row(item.spec.store, work)
