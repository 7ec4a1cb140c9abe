"""The command group `rewrite`: state as a table that is written anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statestore import clock
from statestore.cli import options, output
from statestore.cli.audit_command import audited
from statestore.cli.clone_command import clone
from statestore.cli.options import Partitioner
from statestore.cli.repartition_tables import made, repartition_content, show_repartition
from statestore.cli.transform_command import rewritten, show_rewritten, transform
from statestore.cli.undo_command import undo
from statestore.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from statestore.cli.selection import Chosen, PartitionSelection
    from statestore.kafka.topics import Topic
    from statestore.partition.spec import StorePartitionSpec
    from statestore.rewrite.repartition_plan import MadeStore
    from statestore.rewrite.reseed import ReseedPlan
    from statestore.rewrite.staged_stores import Rewritten

app = typer.Typer(help="Recreate, change, or copy the state of an application.", no_args_is_help=True)


class ReadsFrom(StrEnum):
    """Where an application begins in a topic of its own."""

    START = "start"
    END = "end"


@app.callback()
def rewrite() -> None:
    """Recreate, change, or copy the state of an application."""


app.command()(transform)
app.command()(clone)
app.command()(undo)


@app.command()
@options.with_target
def reseed(
    asked: PartitionSelection,
    tasks: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of tasks of the store, if its changelog does not exist and no definition specifies the "
            "number.",
        ),
    ] = None,
    partitioner: Annotated[
        Partitioner,
        typer.Option(
            help="kafka: refuse keys that Kafka's partitioner would put elsewhere; any: the application has its own."
        ),
    ] = Partitioner.KAFKA,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done. Change nothing.")] = False,
    yes: options.Yes = False,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Recreate the lost changelog of a store from the store, which is the last copy of the state.

    The application must be stopped, and all partitions of the store must be on this machine. The changelog must not
    exist, or must be empty. Stores are restored from the new changelog, compared with the live ones, and swapped in.
    """
    from statestore.archive.archive import archive_spec
    from statestore.cli.selection import choose
    from statestore.rewrite.reseed import ReseedSpec
    from statestore.rewrite.reseed import reseed as reseeding

    if len(asked.stores) != 1 or len(asked.applications) != 1 or asked.partitions:
        raise InputError("--application, --store: name one of each; all partitions of the store are rewritten")
    if asked.definitions is not None:
        raise InputError("--definitions: the catalogue must know the new changelog, so the definition must be in it")
    options.require_writable(json=json)
    options.require_stores_here()
    topics = asked.where.cluster.topics
    where = archive_spec(archive, archive_timeout_s, topics)
    chosen = choose(replace(asked, archive=where), topics, certain=True)
    stores = _stores(chosen, asked.stores[0].partition(":")[0])
    stores = [store.model_copy(update={"archive": where}) for store in stores]
    recorded, adopt = _catalogue(asked, chosen, stores[0].partition.topic)
    if chosen.defined and tasks not in (None, len(stores)):
        raise InputError(f"--tasks: expected {len(stores)}, as in the definition, found {tasks}. Leave it out")
    count = len(stores) if chosen.defined else tasks
    spec = ReseedSpec(
        stores, count, partitioner is Partitioner.ANY, recorded, run_bytes=run_bytes, started_ms=clock.now_ms()
    )
    console = output.console(json)
    rows: list[Rewritten] = []
    with reseeding(spec) as work:
        _show_plan(console, work.plan)
        if not dry_run:
            question = f"Recreate {work.plan.topic}, and replace its stores with those restored from it?"
            output.require_yes(question, yes=yes, otherwise="nothing was written")
            audited(asked.reports_dir, "rewrite", asked.applications, [str(store.store_partition) for store in stores])
            rows = work.carry_out(adopt)
            show_rewritten(console, rows)
        output.write_content(json, {"dry_run": dry_run, **_plan_content(work.plan), "rows": [*map(rewritten, rows)]})


