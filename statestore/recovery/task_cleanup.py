"""Cleans up one task: replaced stores that are no longer needed, and files of killed restores.

Only what is old goes, and only under the task's lock. A store's predecessor stays while the live store is not whole, or
while no definition says what the store is.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, LockedError, StateStoreError
from statestore.model import TaskId
from statestore.objects.path import Location, ObjectPath, remove_all
from statestore.partition.quarantine import clean_quarantine, old_quarantined, waits_for_a_person
from statestore.partition.replacement import clear_built
from statestore.recovery.staging import Staging
from statestore.reports import Failure, MaintenanceRow
from statestore.statedir.lock import locked
from statestore.statedir.paths import OWN_DIRECTORY, TaskPaths
from statestore.statedir.swap import finish_swaps

_NAMED = 20
_WAIT_S = 1.0


class CleaningSpec(NamedTuple):
    """Request for one task.

    Attributes
    ----------
    stores
        The stores of the task's application, as they are defined.
    older_than_s
        Age in seconds from which on something is old.
    dry_run
        Say what would be removed, and remove nothing.
    accept_loss
        Remove also predecessors that may be the only copy of something.
    """

    paths: TaskPaths
    stores: tuple[StoreDefinition, ...]
    older_than_s: float
    dry_run: bool
    accept_loss: bool = False

    @property
    def place(self) -> str:
        """How its row is called: `flight-delays/0_3`."""
        return f"{self.paths.application}/{self.paths.task}"


class Removed:
    """Paths that were removed, or would be, and what stays though it is old."""

    def __init__(self, place: str, *, dry_run: bool) -> None:
        self._place = place
        self._dry_run = dry_run
        self._paths: list[str] = []
        self._bytes = 0
        self._kept: list[str] = []
        self._failure: Failure | None = None

    def remove(self, path: Location) -> None:
        """Remove a file or a directory, and count it."""
        self.count(path)
        if self._dry_run:
            return
        if isinstance(path, ObjectPath) or (path.is_dir() and not path.is_symlink()):
            remove_all(path)
        else:
            path.unlink(missing_ok=True)

    def count(self, path: Location, size: int | None = None) -> None:
        """Count what the caller removes, or has removed if it says how large it was."""
        self._bytes += size_of(path) if size is None else size
        self._paths.append(str(path))

    def keep(self, why: str) -> None:
        """Say what stays, and why."""
        self._kept.append(why)

    def fail(self, error: StateStoreError | OSError) -> None:
        """Say what could not be removed; the rest is removed all the same."""
        self._failure = Failure.of(error)

    @property
    def row(self) -> MaintenanceRow:
        """The row of the report."""
        return MaintenanceRow(
            place=self._place,
            removed=tuple(self._paths[:_NAMED]),
            removed_count=len(self._paths),
            removed_bytes=self._bytes,
            kept=tuple(self._kept[:_NAMED]),
            failure=self._failure,
        )


def tasks_with_own_files(state_dir: Path) -> list[TaskPaths]:
    """Return the tasks of which we keep something, whether or not a definition knows them."""
    found = []
    for directory in sorted((state_dir / OWN_DIRECTORY).glob("*/*")):
        try:
            task = TaskId.parse(directory.name)
        except InputError:
            continue
        if directory.is_dir():
            found.append(TaskPaths(state_dir, directory.parent.name, task))
    return found


def clean_task(spec: CleaningSpec) -> MaintenanceRow:
    """Lock the task and tidy it up; a failure of ours becomes part of the row, so that others go on."""
    paths = spec.paths
    removed = Removed(spec.place, dry_run=spec.dry_run)
    try:
        with locked(paths, _WAIT_S):
            if not spec.dry_run:
                finish_swaps(paths)
            _quarantine(spec, removed)
            _built(spec, removed)
            _runs(spec, removed)
    except (StateStoreError, OSError) as error:
        removed.fail(error)
    return removed.row


def _quarantine(spec: CleaningSpec, removed: Removed) -> None:
    known = {store.name: store for store in spec.stores}
    for directory in _directories(spec.paths.replaced):
        sizes = {path: size_of(path) for path in old_quarantined(spec.paths, directory.name, spec.older_than_s)}
        store = known.get(directory.name)
        gone: list[Path] = []
        if store is not None:
            gone = clean_quarantine(
                spec.paths, store, spec.older_than_s, accept_loss=spec.accept_loss, dry_run=spec.dry_run
            )
        for path, size in sizes.items():
            if path in gone:
                removed.count(path, size)
            else:
                removed.keep(f"{path}: {_why_kept(spec, store, path)}")


def _why_kept(spec: CleaningSpec, store: StoreDefinition | None, path: Path) -> str:
    if store is None:
        return "no definition has the store"
    return waits_for_a_person(spec.paths, store.name, path.name) or "the live store is not intact"


def _built(spec: CleaningSpec, removed: Removed) -> None:
    """Remove what was built and never put in place: nobody builds while we have the lock."""
    found = [path for path in (spec.paths.staged, spec.paths.staged_own) if path.exists()]
    for path in found:
        removed.count(path)
    if found and not spec.dry_run:
        clear_built(spec.paths)


def _runs(spec: CleaningSpec, removed: Removed) -> None:
    """Remove sorted runs that are old: they are of no use once their tombstones may be gone from the log."""
    latest = time.time() - spec.older_than_s
    for directory in _directories(spec.paths.all_runs):
        if changed_last(directory) > latest:
            continue
        try:
            with Staging(spec.paths, directory.name).alone(0.0):
                removed.remove(directory)
        except LockedError:
            removed.keep(f"{directory}: a restore of it is in progress")


def _directories(parent: Path) -> list[Path]:
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []


def changed_last(path: Location) -> float:
    """Return when a file, or anything in a directory, was changed last, in seconds since the epoch."""
    if isinstance(path, ObjectPath):
        return path.stat().st_mtime
    return max(found.lstat().st_mtime for found in _tree(path))


def size_of(path: Location) -> int:
    """Return the bytes of a file, or of all files in a directory."""
    if isinstance(path, ObjectPath):
        return path.stat().st_size
    return sum(found.lstat().st_size for found in _tree(path) if not found.is_dir())


def _tree(path: Path) -> Iterable[Path]:
    yield path
    if path.is_dir() and not path.is_symlink():
        yield from path.rglob("*")
