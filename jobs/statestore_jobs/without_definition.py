"""Verification, restore, and drills of a Kafka Streams application without a definition, which the environment lists.

Its stores are found as by the command: from its state directory, its topics, and what was recorded of them. The driver
and the executors must see the directory. A verification takes the lock of a task for the time that it needs, or none if
the application runs, and writes nothing but what it has found out about the stores. With `live`, as on a schedule, it
takes no locks and writes nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from statestore import clock
from statestore.archive.archive import ArchiveSpec, archive_spec
from statestore.cli import known_stores
from statestore.cli import restore_selection as restoring
from statestore.cli.drill_selection import stores_to_drill
from statestore.cli.selection import PartitionSelection, Where, choose
from statestore.cli.verification import Piece, rows_without_work, verify_piece, verify_with
from statestore.config import Settings
from statestore.discovery.directories import tasks_in
from statestore.discovery.partitions import FailedStore
from statestore.drills.history import read_drills
from statestore.drills.run import DrillRun, run_drills
from statestore.drills.scratch import require_apart
from statestore.environments import FILE, KafkaStreamsApplication
from statestore.errors import InputError, StateStoreError, UnsharedStateError, of_os_error
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import Topics
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import locked
from statestore.recovery.run import restore_specs, run_restore
from statestore.reports import DrillReport, RestorePlanReport, RestoreReport, VerifyReport, VerifyRow
from statestore.requests.drill import DrillRequest
from statestore.requests.restore import RestoreRequest
from statestore.requests.verify import VerifyRequest
from statestore.statedir.lock import is_writable
from statestore.verification.acknowledged import with_acknowledged
from statestore.verification.check import undetermined
from statestore.verification.options import VerifyOptions
from statestore.verification.report_row import report_row
from statestore_jobs.entry import spark_session
from statestore_jobs.parallel import run_each
from statestore_jobs.shared_state import shared_state


class PieceRows(NamedTuple):
    """Rows of the store partitions that one Spark task verified, and whether its worker died before."""

    rows: list[VerifyRow]
    lost: bool = False


def verify(
    request: VerifyRequest, settings: Settings, application: KafkaStreamsApplication, run_id: str
) -> VerifyReport:
    """Verify the stores of the application while it runs, or after it was stopped.

    If they cannot be found, the report has one row, which says why.
    """
    started_ms = clock.now_ms()
    options = VerifyOptions.of(request, started_ms, run_bytes=settings.restore_run_bytes)
    left_out: dict[str, str] = {}
    try:
        selection, topics, archive = _selection(request, settings, application)
        # Locks may not be seen through a read-only mount.
        live = request.live or not is_writable(selection.where.state_dir)
        chosen = choose(selection, topics, without_lock="always" if live else "if locked")
        specs = [spec.model_copy(update={"archive": archive}) for spec in chosen.specs]
        rows = rows_without_work(chosen, topics)
        if not specs and not rows:
            raise InputError("nothing to verify: no store with a changelog was found")
        run = partial(_in_spark, spark_session("verify"))
        # It is expected to run, so its stores get as much time as with `live`.
        verified = verify_with(run, specs, options, live=live, locked_options=options)
        rows = [*with_acknowledged(verified, selection.where.state_dir), *rows]
        left_out = chosen.without_rows
        if not live:
            known_stores.keep(chosen, selection.where.state_dir, rows, selection.archive)
    except (InputError, OSError) as error:
        cause = of_os_error(error) if isinstance(error, OSError) else error
        rows = [undetermined(FailedStore(name, "-", cause)) for name in request.applications]
    return VerifyReport(
        run_id=run_id,
        applications=request.applications,
        started_ms=started_ms,
        finished_ms=clock.now_ms(),
        rows=tuple(rows),
        left_out=left_out,
    )


def restore(
    request: RestoreRequest, settings: Settings, application: KafkaStreamsApplication, run_id: str
) -> RestoreReport | RestorePlanReport:
    """Restore the stores of the application, which must be stopped.

    Raises
    ------
    LockedError
        If every store is in use; if only some are, their rows have this failure.
    """
    started_ms = clock.now_ms()
    selection, topics, archive = _selection(request, settings, application, exists=False)
    chosen = choose(selection, topics, certain=True)
    stores = restoring.stores_to_restore(
        chosen, topics, elsewhere=request.mode == "as-of", kafka_streams=application.version
    )
    stores = [store.model_copy(update={"archive": archive}) for store in stores]
    report = restore_in_spark(stores, request, settings, run_id, started_ms, selection.where.state_dir)
    report = restoring.with_not_judged(report.model_copy(update={"applications": request.applications}), chosen)
    if isinstance(report, RestoreReport) and request.mode != "as-of":
        known_stores.keep(chosen, selection.where.state_dir, report.rows, archive)
    return report


def restore_in_spark(
    stores: Sequence[StorePartitionSpec],
    request: RestoreRequest,
    settings: Settings,
    run_id: str,
    started_ms: int,
    shared_dir: Path | None,
) -> RestoreReport | RestorePlanReport:
    """Restore store partitions in Spark tasks; `shared_dir` as of `shared_state`."""
    run_bytes, quarantine_s = settings.restore_run_bytes, settings.quarantine_days * 86_400
    specs = restore_specs(stores, request, run_id, run_bytes=run_bytes, quarantine_s=quarantine_s)
    spark = spark_session("restore")
    with shared_state(spark, shared_dir):
        return run_restore(
            specs,
            request,
            run_id,
            partial(run_each, spark),
            parallelism=spark.sparkContext.defaultParallelism,
            reports_dir=settings.reports_dir,
            started_ms=started_ms,
        )


def drill(
    request: DrillRequest, settings: Settings, application: KafkaStreamsApplication, how: DrillRun
) -> DrillReport:
    """Drill restores of the stores of the application, which may run: its directories of stores are not looked at."""
    started_ms = clock.now_ms()
    selection, topics, archive = _selection(request, settings, application, exists=False)
    require_apart(how.scratch, selection.where.state_dir)
    # All of its stores must be restorable, also those that only other machines have.
    asked = replace(selection, archive=archive, here_only=False)
    chosen, stores, others = stores_to_drill(asked, topics, how.scratch)
    run = partial(run_each, spark_session("drill"))
    drills = read_drills(settings.reports_dir)
    report = run_drills(stores, how, drills, run, started_ms=started_ms, others=others)
    return report.model_copy(update={"applications": request.applications, "left_out": chosen.without_rows})


def _selection(
    request: VerifyRequest | RestoreRequest | DrillRequest,
    settings: Settings,
    application: KafkaStreamsApplication,
    *,
    exists: bool = True,
) -> tuple[PartitionSelection, Topics, ArchiveSpec | None]:
    """Return what a request selects, the topics of the application, and its archive.

    Parameters
    ----------
    exists
        Refuse a state directory without tasks of the application.

    Raises
    ------
    InputError
        If the state directory is not listed, or has no tasks of the application.
    """
    (name,) = request.applications
    if application.state_dir is None:
        raise InputError(f"application {name}: the file of {FILE} has no state_dir for it. Add it")
    if exists and not tasks_in(application.state_dir, name):
        raise InputError(
            f"{application.state_dir / name} on {socket.gethostname()} does not exist, or has no tasks. Mount the "
            "state.dir of the application at this path on the machines of the driver and of all executors, or correct "
            f"state_dir in the file of {FILE}"
        )
    own = application.bootstrap_servers
    cluster = Cluster(own, settings.kafka_timeout_s) if own else settings.cluster
    topics = cluster.topics
    archive = archive_spec(settings.archive, settings.archive_timeout_s, topics)
    selection = PartitionSelection(
        where=Where(cluster, application.state_dir),
        applications=request.applications,
        stores=request.stores,
        numbers=request.partitions,
        here_only=application.here_only,
        guarantee="at_least_once" if application.at_least_once else "exactly_once_v2",
        archive=known_stores.reachable(archive),
        shapes=application.shapes,
        leftovers=True,
    )
    return selection, topics, archive


def _in_spark(
    spark: SparkSession, pieces: Sequence[Piece], work: Callable[[Piece], list[VerifyRow]]
) -> list[list[VerifyRow]]:
    def verify_visible(piece: Piece) -> list[VerifyRow]:
        _require_visible(piece.specs)
        return work(piece)

    return [found.rows for found in in_spark_tasks(spark, pieces, verify_visible)]


def in_spark_tasks(
    spark: SparkSession, pieces: Sequence[Piece], work: Callable[[Piece], list[VerifyRow]] = verify_piece
) -> list[PieceRows]:
    """Verify each piece in a separate Spark task."""
    return run_each(spark, pieces, lambda piece: PieceRows(work(piece)), PieceRows, _lost)


def _require_visible(specs: Sequence[StorePartitionSpec]) -> None:
    for directory in {spec.state_dir / spec.application for spec in specs}:
        if not directory.is_dir():
            raise UnsharedStateError(
                f"{directory} does not exist on {socket.gethostname()}, and the driver sees it. Mount one file system "
                "at this path on the machines of the driver and of all executors"
            )


def _lost(piece: Piece, error: StateStoreError) -> PieceRows:
    return PieceRows([report_row(spec, locked(error), "scan") for spec in piece.specs], lost=True)
