"""Lag and findings over time, from the verifications' Parquet files (statestore/verification/history.py).

A file never changes, so each is read once and kept as one small sum for each store.
"""

from __future__ import annotations

import threading
from io import BytesIO
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from statestore.errors import StateStoreError
from statestore.objects.path import Location, ObjectPath, each_at_once
from statestore.reports import Status, readable
from statestore.verification.history import history_dir
from statestore_ui.recent import Recent

#: Runs that are looked at, the newest.
MOST_RUNS = 500
_COLUMNS = ["run_id", "started_ms", "application", "store", "status", "lag"]
#: A file with its times: it never changes.
_File = tuple[Location, int, int]
_HEALTHY = {status.value for status in Status if status.healthy}


class _Sum(NamedTuple):
    """What one run found of one store."""

    lag: int
    statuses: dict[str, int]


class _Passing(str):
    """Why object storage has not given a file now."""


class _Run(NamedTuple):
    run_id: str
    started_ms: int
    stores: dict[tuple[str, str], _Sum]


class Histories:
    """Reads the history, each file once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent = Recent[list[_File]]()
        self._runs: dict[_File, _Run | str] = {}

    def get(self, reports_dir: Location, application: str, store: str | None) -> dict[str, Any]:
        """Return a point for each run that looked at the store, or at any of the application's, the oldest first."""
        with self._lock:
            problems, points = [], []
            try:
                files = self._recent.get(reports_dir, lambda: _files(history_dir(reports_dir)))
            except StateStoreError as error:  # what was read before is shown
                files = list(self._runs)
                problems.append({"path": "history/verify", "message": f"It cannot be read now. {error}"})
            news = [file for file in files if file not in self._runs]
            said = each_at_once([path for path, _, _ in news], _read)
            runs = self._runs | dict(zip(news, said, strict=True))
            runs = {file: runs[file] for file in files}
            self._runs = {file: run for file, run in runs.items() if not isinstance(run, _Passing)}
        for file, run in runs.items():
            if isinstance(run, str):
                problems.append({"path": f"history/verify/{readable(file[0].name)}", "message": run})
                continue
            sums = [found for (app, name), found in run.stores.items() if app == application and store in (None, name)]
            if sums:
                points.append(_point(run, sums))
        points.sort(key=lambda point: (point["started_ms"], point["run_id"]))
        return {"application": application, "store": store, "points": points, "problems": problems[:20]}


def _point(run: _Run, sums: list[_Sum]) -> dict[str, Any]:
    statuses: dict[str, int] = {}
    for found in sums:
        for status, count in found.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    return {
        "run_id": run.run_id,
        "started_ms": run.started_ms,
        "lag": sum(found.lag for found in sums),
        "partitions": sum(statuses.values()),
        "findings": {status: count for status, count in statuses.items() if status not in _HEALTHY},
    }


def _files(directory: Location) -> list[_File]:
    found = []
    for path in directory.glob("[!.]*.parquet"):  # none where there is no such directory yet
        try:
            stat = path.stat()
        except OSError:
            continue  # removed since it was listed
        found.append((path, stat.st_mtime_ns, stat.st_ctime_ns))
    return sorted(found, key=lambda file: file[1], reverse=True)[:MOST_RUNS]


def _read(path: Location) -> _Run | str:
    """Return a run's sums, or what is wrong with its file."""
    try:
        with pq.ParquetFile(BytesIO(path.read_bytes()) if isinstance(path, ObjectPath) else path) as file:
            table = file.read(columns=_COLUMNS)
        if table.num_rows == 0:
            return _Run("", 0, {})
        grouped = table.group_by(["application", "store", "status"]).aggregate([("lag", "sum"), ([], "count_all")])
        stores: dict[tuple[str, str], _Sum] = {}
        for row in grouped.to_pylist():
            found = stores.setdefault((row["application"], row["store"]), _Sum(0, {}))
            statuses = {**found.statuses, row["status"]: row["count_all"]}
            stores[row["application"], row["store"]] = _Sum(found.lag + (row["lag_sum"] or 0), statuses)
        return _Run(str(table["run_id"][0].as_py()), int(table["started_ms"][0].as_py()), stores)
    except StateStoreError as error:
        return _Passing(f"It cannot be read now. {error}")
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        return f"This is not a file of the history: {' '.join(str(error).split())[:200]}. Delete it."
