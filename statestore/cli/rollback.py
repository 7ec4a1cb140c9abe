"""What `restore --rollback` and `--release` do: put back, or remove, what restores have replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from rich.console import Console

from statestore.cli import tables
from statestore.cli.local_processes import run_each
from statestore.cli.selection import Chosen
from statestore.errors import InputError
from statestore.partition.quarantine import last_replaced
from statestore.partition.release import ReleaseRow, release_replaced
from statestore.partition.rollback import RollbackRow, RollbackSpec, require_replaced, roll_back
from statestore.partition.spec import StorePartitionSpec

#: By store the partitions that are named; None: all that were replaced.
Wanted = Mapping[str, frozenset[int] | None]


def parse_replaced(texts: Sequence[str], option: str) -> Wanted:
    """Read `STORE`, `STORE/0` and `STORE/0,3`.

    Raises
    ------
    InputError
        If one is malformed.
    """
    found: dict[str, frozenset[int] | None] = {}
    for text in texts:
        name, slash, numbers = text.partition("/")
        parts = numbers.split(",")
        if not name or (slash and not all(part.isascii() and part.isdigit() for part in parts)):
            raise InputError(f"{option}: expected STORE, STORE/0 or STORE/0,3, found {text!r}")
        before = found.get(name, frozenset())
        found[name] = None if before is None or not slash else before | frozenset(map(int, parts))
    return found


def stores_replaced(chosen: Chosen, wanted: Wanted) -> list[StorePartitionSpec]:
    """Return the store partitions of which something is in quarantine, or refuse: nothing is done then.

    Raises
    ------
    LockedError
        If a store could not be looked into.
    InputError
        If a store is one of several applications, has no such partition, or was not replaced.
    """
    chosen.require_free()
    chosen.require_known()
    specs: list[StorePartitionSpec] = []
    for name, partitions in wanted.items():
        of_store = [spec for spec in chosen.specs if spec.store.name == name and not spec.is_global]
        applications = sorted({spec.application for spec in of_store})
        if len(applications) > 1:
            raise InputError(f"store {name} is one of {', '.join(applications)}: say which with --application")
        if not of_store:
            raise InputError(f"store {name} is not on disk: nothing of it was ever replaced")
        if partitions is None:
            replaced = [spec for spec in of_store if last_replaced(spec.paths, name) is not None]
        else:
            if outside := sorted(partitions - {spec.task.partition for spec in of_store}):
                raise InputError(f"store {name} has no partitions {outside}; it has {len(of_store)}")
            replaced = [spec for spec in of_store if spec.task.partition in partitions]
        for spec in replaced or of_store:
            require_replaced(spec)
        specs += replaced
    return specs


def roll_back_all(
    stores: Sequence[StorePartitionSpec], label: str, processes: int, *, dry_run: bool
) -> list[RollbackRow]:
    """Put replaced stores back, or say what would be done."""
    return run_each([RollbackSpec(store, label, dry_run) for store in stores], roll_back, processes)


def show_rolled_back(console: Console, rows: Sequence[RollbackRow], *, dry_run: bool) -> None:
    """Print what a rollback did, or would do."""
    columns = ("store partition", "outcome", "of the restore at", "puts back", "the present one goes to", "detail")
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
    columns = ("store partition", "outcome", "replaced store", "may be the only copy of something", "detail")
    console.print(tables.table(f"{len(rows)} store partitions", columns, found))
