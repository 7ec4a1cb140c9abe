"""What is done with one store partition in a restore."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from statestore.partition.spec import StorePartitionSpec
from statestore.requests.restore import AsOf, CheckDepth, Mode

_DAY_S = 24 * 60 * 60
QUARANTINE_KEPT_S = 7.0 * _DAY_S


class RestoreSpec(NamedTuple):
    """What to do with one store partition.

    Attributes
    ----------
    force
        Rebuild it even if it is whole.
    label
        Names the run, and its directory in quarantine; runs of the same name are attempts at one restore.
    run_bytes
        Bound of a sorted run in memory.
    ranges
        Into how many ranges its log is cut, if it is rebuilt.
    check
        How the new store is checked before it goes live.
    progress
        Directory in which it says how far it is; None: nowhere.
    as_of
        The point of mode `as-of`.
    target
        State directory that mode `as-of` builds in.
    best_effort
        Whether mode `as-of` may leave out what compaction has removed.
    accept_loss
        Rebuild also what its log can no longer give in full, and remove also those replaced stores by age that may be
        the only copy of something.
    quarantine_s
        Age in seconds at which replaced stores are removed once the live one is whole.
    """

    store: StorePartitionSpec
    mode: Mode
    force: bool
    label: str
    run_bytes: int
    ranges: int = 1
    check: CheckDepth = "files"
    progress: Path | None = None
    as_of: AsOf | None = None
    target: Path | None = None
    best_effort: bool = False
    accept_loss: bool = False
    quarantine_s: float = QUARANTINE_KEPT_S
