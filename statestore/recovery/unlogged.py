"""Restoring stores without a changelog: a snapshot is all that can replace one.

A snapshot that has the last commit that changed the store loses nothing, and is put in place without a question. With
an older one, the changes since are lost, unless the input offsets of the same cut are set as well (docs/snapshots.md).
So it is used only if a user accepts that. The replaced store goes to quarantine, with its commits that are in files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from statestore import kill_switch
from statestore.archive.grown_from import beginning, continuing
from statestore.archive.manifest import Manifest
from statestore.archive.snapshots import history, mistrusted, read_snapshot
from statestore.changelog import brokers_clock
from statestore.errors import InputError, LockedError, SnapshotError, StateStoreError, StoreCorruptedError
from statestore.partition.facts import NO_LOG
from statestore.partition.generations import newest_generation, snapshot_directory
from statestore.partition.last_commit import LastCommit, find_last_commit
from statestore.partition.quarantine import clean_quarantine
from statestore.partition.replacement import clear_built
from statestore.partition.restore_points import judged_snapshots
from statestore.partition.snapshots import publish_row, unlike
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import Verdict
from statestore.recovery.deciding import no_longer_approved
from statestore.recovery.disk_space import free_bytes, require_disk_for_snapshot
from statestore.recovery.full import Built
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.snapshot import find_snapshot, lay_snapshot, seal_new
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staged_check import check_staged
from statestore.recovery.staging import Staging
from statestore.recovery.tail import building
from statestore.reports import Failure, Loss, RestorePlanRow, RestoreRow
from statestore.statedir.sidecar import Judgement
from statestore.statedir.swap import locked_task, swap
from statestore.verification.options import VerifyOptions
from statestore.verification.unlogged import examine_unlogged

_log = logging.getLogger(__name__)
_SCAN = VerifyOptions(depth="scan")


class _Chosen:
    """A snapshot that a store is restored from.

    Attributes
    ----------
    lacks
        Committed changes that the snapshot does not have; empty if it has all of them.
    against
        Why it is not chosen unless a user names it; empty: nothing.
    """

    def __init__(self, snapshot: Manifest, lacks: str, against: str = "") -> None:
        self.snapshot, self.lacks, self.against = snapshot, lacks, against


def restore_unlogged(spec: RestoreSpec, row: RestoreRow, progress: RestoreProgressWriter) -> RestoreRow:
    """Lock the task, and put a snapshot in the place of its store, if that needs it or a user asks for it.

    Raises
    ------
    InputError
        If it cannot be restored as asked for, or if changes would be lost and the loss was not accepted.
    """
    store = spec.store
    _require_possible(spec)
    with locked_task(store.paths, store.lock_wait_s):
        last = find_last_commit(store)
        found = examine_unlogged(store, _SCAN, last)
        row = row.model_copy(update={"before": found.status})
        if _is_whole(spec, found):
            done = {"outcome": "skipped", "keys": found.keys or 0, "committed": found.committed}
            return row.model_copy(update=done)
        try:
            row = _put_in_place(spec, row, found, last, progress)
        except (StateStoreError, OSError) as error:
            return row.model_copy(update={"failure": Failure.of(error)})
        clean_quarantine(store.paths, store.store, spec.quarantine_s)
    return row


def plan_unlogged(spec: RestoreSpec, row: RestorePlanRow) -> RestorePlanRow:
    """Return the plan of `restore_unlogged`.

    Raises
    ------
    InputError
        As `restore_unlogged`.
    """
    store = spec.store
    _require_possible(spec)
    with locked_task(store.paths, store.lock_wait_s, reading=True):
        last = find_last_commit(store)
        found = examine_unlogged(store, _SCAN, last)
    row = row.model_copy(update={"status": found.status})
    if _is_whole(spec, found):
        return row.model_copy(update={"reason": found.detail or "intact"})
    chosen = next(_chosen(spec, last))
    _require_accepted(spec, chosen)
    snapshot = chosen.snapshot
    figures = {"snapshot": str(snapshot.name), "fetched": snapshot.bytes, "disk_needed": snapshot.bytes}
    reason = chosen.lacks or found.detail
    return row.model_copy(
        update={"mode": "snapshot", "reason": reason, **figures, "disk_free": free_bytes(store.state_dir)}
    )


def require_changelog(spec: RestoreSpec) -> None:
    """Refuse a mode that needs a changelog for a store that has none.

    Raises
    ------
    InputError
        Naming the store and the mode.
    """
    store, request = spec.store, spec.request
    if not store.store.logged and request.mode not in ("auto", "snapshot"):
        raise InputError(
            f"{store.store_partition} has no changelog (logged: false), so mode {request.mode} cannot restore it; use "
            "mode snapshot"
        )


def _require_possible(spec: RestoreSpec) -> None:
    store = spec.store
    require_changelog(spec)
    if not store.home.offers_snapshots:
        raise InputError(
            f"{store.store_partition} has no changelog (logged: false), so only a snapshot can replace it; there is "
            "no archive; set STATESTORE_ARCHIVE"
        )
    if not store.home.disks_are_shared:
        raise InputError(
            f"{store.store_partition} has no changelog (logged: false), which nodes with their own disks do not support"
        )


def _is_whole(spec: RestoreSpec, found: Verdict) -> bool:
    if not found.observed:
        raise LockedError(
            f"{spec.store.store_partition} could not be verified ({found.status}): {found.detail}; try again later"
        )
    return found.status.healthy and not spec.request.force and spec.request.snapshot is None


def _chosen(spec: RestoreSpec, last: LastCommit) -> Iterator[_Chosen]:
    """Yield the snapshots that may be used, the newest first, or the one that a user has named.

    Raises
    ------
    InputError
        If no snapshot can be used.
    """
    store = spec.store
    if (name := spec.request.snapshot) is not None:
        named = find_snapshot(store, name)
        snapshot = read_snapshot(named.objects, named.listed)
        if differing := unlike(store, snapshot):
            raise InputError(f"{store.store_partition}: snapshot {name} is {differing}")
        yield _Chosen(snapshot, _lacks(store, snapshot, last), mistrusted(named.listed, named.generation))
        return
    objects = store.snapshot_archive.open()
    found = history(objects, snapshot_directory(store))
    usable = False
    for listed, manifest, why in judged_snapshots(store, objects, found, NO_LOG, brokers_clock.now_ms(store.cluster)):
        if manifest is None or why is not None:
            _log.warning("restore: %s: snapshot %s is not used: %s", store.store_partition, listed.name, why)
            continue
        usable = True
        yield _Chosen(manifest, _lacks(store, manifest, last))
    if not usable:
        raise InputError(
            f"{store.store_partition} has no changelog, and archive {objects.url} has no snapshot of it that can "
            "be used, so it cannot be restored. To begin with an empty store, move its directory away, and run process "
            "once with STATESTORE_ACCEPT_LOSS=true"
        )


def _lacks(store: StorePartitionSpec, snapshot: Manifest, last: LastCommit) -> str:
    if snapshot.record.topic_id != last.topic_id and last.topic_id:
        return "the topic of input offsets was replaced since the snapshot, so it is unknown what was committed since"
    return last.refuted_by(store.store.name, snapshot.committed)


def _require_accepted(spec: RestoreSpec, chosen: _Chosen) -> None:
    why = "; ".join(filter(None, [chosen.against, chosen.lacks]))
    if why and not spec.request.accept_loss:
        raise InputError(
            f"{spec.store.store_partition} is not restored from snapshot {chosen.snapshot.name}: {why}. It has no "
            "changelog, so the changes since are lost. To put it in place anyway, add --accept-loss. To lose nothing, "
            "restore all stores of the application from a set of snapshots, and set its input offsets to those of the "
            "set (docs/snapshots.md)"
        )


def _require_approved_snapshot(spec: RestoreSpec, chosen: _Chosen) -> None:
    """Refuse another snapshot than that of the approved plan."""
    name = str(chosen.snapshot.name)
    if spec.approved is not None and (spec.approved.failure is not None or spec.approved.snapshot != name):
        raise no_longer_approved(spec, f"it would now start from snapshot {name}")


def _put_in_place(
    spec: RestoreSpec, row: RestoreRow, found: Verdict, last: LastCommit, progress: RestoreProgressWriter
) -> RestoreRow:
    store, name = spec.store, spec.store.store.name
    staging = Staging(store.paths, name)
    with staging.alone(store.lock_wait_s):
        clear_built(store.paths)
        staging.clear_unfinished()
        failed: StateStoreError | None = None
        for chosen in _chosen(spec, last):
            _require_accepted(spec, chosen)
            _require_approved_snapshot(spec, chosen)
            try:
                built, keys = _build(spec, chosen.snapshot, progress)
                break
            except (SnapshotError, StoreCorruptedError) as error:
                if spec.request.snapshot is not None:
                    raise
                _log.warning("restore: %s: snapshot %s is not used: %s", row.label, chosen.snapshot.name, error)
                failed = error
        else:
            raise InputError(f"{row.label}: none of its snapshots can be used, so it stays as it is: {failed}")
        kill_switch.reached("restore, built, not swapped")
        snapshot, loses = chosen.snapshot, bool(chosen.lacks)
        record = snapshot.record.model_copy(
            update={"restored_by": spec.label, "accepted": last.expected(name) if loses else None}
        )
        grown = continuing(store.snapshot_archive.url, snapshot)
        if chosen.against:
            grown = beginning(
                f"snapshot {snapshot.name} by hand: {chosen.against}", newest_generation(store), by_hand=True
            )
        verdict = Judgement(found.status, Loss.LIKELY, f"it has no changelog; {chosen.lacks or found.detail}")
        quarantine = swap(
            store.paths, store.store, spec.label, store.partitions, verdict=verdict, record=record, grown_from=grown
        )
        seal_new(store, snapshot)
        clear_built(store.paths, name)
        staging.clear()
        published = None
        if spec.publish and chosen.against:
            published = publish_row(store, "restore")
    done = {"outcome": "restored", "mode": "snapshot", "keys": keys, "committed": built.committed_offset}
    done |= {"checked": "rows", "quarantine": None if quarantine is None else str(quarantine)}
    return row.model_copy(update={**done, "snapshot": str(snapshot.name), "published": published})


def _build(spec: RestoreSpec, snapshot: Manifest, progress: RestoreProgressWriter) -> tuple[Built, int]:
    """Fetch a snapshot into the staging directory, read all of its rows, and return them counted."""
    store = spec.store
    require_disk_for_snapshot(spec, snapshot)
    with building(store) as staged:
        progress.fetching(snapshot.bytes)
        lay_snapshot(store, store.snapshot_archive.open(), snapshot, staged, progress)
        kill_switch.reached("restore, snapshot fetched")
        progress.phase("checking")
        built = Built(0, 0, 0, None, {store.partition: snapshot.committed}, None, brokers_clock.now_ms(store.cluster))
        return built, check_staged(store, built, "deep")
