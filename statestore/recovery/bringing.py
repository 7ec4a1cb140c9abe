"""Bringing the stores of a task to the node that it runs on, where each node has a state directory of its own.

What lies on this disk is a copy. It is used if it is the store that counts, and can be brought to the end of its log;
else the store is built here from its newest snapshot and the rest of its log, or from its log alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from statestore.errors import StateStoreError
from statestore.partition.generations import superseded
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import failed, restore
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Action, RestoreRow, Status
from statestore.requests.restore import RestoreRequest
from statestore.statedir.record import read_record
from statestore.statedir.swap import locked_task
from statestore.verification.check import check, check_archived
from statestore.verification.options import VerifyOptions

_OFFSETS = VerifyOptions(depth="offsets")


def bring_stores(stores: Sequence[StorePartitionSpec], label: str, run_bytes: int) -> dict[str, tuple[str, RestoreRow]]:
    """Build those stores of a task that cannot be used as they are here.

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
        # What lay here goes at once, unless it may be the last copy of something.
        spec = RestoreSpec(store, request, label, run_bytes, quarantine_s=0, publish=False)
        try:
            why = _not_usable(store)
            if why is None:
                continue
            row = restore(spec)
        except (StateStoreError, OSError) as error:
            why, row = "it could not be looked at", failed(spec, error)
        brought[store.store.name] = why, row
        if row.failure is not None:
            break
    return brought


def _not_usable(store: StorePartitionSpec) -> str | None:
    """Say why a task cannot go on with what lies here; None if it can."""
    with locked_task(store.paths, store.lock_wait_s):
        found = check(store, _OFFSETS)
        if found.status in (Status.EMPTY, Status.MISSING) and not store.live.exists():
            begins = check_archived(store, _OFFSETS).status is Status.EMPTY
            return None if begins else f"it is not on this node: {found.detail}"
        if store.archive is not None and (other := superseded(store, store.archive)) is not None:
            return other
        if found.action in (Action.FULL, Action.BY_HAND):
            return f"it is {found.status} here: {found.detail}"
        record = read_record(store.paths, store.store.name)
        # Nobody fences a task at least once, so the log may have records that the store has not taken in.
        if not store.exactly_once and (record is None or record.end is None or record.end != found.end):
            return "another node may have worked on it, at least once"
        return None
