"""The command `rewrite transform`: rows of stores as a function of the user makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statestore import clock
from statestore.cli import options, output
from statestore.cli.audit_command import audited
from statestore.errors import InputError
from statestore.model import StoreFormat

if TYPE_CHECKING:
    from rich.console import Console

    from statestore.archive.archive import ArchiveSpec
    from statestore.cli.selection import Chosen, PartitionSelection
    from statestore.config import Settings
    from statestore.definitions.application import ApplicationDefinition
    from statestore.partition.spec import StorePartitionSpec
    from statestore.rewrite.staged_stores import Rewritten
    from statestore.rewrite.transform import TransformPlan


@options.with_target
def transform(
    asked: PartitionSelection,
    parallel: options.Parallel,
    function: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Function that takes a statestore.rewrite.user_rows.Row, and returns one row, several, or None to "
            "delete the row.",
        ),
    ],
    store_format: Annotated[
        StoreFormat | None, typer.Option("--format", help="New format of the stores. Default: their current one.")
    ] = None,
    as_bytes: Annotated[
        bool,
        typer.Option(
            "--bytes", help="Pass keys and values to the function as bytes, not as the store's serdes decode them."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Call the function for all rows. Show what would be done; change nothing.")
    ] = False,
    yes: options.Yes = False,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    data_docs_dir: options.DataDocsDir = None,
    json: options.Json = None,
) -> None:
    """Replace the rows of stores with those that your function returns. Can also change the format of stores.

    The application must be in the catalogue, be stopped, and have processed all of its input. New changelogs are
    written. New stores are built from them, compared, validated against their suites, and swapped in. The old
    changelogs are kept.
    """
    from statestore.archive.archive import archive_spec
    from statestore.cli import local_processes as local
    from statestore.cli.selection import choose
    from statestore.metastore.adoption import adoption_hooks
    from statestore.rewrite.row_stage import writes_of
    from statestore.rewrite.staged_validation import require_valid
    from statestore.rewrite.transform import TransformSpec
    from statestore.rewrite.transform import transform as transforming

    if len(asked.applications) != 1 or asked.partitions:
        raise InputError("--application: expected one. All partitions of its stores are rewritten")
    if asked.definitions is not None or asked.service is None:
        raise InputError("--definitions: the catalogue must know the new changelogs, so the definition must be in it")
    options.require_writable(json=json)
    options.require_stores_here()
    settings = suite_settings(asked, data_docs_dir)
    topics = asked.where.cluster.topics
    where = archive_spec(archive, archive_timeout_s, topics)
    chosen = choose(replace(asked, archive=where), topics, certain=True)
    definition, stores = catalogued_stores(chosen, where)
    started_ms = clock.now_ms()

    def judge(staged: Sequence[StorePartitionSpec]) -> None:
        first = staged[0]
        directory = writes_of(first.state_dir, first.application, first.store.name)
        require_valid(definition, staged, settings, f"transform-{started_ms}", directory)

    spec = TransformSpec(
        stores=stores,
        format=store_format,
        function=function,
        as_bytes=as_bytes,
        inputs=[part.input_topic for part in definition.subtopologies],
        run_bytes=run_bytes,
        started_ms=started_ms,
    )
    hooks = adoption_hooks(asked.service.metastore, definition.name, judge)
    console = output.console(json)
    rows: list[Rewritten] = []
    with transforming(spec, hooks, local.runner(parallel)) as work:
        _show_plan(console, work.plan)
        if not dry_run:
            names = ", ".join(sorted({store.store.name for store in stores}))
            question = f"Replace the stores {names} of {definition.name}?"
            output.require_yes(question, yes=yes, otherwise="nothing was changed")
            audited(asked.reports_dir, "rewrite", [definition.name], [str(store.store_partition) for store in stores])
            rows = work.carry_out()
            show_rewritten(console, rows)
        output.write_content(json, {"dry_run": dry_run, **_plan_content(work.plan), "rows": [*map(rewritten, rows)]})


def suite_settings(asked: PartitionSelection, data_docs_dir: str | None) -> Settings:
    """Return the settings for the validation of new stores."""
    from statestore.config import load_settings
    from statestore.objects.path import location

    if asked.reports_dir is None:
        raise InputError(
            "--reports-dir: required, because the stores have suites. Reports and Data Docs are written there"
        )
    reports = asked.reports_dir.absolute()
    return load_settings(
        bootstrap_servers=asked.where.cluster.servers,
        state_dir=asked.where.state_dir.absolute(),
        reports_dir=reports,
        data_docs_dir=reports.parent / "data-docs" if data_docs_dir is None else location(data_docs_dir).absolute(),
        kafka_timeout_s=asked.where.cluster.timeout_s,
    )


def catalogued_stores(
    chosen: Chosen, where: ArchiveSpec | None
) -> tuple[ApplicationDefinition, list[StorePartitionSpec]]:
    """Return the definition and the store partitions of the selected application, which must be in the catalogue."""
    chosen.require_free()
    chosen.require_known()
    if not chosen.defined:
        raise InputError(
            f"{', '.join(chosen.applications)} is not in the catalogue, so it would not learn the names of the new "
            "changelogs: Kafka Streams looks for the old names. Apply a definition of it first"
        )
    (definition,) = chosen.defined
    names = {store.name for store in definition.stores if not chosen.named or store.name in chosen.named}
    found = [spec.model_copy(update={"archive": where}) for spec in chosen.specs if spec.store.name in names]
    if missing := sorted(names - {spec.store.name for spec in found}):
        raise InputError(
            f"{', '.join(missing)}: kept in memory, or there is no task yet. Name the other stores with --store"
        )
    return definition, found


def rewritten(row: Rewritten) -> dict[str, Any]:
    """Return what became of a store partition, for JSON."""
    return {
        "application": row.store.application,
        "store": row.store.store.name,
        "task": str(row.store.task),
        "rows": row.rows,
        "committed": row.committed,
        "quarantine": None if row.quarantine is None else str(row.quarantine),
        "published": None if row.published is None else row.published.model_dump(mode="json"),
    }


def _show_plan(console: Console, plan: TransformPlan) -> None:
    from statestore.cli import tables

    if plan.finishes:
        output.say(
            console,
            "the catalogue has the changelogs of an interrupted attempt: its stores are put in place, "
            f"and {plan.function} is not called",
        )
        return
    columns = ("store partition", "rows>", "new rows>", "changed>", "deleted>", "added>", "expired>", "bytes>")
    found = (
        (
            str(store.store_partition),
            *(part.before, part.rows, part.changed, part.deleted, part.added, part.expired, part.bytes),
        )
        for store, part in plan.parts
    )
    console.print(tables.table(f"{len(plan.parts)} store partitions", columns, found))
    for name, (before, after) in plan.formats.items():
        if before != after:
            output.say(console, f"{name} changes from format {before} to {after}: change its definition as well")
    output.say_cost(console, plan, " and the time of the suites")


def show_rewritten(console: Console, rows: Sequence[Rewritten]) -> None:
    """Print what became of store partitions."""
    from statestore.cli import tables

    columns = ("store partition", "rows>", "committed>", "old store moved to", "snapshot")
    found = (
        (str(row.store.store_partition), row.rows, row.committed, str(row.quarantine or ""), _snapshot(row))
        for row in rows
    )
    console.print(tables.table(f"{len(rows)} store partitions replaced", columns, found))


def _snapshot(row: Rewritten) -> str:
    if row.published is None:
        return ""
    failure = row.published.failure
    return row.published.snapshot or "" if failure is None else f"{failure.kind}: {failure.message}"


def _plan_content(plan: TransformPlan) -> dict[str, Any]:
    return {
        "function": plan.function,
        "finishes": plan.finishes,
        "formats": {name: [*formats] for name, formats in plan.formats.items()},
        "seconds": plan.seconds,
        "disk_needed": plan.disk_needed,
        "disk_free": plan.disk_free,
        "plan": [
            {
                "application": store.application,
                "store": store.store.name,
                "task": str(store.task),
                **part.model_dump(exclude={"directory"}),
            }
            for store, part in plan.parts
        ],
    }
