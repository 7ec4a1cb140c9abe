"""What the application should have computed, by another way: pandas over the CSV, group by group.

Nothing here knows Kafka or RocksDB, and nothing is shared with the application but the rules that its text states.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from demo.flights import UNKNOWN_AIRCRAFT, FlightsInput, open_csv
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import StoreDefinition
from statestore.statedir.lock import locked
from statestore.statedir.paths import TaskPaths
from statestore.stores.open import open_key_value_store

Totals = dict[bytes, tuple[dict[str, object], int]]


def expected_totals(produced: FlightsInput) -> Totals:
    """Compute every aircraft's totals and the event time (ms) of its last flight."""
    with open_csv() as file:
        flights = pd.read_csv(file)
    hour = pd.to_datetime(flights["time_hour"], utc=True)
    event = hour + pd.to_timedelta(flights["minute"], unit="min")
    flights["event_ms"] = (event - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(milliseconds=1)
    flights = flights.sort_values("event_ms", kind="stable").head(produced.records)
    flights["aircraft"] = flights["tailnum"].fillna(UNKNOWN_AIRCRAFT)
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
            "event_ms": everything["event_ms"].max() + produced.shift_ms,
        }
    )
    expected: Totals = {}
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
        expected[str(aircraft).encode()] = (value, int(row["event_ms"]))
    return expected


def differences(stores: Iterable[TaskPaths], store: StoreDefinition, expected: Totals) -> list[str]:
    """Compare the stores of all partitions, taken together, with what is expected; return what differs."""
    found: Totals = {}
    problems: list[str] = []
    for paths in stores:
        with locked(paths):
            for key, value in read_store(store, paths.store(store.name)):
                if key in found:
                    problems.append(f"{key!r} is in more than one partition")
                found[key] = (json.loads(value.value), value.timestamp)
    for key in sorted(expected.keys() | found.keys()):
        if expected.get(key) != found.get(key):
            problems.append(f"{key!r}: expected {expected.get(key)}, found {found.get(key)}")
    return problems


def read_store(store: StoreDefinition, directory: Path) -> list[tuple[bytes, ValueAndTimestamp]]:
    """Read all rows of a store that is not in use."""
    opened = open_key_value_store(store, directory, read_only=True)
    try:
        return [(key, ValueAndTimestamp(*value)) for key, value in opened.range()]
    finally:
        opened.close(clean=False)
