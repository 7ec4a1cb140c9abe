"""The sample application, written with the public API alone.

    aircraft     per aircraft, its totals and where it was last seen: a processor
    sessions     per aircraft, its working sessions: flights scheduled at most eight hours apart
    departures   per airport and hour, how many flights left: grouped anew, so through a repartition topic

A flight without a departure was cancelled: it counts as such, adds no delay and no miles, moves no aircraft and
is no departure; a session that it belongs to counts neither it nor its miles.
"""

from __future__ import annotations

import json
from typing import Any

from statestore.tasks import JSON, ProcessorContext, Record, ValueAndTimestamp, aggregate

_NOTHING = {
    "flights": 0,
    "cancelled": 0,
    "departure_delay_min": 0,
    "arrival_delay_min": 0,
    "distance_miles": 0,
    "last_airport": None,
}


def process(record: Record, context: ProcessorContext) -> None:
    """Add one flight to its aircraft's totals and forward them."""
    flight = json.loads(record.value or b"")
    store = context.state_store("aircraft")
    found = store.get(record.key)
    totals: dict[str, Any] = json.loads(found.value) if found else dict(_NOTHING)
    totals["flights"] += 1
    if flight["dep_time"] is None:
        totals["cancelled"] += 1
    else:
        totals["departure_delay_min"] += flight["dep_delay"]
        totals["arrival_delay_min"] += flight["arr_delay"] or 0  # diverted flights have none
        totals["distance_miles"] += flight["distance"]
        totals["last_airport"] = flight["dest"]
    value = json.dumps(totals).encode()
    store.put(record.key, ValueAndTimestamp(value, record.timestamp))
    context.forward(record.key, value)


def origin_of_departure(record: Record) -> bytes | None:
    """Group departures by airport; cancelled flights are left out."""
    flight = json.loads(record.value or b"")
    return None if flight["dep_time"] is None else str(flight["origin"]).encode()


def _add(key: bytes, flight: dict[str, Any], work: dict[str, int]) -> dict[str, int]:
    if flight["dep_time"] is None:
        return work
    return {"flights": work["flights"] + 1, "distance_miles": work["distance_miles"] + flight["distance"]}


def _merge(key: bytes, one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one[name] + other[name] for name in one}


working_session = aggregate(lambda: {"flights": 0, "distance_miles": 0}, _add, merger=_merge, value=JSON)
