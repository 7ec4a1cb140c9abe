"""The command `rewrite undo`: stores with the changelogs that they had before an overwrite or a transform."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statestore import clock
from statestore.cli import options, output
from statestore.cli.audit_command import audited
from statestore.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from statestore.cli.selection import PartitionSelection
    from statestore.partition.spec import StorePartitionSpec
    from statestore.rewrite.undo import Undone, UndoPlan


@options.with_target
def undo(
    asked: PartitionSelection,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Give up records that were processed or appended after the rewrite, and those that a former changelog "
            "has lost. No store contains them afterwards.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done. Change nothing.")] = False,
    yes: options.Yes = False,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Return stores to the changelogs that they had before a rewrite, and put the old stores back.

    A rewrite is an overwrite, a transform, or a restore to a point. The application must be stopped. All stores of a
    transform go back together. After a restore to a point, the group's offsets go back, too. If anything was
    processed or written after the rewrite, it would be lost: the command is refused unless you pass --accept-loss. The
    later changelogs and stores are kept.
    """
    from statestore.archive.archive import archive_spec
    from statestore.cli.selection import choose
    from statestore.discovery.partitions import tasks_of
    from statestore.metastore.adoption import adoption_hooks
    from statestore.rewrite.undo import UndoSpec
    from statestore.rewrite.undo import undo as undoing

    if len(asked.applications) != 1 or len(asked.stores) > 1 or asked.partitions:
        raise InputError("--application, --store: expected at most one of each. All partitions go back")
    if asked.definitions is not None or asked.service is None:
        raise InputError("--definitions: the catalogue names the changelogs, so the definition must be in it")
    options.require_writable(json=json)
    options.require_stores_here()
    topics = asked.where.cluster.topics
    where = archive_spec(archive, archive_timeout_s, topics)
    chosen = choose(replace(asked, archive=where, stores=()), topics, certain=True)
    chosen.require_free()
    if not chosen.defined or not chosen.specs:
        raise InputError(f"{asked.applications[0]} is not in the catalogue, or has no task yet: nothing was rewritten")
    (definition,) = chosen.defined
    name = asked.stores[0].partition(":")[0] if asked.stores else None
    if name is not None:
        definition.store(name)
    stores = [spec.model_copy(update={"archive": where}) for spec in chosen.specs]
    spec = UndoSpec(stores, name, accept_loss, run_bytes, clock.now_ms(), tasks_of(topics, definition))
    hooks = adoption_hooks(asked.service.metastore, definition.name, _no_suites)
    console = output.console(json)
    rows: list[Undone] = []
    with undoing(spec, hooks) as work:
        _show_plan(console, work.plan)
        if not dry_run:
            question = f"Go back to {', '.join(work.plan.topics.values())}?"
            output.require_yes(question, yes=yes, otherwise="nothing was changed")
            labels = [str(store.store_partition) for store, _ in work.plan.parts]
            audited(asked.reports_dir, "undo", [definition.name], labels, accepts_loss=accept_loss)
            rows = work.carry_out()
            _show_undone(console, rows)
        output.write_content(json, {"dry_run": dry_run, **_plan_content(work.plan), "rows": [*map(_content, rows)]})


def _no_suites(staged: Sequence[StorePartitionSpec]) -> None:
    """Judge nothing: the stores were in place before."""


def _show_plan(console: Console, plan: UndoPlan) -> None:
    from statestore.cli import tables

    if plan.finishes:
        output.say(console, "an interrupted attempt has already put the former changelogs into the catalogue")
    for later, former in plan.topics.items():
        output.say(console, f"{plan.undoes}: {later} -> {former}")
    found = ((str(store.store_partition), str(path or "")) for store, path in plan.parts)
    columns = ("store partition", "put back from (if empty: built from its changelog)")
    console.print(tables.table(tables.counted(len(plan.parts), "store partition"), columns, found))
    for where, count in plan.written.items():
        lost = f"{where} has {tables.counted(count, 'record')} from after the rewrite, which would be lost"
        output.say(console, f"{lost}; to accept that, add --accept-loss")
    for where, (now, then) in plan.offsets.items():
        since = ", and was processed since: to give that up, add --accept-loss" if where in plan.processed else ""
        output.say(console, f"{where}: the group goes from offset {now} back to {then}{since}")


def _show_undone(console: Console, rows: Sequence[Undone]) -> None:
    from statestore.cli import tables

    columns = ("store partition", "put back from", "later store moved to")
    found = (
        (str(row.store.store_partition), str(row.put_back or "its changelog"), str(row.quarantine or ""))
        for row in rows
    )
    console.print(tables.table(f"{len(rows)} store partitions went back", columns, found))


def _plan_content(plan: UndoPlan) -> dict[str, Any]:
    return {
        "undoes": plan.undoes,
        "topics": dict(plan.topics),
        "finishes": plan.finishes,
        "written": {str(where): count for where, count in plan.written.items()},
        "offsets": {str(where): [*found] for where, found in plan.offsets.items()},
        "processed": [str(where) for where in plan.processed],
        "plan": [{**_label(store), "put_back": path and str(path)} for store, path in plan.parts],
    }


def _content(row: Undone) -> dict[str, Any]:
    put_back, quarantine = (None if path is None else str(path) for path in (row.put_back, row.quarantine))
    return {**_label(row.store), "put_back": put_back, "quarantine": quarantine}


def _label(store: StorePartitionSpec) -> dict[str, str]:
    return {"application": store.application, "store": store.store.name, "task": str(store.task)}
