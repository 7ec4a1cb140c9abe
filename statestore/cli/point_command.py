"""The option `--to` of `restore`: all stores of an application and its input offsets, as they were at a point."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from statestore import clock
from statestore.cli import options, output
from statestore.cli.audit_command import audited
from statestore.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from statestore.archive.archive import ArchiveSpec
    from statestore.cli.selection import PartitionSelection
    from statestore.definitions.application import ApplicationDefinition
    from statestore.kafka.topics import Topics
    from statestore.partition.spec import StorePartitionSpec
    from statestore.rewrite.point_restore import Point, PointPlan
    from statestore.rewrite.staged_stores import Rewritten

_SET = re.compile("[0-9a-f]{32}")


class PointAsked(NamedTuple):
    """Requested point, as a time or the name of a set of snapshots, and what to do."""

    to: str
    archive: ArchiveSpec | None
    started_ms: int
    dry_run: bool
    yes: bool
    json: Path | None


def put_back(asked: PartitionSelection, point: PointAsked, parallel: int, run_bytes: int) -> None:
    """Restore an application to a point, or show what that would do."""
    from statestore.cli import local_processes as local
    from statestore.cli.selection import choose
    from statestore.cli.transform_command import catalogued_stores, rewritten, show_rewritten, suite_settings
    from statestore.discovery.partitions import tasks_of
    from statestore.metastore.adoption import adoption_hooks
    from statestore.rewrite.point_restore import PointSpec, require_restorable, restore_to_point
    from statestore.rewrite.row_stage import writes_of
    from statestore.rewrite.staged_validation import require_valid

    if len(asked.applications) != 1 or asked.partitions or asked.stores:
        raise InputError("--to: expected one --application. All partitions of all its stores are put back")
    if asked.definitions is not None or asked.service is None:
        raise InputError("--definitions: the catalogue must know the new changelogs, so the definition must be in it")
    options.require_writable(json=point.json)
    options.require_stores_here("Only stores in a shared state directory can be put back to a point")
    settings = suite_settings(asked, None)
    topics = asked.where.cluster.topics
    chosen = choose(replace(asked, archive=point.archive), topics, certain=True)
    definition, stores = catalogued_stores(chosen, point.archive)
    require_restorable(definition, stores)
    at_ms = _time(point.to)

    def judge(staged: Sequence[StorePartitionSpec]) -> None:
        first = staged[0]
        directory = writes_of(first.state_dir, first.application, first.store.name)
        require_valid(definition, staged, settings, f"point-{point.started_ms}", directory)

    console = output.console(point.json)
    rows: list[Rewritten] = []
    with ExitStack() as held:
        spec = PointSpec(
            definition=definition,
            name=f"set {point.to}" if at_ms is None else f"time {clock.iso(at_ms)}",
            find=lambda scratch: found_point(held, topics, definition, stores, point, scratch, run_bytes),
            stores=stores,
            tasks=tasks_of(topics, definition),
            run_bytes=run_bytes,
            started_ms=point.started_ms,
        )
        hooks = adoption_hooks(asked.service.metastore, definition.name, judge)
        with restore_to_point(spec, hooks, local.runner(parallel)) as work:
            _show_plan(console, work.plan)
            if not point.dry_run:
                question = f"Put {definition.name} back to {work.plan.point}?"
                output.require_yes(question, yes=point.yes, otherwise="nothing was changed")
                labels = [str(store.store_partition) for store in stores]
                audited(asked.reports_dir, "restore", [definition.name], labels)
                rows = work.carry_out()
                show_rewritten(console, rows)
            content = {"dry_run": point.dry_run, **_plan_content(work.plan), "rows": [*map(rewritten, rows)]}
            output.write_content(point.json, content)


def _time(text: str) -> int | None:
    """Return a time in ms; None if the text is the name of a set."""
    if _SET.fullmatch(text):
        return None
    try:
        return clock.ms_of(text)
    except ValueError as error:
        raise InputError(
            f"--to: expected a time in ISO 8601 or ms, such as 2026-01-31T12:00:00+00:00, or the name of a set of "
            f"snapshots (`statestore snapshot list --sets`), found {text!r}"
        ) from error


def found_point(
    held: ExitStack,
    topics: Topics,
    definition: ApplicationDefinition,
    stores: Sequence[StorePartitionSpec],
    point: PointAsked,
    scratch: Path,
    run_bytes: int,
) -> Point:
    """Find the cut; its stores are in scratch space until `held` is closed, or built there later."""
    from statestore.rewrite.cut import fetched_stores, find_cut
    from statestore.rewrite.point_cut import cut_at
    from statestore.rewrite.point_restore import Point, point_of_set, stores_at

    if (at_ms := _time(point.to)) is not None:
        cut = cut_at(topics, definition, stores, at_ms)
        return Point(stores_at(cut, stores, scratch, run_bytes), cut.offsets)
    archive = stores[0].snapshot_archive
    of_set = find_cut(archive, definition.name, point.to)
    fetched = held.enter_context(fetched_stores(archive, of_set, stores, scratch))
    return point_of_set(topics, of_set, fetched, stores)


def _show_plan(console: Console, plan: PointPlan) -> None:
    from statestore.cli import tables

    if plan.finishes:
        output.say(console, f"an interrupted restore to {plan.point} is finished, and nothing else is done")
    elif plan.parts:
        columns = ("store partition", "rows>", "bytes>")
        found = ((str(store.store_partition), part.rows, part.bytes) for store, part in plan.parts)
        console.print(tables.table(f"{plan.point}: {len(plan.parts)} store partitions", columns, found))
    for where, (now, then) in plan.offsets.items():
        again = "is processed again" if now is not None and now > then else "nothing is processed again"
        output.say(console, f"{where}: the group goes from offset {now} to {then}; the input between {again}")
    for where, end in plan.outputs.items():
        output.say(console, f"{where}: all records before offset {end} stay; results of repeated input follow them")
    if not plan.finishes:
        output.say_cost(console, plan, " and the time of the suites")


def _plan_content(plan: PointPlan) -> dict[str, Any]:
    return {
        "point": plan.point,
        "finishes": plan.finishes,
        "offsets": {str(where): [*found] for where, found in plan.offsets.items()},
        "outputs": {str(where): end for where, end in plan.outputs.items()},
        "seconds": plan.seconds,
        "disk_needed": plan.disk_needed,
        "disk_free": plan.disk_free,
        "plan": [
            {
                "application": store.application,
                "store": store.store.name,
                "task": str(store.task),
                "rows": part.rows,
                "bytes": part.bytes,
            }
            for store, part in plan.parts
        ],
    }
