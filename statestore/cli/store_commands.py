"""The commands that look at stores and change none of them: partitions, verify."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from statestore import clock
from statestore.cli import options, output
from statestore.cli.audit_command import audited
from statestore.cli.parameters import DURATION, duration, with_request
from statestore.errors import InputError
from statestore.requests.verify import VerifyRequest

if TYPE_CHECKING:
    from statestore.cli.selection import PartitionSelection
    from statestore.discovery.applications import WithoutLock


@options.with_target
def partitions(
    asked: PartitionSelection,
    names: options.Names = None,
    acknowledge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STORE",
            help="Acknowledge that this store cannot be judged. Reports show it, and it no longer decides the exit "
            "code. May be repeated.",
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Reason of --acknowledge, for reports. Default: none.")] = "",
    forget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STORE",
            help="Forget what was recorded of this store: its description, and its acknowledgement. May be repeated.",
        ),
    ] = None,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """List store partitions, their changelogs, and the offsets at which they were last closed."""
    from statestore.cli import known_stores
    from statestore.cli.archives import archive_of_stores
    from statestore.cli.partition_listing import listed
    from statestore.cli.selection import choose
    from statestore.cli.tables import table

    options.require_writable(json=json)
    topics = asked.where.cluster.topics
    if forget:
        where = archive_of_stores(archive, archive_timeout_s, topics)
        known_stores.forget(asked.where.state_dir, forget, asked.applications, where)
    asked = asked.naming(names or ())
    asked = replace(asked, leftovers=True)
    chosen = choose(asked, topics)
    if acknowledge:
        audited(asked.reports_dir, "acknowledge", chosen.applications, acknowledge)
        known_stores.acknowledge(chosen, asked.where.state_dir, acknowledge, reason)
        chosen = choose(asked, topics)
    chosen.say_left_out()
    rows = listed(chosen, topics)
    columns = (
        *("store partition", "kind", "format", "retention>", "changelog", "recorded offset>"),
        *("log start>", "log end>", "state", "note"),
    )
    shown = ((row.label, *row[3:5], clock.exact_duration(row.retention_ms), *row[6:]) for row in rows)
    output.console(json).print(table(f"{len(rows)} store partitions", columns, shown))
    head = {"applications": chosen.applications, "catalogue": chosen.catalogue}
    found = known_stores.shapes(chosen, asked.where.state_dir)
    recorded = known_stores.recorded(chosen)
    output.write_rows(json, rows, **head, shapes=found, recorded=recorded, left_out=chosen.without_rows)
    if chosen.failed:
        raise typer.Exit(1)


@options.with_target
@with_request(VerifyRequest, without=("applications", "stores", "partitions"))
def verify(
    request: VerifyRequest,
    asked: PartitionSelection,
    names: options.Names = None,
    parallel: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of parallel processes. Default: all cores; with --live, one.", show_default=False
        ),
    ] = None,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    every: Annotated[
        float | None,
        typer.Option(
            parser=duration("s", above=0),
            metavar=DURATION,
            help="Verify again at this interval, such as 6h, until the command is ended; for a sidecar. Errors are "
            "printed, and the next run tries again. Default: verify once.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = None,
) -> None:
    """Verify store partitions against their changelogs. Changes nothing, even while their application runs."""
    from contextlib import nullcontext
    from functools import partial

    from statestore.verification.live.pace import lowest_priority

    processes = parallel or (1 if request.live else os.cpu_count() or 1)
    how = _HowToVerify(processes, run_bytes, archive, archive_timeout_s, json)
    once = partial(_verify_once, request, asked.naming(names or ()), how)
    # Processes that do a part of the work, and what is around it, are to take nothing from the application, either.
    with lowest_priority() if request.live else nullcontext():
        if every is None:
            raise typer.Exit(once())
        from statestore.cli.repeated_runs import run_every

        run_every(every, once)


class _HowToVerify(NamedTuple):
    parallel: int
    run_bytes: int
    archive: str | None
    archive_timeout_s: float
    json: Path | None


def _verify_once(request: VerifyRequest, asked: PartitionSelection, how_to: _HowToVerify) -> int:
    """Verify, write the report, and return the exit code."""
    parallel, run_bytes, archive, archive_timeout_s, json = how_to
    from rich.console import Console
    from rich.progress import Progress

    from statestore.cli import known_stores, next_steps, tables
    from statestore.cli import verification as work
    from statestore.cli.archives import archive_of_stores
    from statestore.cli.selection import choose
    from statestore.discovery.partitions import task_counts
    from statestore.metrics.export import export_report
    from statestore.reports import VerifyReport
    from statestore.verification.acknowledged import with_acknowledged
    from statestore.verification.history import write_history
    from statestore.verification.options import VerifyOptions

    started_ms = clock.now_ms()
    options.require_writable(json=json, reports_dir=asked.reports_dir)
    how = VerifyOptions.of(request, started_ms, run_bytes=run_bytes)
    topics = asked.where.cluster.topics
    where = archive_of_stores(archive, archive_timeout_s, topics)
    kept_in = known_stores.reachable(where)
    without_lock: WithoutLock = "always" if request.live else "if locked"
    chosen = choose(replace(asked, archive=kept_in, leftovers=True), topics, without_lock=without_lock)
    chosen.require_known()
    chosen.say_left_out()
    rows = work.rows_without_work(chosen, topics)
    if not chosen.specs and not rows:
        raise InputError(f"nothing to verify in {', '.join(chosen.applications)}: no store was found")
    hidden = output.is_quiet() or not sys.stderr.isatty()
    with Progress(console=Console(stderr=True), disable=hidden) as progress:
        bar = progress.add_task("verifying", total=len(chosen.specs))
        tasks = task_counts(topics, chosen.defined)
        specs = [spec.model_copy(update={"archive": where}) for spec in chosen.specs]
        verified = work.verify_all(
            specs,
            how,
            parallel,
            lambda count: progress.advance(bar, count),
            tasks=tasks,
            live=request.live,
            falls_back=True,
        )
    report = VerifyReport(
        run_id=f"command-{started_ms}",
        applications=chosen.applications,
        catalogue=chosen.catalogue,
        **output.state_dir(asked.where.state_dir),
        started_ms=started_ms,
        finished_ms=clock.now_ms(),
        rows=(*with_acknowledged(verified, asked.where.state_dir), *rows),
        left_out=chosen.without_rows,
    )
    if not request.live:  # which writes nothing where the stores are
        known_stores.keep(chosen, asked.where.state_dir, report.rows, kept_in)
    tables.show_verified(output.console(json), report.rows)
    for row in report.rows:
        if row.kill_risk:
            print(f"statestore: warning: {row.label}: {row.kill_risk}", file=sys.stderr)
    for store in (*chosen.troubled("unlogged"), *chosen.troubled("in memory")):
        print(f"statestore: {store.label} is skipped: {store.problem}", file=sys.stderr)
    output.write_report(json, asked.reports_dir, report)
    if asked.reports_dir is not None:
        write_history(asked.reports_dir, report)
    written = output.report_path(json, asked.reports_dir, report)
    output.say_next(next_steps.after_verify(report.rows, written, named=bool(asked.selectors)), json)
    code = work.exit_code(report.rows)
    if not asked.partitions:  # a part of a store would be taken for the whole of it
        export_report(report, code)
    return code
