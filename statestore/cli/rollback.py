"""`restore --rollback` and `--release`: put back, or remove, stores that restores have replaced."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from rich.console import Console

from statestore.cli import tables
from statestore.cli.local_processes import run_each
from statestore.cli.selection import Chosen
from statestore.errors import InputError, StoreUncleanError
from statestore.model import StoreSelector
from statestore.partition.quarantine import last_replaced
from statestore.partition.release import ReleaseRow, release_replaced
from statestore.partition.rollback import RollbackRow, RollbackSpec, require_replaced, roll_back
from statestore.partition.spec import StorePartitionSpec


def stores_replaced(chosen: Chosen, wanted: Sequence[StoreSelector]) -> list[StorePartitionSpec]:
    """Return the store partitions of which something is in quarantine, or refuse: nothing is done then.

    Raises
    ------
    LockedError
        If a store could not be looked into.
    InputError
        If a store is one of several applications, or was not replaced.
    """
    chosen.require_free()
    chosen.require_known()
    specs: list[StorePartitionSpec] = []
    for selector in wanted:
        of_store = [spec for spec in chosen.specs if selector.selects(spec.store_partition) and not spec.is_global]
        applications = sorted({spec.application for spec in of_store})
        if len(applications) > 1:
            raise InputError(
                f"applications {', '.join(applications)} each have a store {selector.store}: name it as "
                f"{applications[0]}/{selector.store}, or add --application"
            )
        if not of_store:
            raise InputError(f"store {selector} is not on disk, so no restore has replaced it")
        replaced = of_store
        if not selector.parts:
            replaced = [spec for spec in of_store if last_replaced(spec.paths, selector.store) is not None]
        for spec in replaced or of_store:
            require_replaced(spec)
        specs += [spec for spec in replaced if spec not in specs]
    return specs


def roll_back_all(
    stores: Sequence[StorePartitionSpec], label: str, processes: int, *, dry_run: bool
) -> list[RollbackRow]:
    """Put replaced stores back, or say what would be done."""
    return run_each([RollbackSpec(store, label, dry_run) for store in stores], roll_back, processes)


def show_rolled_back(console: Console, rows: Sequence[RollbackRow], *, dry_run: bool) -> None:
    """Print what a rollback did, or would do."""
    columns = ("store partition", "outcome", "replaced at", "replaced store", "current store moves to", "detail")
    done = "would be put back" if dry_run else "put back"
    found = (
        (
            row.label,
            "failed" if row.failure else done,
            None if row.replaced_ms is None else f"{datetime.fromtimestamp(row.replaced_ms // 1000, UTC):%F %T} UTC",
            row.put_back,
            row.quarantine,
            _detail(row),
        )
        for row in rows
    )
    console.print(tables.table(f"{len(rows)} store partitions", columns, found))


def _detail(row: RollbackRow) -> str:
    if row.failure is not None:
        return f"{row.failure.kind}: {row.failure.message}"
    if row.published is None or row.published.failure is None:
        return ""
    if row.published.failure.kind == StoreUncleanError.__name__:  # no command publishes it either
        return f"no snapshot: {row.published.failure.message}"
    return (
        f"no snapshot: {row.published.failure.message}. If `process` does not run this application, run `statestore "
        f"snapshot create --application {row.application}` before it starts"
    )


def release_all(stores: Sequence[StorePartitionSpec], processes: int, *, dry_run: bool) -> list[ReleaseRow]:
    """Remove replaced stores, or say what would be removed."""
    return run_each(stores, partial(release_replaced, dry_run=dry_run), processes)


def show_released(console: Console, rows: Sequence[ReleaseRow], *, dry_run: bool) -> None:
    """Print what was removed, or would be."""
    done = "would be removed" if dry_run else "removed"
    found = [
        (row.label, "failed", "", "", f"{row.failure.kind}: {row.failure.message}")
        if row.failure
        else (row.label, done, path, lost, "")
        for row in rows
        for path, lost in zip(row.removed or ("",), row.lost or ("",), strict=True)
    ]
    columns = ("store partition", "outcome", "replaced store", "may be the only copy of some data", "detail")
    console.print(tables.table(f"{len(rows)} store partitions", columns, found))
