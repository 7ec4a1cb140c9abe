"""Bringing the directories of tasks up before Kafka Streams starts on them.

Exactly once, Kafka Streams discards all stores of a task if one of them does not say how far it is. So a task is
brought up whole or not at all: where one of its stores cannot be made, the others would only be thrown away.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from statestore.errors import (
    ArchiveAccessError,
    ArchiveUnavailableError,
    DiskSpaceError,
    InputError,
    InvalidStateError,
    LockedError,
    StateStoreError,
    of_os_error,
)
from statestore.model import TaskId
from statestore.partition.grouping import by_task, in_order
from statestore.partition.plan import Need, Refusal, advised, is_nowhere_else
from statestore.partition.replacement import clear_built
from statestore.partition.restore_points import restore_points
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import Verdict, repartitioned
from statestore.recovery.deciding import examine_needs, request_of
from statestore.recovery.disk_space import estimated_bytes
from statestore.recovery.full import store_logs
from statestore.recovery.many import cut_by_length, restore_many
from statestore.recovery.runner import Runner
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import Staging
from statestore.recovery.task_cleanup import size_of
from statestore.reports import Action, RestoreRow
from statestore.requests.restore import RestoreRequest
from statestore.statedir.swap import locked_task
from statestore.verification.report_row import unobserved

_log = logging.getLogger(__name__)
_NO_ARCHIVE = (ArchiveUnavailableError.__name__, ArchiveAccessError.__name__)
#: `acceptable.recovery.lag` of Kafka Streams.
ACCEPTABLE_LAG = 10_000


class WarmRow(NamedTuple):
    """Outcome for one store of one task.

    Attributes
    ----------
    outcome
        It was `warmed`; was `ready`; is `left` to the application; or could not be warmed, so it is, too (`failed`).
    detail
        Why; empty where nothing is to be said.
    before
        Its status when it was looked at; None: it was not.
    mode, snapshot, records, keys, committed, seconds
        As of a restore.
    retriable
        Whether it may go better later.
    judged
        False: it is not known what the store is.
    """

    application: str
    store: str
    task: str
    outcome: Literal["warmed", "ready", "left", "failed"]
    detail: str = ""
    before: str | None = None
    mode: str | None = None
    snapshot: str | None = None
    records: int = 0
    keys: int = 0
    committed: int | None = None
    seconds: float = 0.0
    retriable: bool = False
    judged: bool = True


class Warming(NamedTuple):
    """How tasks are warmed.

    Attributes
    ----------
    run, parallelism
        Who does the pieces of work, and how many at a time.
    run_bytes
        Memory for a sorted run.
    progress
        Directory in which restores tell their progress.
    label
        Name of the run.
    acceptable_lag
        A store that has so many records of its changelog to read is ready.
    """

    run: Runner
    parallelism: int
    run_bytes: int
    progress: Path
    label: str
    acceptable_lag: int = ACCEPTABLE_LAG

    def restore(self, spec: StorePartitionSpec) -> RestoreSpec:
        """Return the request for one store."""
        return RestoreSpec(
            spec,
            RestoreRequest(mode="auto"),
            self.label,
            self.run_bytes,
            progress=self.progress,
            quarantine_s=0.0,
            publish=False,
            as_application=True,
            acceptable_lag=self.acceptable_lag,
        )


def choose_tasks(
    sizes: Mapping[TaskId, int],
    here: Collection[TaskId],
    named: Collection[TaskId],
    max_bytes: int | None = None,
    ordinal: int = 0,
) -> list[TaskId]:
    """Choose the tasks to warm: those that are here, those that are named, and others as long as all fit. Pure.

    If not all fit, pods begin at different tasks, so that they do not all leave out the same ones: the second begins
    in the middle, the third and fourth at a quarter and at three quarters, and so on.

    Parameters
    ----------
    sizes
        Of each task there is, in bytes.
    max_bytes
        Bound of all of them together; None: no others.
    ordinal
        Number of the pod, from 0.
    """
    chosen = {task for task in sizes if task in here or task in named}
    if max_bytes is not None:
        left = max_bytes - sum(sizes[task] for task in chosen)
        others = sorted(task for task in sizes if task not in chosen)
        first = int(_spread(ordinal) * len(others))
        for task in (*others[first:], *others[:first]):
            if sizes[task] <= left:
                chosen.add(task)
                left -= sizes[task]
    return sorted(chosen)


def _spread(number: int) -> float:
    """Return the binary digits of a number, mirrored behind the point: 0, 1/2, 1/4, 3/4, 1/8, ..."""
    spread, digit = 0.0, 0.5
    while number:
        spread += digit * (number & 1)
        number, digit = number >> 1, digit / 2
    return spread


def task_sizes(specs: Sequence[StorePartitionSpec]) -> dict[TaskId, int]:
    """Return how many bytes the stores of each task have here, or will have, estimated where they are not here.

    Raises
    ------
    KafkaUnavailableError, KafkaAccessError
        If a log does not tell.
    """
    sizes: dict[TaskId, int] = dict.fromkeys((spec.task for spec in specs), 0)
    points = restore_points(specs, look_at_files=False)
    for spec, point in zip(specs, points, strict=True):
        if spec.live.exists():
            sizes[spec.task] += size_of(spec.live)
        elif point is not None and point.usable:
            sizes[spec.task] += point.fetched
        elif spec.changelog is not None:
            sizes[spec.task] += estimated_bytes(spec, store_logs(spec))
    return sizes


def plan_warming(specs: Sequence[StorePartitionSpec], how: Warming) -> list[WarmRow]:
    """Return what is to be done with each store: the outcome `warmed` is still to come.

    Raises
    ------
    KafkaUnavailableError
        If Kafka cannot be asked: that says nothing about the stores.
    """
    groups = by_task(specs)
    pieces = [[how.restore(specs[at]) for at in group] for group in groups]
    return in_order(groups, how.run(pieces, _plan_task, list[WarmRow]))


def warm_stores(
    specs: Sequence[StorePartitionSpec], planned: Sequence[WarmRow], obstacles: Mapping[TaskId, str], how: Warming
) -> list[WarmRow]:
    """Warm the stores of tasks, and return what became of each.

    Parameters
    ----------
    planned
        As of `plan_warming`.
    obstacles
        Tasks that Kafka Streams would discard, and why.
    """
    why = dict(obstacles)
    for spec, row in zip(specs, planned, strict=True):
        if spec.exactly_once and row.outcome == "left" and not spec.live.exists():
            why.setdefault(spec.task, f"store {spec.store.name} is {row.before}: {row.detail}")
    rows = [_unless_obstructed(row, why.get(spec.task)) for spec, row in zip(specs, planned, strict=True)]
    wanted = [at for at, row in enumerate(rows) if row.outcome == "warmed"]
    for at, done in zip(wanted, _restored([how.restore(specs[at]) for at in wanted], how), strict=True):
        rows[at] = _warmed(done, rows[at])
    return [_with_task(row, spec, rows) for row, spec in zip(rows, specs, strict=True)]


def _unless_obstructed(row: WarmRow, obstacle: str | None) -> WarmRow:
    if obstacle is None:
        return row
    return row._replace(outcome="left", detail=f"the task is left to the application: {obstacle}")


def _plan_task(asked: Sequence[RestoreSpec]) -> list[WarmRow]:
    return list(map(_plan, asked))


def _plan(spec: RestoreSpec) -> WarmRow:
    store = spec.store
    try:
        with locked_task(store.paths, store.lock_wait_s, reading=True):
            verdict, need = _needed(spec)
    except (LockedError, InvalidStateError) as error:
        verdict, need = unobserved(error), Refusal(error)
    except OSError as error:
        raise of_os_error(error) from error
    row = WarmRow(store.application, store.store.name, str(store.task), "warmed", before=verdict.status.value)
    row = row._replace(committed=verdict.committed)
    if isinstance(need, Refusal):
        if isinstance(need.error, ArchiveUnavailableError | ArchiveAccessError):
            return row  # it is restored without the archive
        by_verdict = advised(verdict) in (Action.BY_HAND, Action.LATER)
        detail = verdict.detail if by_verdict else str(need.error)
        return row._replace(outcome="left", detail=detail, retriable=not verdict.observed)
    if need.kind == "nothing":
        left = f"{verdict.lag} offsets are left, which the application reads itself"
        return row._replace(outcome="ready", detail=left if verdict.catches_up else verdict.detail)
    if is_nowhere_else(store, verdict) and need.loss is not None:
        return row._replace(detail=f"{need.loss.why}: rows may be missing, as if the application restored it")
    return row


def _needed(spec: RestoreSpec) -> tuple[Verdict, Need | Refusal]:
    """Return the verdict on a store by its offsets, and what it needs; the caller holds the task's lock."""
    if (verdict := repartitioned(spec.store, None)) is not None:
        return verdict, Refusal(InputError(verdict.detail))
    return examine_needs(spec, spec.store, request_of(spec))


