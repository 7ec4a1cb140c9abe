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
    from statestore.cli.values import Row


@options.with_target
def partitions(asked: PartitionSelection, names: options.Names = None, json: options.Json = None) -> None:
    """List store partitions, their changelogs, and their offsets when they were last closed."""
    from statestore.changelog.topics import Topics
    from statestore.cli.known_stores import shapes
    from statestore.cli.partition_listing import listed
    from statestore.cli.selection import choose
    from statestore.cli.tables import table

    options.require_writable(json=json)
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    chosen = choose(asked.naming(names or ()), topics)
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
    names: options.Names = None,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Verify store partitions against their changelogs. Changes nothing, and opens no store that is in use."""
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
    chosen = choose(replace(asked.naming(names or ()), archive=kept_in), topics)
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
        typer.Argument(
            metavar="STORE", help="Name of a key-value or versioned store.", autocompletion=completion.stores
        ),
    ],
    key: Annotated[str, typer.Argument(help="The key, in the form of --key-serde.")],
    key_serde: Annotated[
        str | None,
        typer.Option(help="bytes (in hex), utf8, int64, json, or module:attribute. Default: the definition's."),
    ] = None,
    value_serde: Annotated[
        str | None, typer.Option(help="As --key-serde. Default: the definition's, or bytes (in hex).")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Versioned stores: the value at this time (ISO 8601, or ms)."),
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Versioned stores: all kept versions of the key, oldest first.")
    ] = False,
    json: options.Json = None,
) -> None:
    """Read a key from every partition of a key-value or versioned store that has it."""
    from statestore.changelog.topics import Topics
    from statestore.cli.selection import choose
    from statestore.cli.tables import table
    from statestore.cli.values import history_from, key_bytes, read_row, read_versions
    from statestore.statedir.lock import locked

    options.require_writable(json=json)
    time_ms = None if as_of is None else _time_ms(as_of)
    if time_ms is not None and history:
        raise InputError("--as-of and --history: expected one of them, found both")
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    chosen = choose(replace(asked, stores=(*asked.stores, name)), topics)
    chosen.require_free()
    chosen.require_known()
    specs = [spec for spec in chosen.specs if spec.store.name == name]
    if not specs:
        problems = [store.problem for store in chosen.discovered if store.name == name]
        raise InputError(f"store {name} cannot be read: {'; '.join(problems) or 'it is kept in memory'}")
    found: list[Row] = []
    too_early = []
    for spec in specs:
        if (time_ms is not None or history) and spec.store.rows_are_records:
            raise InputError(
                f"{spec.store_partition} is a {spec.store.kind} store; only versioned stores have a history, for "
                f"{'--history' if history else '--as-of'}. To read another store as it was, build it with `statestore "
                "restore --mode as-of`"
            )
        if spec.store.segmented:
            raise InputError(
                f"{spec.store_partition} is a {spec.store.kind} store; only key-value and versioned stores are read by "
                "key"
            )
        # Of a found store no serde is known; keys are text more often than not.
        raw = key_bytes(key, key_serde or (spec.store.key_serde if spec.owned else "utf8"))
        serde = value_serde or (spec.store.value_serde if spec.owned else "bytes")
        with locked(spec.paths, spec.lock_wait_s):
            if history:
                found += read_versions(spec, raw, serde)
            elif time_ms is None:
                found += filter(None, [read_row(spec, raw, serde)])
            elif time_ms < (oldest_ms := history_from(spec)):
                too_early.append(
                    f"{spec.store_partition} has its history from {max(oldest_ms, 0)} ms on (retention_ms "
                    f"{spec.store.retention_ms}), found --as-of {time_ms}"
                )
            else:
                found += read_versions(spec, raw, serde, time_ms)
    if too_early and not found:
        raise InputError(f"{'; '.join(too_early)}. What is older may be in a snapshot, or in the changelog")
    for why in too_early:
        print(f"statestore: {why}: it was not read", file=sys.stderr)
    if found:
        output.console(json).print(table(f"{name}: {key}", *_cells(found)))
    else:
        when = "" if time_ms is None else f" at {time_ms} ms"
        print(f"statestore: no partition of {name} has the key {key!r}{when}", file=sys.stderr)
    output.write_rows(json, found, key=key)
    raise typer.Exit(0 if found else 1)


def _time_ms(text: str) -> int:
    try:
        return clock.ms_of(text)
    except ValueError as error:
        raise InputError(
            f"--as-of: expected ms since the epoch, or ISO 8601 such as 2026-01-31T12:00:00+00:00, found {text!r}"
        ) from error


def _cells(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str | None, ...]]]:
    """Columns of rows, and their cells. Times have no separators of thousands: they are to be copied."""
    columns: dict[str, list[str | None]] = {"store partition": [row.label for row in rows]}
    columns["value"] = [row.value for row in rows]
    if rows[0].valid_from is None:
        columns["timestamp ms>"] = [_text(row.timestamp) for row in rows]
    else:
        columns["valid from ms>"] = [_text(row.valid_from) for row in rows]
        columns["valid to ms>"] = [_text(row.valid_to) for row in rows]
    if any(row.headers is not None for row in rows):
        columns["headers"] = [_headers_text(row.headers or ()) for row in rows]
    return tuple(columns), list(zip(*columns.values(), strict=True))


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _headers_text(headers: Sequence[tuple[str, str | None]]) -> str:
    """Show headers as name=value, null as a name alone."""
    return ", ".join(name if value is None else f"{name}={value}" for name, value in headers)
