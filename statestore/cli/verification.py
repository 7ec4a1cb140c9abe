"""Verifies store partitions for `verify` in separate processes, and reports stores that cannot be verified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from statestore.verification.global_stores import verify_global
from statestore.verification.live.verify import verify_live, with_live
from statestore.verification.options import VerifyOptions
from statestore.verification.restore_points import with_restore_points

#: Store partitions that are verified together by their offsets alone: with one client, and few requests.
_TOGETHER = 500
_NO_TASKS: Mapping[tuple[str, int], int] = {}


class _Piece(NamedTuple):
    specs: Sequence[StorePartitionSpec]
    options: VerifyOptions
    tasks: Mapping[tuple[str, int], int]
    live: bool
    falls_back: bool


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
    """Verify store partitions, global ones too, and return a row for each in the order of the specs.

    Parameters
    ----------
    done
        Called with the number of store partitions that were verified since the last call.
    tasks
        How many tasks there are, by application and subtopology, where that is known.
    live
        Verify all of them without their locks; those whose home is the archive are verified there.
    falls_back
        Verify those that are locked without their locks.
    """
    groups = by_task(specs)
    if options.depth == "offsets":
        groups = [list(range(at, min(at + _TOGETHER, len(specs)))) for at in range(0, len(specs), _TOGETHER)]
    pieces = [_Piece([specs[at] for at in group], options, tasks, live, falls_back) for group in groups]
    return in_order(groups, run_each(pieces, _verify, processes, lambda rows: done(len(rows))))


def _verify(piece: _Piece) -> list[VerifyRow]:
    if piece.falls_back:  # a running Kafka Streams keeps its lock
        waiting = [
            spec.model_copy(update={"lock_wait_s": 0.0}) if spec.origin.keeps_its_lock else spec for spec in piece.specs
        ]
        piece = piece._replace(specs=waiting)
    if piece.live:
        return verify_live(piece.specs, piece.options, lambda there: _verify(piece._replace(specs=there, live=False)))
    of_tasks = iter(verify_many([spec for spec in piece.specs if not spec.is_global], piece.options, piece.tasks))
    rows = [verify_global(spec, piece.options) if spec.is_global else next(of_tasks) for spec in piece.specs]
    rows = with_live(piece.specs, rows, piece.options) if piece.falls_back else rows
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
