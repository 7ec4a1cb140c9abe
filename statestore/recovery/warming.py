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

from statestore.errors import ArchiveAccessError, ArchiveUnavailableError, DiskSpaceError, StateStoreError
from statestore.model import TaskId
from statestore.partition.replacement import clear_built
from statestore.partition.restore_points import restore_points
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.disk_space import estimated_bytes
from statestore.recovery.full import store_logs
from statestore.recovery.many import cut_by_length, restore_many
from statestore.recovery.runner import Runner
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import Staging
from statestore.recovery.task_cleanup import size_of
from statestore.reports import Action, RestoreRow, Status, VerifyRow
from statestore.requests.restore import RestoreRequest
from statestore.statedir.swap import locked_task
from statestore.stores.rocksdb import exists

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
    """

    run: Runner
    parallelism: int
    run_bytes: int
    progress: Path
    label: str


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


def warm_stores(
    specs: Sequence[StorePartitionSpec],
    found: Sequence[VerifyRow],
    obstacles: Mapping[TaskId, str],
    how: Warming,
    acceptable_lag: int = ACCEPTABLE_LAG,
) -> list[WarmRow]:
    """Warm the stores of tasks, and say what became of each.

    Parameters
    ----------
    found
        What a verification of each has found, of any depth.
    obstacles
        Tasks that Kafka Streams would discard, and why.
    acceptable_lag
        A store that has so many records of its changelog to read is ready.
    """
    why = dict(obstacles)
    for spec, row in zip(specs, found, strict=True):
        if spec.exactly_once and not spec.live.exists() and _is_left(row):
            why.setdefault(spec.task, f"store {spec.store.name} is {row.status}: {row.detail}")
    rows: list[WarmRow | None] = []
    asked: list[RestoreSpec] = []
    for spec, row in zip(specs, found, strict=True):
        judged = _judged(spec, row, why.get(spec.task), acceptable_lag)
        rows.append(judged)
        if judged is None:
            request = RestoreRequest(mode="auto", accept_loss=_is_nowhere_else(row))
            asked.append(
                RestoreSpec(
                    spec,
                    request,
                    how.label,
                    how.run_bytes,
                    progress=how.progress,
                    quarantine_s=0.0,
                    publish=False,
                    may_begin_generation=False,
                )
            )
    restored = iter(_restored(asked, how))
    done = [_warmed(next(restored), looked) if row is None else row for row, looked in zip(rows, found, strict=True)]
    return [_with_task(row, spec, done) for row, spec in zip(done, specs, strict=True)]


def _judged(spec: StorePartitionSpec, found: VerifyRow, obstacle: str | None, acceptable_lag: int) -> WarmRow | None:
    """Say why a store is not restored; None: it is."""
    row = WarmRow(spec.application, spec.store.name, str(spec.task), "ready", found.detail, found.status.value)
    row = row._replace(committed=found.committed)
    if obstacle is not None:
        detail = f"the task is left to the application: {obstacle}"
        return row._replace(outcome="left", detail=detail, retriable=found.action is Action.LATER)
    if _is_left(found):
        return row._replace(outcome="left", retriable=found.action is Action.LATER)
    if spec.origin.makes_empty_stores and found.status is Status.EMPTY and not _has_database(spec):
        return None
    if found.action is Action.NONE:
        return row
    if found.action is Action.TAIL and found.lag is not None and found.lag <= acceptable_lag:
        return row._replace(detail=f"{found.lag} offsets are left, which the application reads itself")
    return None


def _has_database(spec: StorePartitionSpec) -> bool:
    return any(map(exists, spec.store.store_kind.databases(spec.live)))


def _is_left(found: VerifyRow) -> bool:
    """Return whether a store needs a decision, or cannot be looked at yet."""
    return found.action is Action.LATER or (found.action is Action.BY_HAND and not _is_nowhere_else(found))


def _is_nowhere_else(found: VerifyRow) -> bool:
    """True if this machine has nothing of a store, and its log has lost its start.

    The application itself would begin with the rest of the log, and no copy here is replaced.
    """
    nothing_here = found.committed is None and found.status in (Status.MISSING, Status.TRUNCATED)
    return nothing_here and found.waits_for_loss and found.loss_cause is Status.TRUNCATED


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


def _warmed(row: RestoreRow, found: VerifyRow) -> WarmRow:
    failure = row.failure
    lacks = f"{found.loss_detail}: rows may be missing, as if the application restored it"
    detail = lacks if row.mode == "full" and _is_nowhere_else(found) else ""
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
