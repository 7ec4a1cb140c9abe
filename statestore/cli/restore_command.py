"""The command restore: it rebuilds stores, or puts back what a restore has replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from statestore import clock
from statestore.cli import options, output
from statestore.cli.audit_command import audited
from statestore.cli.parameters import with_request
from statestore.errors import InputError
from statestore.model import StoreSelector
from statestore.requests.restore import RestoreRequest

if TYPE_CHECKING:
    from statestore.archive.archive import ArchiveSpec
    from statestore.cli.selection import PartitionSelection
    from statestore.kafka.topics import Topics
    from statestore.partition.release import ReleaseRow
    from statestore.partition.rollback import RollbackRow


@options.with_target
@with_request(RestoreRequest, without=("applications", "stores", "partitions"))
def restore(
    request: RestoreRequest,
    asked: PartitionSelection,
    parallel: options.Parallel,
    names: options.Names = None,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    quarantine_days: options.QuarantineDays = 7.0,
    rollback: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STORE",
            help="Instead of restoring, put back what the last restore replaced: in all partitions of STORE, or in "
            "some, as in STORE/0_3 or STORE/0_3,0_4. May be repeated.",
        ),
    ] = None,
    release: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STORE",
            help="Instead of restoring, remove the stores that restores of STORE have replaced, even if one may be "
            "the only copy of some data. Takes the same forms as --rollback. May be repeated.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|SET",
            help="Instead of restoring single stores, put the whole application back: all of its stores and its input "
            "offsets, as they were at a time, or in a set of snapshots. Needs --application, and a definition.",
        ),
    ] = None,
    yes: options.Yes = False,
    kafka_streams: options.KafkaStreams = None,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Restore store partitions from their changelogs. A live store is replaced once its replacement passes a check."""
    from statestore.cli import known_stores, next_steps, tables
    from statestore.cli import local_processes as local
    from statestore.cli import restore_selection as restoring
    from statestore.cli.archives import archive_of_stores
    from statestore.cli.point_command import PointAsked, put_back
    from statestore.cli.selection import choose
    from statestore.metrics.export import export_report
    from statestore.recovery.disk_space import require_disk_for_all
    from statestore.recovery.run import restore_specs, run_restore
    from statestore.reports import RestorePlanReport, RestorePlanRow, RestoreRow

    started_ms = clock.now_ms()
    asked = asked.naming(names or ())
    if to is not None:
        if request.model_copy(update={"dry_run": False}) != RestoreRequest() or rollback or release:
            raise InputError(
                "--to puts a whole application back. Only --application, --archive, --dry-run, --yes, --parallel, and "
                "--json can be combined with it"
            )
        where = archive_of_stores(archive, archive_timeout_s, asked.where.cluster.topics)
        point = PointAsked(to, where, started_ms, dry_run=request.dry_run, yes=yes, json=json)
        put_back(asked, point, parallel, run_bytes)
        return
    if rollback or release:
        if request.model_copy(update={"dry_run": False}) != RestoreRequest() or asked.partitions:
            raise InputError(
                "--rollback puts replaced stores back, --release removes them. Only --application, --store, --dry-run, "
                "--parallel, and --json can be combined with them"
            )
        if rollback and release:
            raise InputError("--rollback, --release: expected one of them, found both")
        if rollback:
            options.require_stores_here("To put an earlier one in place, run `statestore snapshot reinstate`")
        label = f"rollback-{started_ms}"
        keep = partial(archive_of_stores, archive, archive_timeout_s)
        _replaced(asked, rollback, release, parallel, json, keep, dry_run=request.dry_run, label=label)
    # A plan is no result: nothing else reads it.
    reports_dir = None if request.dry_run else asked.reports_dir
    options.require_writable(json=json, reports_dir=reports_dir)
    topics = asked.where.cluster.topics
    where = archive_of_stores(archive, archive_timeout_s, topics)
    chosen = choose(replace(asked, archive=where, leftovers=True), topics, certain=True)
    chosen.say_left_out()
    stores = restoring.stores_to_restore(chosen, topics, elsewhere=request.mode == "as-of", kafka_streams=kafka_streams)
    stores = restoring.advised_stores(stores, request)
    stores = [store.model_copy(update={"archive": where}) for store in stores]
    run_id, quarantine_s = f"command-{started_ms}", quarantine_days * 86_400
    if request.changes_stores:
        labels = [str(store.store_partition) for store in stores]
        loss = request.accept_loss
        audited(reports_dir, "restore", chosen.applications, labels, accepts_loss=loss, run_id=run_id)
    report = run_restore(
        restore_specs(stores, request, run_id, run_bytes=run_bytes, quarantine_s=quarantine_s),
        request,
        run_id,
        local.runner(parallel),
        parallelism=parallel,
        reports_dir=asked.reports_dir,
        started_ms=started_ms,
    )
    kind = RestorePlanRow if request.dry_run else partial(RestoreRow, outcome="failed")
    rows = (*report.rows, *restoring.failed_rows(chosen, kind))
    head = {"applications": chosen.applications, "catalogue": chosen.catalogue, "rows": rows}
    report = report.model_copy(update={**head, **output.state_dir(asked.where.state_dir)})
    report = restoring.with_not_judged(report, chosen)
    tables.show(output.console(json), report)
    if isinstance(report, RestorePlanReport):
        require_disk_for_all(report.rows)
    elif request.mode != "as-of":
        known_stores.keep(chosen, asked.where.state_dir, report.rows, where)
    output.write_report(json, reports_dir, report)
    written = output.report_path(json, reports_dir, report)
    if isinstance(report, RestorePlanReport):
        steps = next_steps.after_plan(report.rows, written)
    else:
        # `validate` reads the catalogue, and writes its own report.
        judged = written if asked.reports_dir is not None and asked.definitions is None else None
        steps = next_steps.after_restore(report.rows, chosen, judged, request.target)
    output.say_next(steps, json)
    code = restoring.exit_code(report.rows)
    export_report(report, code)
    raise typer.Exit(code)


