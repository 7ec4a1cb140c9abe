"""The commands on the archive: list, show, create, pin, unpin, clean, check."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statestore import clock
from statestore.cli import options, output
from statestore.errors import InputError

if TYPE_CHECKING:
    from statestore.archive.contents import ArchivedSnapshot
    from statestore.archive.objects import ObjectStore
    from statestore.cli.selection import PartitionSelection

app = typer.Typer(
    help="Snapshots of stores in the archive: list, create, keep, clean up and check.",
    no_args_is_help=True,
    add_completion=False,
)

Application = Annotated[str | None, typer.Option(help="application.id. Default: all.", show_default=False)]
Store = Annotated[str | None, typer.Option(help="Name of a store. Default: all.", show_default=False)]


@app.command("list")
def list_(
    archive: options.Archive,
    application: Application = None,
    store: Store = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """List snapshots, the newest of each store partition first."""
    from statestore.cli.tables import table

    options.require_writable(json=json)
    found = [_line(one) for one in _snapshots(archive, archive_timeout_s, application, store)]
    columns = ("store partition", "snapshot", "offset>", "written", "bytes>", "files>", "by", "state")
    shown = ((line[name] for name in _SHOWN) for line in found)
    output.console(json).print(table(f"{len(found)} snapshots", columns, [tuple(row) for row in shown]))
    output.write_content(json, {"archive": archive, "rows": found})


@app.command()
def show(
    archive: options.Archive,
    snapshot: Annotated[str, typer.Argument(help="Name of a snapshot, as `list` prints it.")],
    archive_timeout_s: options.ArchiveTimeout = 60.0,
) -> None:
    """Print the manifest of a snapshot as JSON."""
    for found in _snapshots(archive, archive_timeout_s):
        if str(found.listed.name) == snapshot:
            if found.manifest is None:
                raise InputError(found.state)
            print(found.manifest.model_dump_json(indent=1))
            return
    raise InputError(f"archive {archive} has no snapshot {snapshot}; `statestore snapshot list` names those there are")


@app.command()
@options.with_target
def create(
    asked: PartitionSelection,
    archive: options.Archive,
    parallel: options.Parallel,
    scratch: Annotated[
        Path, typer.Option(help="Directory with room for the stores that are built at a time.", show_default=False)
    ],
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Build from the changelogs alone, also from one that was recreated or has lost records.",
        ),
    ] = False,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Make snapshots from the changelogs. Applications need not stop, and their stores are not touched."""
    from functools import partial

    from statestore.archive.archive import archive_spec
    from statestore.changelog.topics import Topics
    from statestore.cli import local_processes as local
    from statestore.cli import restore_selection as restoring
    from statestore.cli.selection import choose
    from statestore.cli.tables import table
    from statestore.recovery.snapshot_building import snapshot_from_log

    options.require_writable(json=json)
    scratch.mkdir(parents=True, exist_ok=True)
    label = f"snapshot-{clock.now_ms()}"
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    where = archive_spec(archive, archive_timeout_s, topics)
    chosen = choose(asked, topics)
    stores = [
        spec.model_copy(update={"archive": where})
        for spec in restoring.stores_to_restore(chosen, topics, elsewhere=True)
    ]
    work = partial(
        snapshot_from_log, label=label, run_bytes=run_bytes, scratch=scratch.absolute(), accept_loss=accept_loss
    )
    rows = local.run_each(stores, work, parallel)
    columns = ("store partition", "from", "records>", "snapshot", "files>", "bytes>", "failure")
    shown = [
        (
            row.label,
            row.snapshot or row.mode,
            row.records,
            None if row.published is None else row.published.snapshot,
            None if row.published is None else row.published.files,
            None if row.published is None else row.published.bytes,
            None if row.failure is None else f"{row.failure.kind}: {row.failure.message}",
        )
        for row in rows
    ]
    output.console(json).print(table(f"{len(rows)} store partitions", columns, shown))
    output.write_content(json, {"archive": archive, "rows": [row.model_dump(mode="json") for row in rows]})
    raise typer.Exit(restoring.exit_code(rows))


