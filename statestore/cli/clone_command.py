"""The command `rewrite clone`: an application made of a set of snapshots of another, which goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from statestore import clock
from statestore.cli import options, output
from statestore.cli.repartition_tables import made, repartition_content, show_repartition
from statestore.errors import InputError

if TYPE_CHECKING:
    from statestore.cli.selection import PartitionSelection
    from statestore.rewrite.repartition import MadeStore


@options.with_target
def clone(
    asked: PartitionSelection,
    parallel: options.Parallel,
    to: Annotated[str, typer.Option(metavar="APPLICATION", help="application.id of the clone.")],
    archive: options.Archive,
    snapshot_set: Annotated[
        str | None, typer.Option("--set", metavar="NAME", help="Set of snapshots. Default: the newest.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done. Change nothing.")] = False,
    yes: options.Yes = False,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Create an application from a set of snapshots of another one, which continues to run.

    Both must be in the catalogue, have the same stores, and read the same topic. The clone gets its own changelogs,
    stores and group offsets, and starts where the set ends.
    """
    from statestore.archive.archive import archive_spec
    from statestore.changelog.topics import Topics
    from statestore.cli import local_processes as local
    from statestore.cli.repartition_selection import clone_spec
    from statestore.rewrite.cut import fetched_stores, find_cut, require_input
    from statestore.rewrite.repartition import repartition
    from statestore.statedir.scratch import default_scratch

    if len(asked.applications) != 1 or asked.partitions or asked.stores:
        raise InputError("--application: name one; all partitions of all its stores are copied")
    if asked.definitions is not None or asked.service is None:
        raise InputError("--definitions: the catalogue must know the new changelogs, so the definitions must be in it")
    options.require_writable(json=json)
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    where = archive_spec(archive, archive_timeout_s, topics)
    assert where is not None, "an archive was named"
    (source,) = asked.applications
    cut = find_cut(where, source, snapshot_set)
    require_input(topics, cut)
    spec, adopt = clone_spec(asked, topics, cut, to=to, run_bytes=run_bytes, parallelism=parallel)
    console = output.console(json)
    rows: list[MadeStore] = []
    with fetched_stores(where, cut, spec.source, default_scratch(asked.where.state_dir.absolute())) as stores:
        spec = spec._replace(source=stores, started_ms=clock.now_ms())
        with repartition(spec, local.runner(parallel)) as work:
            output.say(console, f"set {cut.found.uuid} of {source}")
            show_repartition(console, work.plan)
            if not dry_run:
                question = f"Make {to} of set {cut.found.uuid} of {source}?"
                output.require_yes(question, yes=yes, otherwise="nothing was written")
                rows = work.carry_out(adopt)
                output.say(console, f"{to} is complete: {len(rows)} store partitions were made")
            content = {"set": cut.found.uuid, "dry_run": dry_run, **repartition_content(work.plan)}
            output.write_content(json, {**content, "rows": [*map(made, rows)]})
