"""Rows that our suites' expectations hold for, and rows that break each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from statestore_expectations.suites import SUITES

from statestore.kafka.partitioner import partition_of

PARTITIONS = 2
HOUR = 3_600_000
#: A multiple of the segments of stores that keep ten hours.
NOON = 1_000 * HOUR
RETENTION = 10 * HOUR

Row = tuple[Any, ...]

_ROWS = "the store has as many rows as the changelog has live keys"
_UNIQUE = "each row key occurs once in its partition"
_NULL_KEY = "no key is null"
_NULL_VALUE = "no value is null"
_TIMES = "timestamps are in the range of the changelog's timestamps"
_SUMS = "each partition has the changelog's row count and checksum"
_MISSING = "no row of the changelog is missing from the store"
_EXTRA = "the store has no row that the changelog lacks or has deleted"
_VALUES = "values are those of the changelog"
_SAME_TIMES = "timestamps are those of the changelog"


def titles(suite: str) -> list[str]:
    """Descriptions in a suite's file."""
    return [one["description"] for one in json.loads((SUITES / f"{suite}.json").read_text())["expectations"]]


@dataclass
class Example:
    """What is put into a store and its log, and which rows break which expectation.

    Rows are named by what `name` makes of a sample's row.
    """

    suites: tuple[str, ...]
    ddl: str
    parameters: dict[str, int]
    good: list[Row]
    name: Callable[[dict[str, Any]], Any]
    store: list[Row] = field(default_factory=list)
    log: list[Row] = field(default_factory=list)
    broken: dict[str, set[Any]] = field(default_factory=dict)

    def breaks(self, found: Any, *expectations: str, store: Row | None = None, log: Row | None = None) -> None:
        """Add rows that break some expectations."""
        self.store += [store] if store else []
        self.log += [log] if log else []
        for expectation in expectations:
            self.broken.setdefault(expectation, set()).add(found)

    def breaks_in_both(self, found: Any, row: Row, expectations: Iterable[str]) -> None:
        """Add a row that is the same in store and log, so that only what it is itself is wrong."""
        self.breaks(found, *expectations, store=row, log=row)


def _placed(key: bytes, *rest: Any, elsewhere: bool = False) -> Row:
    partition = partition_of(key, PARTITIONS)
    return (1 - partition if elsewhere else partition, key, *rest)


def _by_key(row: dict[str, Any]) -> Any:
    return bytes.fromhex(row["key"]) if row.get("key") else row["partition"]


def _aircraft(**fields: Any) -> bytes:
    good = {"flights": 3, "cancelled": 1, "departure_delay_min": -3, "arrival_delay_min": 4, "distance_miles": 400}
    return json.dumps({**good, "last_airport": "JFK", **fields}).encode()


