"""What the application should have computed, by another way: pandas over the CSV, group by group.

Nothing here knows Kafka or RocksDB, and nothing is shared with the application but the rules that its text states.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from demo.flights import UNKNOWN_AIRCRAFT, FlightsInput, open_csv
from statestore.definitions.application import ApplicationDefinition
from statestore.model import TaskId
from statestore.statedir.context import store_context
from statestore.statedir.lock import locked
from statestore.statedir.paths import TaskPaths
from statestore.stores.open import build_store
from statestore.stores.typed import AnyStore

#: Rows of a store: a key, or a key with its window's start or its session's start and end (ms); the value, and its
#: timestamp (ms) where the store has timestamps.
Rows = dict[Any, Any]
_SESSION_GAP_MS = 8 * 60 * 60 * 1000
_HOUR_MS = 60 * 60 * 1000


def expected(produced: FlightsInput) -> dict[str, Rows]:
    """Compute every store of the application."""
    flights = _flights(produced)
    return {
        "aircraft": _totals(flights),
        "sessions": _sessions(flights),
        "departures": _departures(flights),
    }


def _flights(produced: FlightsInput) -> pd.DataFrame:
    """Flights as they were produced: in the order of event time, which is the scheduled departure (ms)."""
    with open_csv() as file:
        flights = pd.read_csv(file)
    hour = pd.to_datetime(flights["time_hour"], utc=True)
    event = hour + pd.to_timedelta(flights["minute"], unit="min")
    event_ms = (event - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(milliseconds=1)
    flights["event_ms"] = event_ms + produced.shift_ms
    flights = flights.sort_values("event_ms", kind="stable").head(produced.records)
    flights["aircraft"] = flights["tailnum"].fillna(UNKNOWN_AIRCRAFT)
    return flights


def _totals(flights: pd.DataFrame) -> Rows:
    """Every aircraft's totals and the time of its last flight."""
    flown = flights[flights["dep_time"].notna()].groupby("aircraft")
    everything = flights.groupby("aircraft")
    totals = pd.DataFrame(
        {
            "flights": everything.size(),
            "departed": flown.size(),
            "departure_delay_min": flown["dep_delay"].sum(),
            "arrival_delay_min": flown["arr_delay"].sum(),
            "distance_miles": flown["distance"].sum(),
            "last_airport": flown["dest"].last(),
            "event_ms": everything["event_ms"].max(),
        }
    )
    rows: Rows = {}
    for aircraft, row in totals.iterrows():
        departed = 0 if pd.isna(row["departed"]) else int(row["departed"])
        value: dict[str, object] = {
            "flights": int(row["flights"]),
            "cancelled": int(row["flights"]) - departed,
            **{
                name: int(row[name]) if departed else 0
                for name in ("departure_delay_min", "arrival_delay_min", "distance_miles")
            },
            "last_airport": row["last_airport"] if departed else None,
        }
        rows[str(aircraft).encode()] = (value, int(row["event_ms"]))
    return rows


def _sessions(flights: pd.DataFrame) -> Rows:
    """What each aircraft flew without a pause longer than the gap."""
    ordered = flights.sort_values(["aircraft", "event_ms"], kind="stable")
    begins = ordered.groupby("aircraft")["event_ms"].diff().fillna(_SESSION_GAP_MS + 1) > _SESSION_GAP_MS
    ordered = ordered.assign(session=begins.cumsum(), flown=ordered["dep_time"].notna())
    sessions = (
        ordered.assign(miles=ordered["distance"].where(ordered["flown"], 0))
        .groupby("session")
        .agg(
            aircraft=("aircraft", "first"),
            start=("event_ms", "min"),
            end=("event_ms", "max"),
            flights=("flown", "sum"),
            miles=("miles", "sum"),
        )
    )
    rows: Iterable[Any] = sessions.itertuples()
    return {
        (str(row.aircraft).encode(), int(row.start), int(row.end)): {
            "flights": int(row.flights),
            "distance_miles": int(row.miles),
        }
        for row in rows
    }


def _departures(flights: pd.DataFrame) -> Rows:
    """How many flights left each airport in each hour, and the time of the last."""
    departed = flights[flights["dep_time"].notna()]
    hours = departed.assign(hour=departed["event_ms"] // _HOUR_MS * _HOUR_MS).groupby(["origin", "hour"])["event_ms"]
    found = pd.DataFrame({"count": hours.size(), "last": hours.max()})
    rows: Iterable[Any] = found.rename(columns={"count": "count_"}).itertuples()
    return {(str(row.Index[0]).encode(), int(row.Index[1])): (int(row.count_), int(row.last)) for row in rows}


def differences(
    state_dir: Path, application: ApplicationDefinition, partitions: int, expectation: dict[str, Rows]
) -> list[str]:
    """Compare the stores of all partitions, taken together, with what is expected; return what differs."""
    problems: list[str] = []
    for name, rows in expectation.items():
        found: Rows = {}
        index = application.subtopology_of(name).index
        for partition in range(partitions):
            paths = TaskPaths(state_dir, application.name, TaskId(index, partition))
            with locked(paths):
                for key, value in _read(application, name, paths):
                    if key in found:
                        problems.append(f"{name}: {key!r} is in more than one partition")
                    found[key] = value
        for key in sorted(rows.keys() | found.keys()):
            if rows.get(key) != found.get(key):
                problems.append(f"{name}: {key!r}: expected {rows.get(key)}, found {found.get(key)}")
    return problems


def _read(application: ApplicationDefinition, name: str, paths: TaskPaths) -> Iterable[tuple[Any, Any]]:
    store: AnyStore = build_store(application.store(name))
    store.init(store_context(paths, read_only=True))
    try:
        if name == "aircraft":
            return [(key, (json.loads(row.value), row.timestamp)) for key, row in store.all()]
        if name == "sessions":
            return [((*session,), json.loads(value)) for session, value in store.all()]
        return [
            ((window.key, window.start), (int.from_bytes(row.value, "big"), row.timestamp))
            for window, row in store.all()
        ]
    finally:
        store.close(clean=False)