def _restored(specs: Sequence[RestoreSpec], how: Warming) -> list[RestoreRow]:
    """Restore stores; if the archive does not answer, from their logs, as the application would."""
    if not specs:
        return []
    rows = restore_many(cut_by_length(specs, how.parallelism), how.run, how.progress, how.parallelism)
    without = [at for at, row in enumerate(rows) if row.failure is not None and row.failure.kind in _NO_ARCHIVE]
    if without:
        for at in without:
            failure = rows[at].failure
            assert failure is not None
            _log.warning("warm: %s is built from its log alone: %s", rows[at].label, failure.message)
        left = [specs[at]._replace(store=specs[at].store.model_copy(update={"archive": None})) for at in without]
        again = restore_many(cut_by_length(left, how.parallelism), how.run, how.progress, how.parallelism)
        for at, row in zip(without, again, strict=True):
            rows[at] = row
    for spec, row in zip(specs, rows, strict=True):
        if row.failure is not None and row.failure.kind == DiskSpaceError.__name__:
            _give_back(spec.store)
    return rows


def _give_back(store: StorePartitionSpec) -> None:
    """Remove what was built of a store that did not fit: the application needs the room."""
    staging = Staging(store.paths, store.store.name)
    with suppress(StateStoreError, OSError), locked_task(store.paths, store.lock_wait_s), staging.alone(0.0):
        clear_built(store.paths)
        staging.clear()


def _warmed(row: RestoreRow, planned: WarmRow) -> WarmRow:
    failure = row.failure
    detail = planned.detail if row.mode == "full" else ""
    return WarmRow(
        row.application,
        row.store,
        row.task,
        "warmed" if row.outcome == "restored" else "ready" if failure is None else "failed",
        detail if failure is None else f"{failure.kind}: {failure.message}",
        None if row.before is None else row.before.value,
        row.mode,
        row.snapshot,
        row.records,
        row.keys,
        row.committed,
        row.seconds,
        failure is not None and failure.retriable,
    )


def _with_task(row: WarmRow, spec: StorePartitionSpec, rows: Sequence[WarmRow]) -> WarmRow:
    """Say of a store that was warmed if another one of its task could not be."""
    failed = [other.store for other in rows if other.task == row.task and other.outcome == "failed"]
    if row.outcome != "warmed" or not failed or not spec.exactly_once:
        return row
    return row._replace(detail=f"the application may discard it with the task: {', '.join(failed)} could not be warmed")