def key_value() -> Example:
    """A key-value store, the demo's aircraft."""
    good = [_placed(b"N%d" % number, _aircraft(), 1_000 + number) for number in range(6)]
    good += [
        _placed(
            b"N6",
            _aircraft(flights=1, last_airport=None, distance_miles=0, departure_delay_min=0, arrival_delay_min=0),
            1_500,
        ),
        _placed(b"UNKNOWN", _aircraft(), 2_000),
    ]
    found = Example(
        ("key_value", "flight_delays_aircraft"),
        "partition INT, key BINARY, value BINARY, timestamp LONG",
        {"partitions": PARTITIONS},
        good,
        _by_key,
    )
    place, key, parse, flights, cancelled, airport, last, miles, departure, arrival = titles("flight_delays_aircraft")
    every = (parse, flights, cancelled, last, miles, departure, arrival)

    found.breaks(b"LOST", _MISSING, log=_placed(b"LOST", _aircraft(), 1_100))
    found.breaks(b"EXTRA", _EXTRA, store=_placed(b"EXTRA", _aircraft(), 1_100))
    for _ in range(2):
        found.breaks(b"TWICE", _UNIQUE, store=_placed(b"TWICE", _aircraft(), 1_100))
    found.log += [_placed(b"TWICE", _aircraft(), 1_100)]
    found.breaks(0, _NULL_KEY, _EXTRA, place, key, store=(0, None, _aircraft(), 1_100))
    null = _placed(b"NULL", None, 1_100)
    found.breaks(b"NULL", _NULL_VALUE, _VALUES, *every, store=null, log=_placed(b"NULL", _aircraft(), 1_100))
    found.breaks(
        b"OTHER",
        _VALUES,
        store=_placed(b"OTHER", _aircraft(), 1_100),
        log=_placed(b"OTHER", _aircraft(flights=2), 1_100),
    )
    found.breaks(
        b"SHIFTED",
        _SAME_TIMES,
        store=_placed(b"SHIFTED", _aircraft(), 1_101),
        log=_placed(b"SHIFTED", _aircraft(), 1_100),
    )
    found.breaks(
        b"LATE",
        _SAME_TIMES,
        _TIMES,
        store=_placed(b"LATE", _aircraft(), 2_001),
        log=_placed(b"LATE", _aircraft(), 1_100),
    )
    found.store += [_placed(b"KIP258", _aircraft(), -1)]
    found.log += [_placed(b"KIP258", _aircraft(), 1_100)]
    found.broken |= {_ROWS: {None}, _SUMS: {0, 1}}

    found.breaks_in_both(b"MOVED", _placed(b"MOVED", _aircraft(), 1_100, elsewhere=True), [place])
    found.breaks_in_both(b"lower", _placed(b"lower", _aircraft(), 1_100), [key])
    found.breaks_in_both(b"\xff", _placed(b"\xff", _aircraft(), 1_100), [key])
    for name, value, breaks in [
        (b"BYTES", b"\xff", every),
        (b"TEXT", _aircraft(departure_delay_min="3"), (parse, departure)),
        (b"PART", _aircraft(arrival_delay_min=0.5), (parse, arrival)),
        (b"NUMBER", _aircraft(last_airport=700), (parse, airport)),
        (
            b"NONE",
            _aircraft(
                flights=0, cancelled=0, departure_delay_min=0, arrival_delay_min=0, distance_miles=0, last_airport=None
            ),
            (flights,),
        ),
        (b"ALL", _aircraft(flights=2, cancelled=3), (cancelled, miles, departure, arrival)),
        (b"CITY", _aircraft(last_airport="New York"), (airport,)),
        (b"NOWHERE", _aircraft(last_airport=None), (last,)),
        (b"GROUNDED", _aircraft(cancelled=3, departure_delay_min=0, arrival_delay_min=0, distance_miles=0), (last,)),
        (b"NEAR", _aircraft(distance_miles=99), (miles,)),
        (b"FAR", _aircraft(distance_miles=12_001), (miles,)),
        (b"EARLY", _aircraft(departure_delay_min=-241), (departure,)),
        (b"DAYS", _aircraft(arrival_delay_min=5_761), (arrival,)),
    ]:
        found.breaks_in_both(name, _placed(name, value, 1_100), breaks)
    return found


