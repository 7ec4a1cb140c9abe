"""The commands, and one clear message where one cannot be carried out.

Exit codes: 0 all healthy, 1 damage found or something not restored, 2 bad input, 3 try again later.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import Progress

from statestore.changelog.topics import Topics
from statestore.cli import (
    catalogue,
    drifting,
    expectations,
    metastore,
    options,
    output,
    restoring,
    rolling_back,
    tables,
    work,
)
from statestore.cli.choice import Asked, choose
from statestore.cli.listing import listed
from statestore.cli.restoring import How, advised, plan_all, restore_all, stores_to_restore
from statestore.cli.values import key_bytes, read_key, value_text
from statestore.cli.work import rows_without_work, verify_all
from statestore.errors import InputError, RebuildError, StateStoreError, of_os_error
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.recovery.planning import RECORDS_PER_S, require_disk_for_all
from statestore.recovery.spec import CheckDepth, Mode, parse_as_of
from statestore.reports import RestorePlanReport, RestoreReport, Status, VerifyReport, read_report
from statestore.statedir.lock import locked
from statestore.verification.history import write_history
from statestore.verification.options import Depth, VerifyOptions
from statestore.verification.targets import task_counts

app = typer.Typer(
    help="Define stream applications, and verify and restore their state stores: ours, and those of Kafka Streams.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


app.command()(catalogue.apply)
app.command("list")(catalogue.list_)
app.command()(catalogue.get)
app.command()(catalogue.describe)
app.command()(catalogue.drop)
app.command()(catalogue.history)
app.command()(drifting.drift)
app.add_typer(metastore.app, name="metastore")
app.add_typer(expectations.app, name="expectations")


def main() -> None:
    """Run the command and exit with its code."""
    try:
        app()
    except (StateStoreError, OSError) as error:
        cause = of_os_error(error) if isinstance(error, OSError) else error
        print(f"statestore: {cause.kind}: {cause}", file=sys.stderr, flush=True)
        sys.exit(1 if isinstance(cause, RebuildError) else cause.exit_code)


@app.command()
@options.with_target
def partitions(asked: Asked) -> None:
    """List store partitions: what they are, where their changelogs are, and how far they were when last closed."""
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    rows = listed(choose(asked, topics), topics)
    columns = (
        *("store partition", "kind", "format", "retention ms>", "changelog", "recorded offset>"),
        *("log start>", "log end>", "state", "note"),
    )
    output.console().print(tables.table(f"{len(rows)} store partitions", columns, rows))


@app.command()
@options.with_target
def verify(
    asked: Asked,
    parallel: options.Parallel,
    depth: Annotated[
        Depth,
        typer.Option(
            help="offsets opens no store whose seal is intact, scan reads every row, deep compares all with the log."
        ),
    ] = "scan",
    sample: Annotated[
        float | None, typer.Option(help="With depth deep: fraction of the key ranges to compare.")
    ] = None,
    hide_keys: Annotated[
        bool, typer.Option("--hide-keys", help="Report digests of the keys that differ, not the keys.")
    ] = False,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    json: options.Json = None,
) -> None:
    """Verify store partitions against their changelogs. Nothing is changed, and no store in use is opened."""
    started_ms = _now_ms()
    options.require_writable(json=json, reports_dir=asked.reports_dir)
    how = VerifyOptions(depth, sample, seed=started_ms, run_bytes=run_bytes, name_keys=not hide_keys)
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    chosen = choose(asked, topics)
    chosen.require_known()
    rows = rows_without_work(chosen, topics)
    if not chosen.specs and not rows:
        raise InputError(f"nothing to verify in {', '.join(chosen.applications)}: no store was found")
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("verifying", total=len(chosen.specs))
        tasks = task_counts(topics, chosen.defined)
        verified = verify_all(chosen.specs, how, parallel, lambda count: progress.advance(bar, count), tasks=tasks)
    report = VerifyReport(
        run_id=f"command-{started_ms}",
        applications=chosen.applications,
        catalogue=chosen.catalogue,
        started_ms=started_ms,
        finished_ms=_now_ms(),
        rows=(*verified, *rows),
    )
    tables.show_verified(output.console(json), report.rows)
    for item in chosen.troubled("unlogged"):
        print(f"statestore: {item.application}/{item.store.name} is left alone: {item.store.problem}", file=sys.stderr)
    if asked.reports_dir is not None:
        write_history(asked.reports_dir, report)
    output.write_json(json, report)
    raise typer.Exit(work.exit_code(report.rows))


@app.command()
@options.with_target
def restore(
    asked: Asked,
    parallel: options.Parallel,
    mode: Annotated[
        Mode,
        typer.Option(help="auto does what verify advises, full rebuilds, tail catches up, as-of builds elsewhere."),
    ] = "auto",
    verify_report: Annotated[
        Path | None, typer.Option(help="Only what this report of verify (--json) advises to restore.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Rebuild store partitions that are whole, too.")] = False,
    check: Annotated[
        CheckDepth, typer.Option(help="How a new store is checked before it goes live; deep reads every row.")
    ] = "files",
    ranges: Annotated[
        int | None,
        typer.Option(min=1, help="Cut each log into so many ranges; by its length if not said."),
    ] = None,
    as_of_offset: Annotated[
        int | None, typer.Option(min=0, help="Mode as-of: the last changelog offset in the store.")
    ] = None,
    as_of_timestamp: Annotated[
        str | None, typer.Option(help="Mode as-of: ISO 8601 or ms; nothing younger is in the store.")
    ] = None,
    target: Annotated[
        Path | None, typer.Option(help="Mode as-of: an empty directory, which becomes a state directory.")
    ] = None,
    best_effort: Annotated[
        bool, typer.Option("--best-effort", help="Mode as-of: leave out what compaction has removed, and say so.")
    ] = False,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    quarantine_days: Annotated[
        float, typer.Option(envvar="STATESTORE_QUARANTINE_DAYS", min=0, help="How long replaced stores are kept.")
    ] = 7.0,
    rollback: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STORE[/PARTITIONS]",
            help="Restore nothing, but put back what the last restore of STORE, STORE/0 or STORE/0,3 replaced, as it "
            "was. May be repeated.",
        ),
    ] = None,
    json: options.Json = None,
) -> None:
    """Restore store partitions from their changelogs; live stores are replaced when the new ones are whole."""
    started_ms = _now_ms()
    if rollback:
        given = (verify_report, ranges, as_of_offset, as_of_timestamp, target)
        changed = mode != "auto" or check != "files" or force or best_effort or bool(asked.partitions)
        if changed or any(option is not None for option in given):
            raise InputError(
                "--rollback puts back what was replaced: of the options that say what is restored and how, only "
                "--application, --store, --dry-run, --parallel and --json go with it"
            )
        _roll_back(asked, rollback, parallel, json, dry_run=dry_run, label=f"rollback-{started_ms}")
    verified = None if verify_report is None else read_report(verify_report, VerifyReport)
    how = How(
        mode=mode,
        label=f"command-{started_ms}",
        run_bytes=run_bytes,
        quarantine_s=quarantine_days * 86_400,
        force=force,
        diverged=frozenset(row.label for row in verified.rows if row.status is Status.DIVERGED)
        if verified
        else frozenset(),
        check=check,
        ranges=ranges,
        as_of=parse_as_of(as_of_offset, as_of_timestamp),
        target=target,
        best_effort=best_effort,
        processes=parallel,
        reports_dir=asked.reports_dir,
    )
    how.require_consistent()
    options.require_writable(json=json, reports_dir=None if dry_run else asked.reports_dir)
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    chosen = choose(asked, topics, certain=True)
    stores = stores_to_restore(chosen, topics)
    if verified is not None:
        stores = advised(stores, verified)
    report: RestoreReport | RestorePlanReport
    if dry_run:
        plans = tuple(plan_all(stores, how))
        tables.show_plan(output.console(json), plans)
        require_disk_for_all(plans)
        report = RestorePlanReport(
            run_id=how.label,
            applications=chosen.applications,
            catalogue=chosen.catalogue,
            started_ms=started_ms,
            finished_ms=_now_ms(),
            records_per_s=RECORDS_PER_S,
            rows=plans,
        )
    else:
        rows = tuple(restore_all(stores, how))
        tables.show_restored(output.console(json), rows)
        report = RestoreReport(
            run_id=how.label,
            applications=chosen.applications,
            catalogue=chosen.catalogue,
            started_ms=started_ms,
            finished_ms=_now_ms(),
            rows=rows,
        )
    output.write_json(json, report)
    raise typer.Exit(restoring.exit_code(report.rows))


def _roll_back(
    asked: Asked, rollback: list[str], parallel: int, json: Path | None, *, dry_run: bool, label: str
) -> NoReturn:
    wanted = rolling_back.parse_rollbacks(rollback)
    options.require_writable(json=json)
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    stores = {text.partition(":")[0] for text in asked.stores}
    names = [*asked.stores, *(name for name in wanted if name not in stores)]
    chosen = choose(replace(asked, stores=names), topics, certain=True)
    specs = rolling_back.stores_to_roll_back(chosen, wanted)
    rows = rolling_back.roll_back_all(specs, label, parallel, dry_run=dry_run)
    rolling_back.show_rolled_back(output.console(json), rows, dry_run=dry_run)
    output.write_content(json, {"dry_run": dry_run, "rows": [row.model_dump(mode="json") for row in rows]})
    raise typer.Exit(restoring.exit_code(rows))


@app.command()
@options.with_target
def read(
    asked: Asked,
    name: Annotated[str, typer.Argument(metavar="STORE", help="Name of a key-value store.")],
    key: Annotated[str, typer.Argument(help="As --key-serde has it.")],
    key_serde: Annotated[
        str | None, typer.Option(help="bytes (in hex), utf8, int64, json, or module:attribute; the definition's.")
    ] = None,
    value_serde: Annotated[str | None, typer.Option(help="Likewise; bytes (in hex) without a definition.")] = None,
) -> None:
    """Read a key from every partition of a key-value store that has it."""
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    chosen = choose(replace(asked, stores=(*asked.stores, name)), topics)
    chosen.require_free()
    chosen.require_known()
    specs = [spec for spec in chosen.specs if spec.store.name == name]
    if not specs:
        problems = [item.store.problem for item in chosen.found if item.store.name == name]
        raise InputError(f"store {name} cannot be read: {'; '.join(problems) or 'it is kept in memory'}")
    found = []
    for spec in specs:
        if spec.store.kind != "key-value":
            raise InputError(
                f"{spec.store_partition} is a {spec.store.kind} store; only key-value stores are read by key"
            )
        # Of a found store no serde is known; keys are text more often than not.
        raw = key_bytes(key, key_serde or (spec.store.key_serde if spec.owned else "utf8"))
        with locked(spec.paths, spec.lock_wait_s):
            value = read_key(spec, raw)
        if value is not None:
            plain, timestamp = value if isinstance(value, ValueAndTimestamp) else (value, None)
            text = value_text(plain, value_serde or (spec.store.value_serde if spec.owned else "bytes"))
            found.append((str(spec.store_partition), text, None if timestamp is None else str(timestamp)))
    if not found:
        print(f"statestore: no partition of {name} has the key {key!r}", file=sys.stderr)
        raise typer.Exit(1)
    output.console().print(tables.table(f"{name}: {key}", ("store partition", "value", "timestamp ms>"), found))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
