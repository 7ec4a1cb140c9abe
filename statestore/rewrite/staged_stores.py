"""Stores that are built from new changelogs beside the live ones, compared with the written rows, and swapped in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from statestore import kill_switch
from statestore.changelog import brokers_clock
from statestore.errors import DiskSpaceError, StoreCorruptedError
from statestore.model import TopicPartition
from statestore.partition.replacement import clear_built
from statestore.partition.snapshots import publish_row
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.full import Built, Logs, build_full, store_logs
from statestore.recovery.restore import put_in_place
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staged_check import check_staged
from statestore.recovery.staging import Staging
from statestore.reports import Loss, SnapshotRow, Status
from statestore.requests.restore import RestoreRequest
from statestore.rewrite.rows import form_of
from statestore.statedir.sidecar import Judgement
from statestore.verification.gathering import AskedLogs


class Expected(NamedTuple):
    """Rows that were written to a changelog: how many, and their digest."""

    rows: int
    digest: str


class Staged(NamedTuple):
    """A store that lies beside the live one, how it was built, the log that it was built from, and its rows."""

    spec: RestoreSpec
    built: Built
    logs: Logs
    rows: int


class Rewritten(NamedTuple):
    """One store partition that was replaced.

    Attributes
    ----------
    rows
        How many it has; of a versioned store, how many versions.
    committed
        Offset of its last record in the new changelog; None: it has none.
    quarantine
        Where the old store is; None: there was none.
    published
        The snapshot that was published; None: there is no archive.
    """

    store: StorePartitionSpec
    rows: int
    committed: int | None
    quarantine: Path | None
    published: SnapshotRow | None = None


def require_room(what: str, state_dir: Path, needed: int, free: int) -> None:
    """Refuse to build what will not fit.

    Raises
    ------
    DiskSpaceError
        With both numbers.
    """
    if free < needed:
        raise DiskSpaceError(
            f"{what} needs about {needed} bytes in {state_dir}, {free} are free: free some, then run again"
        )


def whole_restore(store: StorePartitionSpec, label: str, run_bytes: int, *, publish: bool = True) -> RestoreSpec:
    """Return how a store is built from all of its new changelog."""
    request = RestoreRequest(mode="full", force=True, check="deep")
    return RestoreSpec(store, request, label, run_bytes, publish=publish)


def stage(
    spec: RestoreSpec,
    position: Mapping[TopicPartition, int] | None,
    expected: Expected | None,
    asked: AskedLogs | None = None,
) -> Staged:
    """Build a store from its new changelog, and make sure that it has the rows that were written to that.

    The caller has cleared what was built in the task before (`clear_built`), but for what is still wanted of it.

    Parameters
    ----------
    position
        The input that the rows are of; None: it cannot be told.
    expected
        None: others may have written to the changelog by now.
    asked
        Offsets of its changelog that it is built from; None: the current ones.

    Raises
    ------
    StoreCorruptedError
        If it has others. Nothing was replaced.
    """
    store = spec.store
    staging = Staging(store.paths, store.store.name)
    staging.clear_unfinished()
    asked_ms, logs = asked or AskedLogs(brokers_clock.now_ms(store.cluster), store_logs(store))
    with RestoreProgressWriter(store, None) as progress:
        built = build_full(spec, staging, logs, progress, asked_ms, position)
    staged, keys = store.paths.staging(store.store.name), check_staged(store, built, "deep")
    found = Expected(*form_of(store.store).digest(store, staged, keys, built.digest or ""))
    if expected not in (None, found):
        raise StoreCorruptedError(
            f"{store.partition} gives {found.rows} rows with the digest {found.digest}, and {expected.rows} with "
            f"{expected.digest} were written to it. Nothing was replaced"
        )
    kill_switch.reached("rewrite, store built")
    return Staged(spec, built, logs, found.rows)


def replace(staged: Staged, why: str, begins: str) -> Rewritten:
    """Put a store in the place of the live one, which waits in quarantine until a person releases it.

    Parameters
    ----------
    why
        What the new one lacks, for people.
    begins
        Why it begins a generation of snapshots.
    """
    spec, built, logs, rows = staged
    store, verdict = spec.store, Judgement(Status.REPLACED, Loss.UNPROVEN, why)
    quarantine = put_in_place(spec, built, logs, verdict, begins)
    kill_switch.reached("rewrite, store replaced")
    published = publish_row(store, "restore") if store.home.offers_snapshots else None
    return Rewritten(store, rows, built.committed_offset, quarantine, published)


def clear_staged(stores: Iterable[StorePartitionSpec]) -> None:
    """Remove what an attempt has left beside live stores."""
    for store in stores:
        clear_built(store.paths)
        Staging(store.paths, store.store.name).clear()
