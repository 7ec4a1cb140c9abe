"""One asset per store, and the event that a run adds to it: what was committed, verified, restored or validated.

Which stores there are is not known when a DAG file is parsed, so each run names them through an asset alias.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from airflow.sdk import Asset, AssetAlias

from statestore.environments import active_environment
from statestore.reports import (
    Action,
    AnyReport,
    ProcessReport,
    ProcessRow,
    RestoreRow,
    StorePartitionRow,
    ValidateRow,
    VerifyRow,
)

#: Through which runs name the stores that they have worked on.
STORES = AssetAlias("statestore/stores", group="state stores")


def processed_asset() -> Asset:
    """Return the asset of the active environment that `process` updates.

    `verify` follows it, for the applications whose tasks all reached their ends.
    """
    return Asset(f"statestore/{active_environment().dag_id('processed')}")


#: Events lie in Airflow's database: of more store partitions than this, the report tells.
_NAMED = 64
Event = dict[str, Any]


class Processed(NamedTuple):
    """Runs of `process` that have started a run.

    Attributes
    ----------
    applications
        What they have processed; None: a run of an earlier version does not say.
    """

    applications: frozenset[str] | None


def processed_by(triggering: Mapping[Any, Sequence[Any]] | None) -> Processed | None:
    """Return the runs of `process` behind a run's asset events; None if it was started otherwise."""
    extras = [event.extra or {} for events in (triggering or {}).values() for event in events]
    if not extras:
        return None
    if any("applications" not in extra for extra in extras):
        return Processed(None)
    return Processed(frozenset(name for extra in extras for name in extra["applications"]))


def store_asset(application: str, store: str) -> Asset:
    """Return the asset of a store."""
    return Asset(name=f"{application}/{store}", uri=f"x-statestore://{application}/{store}", group="state stores")


def events(report: AnyReport, path: str) -> dict[tuple[str, str], Event]:
    """Return the event of each store that a report has something about, by application and store.

    Parameters
    ----------
    path
        Of the report; the event names it.
    """
    if isinstance(report, ProcessReport):
        found = _committed(report.rows)
    else:
        rows = sorted(
            (
                row
                for row in report.rows
                if isinstance(row, StorePartitionRow) and (isinstance(row, VerifyRow | ValidateRow) or _live(row))
            ),
            key=lambda row: (row.application, row.store),
        )
        grouped = groupby(rows, key=lambda row: (row.application, row.store))
        found = {store: _event(list(of_store)) for store, of_store in grouped}
    head = {"event": report.job, "report": path, "catalogue": report.catalogue}
    return {store: {**head, **event} for store, event in found.items()}


def _committed(rows: Sequence[ProcessRow]) -> dict[tuple[str, str], Event]:
    """Events of the stores in which tasks have committed something; of the others there is nothing to say."""
    found: dict[tuple[str, str], dict[str, tuple[int | None, int]]] = {}
    for row in rows:
        for figures in row.stores:
            if figures.commits:
                store = found.setdefault((row.application, figures.store), {})
                store[row.task] = (figures.committed, figures.commits)
    return {
        store: {
            **_partitions({task: committed for task, (committed, _) in tasks.items()}),
            "counts": {"commits": sum(commits for _, commits in tasks.values())},
            "verdict": "committed",
        }
        for store, tasks in found.items()
    }


def _live(row: object) -> bool:
    """True where a restore has worked on the live store, and not built one as of a point elsewhere."""
    return isinstance(row, RestoreRow) and row.mode != "as-of"


def _verdict(rows: Sequence[Any]) -> str:
    if all(row.healthy for row in rows):
        return "healthy"
    in_use = all(row.healthy or getattr(row, "action", None) is Action.LATER for row in rows)
    return "in use" if in_use else "unhealthy"


def _event(rows: Sequence[Any]) -> Event:
    first = rows[0]
    if isinstance(first, VerifyRow):
        found, counts = Counter(row.status for row in rows), {"lag": _total(rows, "lag"), "keys": _total(rows, "keys")}
    elif isinstance(first, RestoreRow):
        found = Counter(row.outcome for row in rows)
        counts = {"records": _total(rows, "records"), "keys": _total(rows, "keys")}
    else:
        found, counts = Counter(row.verdict for row in rows), {"keys": _total(rows, "keys")}
    return {
        **_partitions({row.task: getattr(row, "committed", None) for row in rows}),
        "counts": {**counts, **{str(name): count for name, count in found.items()}},
        "verdict": _verdict(rows),
    }


def _partitions(offsets: Mapping[str, int | None]) -> Event:
    named = dict(list(offsets.items())[:_NAMED])
    return {"partitions": list(named), "partition_count": len(offsets), "offsets": named}


def _total(rows: Sequence[Any], field: str) -> int:
    return sum(getattr(row, field) or 0 for row in rows)


def emit(outlet_events: Any, report: AnyReport, path: str) -> None:
    """Add a run's event to the asset of each store that it has worked on."""
    for (application, store), event in events(report, path).items():
        outlet_events[STORES].add(store_asset(application, store), extra=event)
