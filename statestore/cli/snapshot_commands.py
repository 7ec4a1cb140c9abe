"""The commands on the archive: list, show, create, pin, unpin, clean, check."""

from __future__ import annotations

import getpass
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statestore import clock
from statestore.cli import next_steps, options, output, snapshot_diff
from statestore.cli.audit_command import audited
from statestore.cli.parameters import DURATION, duration, with_request
from statestore.config import LEAST_GRACE_HOURS, short_grace
from statestore.errors import InputError
from statestore.model import StoreSelector
from statestore.requests.snapshot import SnapshotRequest

if TYPE_CHECKING:
    from statestore.archive.contents import ArchivedSnapshot
    from statestore.cli.selection import PartitionSelection
    from statestore.objects.store import ObjectStore

app = typer.Typer(
    help="List, create, compare, pin, check, and remove snapshots of stores in the archive.",
    no_args_is_help=True,
    add_completion=False,
)

app.command()(snapshot_diff.diff)

Application = Annotated[
    str | None, typer.Option(help="Name of an application (its application.id). Default: all.", show_default=False)
]
Store = Annotated[
    str | None,
    typer.Option(
        help="STORE, APPLICATION/STORE, or a store partition, such as APPLICATION/STORE/0_3. Default: all.",
        show_default=False,
    ),
]