def window() -> Example:
    """A window store, the demo's departures."""

    def row(
        key: bytes,
        hour: float,
        value: int | bytes | None = 5,
        *,
        size: int = HOUR,
        after: int = 100,
        elsewhere: bool = False,
    ) -> Row:
        start = NOON + int(hour * HOUR)
        count = value.to_bytes(8, "big", signed=True) if isinstance(value, int) else value
        return _placed(key, start, start + size, count, start + after, elsewhere=elsewhere)

    def name(found: dict[str, Any]) -> Any:
        key = found.get("key_text") or (bytes.fromhex(found["key"]).decode() if found.get("key") else None)
        hour = (found["window_start"] - NOON) / HOUR if "window_start" in found else found["partition"]
        return (key, hour) if "window_start" in found else hour

    good = [row(key, hour) for key in (b"EWR", b"JFK", b"LGA") for hour in (10, 12, 20)]
    # Of a row that lies where it does not belong, the partition has its own stream time: it is as late as the others.
    found = Example(
        ("window", "flight_delays_departures"),
        "partition INT, key BINARY, window_start LONG, window_end LONG, value BINARY, timestamp LONG",
        {"partitions": PARTITIONS, "window_size_ms": HOUR, "window_advance_ms": HOUR, "retention_ms": RETENTION},
        good,
        name,
    )
    *_, length, advance, old = titles("window")
    place, airport, parse, number, full, within = titles("flight_delays_departures")

    found.breaks(("EWR", 11), _MISSING, log=row(b"EWR", 11))
    found.breaks(("JFK", 11), _EXTRA, store=row(b"JFK", 11))
    for _ in range(2):
        found.breaks(("LGA", 11), _UNIQUE, store=row(b"LGA", 11))
    found.log += [row(b"LGA", 11)]
    found.breaks(
        (None, 13),
        _NULL_KEY,
        _EXTRA,
        place,
        airport,
        store=(0, None, NOON + 13 * HOUR, NOON + 14 * HOUR, b"\0" * 7 + b"\5", NOON + 13 * HOUR),
    )
    found.breaks(("EWR", 13), _NULL_VALUE, _VALUES, parse, number, store=row(b"EWR", 13, None), log=row(b"EWR", 13))
    found.breaks(("JFK", 13), _VALUES, store=row(b"JFK", 13, 6), log=row(b"JFK", 13))
    found.breaks(("LGA", 13), _SAME_TIMES, store=row(b"LGA", 13, after=101), log=row(b"LGA", 13))
    found.breaks(
        ("EWR", 20.5), _SAME_TIMES, _TIMES, advance, full, store=row(b"EWR", 20.5), log=row(b"EWR", 20.5, after=0)
    )
    found.broken |= {_ROWS: {None}, _SUMS: {0, 1}}

    found.breaks_in_both(("EWR", 14), row(b"EWR", 14, size=HOUR + 1), [length])
    found.breaks_in_both(("JFK", 14.5), row(b"JFK", 14.5), [advance, full])
    found.breaks_in_both(("LGA", 9), row(b"LGA", 9), [old])
    found.breaks_in_both(("JFK", 15), row(b"JFK", 15, elsewhere=True), [place])
    found.breaks_in_both(("BOS", 15), row(b"BOS", 15), [airport])
    found.breaks_in_both(("EWR", 16), row(b"EWR", 16, b"\0\0\5"), [parse, number])
    found.breaks_in_both(("JFK", 16), row(b"JFK", 16, 0), [number])
    found.breaks_in_both(("LGA", 16), row(b"LGA", 16, -5), [number])
    found.breaks_in_both(("EWR", 17), row(b"EWR", 17, 201), [number])
    found.breaks_in_both(("JFK", 17), row(b"JFK", 17, after=HOUR), [within])
    return found


def session() -> Example:
    """A session store, the demo's working sessions."""

    def row(
        key: bytes,
        start: float,
        end: float,
        flights: int = 2,
        miles: int = 400,
        *,
        value: bytes | None = b"",
        timestamp: int | None = None,
        elsewhere: bool = False,
    ) -> Row:
        work = json.dumps({"flights": flights, "distance_miles": miles}).encode() if value == b"" else value
        times = (NOON + int(start * HOUR), NOON + int(end * HOUR))
        return _placed(key, *times, work, timestamp, elsewhere=elsewhere)

    def name(found: dict[str, Any]) -> Any:
        key = found.get("key_text") or (bytes.fromhex(found["key"]).decode() if found.get("key") else None)
        return (key, (found["session_start"] - NOON) / HOUR) if "session_start" in found else found["partition"]

    good = [row(b"N%d" % number, start, start + 2) for number in range(6) for start in (10, 20.5)]
    good += [row(b"N6", 11, 11, 0, 0)]
    found = Example(
        ("session", "flight_delays_sessions"),
        "partition INT, key BINARY, session_start LONG, session_end LONG, value BINARY, timestamp LONG",
        {"partitions": PARTITIONS, "retention_ms": RETENTION},
        good,
        name,
    )
    *_, order, old, disjoint = titles("session")
    place, key, parse, flights, miles, apart = titles("flight_delays_sessions")

    found.breaks(("LOST", 12), _MISSING, log=row(b"LOST", 12, 13))
    found.breaks(("EXTRA", 12), _EXTRA, store=row(b"EXTRA", 12, 13))
    for _ in range(2):
        found.breaks(("TWICE", 12), _UNIQUE, disjoint, apart, store=row(b"TWICE", 12, 13))
    found.log += [row(b"TWICE", 12, 13)]
    none = (0, None, NOON + 12 * HOUR, NOON + 13 * HOUR, b'{"flights": 0, "distance_miles": 0}', None)
    found.breaks((None, 12), _NULL_KEY, _EXTRA, place, key, store=none)
    found.breaks(
        ("NULL", 12),
        _NULL_VALUE,
        _VALUES,
        parse,
        flights,
        miles,
        store=row(b"NULL", 12, 13, value=None),
        log=row(b"NULL", 12, 13),
    )
    found.breaks(("OTHER", 12), _VALUES, store=row(b"OTHER", 12, 13, 1), log=row(b"OTHER", 12, 13))
    # Session stores are plain, as Kafka Streams has them, but may be timestamped.
    found.breaks(
        ("SHIFTED", 12),
        _SAME_TIMES,
        _TIMES,
        store=row(b"SHIFTED", 12, 13, timestamp=6),
        log=row(b"SHIFTED", 12, 13, timestamp=5),
    )
    found.broken |= {_ROWS: {None}, _SUMS: {0, 1}}

    found.breaks_in_both(("BACK", 13), row(b"BACK", 13, 12), [order])
    found.breaks_in_both(("OLD", 8), row(b"OLD", 8, 9), [old])
    found.breaks_in_both(("OVERLAP", 12), row(b"OVERLAP", 12, 14), [])
    found.breaks_in_both(("OVERLAP", 14), row(b"OVERLAP", 14, 15), [disjoint, apart])
    found.breaks_in_both(("INSIDE", 11), row(b"INSIDE", 11, 22), [])
    found.breaks_in_both(("INSIDE", 12), row(b"INSIDE", 12, 13), [disjoint, apart])
    found.breaks_in_both(("INSIDE", 14), row(b"INSIDE", 14, 15), [disjoint, apart])
    found.breaks_in_both(("CLOSE", 12), row(b"CLOSE", 12, 12), [])
    found.breaks_in_both(("CLOSE", 20), row(b"CLOSE", 20, 20), [apart])
    found.breaks_in_both(("MOVED", 12), row(b"MOVED", 12, 13, elsewhere=True), [place])
    found.breaks_in_both(("lower", 12), row(b"lower", 12, 13), [key])
    found.breaks_in_both(("JSON", 12), row(b"JSON", 12, 13, value=b"{"), [parse, flights, miles])
    found.breaks_in_both(("MINUS", 12), row(b"MINUS", 12, 13, -1, -100), [flights, miles])
    found.breaks_in_both(("NEAR", 12), row(b"NEAR", 12, 13, 2, 99), [miles])
    return found