def _replaced(
    asked: PartitionSelection,
    rollback: list[str] | None,
    release: list[str] | None,
    parallel: int,
    json: Path | None,
    archive_of: Callable[[Topics], ArchiveSpec | None],
    *,
    dry_run: bool,
    label: str,
) -> NoReturn:
    from statestore.cli import next_steps
    from statestore.cli import restore_selection as restoring
    from statestore.cli import rollback as rolling_back
    from statestore.cli.selection import choose

    named = rollback or release or []
    options.require_writable(json=json)
    topics = asked.where.cluster.topics
    chosen = choose(asked.naming(named), topics, certain=True)
    specs = rolling_back.stores_replaced(chosen, [StoreSelector.parse(name) for name in named])
    rows: Sequence[RollbackRow | ReleaseRow]
    if not dry_run:
        action: Literal["rollback", "release"] = "rollback" if rollback else "release"
        labels = [str(spec.store_partition) for spec in specs]
        audited(asked.reports_dir, action, {spec.application for spec in specs}, labels, accepts_loss=not rollback)
    if rollback:
        specs = [spec.model_copy(update={"archive": archive_of(topics)}) for spec in specs]
        rows = rolled_back = rolling_back.roll_back_all(specs, label, parallel, dry_run=dry_run)
        rolling_back.show_rolled_back(output.console(json), rolled_back, dry_run=dry_run)
    else:
        rows = released = rolling_back.release_all(specs, parallel, dry_run=dry_run)
        rolling_back.show_released(output.console(json), released, dry_run=dry_run)
    output.write_content(json, {"dry_run": dry_run, "rows": [row.model_dump(mode="json") for row in rows]})
    done = [row.label for row in rows if row.failure is None]
    if dry_run and done:
        output.say_next([(next_steps.again(without="--dry-run"), "put it back" if rollback else "remove it")], json)
    elif rollback:
        output.say_next(next_steps.after_rollback(done), json)
    raise typer.Exit(restoring.exit_code(rows))
