"""The sample application: per aircraft, its totals and where it was last seen. Written with the public API alone.

A flight without a departure was cancelled: it counts as such, adds no delay and no miles, and moves no aircraft.
"""

from __future__ import annotations

import json

from statestore.tasks import ProcessorContext, Record, ValueAndTimestamp

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
    flight = json.loads(record.value)
    store = context.state_store("aircraft")
    found = store.get(record.key)
    totals = json.loads(found.value) if found else dict(_NOTHING)
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