def versioned() -> Example:
    """A versioned store."""

    def row(key: bytes | None, valid_from: int, valid_to: int | None = None, value: bytes | None = b"v") -> Row:
        return (0, key, valid_from, valid_to, value, valid_from)

    good = [row(b"GONE", 1_000, 1_100), row(b"TEA", 1_000, 1_500), row(b"TEA", 1_500, 1_600), row(b"TEA", 2_000)]
    found = Example(
        ("versioned",),
        "partition INT, key BINARY, valid_from LONG, valid_to LONG, value BINARY, timestamp LONG",
        {"retention_ms": RETENTION},
        good,
        _by_key,
    )
    *_, ends, overlap = titles("versioned")

    found.breaks(b"LOST", _MISSING, log=row(b"LOST", 1_100))
    found.breaks(b"EXTRA", _EXTRA, store=row(b"EXTRA", 1_100))
    found.breaks(b"TWICE", _UNIQUE, store=row(b"TWICE", 1_100))
    found.breaks(b"TWICE", overlap, store=row(b"TWICE", 1_100))
    found.log += [row(b"TWICE", 1_100)]
    found.breaks(0, _NULL_KEY, _EXTRA, store=row(None, 1_100))
    found.breaks(b"NULL", _NULL_VALUE, _VALUES, store=row(b"NULL", 1_100, None, None), log=row(b"NULL", 1_100))
    found.breaks(b"OTHER", _VALUES, store=row(b"OTHER", 1_100), log=row(b"OTHER", 1_100, None, b"w"))
    found.breaks(b"LATE", _TIMES, _EXTRA, store=row(b"LATE", 2_001))
    found.broken |= {_ROWS: {None}, _SUMS: {0}}

    found.breaks_in_both(b"BACK", row(b"BACK", 1_500, 1_400), [ends])
    found.breaks_in_both(b"STILL", row(b"STILL", 1_500, 1_500), [ends])
    found.breaks_in_both(b"BEFORE", row(b"BEFORE", 1_100, 1_400), [])
    found.breaks_in_both(b"BEFORE", row(b"BEFORE", 1_300, 1_500), [overlap])
    found.breaks_in_both(b"OPEN", row(b"OPEN", 1_100), [])
    found.breaks_in_both(b"OPEN", row(b"OPEN", 1_300, 1_500), [overlap])
    return found


EXAMPLES = {"key-value": key_value, "window": window, "session": session, "versioned": versioned}
