"""Verifies store partitions for `verify` in separate processes, and reports stores that cannot be verified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from statestore.advice import Situation, advice
from statestore.cli.local_processes import run_each
from statestore.cli.selection import Chosen
from statestore.discovery.store import DiscoveredStore
from statestore.errors import NotJudgedError, RetryError
from statestore.kafka.topics import Topics
from statestore.model import TopicPartition
from statestore.partition.grouping import by_task, in_order
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Action, Status, VerifyRow
from statestore.verification.acknowledged import as_acknowledged
from statestore.verification.check import undetermined, verify_many
from statestore.verification.live.pace import lowest_priority
from statestore.verification.live.verify import of_locked, verify_live, with_live
from statestore.verification.options import VerifyOptions
from statestore.verification.restore_points import with_restore_points

#: Store partitions that are verified together by their offsets alone: with one client, and few requests.
_TOGETHER = 500
_NO_TASKS: Mapping[tuple[str, int], int] = {}


class Piece(NamedTuple):
    """Store partitions that one process verifies.

    Attributes
    ----------
    tasks
        Number of tasks by application and subtopology, where it is known.
    live
        Verify them without their locks.
    locked
        Their rows, if an earlier attempt found some of them locked: only these are verified, without their locks.
    """

    specs: Sequence[StorePartitionSpec]
    options: VerifyOptions
    tasks: Mapping[tuple[str, int], int] = _NO_TASKS
    live: bool = False
    locked: Sequence[VerifyRow] | None = None


#: Verifies pieces in parallel, each with the function, and returns their rows in the order of the pieces.
Runner = Callable[[Sequence[Piece], Callable[[Piece], list[VerifyRow]]], Sequence[Sequence[VerifyRow]]]


def verify_all(
    specs: Sequence[StorePartitionSpec],
    options: VerifyOptions,
    processes: int = 1,
    done: Callable[[int], None] = lambda _: None,
    *,
    tasks: Mapping[tuple[str, int], int] = _NO_TASKS,
    live: bool = False,
    falls_back: bool = False,
) -> list[VerifyRow]:
    """Verify store partitions in processes of this machine; see `verify_with`.

    Parameters
    ----------
    done
        Called with the number of store partitions that were verified since the last call.
    """

    def run(pieces: Sequence[Piece], work: Callable[[Piece], list[VerifyRow]]) -> list[list[VerifyRow]]:
        return run_each(pieces, work, processes, lambda rows: done(len(rows)))

    locked_options = of_locked(options) if falls_back else None
    return verify_with(run, specs, options, tasks=tasks, live=live, locked_options=locked_options)


def verify_with(
    run: Runner,
    specs: Sequence[StorePartitionSpec],
    options: VerifyOptions,
    *,
    tasks: Mapping[tuple[str, int], int] = _NO_TASKS,
    live: bool = False,
    locked_options: VerifyOptions | None = None,
) -> list[VerifyRow]:
    """Verify store partitions, global ones too, and return a row for each in the order of the specs.

    Parameters
    ----------
    tasks
        Number of tasks by application and subtopology, where it is known.
    live
        Verify all of them without their locks; those whose home is the archive are verified there.
    locked_options
        How to verify those that are locked, without their locks and with the lowest priority; None: they stay
        `LOCKED`.
    """
    if locked_options is not None:  # a running Kafka Streams keeps its lock
        specs = [spec.model_copy(update={"lock_wait_s": 0.0}) if spec.origin.keeps_its_lock else spec for spec in specs]
    groups = by_task(specs)
    if options.depth == "offsets":
        groups = [list(range(at, min(at + _TOGETHER, len(specs)))) for at in range(0, len(specs), _TOGETHER)]
    pieces = [Piece([specs[at] for at in group], options, tasks, live) for group in groups]
    rows = in_order(groups, run(pieces, verify_piece))
    locked = [at for at, row in enumerate(rows) if row.status is Status.LOCKED and not row.live]
    if locked_options is None or not locked:
        return rows
    groups = [[locked[at] for at in group] for group in by_task([specs[at] for at in locked])]
    pieces = [
        Piece([specs[at] for at in group], locked_options, tasks, locked=[rows[at] for at in group]) for group in groups
    ]
    for group, found in zip(groups, run(pieces, verify_piece), strict=True):
        for at, row in zip(group, found, strict=True):
            rows[at] = row
    return rows


def verify_piece(piece: Piece) -> list[VerifyRow]:
    """Verify store partitions, and add their restore points."""
    if piece.locked is not None:
        with lowest_priority():
            rows = with_live(piece.specs, piece.locked, piece.options)
    elif piece.live:
        with lowest_priority():
            closed = partial(verify_many, options=piece.options, tasks=piece.tasks)
            rows = verify_live(piece.specs, piece.options, closed, piece.tasks)
    else:
        rows = verify_many(piece.specs, piece.options, piece.tasks)
    return with_restore_points(piece.specs, rows, piece.options.depth)


def rows_without_work(chosen: Chosen, topics: Topics) -> list[VerifyRow]:
    """Return rows of stores that were not verified: their applications failed, or they are in use, unknown, or gone."""
    rows = [undetermined(found) for found in chosen.failures()]
    unknown = Status.UNKNOWN_FORMAT, Action.BY_HAND
    outcomes = {
        "in use": (Status.LOCKED, Action.LATER),
        "unknown": unknown,
        "needed": unknown,
        "damaged": (Status.CORRUPT, Action.BY_HAND),
        "stale": (Status.STALE, Action.NONE),
        "undetermined": (Status.UNDETERMINED, Action.BY_HAND),
    }
    for trouble, (status, action) in outcomes.items():
        for store in chosen.troubled(trouble):
            names = [str(task) for task in store.tasks] or ["-"]
            rows += [_row(store, task, status, action) for task in names]
    for store in chosen.acknowledged:
        if store.trouble != "missing":
            rows += [_row(store, str(task), *unknown) for task in (store.tasks or ["-"])]
    for store in [found for found in chosen.discovered if found.trouble == "missing"]:
        assert store.changelog is not None, "only its topic is known"
        partitions = [TopicPartition(store.changelog.topic, at) for at in range(store.changelog.partitions or 0)]
        for partition, log in topics.log_ranges(partitions).items():
            task = f"?_{partition.partition}"  # which sub-topology it is of, no topic tells
            row = _row(store, task, Status.MISSING, Action.BY_HAND)
            expires = store.changelog.deleted_after_ms is not None
            if log.start == log.last_stable and (log.start == 0 or expires):
                empty = "it has no directory, and its changelog has no records"
                row = row.model_copy(update={"status": Status.EMPTY, "action": Action.NONE, "detail": empty})
            rows.append(row.model_copy(update={"start": log.start, "end": log.last_stable}))
    return rows


def exit_code(rows: Sequence[VerifyRow]) -> int:
    """Exit code of a verification: 0 no damage, 1 damage, 6 some could not be judged, 3 some could not be looked at."""
    found = [row for row in rows if not row.healthy and row.action is not Action.NONE]
    if any(row.action is not Action.LATER for row in found if row.judged):
        return 1
    if not all(row.judged for row in found):
        return NotJudgedError.exit_code
    return RetryError.exit_code if found else 0


def _row(store: DiscoveredStore, task: str, status: Status, action: Action) -> VerifyRow:
    unknown = status is Status.UNKNOWN_FORMAT
    found = VerifyRow(
        application=store.application,
        store=store.name,
        task=task,
        status=status,
        action=action,
        advice=advice(Situation.UNKNOWN_FORMAT if unknown else Situation.MANUAL),
        detail=store.problem,
    )
    return found if not store.acknowledged else as_acknowledged(found, store.acknowledged)
