"""Restores of past drills over time, from the drills' Parquet files (statestore/drills/history.py)."""

from __future__ import annotations

from typing import Any

from statestore.drills.history import read_drill_history
from statestore.errors import StateStoreError
from statestore.objects.path import Location


def drill_points(reports_dir: Location, application: str, store: str | None) -> dict[str, Any]:
    """Return a point for each run that drilled the store, or any of the application's, the oldest first."""
    problems: list[dict[str, str]] = []
    points: dict[str, dict[str, Any]] = {}
    try:
        rows = read_drill_history(reports_dir).to_pylist()
    except (StateStoreError, OSError) as error:
        rows, problems = [], [{"path": "history/drill", "message": str(error)}]
    for row in rows:
        if row["application"] != application or store not in (None, row["store"]):
            continue
        empty = {"run_id": row["run_id"], "started_ms": row["drilled_ms"], "seconds": 0.0, "verdicts": {}}
        point = points.setdefault(row["run_id"], empty)
        point["seconds"] = max(point["seconds"], row["seconds"] or 0.0)
        point["verdicts"][row["verdict"]] = point["verdicts"].get(row["verdict"], 0) + 1
    found = sorted(points.values(), key=lambda point: (point["started_ms"], point["run_id"]))
    return {"application": application, "store": store, "points": found, "problems": problems}
