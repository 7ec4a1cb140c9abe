"""The description of the restore of one store partition."""

from __future__ import annotations

from typing import NamedTuple

from statestore.objects.path import Location
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import RestorePlanRow
from statestore.requests.restore import RestoreRequest

_DAY_S = 24 * 60 * 60
QUARANTINE_KEPT_S = 7.0 * _DAY_S


class RestoreSpec(NamedTuple):
    """Request for one store partition.

    Attributes
    ----------
    request
        What was asked for; its `force` is set, too, if a report says that the store has diverged.
    label
        Names the run, and its directory in quarantine; runs of the same name are attempts at one restore.
    run_bytes
        Bound of a sorted run in memory.
    ranges
        Into how many ranges its log is cut, if it is rebuilt.
    progress
        Directory in which it says how far it is; None: nowhere.
    quarantine_s
        Age in seconds at which replaced stores are removed once the live one is whole; those that may be the only copy
        of something stay, also where this restore accepts a loss.
    diverged
        Its rows were found not to be what its log gives. So its snapshots are not used, and are marked.
    from_log
        Ranges of its log were read for it, so mode `auto` no longer asks for a snapshot.
    build
        What many machines have built of it, which is to be put together: a build in the archive; None: nothing.
    approved
        The plan that was approved: nothing bolder is done; None if none was asked for.
    publish
        Whether a snapshot of the restored store is published, if there is an archive.
    as_application, acceptable_lag
        As of `Request`.
    keep_free
        Bytes that must stay free on the disk of the state directory.
    """

    store: StorePartitionSpec
    request: RestoreRequest
    label: str
    run_bytes: int
    ranges: int = 1
    progress: Location | None = None
    quarantine_s: float = QUARANTINE_KEPT_S
    publish: bool = True
    as_application: bool = False
    acceptable_lag: int = 0
    diverged: bool = False
    from_log: bool = False
    build: str | None = None
    approved: RestorePlanRow | None = None
    keep_free: int = 0
