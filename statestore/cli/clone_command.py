"""The command `rewrite clone`: an application made of a set of snapshots of another, which goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from statestore import clock
from statestore.cli import options, output
from statestore.cli.audit_command import audited
from statestore.cli.options import Partitioner
from statestore.cli.repartition_tables import made, repartition_content, show_repartition
from statestore.errors import InputError

if TYPE_CHECKING:
    from statestore.cli.selection import PartitionSelection
    from statestore.rewrite.repartition_plan import MadeStore


@options.with_target
def clone(
    asked: PartitionSelection,
    parallel: options.Parallel,
    to: Annotated[str, typer.Option(metavar="APPLICATION", help="application.id of the clone.")],
    archive: options.Archive,
    snapshot_set: Annotated[
        str | None, typer.Option("--set", metavar="NAME", help="Set of snapshots. Default: the newest.")
    ] = None,
    from_cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Kafka cluster of the first application, as `snapshot list --sets` shows it. The clone is created "
            "in the cluster of --bootstrap-servers. Default: the same cluster.",
        ),
    ] = None,
    reads_from: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Where the clone starts in an input topic of its own that has records: start, end, set-offsets (its "
            "records have the same offsets as in the input of the first application), or a time.",
        ),
    ] = None,
    partitioner: Annotated[
        Partitioner,
        typer.Option(
            help="For a clone with an input topic of its own. kafka: refuse keys that Kafka's partitioner would put "
            "into other partitions; any: the input has another partitioner."
        ),
    ] = Partitioner.KAFKA,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done. Change nothing.")] = False,
    yes: options.Yes = False,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Create an application from a set of snapshots of another one, which continues to run.

    The clone must be in the catalogue, and have the same stores and aggregations. It gets its own changelogs, stores,
    and group offsets. If it reads the topic of the first application, it starts where the set ends.
    """
    from statestore.archive.archive import archive_spec
    from statestore.cli import local_processes as local
    from statestore.cli.repartition_selection import clone_spec
    from statestore.rewrite.clone_offsets import reads_from as where_to_begin
    from statestore.rewrite.cut import fetched_stores, find_cut, require_same_input
    from statestore.rewrite.repartition import repartition
    from statestore.statedir.paths import rewrite_journal
    from statestore.statedir.scratch import default_scratch

    if len(asked.applications) != 1 or asked.partitions or asked.stores:
        raise InputError("--application: expected one. All partitions of all its stores are copied")
    if asked.definitions is not None or asked.service is None:
        raise InputError("--definitions: the catalogue must know the new changelogs, so the definitions must be in it")
    options.require_writable(json=json)
    topics = asked.where.cluster.topics
    where = archive_spec(archive, archive_timeout_s, topics)
    assert where is not None, "an archive was named"
    (source,) = asked.applications
    cluster = where.cluster
    cut = find_cut(where.model_copy(update={"cluster": from_cluster or cluster}), source, snapshot_set)
    spec, adopt = clone_spec(
        asked,
        topics,
        cut,
        to=to,
        elsewhere=cut.found.cluster != cluster,
        reads_from=None if reads_from is None else where_to_begin(reads_from),
        any_partitioner=partitioner is Partitioner.ANY,
        run_bytes=run_bytes,
        parallelism=parallel,
    )
    console = output.console(json)
    rows: list[MadeStore] = []
    with fetched_stores(where, cut, spec.source, default_scratch(asked.where.state_dir.absolute())) as stores:
        spec = spec._replace(source=stores, started_ms=clock.now_ms())
        with repartition(spec, local.runner(parallel)) as work:
            made_of = work.plan.snapshot_set
            if snapshot_set is not None and snapshot_set != made_of:
                raise InputError(
                    f"--set: an interrupted attempt has already created {to} from set {made_of}. Only the group's "
                    "offsets are missing. Nothing was changed. To finish that attempt, leave --set out"
                )
            if spec.cut is not None and spec.cut.same_input is not None and made_of is not None:
                journal = rewrite_journal(asked.where.state_dir.absolute(), to)
                require_same_input(where.open(), made_of, cut, spec.cut.same_input, journal)
            output.say(console, f"set {made_of} of {source} in cluster {cut.found.cluster} -> {to} in {cluster}")
            show_repartition(console, work.plan)
            if not dry_run:
                question = f"Create {to} from set {made_of} of {source}?"
                output.require_yes(question, yes=yes, otherwise="nothing was written")
                audited(asked.reports_dir, "rewrite", [source, to])
                rows = work.carry_out(adopt)
                output.say(console, f"{to} is complete: {len(rows)} store partitions were created")
            clusters = {"from_cluster": cut.found.cluster, "cluster": cluster}
            content = {"set": made_of, **clusters, "dry_run": dry_run, **repartition_content(work.plan)}
            output.write_content(json, {**content, "rows": [*map(made, rows)]})
