"""Files of runs that have ended long ago: reports, history, verdicts, and stores as of a point.

    <reports_dir>/<job>/*.json, .parts/*.json        reports; the last of each job stays
    <reports_dir>/<job>/.progress-<run>/             of jobs that were killed
    <reports_dir>/<job>/.attempt-<attempt>/          likewise; also below .parts
    <reports_dir>/history/verify/run-*.parquet       the last stays
    <data_docs_dir>/verdicts/<store>/*.json          the last of each store stays
    <as_of_dir>/<run>/                               state directories of mode as-of

Nothing else is touched: what somebody has put beside them stays. In object storage, age is by the object store's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from statestore.errors import LockedError, StateStoreError
from statestore.objects.path import Location, ObjectPath, listing
from statestore.recovery.as_of import is_target
from statestore.recovery.task_cleanup import Removed, changed_last, tasks_with_own_files
from statestore.reports import MaintenanceRow
from statestore.statedir.lock import locked
from statestore.verification.history import history_dir

JOBS = ("process", "verify", "restore", "validate", "snapshot", "drill", "survey", "write", "maintenance")
_DAY_S = 24 * 60 * 60


class OldFiles(NamedTuple):
    """Where to look, and what is old.

    Attributes
    ----------
    as_of_dir
        Directory with the state directories of mode as-of; None: there is none.
    older_than_s
        Age in seconds since the last change, from which on something is old.
    dry_run
        Say what would be removed, and remove nothing.
    """

    reports_dir: Location
    data_docs_dir: Location
    as_of_dir: Path | None
    older_than_s: float
    dry_run: bool

    def clean(self) -> list[MaintenanceRow]:
        """Remove what is old; return a row for each kind of files."""
        rows = [self._row(f"reports/{job}", partial(self._reports, job)) for job in JOBS]
        rows.append(self._row("history", self._history))
        rows.append(self._row("verdicts", self._verdicts))
        if self.as_of_dir is not None:
            rows.append(self._row("as-of", self._as_of))
        return rows

    def _row(self, place: str, clean: Callable[[Removed], None]) -> MaintenanceRow:
        removed = Removed(place, dry_run=self.dry_run)
        try:
            clean(removed)
        except (StateStoreError, OSError) as error:
            removed.fail(error)
        return removed.row

    def _reports(self, job: str, removed: Removed) -> None:
        directory = self.reports_dir / job
        self._old(all_but_last(listing(directory, "[!.]*.json")), removed)
        self._old(listing(directory, ".parts/*.json"), removed)
        # A job at work writes these every second, or within moments; nobody takes the report of a killed attempt.
        for pattern in (".progress-*", ".*.json.*", ".parts/.*.json.*", ".attempt-*", ".parts/.attempt-*"):
            self._old(listing(directory, pattern), removed, _DAY_S)

    def _history(self, removed: Removed) -> None:
        self._old(all_but_last(listing(history_dir(self.reports_dir), "run-*.parquet")), removed)

    def _verdicts(self, removed: Removed) -> None:
        for store in sorted(listing(self.data_docs_dir / "verdicts", "*"), key=str):
            self._old(all_but_last(listing(store, "*.json")), removed)

    def _as_of(self, removed: Removed) -> None:
        assert self.as_of_dir is not None
        for directory in self._older(listing(self.as_of_dir, "*"), self.older_than_s):
            assert isinstance(directory, Path)
            if not is_target(directory):
                removed.keep(f"{directory}: no restore created it")
                continue
            try:
                with ExitStack() as held:
                    for paths in tasks_with_own_files(directory):
                        held.enter_context(locked(paths, 0.0))
                    removed.remove(directory)
            except LockedError:
                removed.keep(f"{directory}: a store in it is in use")

    def _old(self, old: Iterable[Location], removed: Removed, older_than_s: float | None = None) -> None:
        for path in self._older(old, self.older_than_s if older_than_s is None else older_than_s):
            removed.remove(path)

    def _older(self, listed: Iterable[Location], older_than_s: float) -> Iterator[Location]:
        paths = sorted(listed, key=str)
        if not paths:
            return
        now_s = paths[0].parent.now_s() if isinstance(paths[0], ObjectPath) else time.time()
        latest = now_s - older_than_s
        for path in paths:
            try:
                changed = changed_last(path)
            except FileNotFoundError:  # its job has ended meanwhile
                continue
            if changed <= latest:
                yield path


def all_but_last(paths: Iterable[Location]) -> list[Location]:
    """Leave out the file that was changed last."""
    return sorted(paths, key=lambda path: (path.stat().st_mtime_ns, path.name))[:-1]
