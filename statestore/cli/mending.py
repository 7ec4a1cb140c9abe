"""The command restore: it rebuilds stores, or puts back what a restore has replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from statestore import clock
from statestore.cli import options, output
from statestore.errors import InputError
from statestore.recovery.spec import CheckDepth, Mode, parse_as_of

if TYPE_CHECKING:
    from statestore.cli.choice import Asked
    from statestore.recovery.releasing import ReleaseRow
    from statestore.recovery.rollback import RollbackRow


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
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Rebuild also what its changelog can no longer give in full; the present store stays in quarantine.",
        ),
    ] = False,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    quarantine_days: options.QuarantineDays = 7.0,
    rollback: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STORE[/PARTITIONS]",
            help="Restore nothing, but put back what the last restore of STORE, STORE/0 or STORE/0,3 replaced, as it "
            "was. May be repeated.",
        ),
    ] = None,
    release: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STORE[/PARTITIONS]",
            help="Restore nothing, but remove what restores of STORE, STORE/0 or STORE/0,3 have replaced, also what "
            "may be the only copy of something. May be repeated.",
        ),
    ] = None,
    json: options.Json = None,
) -> None:
    """Restore store partitions from their changelogs; live stores are replaced when the new ones are whole."""
    from statestore.changelog.topics import Topics
    from statestore.cli import restoring, tables
    from statestore.cli.choice import choose
    from statestore.recovery.planning import RECORDS_PER_S, require_disk_for_all
    from statestore.reports import RestorePlanReport, RestoreReport, Status, VerifyReport, read_report

    started_ms = clock.now_ms()
    if rollback or release:
        given = (verify_report, ranges, as_of_offset, as_of_timestamp, target)
        changed = mode != "auto" or check != "files" or force or best_effort or accept_loss or bool(asked.partitions)
        if changed or any(option is not None for option in given):
            raise InputError(
                "--rollback puts back what was replaced, --release removes it: of the options that say what is "
                "restored and how, only --application, --store, --dry-run, --parallel and --json go with them"
            )
        if rollback and release:
            raise InputError("--rollback, --release: expected one of them, found both")
        _replaced(asked, rollback, release, parallel, json, dry_run=dry_run, label=f"rollback-{started_ms}")
    verified = None if verify_report is None else read_report(verify_report, VerifyReport)
    how = restoring.How(
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
        accept_loss=accept_loss,
        processes=parallel,
        reports_dir=asked.reports_dir,
    )
    how.require_consistent()
    options.require_writable(json=json, reports_dir=None if dry_run else asked.reports_dir)
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    chosen = choose(asked, topics, certain=True)
    stores = restoring.stores_to_restore(chosen, topics, elsewhere=mode == "as-of")
    if verified is not None:
        stores = restoring.advised(stores, verified, accept_loss=accept_loss)
    report: RestoreReport | RestorePlanReport
    if dry_run:
        plans = tuple(restoring.plan_all(stores, how))
        tables.show_plan(output.console(json), plans)
        require_disk_for_all(plans)
        report = RestorePlanReport(
            run_id=how.label,
            applications=chosen.applications,
            catalogue=chosen.catalogue,
            started_ms=started_ms,
            finished_ms=clock.now_ms(),
            records_per_s=RECORDS_PER_S,
            rows=plans,
        )
    else:
        rows = tuple(restoring.restore_all(stores, how))
        tables.show_restored(output.console(json), rows)
        report = RestoreReport(
            run_id=how.label,
            applications=chosen.applications,
            catalogue=chosen.catalogue,
            started_ms=started_ms,
            finished_ms=clock.now_ms(),
            rows=rows,
        )
    # A plan is no result: nothing else reads it.
    output.write_report(json, None if dry_run else asked.reports_dir, report)
    raise typer.Exit(restoring.exit_code(report.rows))


def _replaced(
    asked: Asked,
    rollback: list[str] | None,
    release: list[str] | None,
    parallel: int,
    json: Path | None,
    *,
    dry_run: bool,
    label: str,
) -> NoReturn:
    from statestore.changelog.topics import Topics
    from statestore.cli import restoring, rolling_back
    from statestore.cli.choice import choose

    named, option = (rollback, "--rollback") if rollback else (release or [], "--release")
    wanted = rolling_back.parse_replaced(named, option)
    options.require_writable(json=json)
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    stores = {text.partition(":")[0] for text in asked.stores}
    names = [*asked.stores, *(name for name in wanted if name not in stores)]
    chosen = choose(replace(asked, stores=names), topics, certain=True)
    specs = rolling_back.stores_replaced(chosen, wanted)
    rows: Sequence[RollbackRow | ReleaseRow]
    if rollback:
        rows = rolled_back = rolling_back.roll_back_all(specs, label, parallel, dry_run=dry_run)
        rolling_back.show_rolled_back(output.console(json), rolled_back, dry_run=dry_run)
    else:
        rows = released = rolling_back.release_all(specs, parallel, dry_run=dry_run)
        rolling_back.show_released(output.console(json), released, dry_run=dry_run)
    output.write_content(json, {"dry_run": dry_run, "rows": [row.model_dump(mode="json") for row in rows]})
    raise typer.Exit(restoring.exit_code(rows))