@app.command()
def pin(
    archive: options.Archive,
    name: Annotated[str, typer.Argument(help="Name of the pin.")],
    why: Annotated[str, typer.Option(help="Why these snapshots are kept.", show_default=False)],
    snapshot: Annotated[
        list[str] | None,
        typer.Option(help="Name of a snapshot. May be repeated. Default: the newest of each store partition."),
    ] = None,
    application: Application = None,
    store: Store = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
) -> None:
    """Keep snapshots until the pin is removed."""
    from statestore.archive.pins import Pin
    from statestore.archive.pins import pin as write_pin
    from statestore.model import check_name

    try:
        check_name(name)
    except ValueError as error:
        raise InputError(str(error)) from error
    found = [one.listed for one in _snapshots(archive, archive_timeout_s, application, store) if one.state == "usable"]
    wanted = set(snapshot or ())
    if missing := sorted(wanted - {str(one.name) for one in found}):
        raise InputError(f"archive {archive} has no usable snapshot {', '.join(missing)}; `list` names those there are")
    newest = list({one.directory: one for one in reversed(found)}.values())
    kept = [one for one in found if str(one.name) in wanted] if wanted else newest
    if not kept:
        raise InputError(f"archive {archive} has no usable snapshot of what was named: nothing is pinned")
    places = tuple(sorted(one.directory.snapshot(one.name) for one in kept))
    made = Pin(name=name, snapshots=places, by=getpass.getuser(), why=why, written_ms=clock.now_ms())
    write_pin(_open(archive, archive_timeout_s), made)
    print(f"pin {name} keeps {len(places)} snapshots")


@app.command()
def unpin(
    archive: options.Archive,
    name: Annotated[str, typer.Argument(help="Name of the pin.")],
    archive_timeout_s: options.ArchiveTimeout = 60.0,
) -> None:
    """Remove a pin. Clean-up may then remove its snapshots."""
    from statestore.archive.pins import unpin as remove_pin

    remove_pin(_open(archive, archive_timeout_s), name)
    print(f"pin {name} is removed")


@app.command()
def check(
    archive: options.Archive, archive_timeout_s: options.ArchiveTimeout = 60.0, json: options.Json = None
) -> None:
    """Find snapshots that cannot be used, and files that no snapshot names; exit code 1 if a snapshot is broken."""
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
    keep: Annotated[int, typer.Option(min=1, help="Keep so many of the newest snapshots of each store partition.")] = 3,
    days: Annotated[float, typer.Option(min=0, help="Keep snapshots that are younger.")] = 7.0,
    grace_hours: Annotated[
        float,
        typer.Option(min=0, help="Remove files so long after their snapshot was marked; longer than any upload takes."),
    ] = 48.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; do nothing.")] = False,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    kafka_timeout_s: options.TimeoutS = 30.0,
    json: options.Json = None,
) -> None:
    """Remove snapshots that are not needed. What a changelog can no longer give, pins and sets stay."""
    from statestore.archive.archive import archive_spec
    from statestore.archive.cleanup import DAY_MS, Retention
    from statestore.changelog.topics import Topics
    from statestore.recovery.archive_cleanup import clean_archive

    options.require_writable(json=json)
    _open(archive, archive_timeout_s)
    servers = options.servers_of(bootstrap_servers)
    where = archive_spec(archive, archive_timeout_s, Topics(servers, kafka_timeout_s))
    assert where is not None
    retention = Retention(keep, int(days * DAY_MS), int(grace_hours * DAY_MS / 24))
    done = clean_archive(where, servers, kafka_timeout_s, retention, dry_run=dry_run)
    would = "would be " if dry_run else ""
    say = output.console(json)
    output.say(say, f"{len(done.marked)} snapshots {would}marked; their files go {grace_hours:g} hours later")
    swept = done.swept
    output.say(say, f"{len(swept.manifests)} snapshots, {len(swept.blobs)} files ({swept.bytes} bytes) {would}removed")
    content = {"archive": archive, "dry_run": dry_run, "marked": done.marked, "removed": swept._asdict()}
    output.write_content(json, content)


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
        "written": datetime.fromtimestamp(listed.written_ms / 1000, UTC).isoformat(timespec="seconds"),
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
    found = all_histories(objects, application=application)
    chosen = [history for history in found if store in (None, history.directory.store_partition.store)]
    return list(archived_snapshots(objects, chosen))


def _open(archive: str, timeout_s: float) -> ObjectStore:
    from statestore.archive.archive import open_archive

    return open_archive(archive, timeout_s, create=False)
