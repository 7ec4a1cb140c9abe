"""Puts back a store that a restore has replaced; the present store moves to quarantine.

It is the swap of a restore (`statedir/swap.py`), whose new store is the one in quarantine, with all that lay beside it.
Killed before the present store is moved it is forgotten, later it is completed. Nothing is checked and nothing is
mended: a store that was broken is broken again, and a verification says so.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from statestore.archive.grown_from import beginning
from statestore.errors import InputError, StateStoreError, StoreUncleanError
from statestore.partition.generations import newest_generation
from statestore.partition.quarantine import last_replaced, release
from statestore.partition.snapshots import publish_row
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Failure, SnapshotRow, StorePartitionRow
from statestore.statedir.swap import locked_task, swap

#: How labels begin of what was replaced when a store got other rows, under another changelog.
_OTHER_ROWS = ("overwrite-", "transform-", "point-", "undo-")
_log = logging.getLogger(__name__)


class RollbackSpec(NamedTuple):
    """Request for one store partition.

    Attributes
    ----------
    label
        Names the run, and the directory in quarantine of the store that is there now.
    dry_run
        Say what would be done, and do nothing.
    """

    store: StorePartitionSpec
    label: str
    dry_run: bool = False


class RollbackRow(StorePartitionRow):
    """Result for one store partition, or its plan."""

    put_back: str | None = Field(default=None, description="directory in quarantine of the store that is put back")
    replaced_ms: int | None = Field(default=None, description="when it was replaced")
    quarantine: str | None = Field(
        default=None, description="directory of the store that was there; None: there was none"
    )
    published: SnapshotRow | None = Field(
        default=None, description="its snapshot, which begins a generation; None: no archive"
    )
    failure: Failure | None = None

    @property
    def healthy(self) -> bool:
        """True if the store was put back."""
        return self.failure is None


def roll_back(spec: RollbackSpec) -> RollbackRow:
    """Lock the task and put its old store back; a failure of ours becomes part of the row, so that others go on."""
    store = spec.store
    row = RollbackRow(application=store.application, store=store.store.name, task=str(store.task))
    try:
        with locked_task(store.paths, store.lock_wait_s):
            found = require_replaced(store)
            _require_same_changelog(store, found)
            replaced_ms = found.stat().st_mtime_ns // 1_000_000
            row = row.model_copy(update={"put_back": str(found), "replaced_ms": replaced_ms})
            if spec.dry_run:
                return row
            quarantine, published = put_back(store, found, spec.label, f"a rollback: {spec.label}")
            return row.model_copy(update={"quarantine": quarantine and str(quarantine), "published": published})
    except (StateStoreError, OSError) as error:
        return row.model_copy(update={"failure": Failure.of(error)})


def put_back(store: StorePartitionSpec, found: Path, label: str, begins: str) -> tuple[Path | None, SnapshotRow | None]:
    """Put a store in quarantine in the place of the live one; the caller holds the task's lock.

    Parameters
    ----------
    store
        As it is with the store that is put back.
    label
        Of what is there now, in quarantine.
    begins
        Why it begins a generation of snapshots.

    Returns
    -------
    tuple
        Where the store that was there is now, None: there was none; and the snapshot, None: there is no archive.
    """
    quarantine = swap(
        store.paths,
        store.store,
        label,
        store.partitions,
        replaced=found.name,
        grown_from=beginning(begins, newest_generation(store), by_hand=True),
    )
    release(store.paths, store.store.name, found.name)  # what is left of it: the store itself is live
    # Until a snapshot begins its generation, a restore elsewhere would take one of the store it replaces.
    published = _published(store) if store.home.offers_snapshots else None
    if published is not None and published.failure is not None:
        _log.warning("%s: %s: no snapshot: %s", label, store.store_partition, published.failure.message)
    return quarantine, published


def _published(store: StorePartitionSpec) -> SnapshotRow:
    """Publish the store that was put back, or say why it has no snapshot."""
    row = publish_row(store, "restore")
    if row.snapshot is not None or row.failure is not None:
        return row
    why = StoreUncleanError(
        f"{store.store_partition} has no seal: before it was replaced, it was left open, or another program wrote it. "
        "It is not published, and only this state directory has it. The next run of `process` that can use it "
        "publishes it. Until then, keep a copy of the directory"
    )
    return row.model_copy(update={"failure": Failure.of(why)})


def _require_same_changelog(store: StorePartitionSpec, found: Path) -> None:
    """Refuse a store that got other rows: its offsets are those of a former changelog."""
    if found.name.startswith(_OTHER_ROWS):
        raise InputError(
            f"{store.store_partition} was rewritten: the catalogue now names another changelog, and {found} belongs "
            "to the one before. `statestore rewrite undo` returns to that changelog and its stores; after an "
            "undo, write the rows again"
        )


def require_replaced(store: StorePartitionSpec) -> Path:
    """Return the directory in quarantine of the store that was replaced last.

    Raises
    ------
    InputError
        If there is none.
    """
    found = last_replaced(store.paths, store.store.name)
    if found is None:
        raise InputError(
            f"{store.store_partition} has no replaced store in {store.paths.quarantine(store.store.name, '_').parent}: "
            "no restore has replaced it, or a validation has passed since, or the time to keep the store has passed"
        )
    return found
