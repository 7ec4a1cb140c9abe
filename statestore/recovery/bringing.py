"""Provides the stores of a task on its node, if each node has its own state directory.

What lies on this disk is a copy. It is used if it is the store that counts, and can be brought to the end of its log;
else the store is built here from its newest snapshot and the rest of its log, or from its log alone.

A copy may have what neither the archive nor the log has: a snapshot could not be published, and then the log was cut.
Then it is left as it is, and its task refuses to work, as it does with any store that would lose something.
"""

from __future__ import annotations

from collections.abc import Sequence

from statestore.archive.manifest import Manifest
from statestore.errors import StateStoreError
from statestore.partition.archived import look_into_archive
from statestore.partition.facts import Needs
from statestore.partition.generations import replaced_with, superseded
from statestore.partition.needed_offsets import latest
from statestore.partition.plan import Need, Refusal, Request
from statestore.partition.spec import StorePartitionSpec, on_this_disk
from statestore.partition.verdict import Verdict
from statestore.recovery.deciding import examine_needs
from statestore.recovery.restore import restore
from statestore.recovery.rows import failed
from statestore.recovery.spec import RestoreSpec
from statestore.reports import RestoreRow, Status
from statestore.requests.restore import RestoreRequest
from statestore.statedir.record import StoreRecord, committed_of, read_record
from statestore.statedir.swap import locked_task
from statestore.verification.check import examine, examine_archived
from statestore.verification.options import VerifyOptions

_NOTHING_HERE = (Status.EMPTY, Status.MISSING, Status.LAGGING, Status.TRUNCATED)
_OFFSETS, _SCAN = VerifyOptions(depth="offsets"), VerifyOptions(depth="scan")


def bring_stores(stores: Sequence[StorePartitionSpec], label: str, run_bytes: int) -> dict[str, tuple[str, RestoreRow]]:
    """Build those stores of a task that cannot be used as they are here.

    Where the state directory is shared, these are versioned stores that cannot be used: their snapshots may have what
    their logs lack. All other stores are their task's business.

    Parameters
    ----------
    label
        Names what was replaced, in quarantine.
    run_bytes
        Bound of a sorted run in memory.

    Returns
    -------
    dict
        For each store that was to be built: why, and what came of it. After a failure no other one is tried.
    """
    brought: dict[str, tuple[str, RestoreRow]] = {}
    for store in stores:
        # The archive's may be whole, and is to be here all the same.
        request = RestoreRequest(mode="snapshot", force=True)
        spec = RestoreSpec(store, request, label, run_bytes, publish=False)
        try:
            why = _not_usable(spec)
            if why is None:
                continue
            row = restore(spec)
        except (StateStoreError, OSError) as error:
            why, row = "it could not be inspected", failed(spec, error)
        brought[store.store.name] = why, row
        if row.failure is not None:
            break
    return brought


def may_be_brought(store: StorePartitionSpec) -> bool:
    """Tell whether `bring_stores` looks at a store: its archive may have what neither this disk nor the log has."""
    return store.home.offers_snapshots and not (store.home.disks_are_shared and store.store.compaction_keeps_rows)


def _not_usable(spec: RestoreSpec) -> str | None:
    """Return why a task does not continue with the store on this disk; None if it does, or refuses it itself."""
    store = spec.store
    if not may_be_brought(store):
        return None
    with locked_task(store.paths, store.lock_wait_s):
        here = store if store.home.disks_are_shared else on_this_disk(store)
        found, need = examine_needs(spec, here, Request(publishes=False))
        if store.home.disks_are_shared:
            rebuilt = isinstance(need, Need) and need.kind == "rebuild" and not found.usable
            return f"it is {found.status}: {found.detail}" if rebuilt else None
        record = read_record(store.paths, store.store.name)
        # A store that never had anything here is no evidence: the archive shows what its log has lost.
        judged_here = isinstance(need, Refusal) and found.observed and committed_of(record) is not None
        if found.committed is None and found.status in _NOTHING_HERE and not judged_here:
            begins = examine_archived(store, _OFFSETS)[1].status is Status.EMPTY
            return None if begins else f"it is not on this node: {found.detail or found.status}"
        if (other := superseded(store)) is not None:
            return other
        if (unpublished := replaced_with(store)) is not None:
            return f"what was put here by {unpublished} was never published"
        why = _not_its_logs(store, found, record)
        return why if why is None or _is_in_archive(store, found) else None


def _not_its_logs(store: StorePartitionSpec, found: Verdict, record: StoreRecord | None) -> str | None:
    if found.observed and not found.usable:
        return f"it is {found.status} here: {found.detail}"
    if store.exactly_once:
        return "it was processed at least once" if record is not None and record.at_least_once else None
    # Nobody fences a task at least once, so the log may have records that the store has not taken in.
    alone = record is not None and found.log is not None and record.end == found.log.last_stable
    return None if alone else "another node may have worked on it, at least once"


def _is_in_archive(store: StorePartitionSpec, found: Verdict) -> bool:
    """Return whether nothing of a copy is lost if the archive's store and the rest of the log take its place."""
    judged = examine(store, _SCAN)[1] if found.loss is None else found
    if not judged.loses:
        return True
    ((_, snapshot),) = look_into_archive([store], look_at_files=False)
    return snapshot is not None and covers(store, snapshot, judged)


def covers(store: StorePartitionSpec, snapshot: Manifest, copy: Verdict) -> bool:
    """Return whether a snapshot has all that a copy has, as far as verification found it."""
    record = read_record(store.paths, store.store.name)
    if record is None or snapshot.record.topic_id != record.topic_id:
        return False
    had = latest(copy.committed, record.committed)
    if snapshot.committed is not None and (had is None or snapshot.committed >= had):
        return True
    return copy.lost_its_start and Needs.of(record).met_by(snapshot.record)
