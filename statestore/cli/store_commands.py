"""The commands that look at stores and change nothing: partitions, verify, read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from statestore import clock
from statestore.cli import completion, options, output
from statestore.cli.parameters import with_request
from statestore.errors import InputError
from statestore.requests.verify import VerifyRequest

if TYPE_CHECKING:
    from statestore.cli.selection import PartitionSelection


@options.with_target
def partitions(asked: PartitionSelection, json: options.Json = None) -> None:
    """List store partitions: what they are, where their changelogs are, and how far they were when last closed."""
    from statestore.changelog.topics import Topics
    from statestore.cli.known_stores import shapes
    from statestore.cli.partition_listing import listed
    from statestore.cli.selection import choose
    from statestore.cli.tables import table

    options.require_writable(json=json)
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    chosen = choose(asked, topics)
    rows = listed(chosen, topics)
    columns = (
        *("store partition", "kind", "format", "retention ms>", "changelog", "recorded offset>"),
        *("log start>", "log end>", "state", "note"),
    )
    shown = ((row.label, *row[3:]) for row in rows)
    output.console(json).print(table(f"{len(rows)} store partitions", columns, shown))
    head = {"applications": chosen.applications, "catalogue": chosen.catalogue}
    output.write_rows(json, rows, **head, shapes=shapes(chosen, asked.where.state_dir))


@options.with_target
@with_request(VerifyRequest, without=("applications", "stores", "partitions"))
def verify(
    request: VerifyRequest,
    asked: PartitionSelection,
    parallel: options.Parallel,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Verify store partitions against their changelogs. Nothing is changed, and no store in use is opened."""
    from rich.console import Console
    from rich.progress import Progress

    from statestore.changelog.topics import Topics
    from statestore.cli import known_stores, tables
    from statestore.cli import verification as work
    from statestore.cli.selection import choose
    from statestore.discovery.partitions import task_counts
    from statestore.reports import VerifyReport
    from statestore.verification.history import write_history
    from statestore.verification.options import VerifyOptions

    started_ms = clock.now_ms()
    options.require_writable(json=json, reports_dir=asked.reports_dir)
    how = VerifyOptions.of(request, started_ms, run_bytes=run_bytes)
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    kept_in = known_stores.reachable(archive, archive_timeout_s, topics)
    chosen = choose(replace(asked, archive=kept_in), topics)
    chosen.require_known()
    rows = work.rows_without_work(chosen, topics)
    if not chosen.specs and not rows:
        raise InputError(f"nothing to verify in {', '.join(chosen.applications)}: no store was found")
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("verifying", total=len(chosen.specs))
        tasks = task_counts(topics, chosen.defined)
        verified = work.verify_all(chosen.specs, how, parallel, lambda count: progress.advance(bar, count), tasks=tasks)
    report = VerifyReport(
        run_id=f"command-{started_ms}",
        applications=chosen.applications,
        catalogue=chosen.catalogue,
        started_ms=started_ms,
        finished_ms=clock.now_ms(),
        rows=(*verified, *rows),
    )
    known_stores.keep(chosen, asked.where.state_dir, report.rows, kept_in)
    tables.show_verified(output.console(json), report.rows)
    for store in (*chosen.troubled("unlogged"), *chosen.troubled("in memory")):
        print(f"statestore: {store.label} is left alone: {store.problem}", file=sys.stderr)
    output.write_report(json, asked.reports_dir, report)
    if asked.reports_dir is not None:
        write_history(asked.reports_dir, report)
    raise typer.Exit(work.exit_code(report.rows))


@options.with_target
def read(
    asked: PartitionSelection,
    name: Annotated[
        str,
        typer.Argument(metavar="STORE", help="Name of a key-value store.", autocompletion=completion.stores),
    ],
    key: Annotated[str, typer.Argument(help="As --key-serde has it.")],
    key_serde: Annotated[
        str | None, typer.Option(help="bytes (in hex), utf8, int64, json, or module:attribute; the definition's.")
    ] = None,
    value_serde: Annotated[str | None, typer.Option(help="Likewise; bytes (in hex) without a definition.")] = None,
    json: options.Json = None,
) -> None:
    """Read a key from every partition of a key-value store that has it."""
    from statestore.changelog.topics import Topics
    from statestore.cli.selection import choose
    from statestore.cli.tables import table
    from statestore.cli.values import key_bytes, read_row
    from statestore.statedir.lock import locked

    options.require_writable(json=json)
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    chosen = choose(replace(asked, stores=(*asked.stores, name)), topics)
    chosen.require_free()
    chosen.require_known()
    specs = [spec for spec in chosen.specs if spec.store.name == name]
    if not specs:
        problems = [store.problem for store in chosen.discovered if store.name == name]
        raise InputError(f"store {name} cannot be read: {'; '.join(problems) or 'it is kept in memory'}")
    found = []
    for spec in specs:
        if spec.store.segmented:
            raise InputError(
                f"{spec.store_partition} is a {spec.store.kind} store; only key-value stores are read by key"
            )
        # Of a found store no serde is known; keys are text more often than not.
        raw = key_bytes(key, key_serde or (spec.store.key_serde if spec.owned else "utf8"))
        with locked(spec.paths, spec.lock_wait_s):
            row = read_row(spec, raw, value_serde or (spec.store.value_serde if spec.owned else "bytes"))
        if row is not None:
            found.append(row)
    if found:
        with_headers = any(row.headers is not None for row in found)
        columns = ("store partition", "value", "timestamp ms>", *(["headers"] * with_headers))
        # Timestamps without separators of thousands: they are to be copied.
        shown = [
            (
                row.label,
                row.value,
                None if row.timestamp is None else str(row.timestamp),
                *([_headers_text(row.headers or ())] * with_headers),
            )
            for row in found
        ]
        output.console(json).print(table(f"{name}: {key}", columns, shown))
    else:
        print(f"statestore: no partition of {name} has the key {key!r}", file=sys.stderr)
    output.write_rows(json, found, key=key)
    raise typer.Exit(0 if found else 1)


def _headers_text(headers: Sequence[tuple[str, str | None]]) -> str:
    """Show headers as name=value, null as a name alone."""
    return ", ".join(name if value is None else f"{name}={value}" for name, value in headers)
