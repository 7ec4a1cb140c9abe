"""Restoring many store partitions, several at a time, whoever runs the pieces: Spark tasks, or processes.

A log that is long enough is cut into ranges first: each becomes sorted runs by itself, and the piece of work that
restores the store partition then puts them together. Stores of one task belong to one piece of work, as they share its
lock. Where there are many tasks, a piece has several: it keeps its connections from one to the next, and restores those
with short logs beside each other, as most of what they take is waiting for the disk and for Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

from statestore.changelog import brokers_clock
from statestore.errors import InputError, StateStoreError
from statestore.kafka.shared_fetch import fetched_together
from statestore.model import TopicPartition
from statestore.objects.path import Location
from statestore.partition.grouping import by_task, in_order, in_pieces
from statestore.partition.plan import SourceName
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
from statestore.recovery.deciding import planned_source
from statestore.recovery.disk_space import is_cut
from statestore.recovery.full import store_logs
from statestore.recovery.planning import (
    plan_restore,
    range_count,
)
from statestore.recovery.restore import restore
from statestore.recovery.restore_progress import RESTORES, progress_label
from statestore.recovery.rows import failed
from statestore.recovery.runner import Runner
from statestore.recovery.sources import all_sources
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.unlogged import plan_unlogged, require_changelog
from statestore.reports import RestorePlanRow, RestoreRow
from statestore.verification.gathering import NOT_ASKED, AskedLogs

_log = logging.getLogger(__name__)

#: So many tasks at most are one piece of work, and so many pieces at least are left for each that is done at a time.
_TASKS_A_PIECE, _PIECES_EACH = 32, 4
#: Stores whose logs have at most so many offsets are restored so many at a time, within the memory of one.
_SHORT_LOG, _BESIDE = 50_000, 4


class _Restored(NamedTuple):
    """Rows of the stores of some tasks, and whether the process that restored them died."""

    rows: list[RestoreRow]
    lost: bool = False


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
        apart = not spec.store.home.disks_are_shared
        cut.append(spec._replace(ranges=range_count(offsets, tasks, parallelism, apart=apart)))
    return cut


def plan_many(restores: Sequence[RestoreSpec], run: Runner) -> list[RestorePlanRow]:
    """Say what `restore_many` would do, and do nothing."""
    groups = by_task(spec.store for spec in restores)
    return in_order(groups, run([[restores[at] for at in group] for group in groups], _plan_task, list[RestorePlanRow]))


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


def _plan_task(specs: Sequence[RestoreSpec]) -> list[RestorePlanRow]:
    return [plan_restore(spec, None if spec.store.store.logged else plan_unlogged) for spec in specs]


def _restore_tasks(specs: Sequence[RestoreSpec]) -> _Restored:
    tasks = by_task(spec.store for spec in specs)
    asked = _logs_of(specs) if len(tasks) > 1 else NOT_ASKED
    short = [task for task in tasks if all(_is_short(specs[at], asked) for at in task)] if asked.logs else []
    long = [task for task in tasks if task not in short]
    starts = _read_from_start([specs[at] for at in chain(*short)], asked)
    with fetched_together(specs[0].store.cluster, starts), ThreadPoolExecutor(_BESIDE) as threads:
        less = [spec._replace(run_bytes=spec.run_bytes // _BESIDE) for spec in specs]
        begun = [threads.submit(_restore_task, [less[at] for at in task], asked) for task in short]
        done = [result.result() for result in begun]
    done += [_restore_task([specs[at] for at in task]) for task in long]
    return _Restored(in_order((*short, *long), done))


def _restore_task(specs: Sequence[RestoreSpec], asked: AskedLogs = NOT_ASKED) -> list[RestoreRow]:
    return [restore(spec, asked if _is_whole_log(spec.store) else NOT_ASKED) for spec in specs]


def _logs_of(specs: Sequence[RestoreSpec]) -> AskedLogs:
    """Ask for the logs of all stores at once; none is returned for several clusters, or if Kafka does not say."""
    stores = [spec.store for spec in specs if spec.store.changelog]
    if len({store.cluster for store in stores}) != 1:  # each cluster has its own clock
        return NOT_ASKED
    try:
        cluster, partitions = stores[0].cluster, chain.from_iterable(store.partitions for store in stores)
        return AskedLogs(brokers_clock.now_ms(cluster), cluster.topics.log_ranges(partitions))
    except StateStoreError:  # the restores say why
        return NOT_ASKED


def _is_short(spec: RestoreSpec, asked: AskedLogs) -> bool:
    logs = [asked.logs[partition] for partition in spec.store.partitions if spec.store.changelog]
    return sum(log.high_watermark - log.start for log in logs) <= _SHORT_LOG


def _is_whole_log(store: StorePartitionSpec) -> bool:
    """Tell whether a store is made of all of its log, and not of what a group has processed of it."""
    return store.changelog is not None and store.changelog.end_group is None


def _read_from_start(specs: Sequence[RestoreSpec], asked: AskedLogs) -> dict[TopicPartition, int]:
    """Return the logs that will be read from where they start, as far as can be told before anybody looks."""
    starts: dict[TopicPartition, int] = {}
    for store in (spec.store for spec in specs if spec.request.mode in ("auto", "full")):
        if _is_whole_log(store) and not store.home.offers_snapshots and not store.live.exists():
            starts |= {partition: asked.logs[partition].start for partition in store.partitions}
    return starts


def _lost_tasks(specs: Sequence[RestoreSpec], error: StateStoreError) -> _Restored:
    return _Restored([failed(spec, error) for spec in specs], lost=True)


def _with_ranges_read(restores: Sequence[RestoreSpec], run: Runner, progress: Location) -> list[RestoreSpec]:
    """Read logs that are cut into ranges, and return the restores that are left to do.

    What fails here, the restore reads again, or says why it cannot.
    """
    candidates = [spec for spec in restores if is_cut(spec)]
    groups = by_task(spec.store for spec in candidates)
    pieces = [[candidates[at] for at in group] for group in groups]
    sources = in_order(
        groups, run(pieces, _sources_of_task, list[SourceName | None], lambda specs, _: [None] * len(specs))
    )
    left = [spec for spec, source in zip(candidates, sources, strict=True) if source == "log"]
    done: dict[StorePartitionSpec, RestoreSpec] = {}
    for source in all_sources():
        waiting = [spec for spec in left if spec.store not in done]
        done |= {spec.store: spec for spec in source.prepare(waiting, run, progress)}
    return [done[spec.store]._replace(from_log=True) if spec.store in done else spec for spec in restores]


def _sources_of_task(specs: Sequence[RestoreSpec]) -> list[SourceName | None]:
    return list(map(planned_source, specs))
