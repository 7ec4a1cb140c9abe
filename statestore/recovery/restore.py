"""Restoring one store partition: build beside the live store, check, swap.

The live store is not touched before the swap. An interrupted restore has changed nothing; run again, it goes on behind
the sorted runs that it left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from statestore import kill_switch
from statestore.archive.grown_from import beginning, continuing
from statestore.archive.manifest import Manifest
from statestore.bulk.versions import fold_of
from statestore.changelog import brokers_clock
from statestore.changelog.epochs import log_ends
from statestore.changelog.kept import keep_connections
from statestore.changelog.standing import next_offset
from statestore.changelog.topics import LogRange
from statestore.durable import remove_tree
from statestore.errors import (
    ArchiveAccessError,
    ArchiveUnavailableError,
    InputError,
    LockedError,
    SnapshotError,
    StateStoreError,
    StoreBehindLogStartError,
    StoreCorruptedError,
)
from statestore.formats.database_files import has_rows
from statestore.model import TopicPartition
from statestore.partition.archived import known_of, lives_in_archive
from statestore.partition.generations import built_from_log, newest_generation, superseded
from statestore.partition.judgement import LACKS_VERSIONS
from statestore.partition.quarantine import clean_quarantine
from statestore.partition.reinstating import keep_replaced, replaced_by
from statestore.partition.replacement import clear_built, may_lack_versions
from statestore.partition.snapshots import publish_row, suspect_all
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.as_of import built_before, claim_target, in_target, point_and_target, require_free_target
from statestore.recovery.as_of_source import point_source, still_exact
from statestore.recovery.catch_up import build_caught_up, decide
from statestore.recovery.distributed import put_together, remove_builds
from statestore.recovery.full import Built, Logs, build_full, plan_build, read_range
from statestore.recovery.global_tables import restore_global
from statestore.recovery.mode import require_not_chosen
from statestore.recovery.older_layout import move_offsets_out
from statestore.recovery.planning import (
    require_disk,
    require_disk_for_snapshot,
    snapshots_to_use,
    store_logs,
    tail_logs,
)
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.snapshot import build_from_snapshot
from statestore.recovery.spec import RestoreSpec as RestoreSpec
from statestore.recovery.staged_check import check_staged
from statestore.recovery.staging import OffsetRange, Staging
from statestore.recovery.tail import build_replayed
from statestore.recovery.unlogged import restore_unlogged
from statestore.reports import Failure, Loss, RestoreRow, Status, VerifyRow
from statestore.statedir.record import StoreRecord, read_record
from statestore.statedir.seal import install_digests, seal
from statestore.statedir.sidecar import Judgement, read_text
from statestore.statedir.swap import locked_task, swap
from statestore.verification.check import check, check_archived
from statestore.verification.logs import AskedLogs, Cluster
from statestore.verification.options import VerifyOptions

_log = logging.getLogger(__name__)

_OFFSETS, _SCAN = VerifyOptions(depth="offsets"), VerifyOptions(depth="scan")


def restore(spec: RestoreSpec, before: AskedLogs | None = None) -> RestoreRow:
    """Lock the task and restore its store; a failure of ours becomes part of the row, so that others go on.

    Parameters
    ----------
    before
        Logs that were asked for a moment ago; see `Cluster`.
    """

    def work(row: RestoreRow) -> RestoreRow:
        with RestoreProgressWriter(spec.store, spec.progress) as progress, keep_connections():
            if spec.store.is_global:
                return restore_global(spec, row, progress)
            if not spec.store.store.logged:
                return restore_unlogged(spec, row, progress)
            if spec.request.mode == "as-of":
                return _restore_as_of(spec, row, progress)
            return _restore_live(spec, row, progress, before)

    return in_row(spec.store, work)


def in_row(store: StorePartitionSpec, work: Callable[[RestoreRow], RestoreRow]) -> RestoreRow:
    """Return what a piece of work makes of its row, with its time; a failure of ours becomes part of it."""
    started, row = time.monotonic(), _row(store)
    try:
        row = work(row)
    except (StateStoreError, OSError) as error:
        row = _failed(row, error)
    return row.model_copy(update={"seconds": round(time.monotonic() - started, 3)})


def failed(spec: RestoreSpec, error: StateStoreError | OSError) -> RestoreRow:
    """Return the row of a store partition whose restore did not begin, or was lost."""
    return _failed(_row(spec.store), error)


def _row(store: StorePartitionSpec) -> RestoreRow:
    return RestoreRow(application=store.application, store=store.store.name, task=str(store.task), outcome="failed")


def _failed(row: RestoreRow, error: StateStoreError | OSError) -> RestoreRow:
    return row.model_copy(update={"failure": Failure.of(error)})


# -- ranges that are read before, each by itself ----------------------------------------------------------------------


def begin_ranges(spec: RestoreSpec) -> tuple[OffsetRange, ...]:
    """Fix what is read to rebuild a store, and return its ranges for `restore_range`.

    `restore` then takes over their sorted runs. None of this needs the task's lock: the live store is not touched.

    Raises
    ------
    LockedError
        If another restore of this store is at work.
    """
    staging, asked_ms = Staging(spec.store.paths, spec.store.store.name), brokers_clock.now_ms(spec.store)
    logs = store_logs(spec.store)
    with staging.alone(spec.store.lock_wait_s):
        staging.clear_unfinished()
        require_disk(spec, "full", logs)
        plan = plan_build(spec, staging, logs, asked_ms)
        staging.before_a_run()  # others will write them
        return plan.ranges


def restore_range(spec: RestoreSpec, part: OffsetRange, name: str = "") -> RestoreRow:
    """Turn one range of a store's log into sorted runs on disk; a failure becomes part of the row.

    Parameters
    ----------
    name
        Of the range, for its progress file.
    """
    store = spec.store
    staging = Staging(store.paths, store.store.name)

    def work(row: RestoreRow) -> RestoreRow:
        with (
            staging.reading(store.lock_wait_s),
            staging.reading_range(part, store.lock_wait_s),
            RestoreProgressWriter(store, spec.progress, name) as progress,
        ):
            plan = staging.plan()
            if plan is None or part not in plan.ranges:
                raise LockedError(
                    f"another restore of {store.store_partition} has started in the meantime. Run it again"
                )
            progress.reading(part.start, part.end)
            runs, resumed = read_range(spec, staging, part, progress, fold_of(spec.store.store), keep_in_memory=False)
            figures = {"outcome": "restored", "start": part.start, "end": part.end, "resumed": resumed}
            return row.model_copy(update={**figures, "records": sum(found.records for found in runs)})

    return in_row(store, work)


# -- the live store ---------------------------------------------------------------------------------------------------


def _restore_live(
    spec: RestoreSpec, row: RestoreRow, progress: RestoreProgressWriter, before: AskedLogs | None
) -> RestoreRow:
    store = spec.store
    with locked_task(store.paths, store.lock_wait_s):
        row = _judge_and_replace(spec, row, progress, before)
        if row.failure is not None:
            return row
        try:
            clean_quarantine(store.paths, store.store, spec.quarantine_s)
        except (StateStoreError, OSError) as error:  # of no harm to the store, which is whole by now
            _log.warning("restore: %s: old stores in quarantine could not be removed: %s", row.label, error)
    return row


def _judge_and_replace(
    spec: RestoreSpec, row: RestoreRow, progress: RestoreProgressWriter, before: AskedLogs | None
) -> RestoreRow:
    for last_attempt in (False, True):
        # What is rebuilt whatever it is need not be read first.
        unread = spec.request.force and spec.request.mode != "tail"
        # Where each node has a disk of its own, what lies here is a copy, and no reason to restore the store.
        look = check_archived if lives_in_archive(spec.store) else check
        cluster = Cluster(spec.store.bootstrap_servers, spec.store.kafka_timeout_s, None if last_attempt else before)
        found = look(spec.store, _OFFSETS if unread else _SCAN, cluster)
        if unread and found.loss is None:  # it was not asked, as nobody seemed about to rebuild the store
            found = look(spec.store, _SCAN, cluster)
        row = row.model_copy(update={"before": found.status})
        # Where nothing was there to be read, no time has passed since its log was asked for.
        asked_now = found.status is Status.MISSING and spec.store.partition in cluster.supplied.logs
        told = cluster.supplied if asked_now and not lives_in_archive(spec.store) else None
        try:
            return _replace(spec, row, found, progress, told)
        except StoreBehindLogStartError as error:  # retention was faster: what would be lost is judged anew, too
            if last_attempt:
                return _failed(row, error)
        except (StateStoreError, OSError) as error:
            return _failed(row, error)
    raise AssertionError("the last attempt returns")


def _replace(
    spec: RestoreSpec, row: RestoreRow, found: VerifyRow, progress: RestoreProgressWriter, told: AskedLogs | None
) -> RestoreRow:
    store, name = spec.store, spec.store.store.name
    decided, catch_up = decide(spec, found)
    mode, found = decided.mode, decided.found
    staging = Staging(store.paths, name)
    with staging.alone(store.lock_wait_s):
        if mode is None:
            _clear(store, staging)  # a killed restore may have left something, and somebody else has mended the store
            if spec.publish:
                remove_builds(store)
            figures = {"keys": found.keys or 0, "committed": found.committed}
            return row.model_copy(update={**_done_before(spec), **figures})
        clear_built(store.paths)  # what a killed attempt left needs the room
        staging.clear_unfinished()
        asked_ms, logs = told or AskedLogs(brokers_clock.now_ms(store), store_logs(store))
        candidates, against = snapshots_to_use(spec, decided, logs, asked_ms)
        snapshot, made = _build_from_first(spec, candidates, logs, progress, asked_ms, by_hand=bool(against))
        from_log = spec.request.accept_loss and spec.request.mode == "auto"
        if snapshot is None and mode == "snapshot" and found.loss is Loss.LIKELY and not from_log:
            raise InputError(
                f"{row.label}: no snapshot can be used, and a rebuild from its log alone would lose data: "
                f"{found.loss_detail}; to rebuild it anyway, use mode full and --accept-loss, or name "
                "a snapshot"
            )
        if snapshot is None and mode == "snapshot":
            require_not_chosen(spec, found)
            _log.warning("restore: %s: no snapshot can be used; it is rebuilt from its log alone", row.label)
        if mode != "tail":
            mode = "full" if snapshot is None else "snapshot"
        if mode in ("full", "tail"):
            _require_no_less(store, found, logs[store.partition], tail=mode == "tail")
        if mode == "full":
            made = _put_together(spec, logs, progress, asked_ms)
        if made is not None:
            built, keys = made
        else:
            if mode == "full":
                require_disk(spec, mode, logs)
                built = _build_anew(spec, staging, logs, progress, asked_ms)
            else:
                require_disk(spec, mode, tail_logs(logs, found.committed))
                if catch_up is None:
                    built = build_replayed(spec, logs, found.committed, progress, asked_ms)
                else:
                    built = build_caught_up(spec, catch_up, logs, progress)
            progress.phase("checking")
            keys = check_staged(store, built, spec.request.check)
        kill_switch.reached("restore, built, not swapped")
        record = _record(spec, built, logs, built.since_ms)
        if snapshot is not None:
            record = record.model_copy(update=snapshot.record.model_dump(include={"needed_from", "adopted"}))
        if mode == "tail" and catch_up is None:  # the new store has all that the old one has
            record = record.model_copy(update=_begun(store))
            found = found.model_copy(update={"loss": Loss.NONE})
        covered = decided.needs is not None and snapshot is not None and not against
        loss = found.loss if found.loss is not None and not covered else Loss.UNPROVEN
        verdict = _verdict(store, found, loss)
        begins = f"snapshot {spec.request.snapshot} by hand: {against}" if against else ""
        if not begins and loss is Loss.LIKELY and spec.may_begin_generation:
            begins = f"an accepted loss: {found.loss_detail}"
        exact = None if mode != "full" or store.store.compaction_keeps_rows else not _lacks_versions(store, logs)
        if not begins and exact is False and loss is not Loss.NONE:
            begins = f"a rebuild from its log alone: {LACKS_VERSIONS}"  # its snapshots may have what the log lacks
        if not begins and mode == "full" and (chosen := _chosen_by_hand(store)) is not None:
            begins = f"a rebuild from its log alone: before, it was put in place by {chosen}"
        if against:  # its log does not give it, so a rebuild would not either
            record = record.model_copy(update={"adopted": True})
        grown = _grown_from(store, mode, snapshot, begins)
        replaced = _keep_replaced(spec, snapshot)
        if spec.diverged and store.archive is not None:
            suspect_all(store, store.archive, f"{found.status}: its rows were not what the changelog gives")
        elif lives_in_archive(store) and store.archive is not None and spec.publish and _mistrusts(spec, found):
            suspect_all(store, store.archive, f"{found.status}, and built anew from the log by restore {spec.label}")
        quarantine = _swap_in(spec, built, record, verdict, grown, snapshot)
        _clear(store, staging)
        # At least once, a store that was only caught up may be none of its log's.
        of_its_log = mode != "tail" or (store.exactly_once and store.owned)
        publishes = spec.publish and of_its_log and not store.offsets_beside
        published = None
        if store.archive is not None and publishes:
            published = publish_row(store, store.archive, "restore", built.uploaded)
        if spec.publish and (published is None or published.failure is None):
            remove_builds(store)
    if begins and lives_in_archive(store) and published is not None and published.failure is not None:
        # Before its generation has begun, it is no more than a copy that nobody uses.
        row = row.model_copy(update={"failure": published.failure})
    # Where the archive has the store, the one that lay here was a copy of what was replaced, or of an older one.
    kept = None if quarantine is None or lives_in_archive(store) else str(quarantine)
    done: dict[str, object] = {"mode": mode, "keys": keys, "exact": exact, "quarantine": kept}
    done |= {"replaced": replaced, "published": published}
    return row.model_copy(
        update={**_figures(built, logs, spec), **done, "snapshot": None if snapshot is None else str(snapshot.name)}
    )


def put_in_place(spec: RestoreSpec, built: Built, logs: Logs, verdict: Judgement, begins: str) -> Path | None:
    """Put a staged store that was built from its whole log, and checked, in the place of the live one.

    The caller holds the task's lock and the runs.

    Parameters
    ----------
    verdict
        What the live store is, and what the new one may lack of it.
    begins
        Why the new one begins a generation of snapshots.

    Returns
    -------
    Path or None
        Where the old store is now; None if there was none.
    """
    store = spec.store
    record, grown = _record(spec, built, logs, built.since_ms), _grown_from(store, "full", None, begins)
    quarantine = _swap_in(spec, built, record, verdict, grown, None)
    _clear(store, Staging(store.paths, store.store.name))
    return quarantine


def _swap_in(
    spec: RestoreSpec,
    built: Built,
    record: StoreRecord,
    verdict: Judgement,
    grown: str | None,
    snapshot: Manifest | None,
) -> Path | None:
    store = spec.store
    quarantine = swap(
        store.paths,
        store.store,
        spec.label,
        store.partitions,
        verdict=verdict,
        record=record,
        grown_from=grown,
        legacy=_offsets_beside(store, built),
    )
    _seal(store, snapshot)
    kill_switch.reached("restore, sealed, runs still there")
    return quarantine


def _lacks_versions(store: StorePartitionSpec, logs: Logs) -> bool:
    """Tell, and warn, if a versioned store may have had something that compaction has removed from its log."""
    log = logs[store.partition]
    lacks = may_lack_versions(store, log.last_stable - 1, log)
    if lacks:
        _log.warning("restore: %s is built from its log alone, and %s", store.store_partition, LACKS_VERSIONS)
    return lacks


def _chosen_by_hand(store: StorePartitionSpec) -> str | None:
    """Say by what a person has put in place the store of the newest snapshot; None: by nothing, or nobody knows.

    Who does not know it is not in the way of that snapshot: a store of the log alone is not published then.
    """
    if store.archive is None:
        return None
    try:
        newest = known_of(store)
    except (ArchiveUnavailableError, ArchiveAccessError) as error:
        _log.warning("restore: %s: what its snapshots are of is unknown: %s", store.store_partition, error)
        return None
    return None if newest is None else newest.by_hand


def _mistrusts(spec: RestoreSpec, found: VerifyRow) -> bool:
    """Tell whether copies of the store on other nodes are not to be used either."""
    return found.status is Status.CORRUPT or (spec.request.force and spec.request.mode in ("auto", "full"))


def _verdict(store: StorePartitionSpec, found: VerifyRow, loss: Loss) -> Judgement:
    """Judge what lies in the place of the new store; where the archive has stores, it was not looked at before."""
    if not lives_in_archive(store):
        return Judgement(found.status, loss, found.loss_detail)
    copy = check(store, _OFFSETS)
    # Another store may count in its place, and then its log does not give it.
    known = store.archive is not None and superseded(store, store.archive) is None
    lost = copy.loss if copy.loss is not None and known else Loss.UNPROVEN
    return Judgement(copy.status, lost, copy.loss_detail or "it was a copy, and not all is known of it")


def _keep_replaced(spec: RestoreSpec, base: Manifest | None) -> str | None:
    """Keep the snapshot that counts in the archive, if the new store does not go on from it; return its name."""
    if not lives_in_archive(spec.store) or not spec.publish:
        return None
    newest = known_of(spec.store)
    if newest is None or (base is not None and newest.name == base.name):
        return None
    return keep_replaced(spec.store, newest, spec.label)


def _grown_from(store: StorePartitionSpec, mode: str, snapshot: Manifest | None, begins: str) -> str | None:
    """Say which snapshots those of the new store follow; None: those of its log, whichever they are.

    Parameters
    ----------
    begins
        Why they begin a generation; empty: they do not.
    """
    if mode == "tail":
        return read_text(store.paths.snapshot(store.store.name))
    if begins:
        return beginning(begins, newest_generation(store), by_hand=snapshot is not None)
    if snapshot is None and lives_in_archive(store):
        return built_from_log(store)
    if snapshot is None or store.archive is None:
        return None
    return continuing(store.archive.url, snapshot)


def _build_from_first(
    spec: RestoreSpec,
    candidates: Iterable[Manifest],
    logs: Logs,
    progress: RestoreProgressWriter,
    asked_ms: int,
    *,
    by_hand: bool,
) -> tuple[Manifest, tuple[Built, int]] | tuple[None, None]:
    """Build and check the store from the first snapshot that is intact and that its log still continues.

    Returns
    -------
    tuple
        The snapshot, and what was built with its number of rows; None if none can be used.
    """
    for snapshot in candidates:
        require_disk_for_snapshot(spec, snapshot, logs)
        try:
            return snapshot, build_from_snapshot(spec, snapshot, logs, progress, asked_ms, by_hand=by_hand)
        except (SnapshotError, StoreBehindLogStartError, StoreCorruptedError) as error:
            if spec.request.snapshot is not None:
                raise
            _log.warning("restore: %s: snapshot %s is not used: %s", spec.store.store_partition, snapshot.name, error)
    return None, None


def _put_together(
    spec: RestoreSpec, logs: Logs, progress: RestoreProgressWriter, asked_ms: int
) -> tuple[Built, int] | None:
    """Build and check the store from what many machines have built; None if there is nothing, or it cannot be used."""
    if spec.build is None:
        return None
    try:
        return put_together(spec, logs, progress, asked_ms)
    except (SnapshotError, StoreCorruptedError, ArchiveUnavailableError, ArchiveAccessError) as error:
        said = "parts built on other machines are not used; this task alone builds it from its log"
        _log.warning("restore: %s: %s: %s", spec.store.store_partition, said, error)
        return None


def _build_anew(
    spec: RestoreSpec, staging: Staging, logs: Logs, progress: RestoreProgressWriter, asked_ms: int
) -> Built:
    """Build the store from all of its log, by a replay if nothing is known of its files."""
    if spec.store.store.files_are_known:
        return build_full(spec, staging, logs, progress, asked_ms)
    return build_replayed(spec, logs, None, progress, asked_ms, anew=True)


def _require_no_less(store: StorePartitionSpec, found: VerifyRow, log: LogRange, *, tail: bool) -> None:
    """Refuse a log that has lost something since it was judged what a rebuild would lose, or that a tail needs.

    A log may lose what the store has seen while its tail is restored: the store keeps that.

    Raises
    ------
    StoreBehindLogStartError
        With the offsets.
    """
    if found.start is None or found.end is None:
        return
    first = found.start
    if tail and found.committed is not None:
        record = read_record(store.paths, store.store.name)
        first = max(first, next_offset(found.committed, record.seen_end(found.committed) if record else None))
    if log.start <= first and found.end <= log.last_stable:
        return
    raise StoreBehindLogStartError(
        f"{store.partition} had the offsets {found.start} to {found.end} when {store.store_partition} was judged, and "
        f"now has {log.start} to {log.last_stable}; run the restore again"
    )


def _done_before(spec: RestoreSpec) -> dict[str, object]:
    """Say of a whole store whether an earlier attempt of this restore put it there.

    That attempt may have ended before its report, and then nobody else would know what is to be validated.
    """
    paths, name = spec.store.paths, spec.store.store.name
    if lives_in_archive(spec.store) and spec.request.mode != "as-of":
        newest, replaced = known_of(spec.store), replaced_by(spec.store, spec.label)
        if newest is None or (newest.record.restored_by != spec.label and replaced in (None, str(newest.name))):
            return {"outcome": "skipped"}
        return {"outcome": "restored", "replaced": replaced}
    quarantine = paths.quarantine(name, spec.label)
    if quarantine.exists():
        return {"outcome": "restored", "quarantine": str(quarantine)}
    record = read_record(paths, name)
    return {"outcome": "restored" if record is not None and record.restored_by == spec.label else "skipped"}


def _record(spec: RestoreSpec, built: Built, logs: Logs, whole_ms: int) -> StoreRecord:
    """Make the record of the store that is put in place, with when it had all of its log (ms)."""
    assert spec.store.changelog is not None
    store, log = spec.store, logs[spec.store.partition]
    ends = log_ends(store.bootstrap_servers, {store.partition: log}, store.kafka_timeout_s)
    return StoreRecord(
        topic_id=spec.store.changelog.topic_id,
        caught_up_ms=whole_ms,
        committed=built.committed_offset,
        end=log.last_stable,
        epoch=ends[store.partition].epoch if ends else None,
        needed_from=log.start if built.first is None else min(built.first, log.start),
        stream_time=built.stream_time,
        restored_by=spec.label,
    )


def _begun(store: StorePartitionSpec) -> dict[str, object]:
    """Say what a store that was caught up has from the one before: what it needs of the log, and where it is from."""
    record = read_record(store.paths, store.store.name)
    begun = {"needed_from", "adopted", "at_least_once"}
    return record.model_dump(include=begun) if record else {"needed_from": None, "adopted": True}


def _seal(store: StorePartitionSpec, snapshot: Manifest | None) -> None:
    kill_switch.reached("restore, swapped, not sealed")
    definition = store.store
    if snapshot is not None and definition.files_are_known:
        sst = {file.path: file.sha256 for file in snapshot.files if has_rows(file.path)}
        install_digests(store.paths, definition.name, definition.store_kind, sst)
    seal(store.paths, definition.name, definition.store_kind, supplied=not definition.files_are_known)


def _clear(store: StorePartitionSpec, staging: Staging) -> None:
    clear_built(store.paths, store.store.name)
    staging.clear()


def _figures(built: Built, logs: Logs, spec: RestoreSpec) -> dict[str, object]:
    return {
        "outcome": "restored",
        "records": built.records,
        "resumed": built.resumed,
        "skipped": built.skipped,
        "committed": built.committed_offset,
        "start": min(log.start for log in logs.values()),
        "end": max(log.last_stable for log in logs.values()),
        "checked": "deep"
        if spec.request.check == "deep" and spec.store.store.files_are_known
        else "files"
        if built.rows is not None
        else "rows",
        "digest": built.digest,
    }


# -- as of a point ----------------------------------------------------------------------------------------------------


def _restore_as_of(spec: RestoreSpec, row: RestoreRow, progress: RestoreProgressWriter) -> RestoreRow:
    as_of, target = point_and_target(spec)
    asked_ms, store = brokers_clock.now_ms(spec.store), in_target(spec)
    there = spec._replace(store=store)
    staging = Staging(store.paths, store.store.name)
    claimed = not require_free_target(target, spec.store.state_dir, as_of)
    # What is there already was read when the log may have had more.
    source = None if claimed and built_before(store) else point_source(spec)
    claim_target(target, spec.store.state_dir, as_of)
    with locked_task(store.paths, store.lock_wait_s), staging.alone(store.lock_wait_s):
        if (built_store := built_before(store)) is not None:
            _clear(store, staging)
            exact = bool(built_store.exact)
            there_already = {**_done_before(there), "mode": "as-of", "exact": exact, "directory": str(store.live)}
            return row.model_copy(update=there_already)
        if source is None:
            raise LockedError(f"{store.live} was removed in the meantime. Run the restore again")
        logs, snapshot = source.logs, source.snapshot
        clear_built(store.paths)
        staging.clear_unfinished()
        if snapshot is None:
            require_disk(there, "full", logs)
            built = _build_anew(there, staging, logs, progress, asked_ms)
            progress.phase("checking")
            keys = check_staged(store, built, spec.request.check)
            record = _record(there, built, logs, 0)  # it never had all of the log: its tail may lack deletes
        else:
            require_disk_for_snapshot(there, snapshot, logs)
            # As of a point nobody asks whether deletes behind it are left.
            built, keys = build_from_snapshot(there, snapshot, logs, progress, asked_ms, by_hand=True)
            known = {"caught_up_ms": 0, "committed": built.committed_offset, "end": None, "epoch": None}
            record = snapshot.record.model_copy(update={**known, "restored_by": spec.label})
        exact = still_exact(spec, source)
        record = record.model_copy(update={"exact": exact})
        remove_tree(store.live)  # an attempt that was killed before it was sealed
        swap(store.paths, store.store, spec.label, store.partitions, record=record)
        _seal(store, snapshot)
        _clear(store, staging)
    done = {"mode": "as-of", "keys": keys, "exact": exact, "directory": str(store.live)}
    done["snapshot"] = None if snapshot is None else str(snapshot.name)
    return row.model_copy(update={**_figures(built, logs, spec), **done})


def _offsets_beside(store: StorePartitionSpec, built: Built) -> tuple[tuple[TopicPartition, int | None], ...]:
    """Entries that the task's `.checkpoint` gets; Kafka Streams takes them over when it starts."""
    if store.offsets_beside:
        return move_offsets_out(store, built)
    return tuple(built.committed.items()) if store.store.store_kind.offsets_are_beside else ()
