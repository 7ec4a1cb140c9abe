"""What is asked of a restore."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from statestore.errors import InputError
from statestore.partition.spec import StorePartitionSpec
from statestore.requests.restore import AsOf as AsOf
from statestore.requests.restore import CheckDepth as CheckDepth
from statestore.requests.restore import Mode as Mode

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


def require_consistent(mode: Mode, as_of: AsOf | None, target: Path | None, *, best_effort: bool) -> None:
    """Refuse options of a restore that do not fit together.

    Raises
    ------
    InputError
        If mode as-of lacks its point or target, or another mode has one.
    """
    given = as_of is not None, target is not None
    if mode == "as-of" and not all(given):
        raise InputError("mode as-of: expected --as-of-offset or --as-of-timestamp, and --target")
    if mode != "as-of" and (any(given) or best_effort):
        raise InputError(
            f"--as-of-offset, --as-of-timestamp, --target and --best-effort are for mode as-of, found {mode}"
        )


def parse_as_of(offset: int | None, timestamp: str | None) -> AsOf | None:
    """Read the two ways to name a point; None if neither is given.

    Parameters
    ----------
    timestamp
        ISO 8601, in UTC if it names no offset from it, or ms since the epoch.

    Raises
    ------
    InputError
        If both are given, or one is malformed.
    """
    if offset is not None and timestamp is not None:
        raise InputError("as of what: expected an offset or a timestamp, found both")
    if offset is not None:
        if offset < 0:
            raise InputError(f"as-of offset: expected a number from 0, found {offset}")
        return AsOf(offset=offset)
    if timestamp is None:
        return None
    if timestamp.isascii() and timestamp.isdigit():
        return AsOf(timestamp_ms=int(timestamp))
    try:
        found = datetime.fromisoformat(timestamp)
    except ValueError as error:
        raise InputError(
            f"as-of timestamp: expected ISO 8601 such as 2026-01-31T12:00:00+00:00, or ms since the epoch, found "
            f"{timestamp!r}"
        ) from error
    return AsOf(timestamp_ms=int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000))