@app.command()
@options.with_target
def repartition(
    asked: PartitionSelection,
    parallel: options.Parallel,
    to: Annotated[str, typer.Option(metavar="APPLICATION", help="application.id of the new application.")],
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Number of partitions of the new changelogs. Default: that of the definition."),
    ] = None,
    renamed: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="TOPIC=TOPIC",
            help="The new application reads the second topic instead of the first. May be repeated. Default: the "
            "definition's.",
        ),
    ] = None,
    reads_from: Annotated[
        ReadsFrom | None,
        typer.Option(
            help="Where the new application starts in a new input topic that has records: at its end if the state "
            "includes them, or at its start."
        ),
    ] = None,
    partitioner: Annotated[
        Partitioner,
        typer.Option(
            help="kafka: rows go where Kafka's partitioner puts their keys; any: they stay in their partition."
        ),
    ] = Partitioner.KAFKA,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done. Change nothing.")] = False,
    yes: options.Yes = False,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Create an application from the state of another one, with a different number of partitions.

    The first application must be stopped and have processed all of its input, and all of its stores must be on this
    machine. The first application is only read. The new one gets changelogs, stores, and group offsets, and
    continues where the first one ended.
    """
    from statestore.archive.archive import archive_spec
    from statestore.cli import local_processes as local
    from statestore.cli.repartition_selection import repartition_spec
    from statestore.cli.selection import choose
    from statestore.rewrite.repartition import repartition as repartitioning

    if len(asked.applications) != 1 or asked.partitions:
        raise InputError("--application: expected one. All partitions of all its stores are included")
    if asked.definitions is not None:
        raise InputError("--definitions: the catalogue must know the new changelogs, so the definitions must be in it")
    options.require_writable(json=json)
    options.require_stores_here()
    topics = asked.where.cluster.topics
    where = archive_spec(archive, archive_timeout_s, topics)
    chosen = choose(replace(asked, archive=where), topics, certain=True)
    chosen.require_free()
    spec, adopt = repartition_spec(
        asked,
        chosen,
        topics,
        to=to,
        partitions=partitions,
        renamed=renamed or (),
        reads_from=None if reads_from is None else reads_from.value,
        any_partitioner=partitioner is Partitioner.ANY,
        archive=where,
        run_bytes=run_bytes,
        parallelism=parallel,
    )
    console = output.console(json)
    rows: list[MadeStore] = []
    with repartitioning(spec, local.runner(parallel)) as work:
        show_repartition(console, work.plan)
        if not dry_run:
            question = f"Create {to} from the state of {work.plan.source}?"
            output.require_yes(question, yes=yes, otherwise="nothing was written")
            audited(asked.reports_dir, "rewrite", [*asked.applications, to])
            rows = work.carry_out(adopt)
            created = f": {len(rows)} store partitions were created" if rows else ""
            output.say(console, f"{to} is complete{created}")
        output.write_content(json, {"dry_run": dry_run, **repartition_content(work.plan), "rows": [*map(made, rows)]})


def _stores(chosen: Chosen, name: str) -> list[StorePartitionSpec]:
    chosen.require_free()
    chosen.require_known()
    found = [spec for spec in chosen.specs if spec.store.name == name]
    if not found:
        problems = [f"{store.label}: {store.problem}" for store in chosen.discovered if store.name == name]
        raise InputError("; ".join(problems) or f"store {name} is kept in memory, or its application has no task yet")
    return found


def _catalogue(asked: PartitionSelection, chosen: Chosen, changelog: str) -> tuple[str | None, Callable[[Topic], None]]:
    """Return the id of the changelog in the catalogue, and what has the catalogue know another one."""
    from statestore.metastore.effects import record_topics

    service = asked.service
    if not chosen.defined or service is None:
        return None, lambda topic: None
    (application,) = chosen.applications
    entry = service.certain_view().catalogue.entry(application)

    def adopt(topic: Topic) -> None:
        record_topics(service.metastore, application, [topic], replacing=frozenset({topic.name}))

    return (entry.topics or {}).get(changelog), adopt


def _show_plan(console: Console, plan: ReseedPlan) -> None:
    from statestore.cli import tables

    output.say(console, plan.found)
    columns = ("store partition", "rows>", "bytes>", "expired>", "unknown timestamps>")
    console.print(
        tables.table(
            f"{len(plan.parts)} store partitions",
            columns,
            (
                (
                    str(part.store.store_partition),
                    part.contents.rows,
                    part.contents.bytes,
                    part.contents.expired,
                    part.contents.unknown_times,
                )
                for part in plan.parts
            ),
        )
    )
    for sign in plan.behind:
        output.say(console, sign)
    if plan.replaced:
        output.say(console, f"{plan.replaced} more were replaced by an earlier attempt")
    output.say_cost(console, plan)


def _plan_content(plan: ReseedPlan) -> dict[str, Any]:
    return {
        "topic": plan.topic,
        "found": plan.found,
        "finishes": plan.finishes,
        "replaced_before": plan.replaced,
        "seconds": plan.seconds,
        "disk_needed": plan.disk_needed,
        "disk_free": plan.disk_free,
        "behind": [*plan.behind],
        "plan": [
            {
                "application": part.store.application,
                "store": part.store.store.name,
                "task": str(part.store.task),
                "rows": part.contents.rows,
                "bytes": part.contents.bytes,
                "expired": part.contents.expired,
                "unknown_timestamps": part.contents.unknown_times,
            }
            for part in plan.parts
        ],
    }