@app.command("list")
def list_(
    archive: options.Archive,
    application: Application = None,
    store: Store = None,
    sets: Annotated[bool, typer.Option("--sets", help="List sets of snapshots, the newest first.")] = False,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """List snapshots, the newest of each store partition first, or sets of snapshots."""
    from statestore.cli.tables import counted, table

    options.require_writable(json=json)
    if sets:
        if store is not None:
            raise InputError("--store: a set belongs to an application, not to a store. Leave --store or --sets out")
        _list_sets(archive, archive_timeout_s, application, json)
        return
    found = [_line(one) for one in _snapshots(archive, archive_timeout_s, application, store)]
    columns = ("store partition", "snapshot", "offset>", "written", "bytes>", "files>", "by", "state")
    shown = ((line[name] for name in _SHOWN) for line in found)
    output.console(json).print(table(counted(len(found), "snapshot"), columns, [tuple(row) for row in shown]))
    output.write_content(json, {"archive": archive, "rows": found})


@app.command()
def show(
    archive: options.Archive,
    snapshot: Annotated[str, typer.Argument(help="Name of a snapshot, as `snapshot list` prints it.")],
    archive_timeout_s: options.ArchiveTimeout = 60.0,
) -> None:
    """Print the manifest of a snapshot as JSON."""
    for found in _snapshots(archive, archive_timeout_s):
        if str(found.listed.name) == snapshot:
            if found.manifest is None:
                raise InputError(found.state)
            print(found.manifest.model_dump_json(indent=1))
            return
    raise InputError(f"archive {archive} has no snapshot {snapshot}; `statestore snapshot list` lists them")


@app.command()
@options.with_target
def reinstate(
    snapshot: Annotated[str, typer.Argument(help="Name of a snapshot, as `snapshot list` prints it.")],
    asked: PartitionSelection,
    archive: options.Archive,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
) -> None:
    """Replace a store with an earlier snapshot, if each node has its own state directory.

    This begins a new generation, so no task continues with a copy of the replaced store. Stop the application first.
    """
    from statestore.archive.archive import archive_spec
    from statestore.archive.snapshots import read_snapshot
    from statestore.cli import restore_selection as restoring
    from statestore.cli.selection import choose
    from statestore.partition.reinstating import reinstate as make_store
    from statestore.recovery.snapshot import find_snapshot

    topics = asked.where.cluster.topics
    where = archive_spec(archive, archive_timeout_s, topics)
    stores = restoring.stores_to_restore(choose(asked, topics), topics, elsewhere=True)
    for found in _snapshots(archive, archive_timeout_s):
        if str(found.listed.name) != snapshot:
            continue
        whose = found.listed.directory.store_partition
        spec = next((one for one in stores if one.store_partition == whose), None)
        if spec is None:
            raise InputError(f"snapshot {snapshot} belongs to {whose}: name its application")
        spec = spec.model_copy(update={"archive": where})
        topics.require_no_members(spec.application)
        named = find_snapshot(spec, snapshot)
        manifest = read_snapshot(named.objects, named.listed)
        audited(asked.reports_dir, "reinstate", [spec.application], [str(spec.store_partition)])
        made = make_store(spec, manifest, f"reinstated by {getpass.getuser()}")
        output.say(output.console(), f"{spec.store_partition}: snapshot {snapshot} was reinstated as {made.name}")
        return
    raise InputError(f"archive {archive} has no snapshot {snapshot}; `statestore snapshot list` lists them")


@app.command()
@options.with_target
@with_request(SnapshotRequest, without=("applications", "stores", "partitions"))
def create(
    request: SnapshotRequest,
    asked: PartitionSelection,
    archive: options.Archive,
    parallel: options.Parallel,
    names: options.Names = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            envvar="STATESTORE_SCRATCH_DIR",
            help="Directory with space for all stores that are built at the same time. Default: one below --state-dir.",
            show_default=False,
        ),
    ] = None,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Create snapshots from the changelogs. Applications can keep running, and their stores are not changed.

    Without --application, it covers the applications for which process publishes no snapshots.
    """
    from statestore.cli import local_processes as local
    from statestore.cli import restore_selection as restoring
    from statestore.cli import tables
    from statestore.cli.archives import archive_of_stores
    from statestore.cli.selection import choose
    from statestore.metrics.export import export_report
    from statestore.recovery.snapshot_run import from_their_logs, run_snapshots
    from statestore.reports import ArchivedRow
    from statestore.statedir.scratch import default_scratch

    started_ms = clock.now_ms()
    options.require_writable(json=json, reports_dir=asked.reports_dir)
    topics = asked.where.cluster.topics
    where = archive_of_stores(archive, archive_timeout_s, topics)
    assert where is not None
    asked = asked.naming(names or ())
    chosen = choose(asked, topics)
    stores = restoring.stores_to_restore(chosen, topics, elsewhere=True)
    if not asked.applications:
        published = {found.name for found in chosen.defined} - {found.name for found in from_their_logs(chosen.defined)}
        stores = [store for store in stores if store.application not in published]
        why = "`process` publishes its snapshots; to include it, name it: --application"
        left_out = {f"application {name}": f"{why} {name}" for name in sorted(published)}
        chosen = replace(chosen, left_out={**chosen.left_out, **left_out})
    chosen.say_left_out()
    report = run_snapshots(
        stores,
        where,
        f"command-{started_ms}",
        local.runner(parallel),
        accept_loss=request.accept_loss,
        run_bytes=run_bytes,
        scratch=scratch or default_scratch(asked.where.state_dir),
        reports_dir=asked.reports_dir,
        started_ms=started_ms,
    )
    rows = (*report.rows, *restoring.failed_rows(chosen, ArchivedRow))
    report = report.model_copy(update={"catalogue": chosen.catalogue, "rows": rows})
    report = restoring.with_not_judged(report, chosen)
    tables.show(output.console(json), report)
    output.write_report(json, asked.reports_dir, report)
    if any(row.failure is not None and row.failure.retriable for row in report.rows):
        output.say_next([(next_steps.again(), "retry what failed temporarily")], json)
    code = restoring.exit_code(report.rows)
    export_report(report, code)
    raise typer.Exit(code)


@app.command()
def pin(
    archive: options.Archive,
    name: Annotated[str, typer.Argument(help="Name of the pin.")],
    why: Annotated[str, typer.Option(help="Why these snapshots are kept.", show_default=False)],
    snapshot: Annotated[
        list[str] | None,
        typer.Option(help="Name of a snapshot. May be repeated. Default: the newest of each store partition."),
    ] = None,
    snapshot_set: Annotated[
        str | None, typer.Option("--set", help="Name of a set whose snapshots are kept.", show_default=False)
    ] = None,
    application: Application = None,
    store: Store = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
) -> None:
    """Keep snapshots until the pin is removed."""
    from statestore.archive.pins import Pin, find_set
    from statestore.archive.pins import pin as write_pin
    from statestore.cli.tables import counted
    from statestore.model import check_name

    try:
        check_name(name)
    except ValueError as error:
        raise InputError(str(error)) from error
    if snapshot_set is not None:
        if snapshot or application or store:
            raise InputError("--set names all snapshots that are kept: omit --snapshot, --application, and --store")
        objects = _open(archive, archive_timeout_s)
        kept_set = find_set(objects, snapshot_set)
        now_ms = clock.now_ms()
        write_pin(
            objects, Pin(name=name, snapshots=(kept_set.place,), by=getpass.getuser(), why=why, written_ms=now_ms)
        )
        output.say(output.console(), f"pin {name} keeps the {len(kept_set.snapshots)} snapshots of set {snapshot_set}")
        return
    found = [one.listed for one in _snapshots(archive, archive_timeout_s, application, store) if one.state == "usable"]
    wanted = set(snapshot or ())
    if missing := sorted(wanted - {str(one.name) for one in found}):
        raise InputError(f"archive {archive} has no usable snapshot {', '.join(missing)}; `list` lists them")
    newest = list({one.directory: one for one in reversed(found)}.values())
    kept = [one for one in found if str(one.name) in wanted] if wanted else newest
    if not kept:
        raise InputError(f"archive {archive} has no usable snapshot of the named stores. Nothing was pinned")
    places = tuple(sorted(one.directory.snapshot(one.name) for one in kept))
    made = Pin(name=name, snapshots=places, by=getpass.getuser(), why=why, written_ms=clock.now_ms())
    write_pin(_open(archive, archive_timeout_s), made)
    output.say(output.console(), f"pin {name} keeps {counted(len(places), 'snapshot')}")


@app.command()
def unpin(
    archive: options.Archive,
    name: Annotated[str, typer.Argument(help="Name of the pin.")],
    archive_timeout_s: options.ArchiveTimeout = 60.0,
) -> None:
    """Remove a pin. Clean-up may then remove its snapshots."""
    from statestore.archive.pins import unpin as remove_pin

    remove_pin(_open(archive, archive_timeout_s), name)
    output.say(output.console(), f"pin {name} is removed")


@app.command()
def check(
    archive: options.Archive, archive_timeout_s: options.ArchiveTimeout = 60.0, json: options.Json = None
) -> None:
    """Find unusable snapshots, and files that no snapshot refers to. Exit code 1 if a snapshot is broken."""
    from statestore.archive.contents import check_archive
    from statestore.cli.tables import table

    options.require_writable(json=json)
    found = check_archive(_open(archive, archive_timeout_s))
    title = f"{found.snapshots} snapshots, {len(found.broken)} broken; {found.orphans} files without a snapshot"
    output.console(json).print(table(title, ("snapshot", "what is wrong"), found.broken.items()))
    output.write_content(json, {"archive": archive, **found._asdict()})
    raise typer.Exit(1 if found.broken else 0)


@app.command()
def clean(
    archive: options.Archive,
    bootstrap_servers: options.Servers = None,
    keep: Annotated[
        int,
        typer.Option(
            envvar="STATESTORE_SNAPSHOT_KEEP",
            min=1,
            help="How many of the newest snapshots of each store partition to keep.",
        ),
    ] = 3,
    days: Annotated[
        float,
        typer.Option(
            envvar="STATESTORE_SNAPSHOT_DAYS",
            help="Keep snapshots younger than this: 36h, or a number of days.",
            parser=duration("d"),
            metavar=DURATION,
        ),
    ] = 7.0,
    grace_hours: Annotated[
        float,
        typer.Option(
            envvar="STATESTORE_SNAPSHOT_GRACE_HOURS",
            help="How long after marking a snapshot to remove its files: 3d, or a number of hours; at least "
            f"{LEAST_GRACE_HOURS:g} h.",
            parser=duration("h"),
            metavar=DURATION,
        ),
    ] = LEAST_GRACE_HOURS,
    no_writers: Annotated[
        bool,
        typer.Option(
            "--no-writers",
            help="Allow any --grace-hours. Nothing may publish to this archive or restore from it at the same time.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done. Change nothing.")] = False,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    kafka_timeout_s: options.TimeoutS = 30.0,
    json: options.Json = None,
) -> None:
    """Remove snapshots that are not needed. Pinned snapshots, and data that a changelog has lost, are kept."""
    from statestore.archive.archive import archive_spec
    from statestore.archive.cleanup import retention_of
    from statestore.recovery.archive_cleanup import clean_archive

    options.require_writable(json=json)
    if not no_writers and (problem := short_grace(grace_hours)) is not None:
        raise InputError(f"--grace-hours: {problem}. If nothing uses the archive meanwhile, add --no-writers")
    _open(archive, archive_timeout_s)
    cluster = options.cluster_of(bootstrap_servers, kafka_timeout_s)
    where = archive_spec(archive, archive_timeout_s, cluster.topics)
    assert where is not None
    retention = retention_of(keep, days, grace_hours)
    done = clean_archive(where, cluster, retention, dry_run=dry_run)
    would = "would be " if dry_run else ""
    say = output.console(json)
    output.say(say, f"{len(done.marked)} snapshots {would}marked; their files are removed {grace_hours:g} hours later")
    swept = done.swept
    output.say(say, f"{len(swept.manifests)} snapshots, {len(swept.blobs)} files ({swept.bytes} bytes) {would}removed")
    if done.builds:
        output.say(say, f"{len(done.builds)} builds of unfinished restores {would}removed")
    content = {"archive": archive, "dry_run": dry_run, "marked": done.marked, "removed": swept._asdict()}
    content["builds"] = [str(build.directory) for build in done.builds]
    output.write_content(json, content)
    if dry_run and (done.marked or swept.manifests or swept.blobs or done.builds):
        output.say_next([(next_steps.again(without="--dry-run"), "remove them")], json)


def _list_sets(archive: str, timeout_s: float, application: str | None, json: Path | None) -> None:
    from statestore.archive.contents import listed_sets
    from statestore.cli.tables import table

    found = [
        {
            "cluster": one.cluster,
            "application": one.application,
            "set": one.uuid,
            "written": _time(one.written_ms),
            "snapshots": len(one.snapshots),
            "removed": removed,
            "input_offsets": {str(where): offset for where, offset in one.input_offsets},
        }
        for one, removed in listed_sets(_open(archive, timeout_s), application)
    ]
    columns = ("cluster", "application", "set", "written", "snapshots>", "removed>")
    names = [column.rstrip(">") for column in columns]
    shown = [tuple(row[name] for name in names) for row in found]
    output.console(json).print(table(f"{len(found)} sets", columns, shown))  # type: ignore[arg-type]
    output.write_content(json, {"archive": archive, "rows": found})


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


#: What `list` shows of a line, in this order.
_SHOWN = ("store_partition", "snapshot", "offset", "written", "bytes", "files", "source", "state")


def _line(found: ArchivedSnapshot) -> dict[str, str | int | None]:
    listed, manifest = found.listed, found.manifest
    return {
        "cluster": listed.directory.cluster,
        "store_partition": str(listed.directory.store_partition),
        "snapshot": str(listed.name),
        "generation": listed.name.generation,
        "offset": listed.name.offset - 1 if listed.name.offset else None,
        "written": _time(listed.written_ms),
        "bytes": None if manifest is None else manifest.bytes,
        "files": None if manifest is None else len(manifest.files),
        "source": None if manifest is None else manifest.source,
        "state": found.state,
    }


def _snapshots(
    archive: str, timeout_s: float, application: str | None = None, store: str | None = None
) -> list[ArchivedSnapshot]:
    from statestore.archive.contents import all_histories, archived_snapshots

    objects = _open(archive, timeout_s)
    selector = None if store is None else StoreSelector.parse(store)
    found = all_histories(objects, application=application or (selector and selector.application))
    chosen = [each for each in found if selector is None or selector.selects(each.directory.store_partition)]
    return list(archived_snapshots(objects, chosen))


def _open(archive: str, timeout_s: float) -> ObjectStore:
    from statestore.archive.archive import open_archive

    return open_archive(archive, timeout_s, create=False)
