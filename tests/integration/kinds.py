"""A store of every kind, and logs of their changes."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from statestore.definitions.store import StoreDefinition
from statestore.formats import session_key, window_key
from statestore.partition.spec import StorePartitionSpec
from statestore.stores.rocksdb import RocksDB
from tests.integration import broker
from tests.integration.broker import T0, Row
from tests.integration.support import STORE, Application

MINUTE = 60_000
WINDOWED = {"name": STORE, "kind": "window", "retention_ms": 4 * MINUTE, "window_size_ms": MINUTE}
STORES = {
    "key-value": StoreDefinition(name=STORE),
    "plain key-value": StoreDefinition(name=STORE, format="plain"),
    "window": StoreDefinition(**WINDOWED),
    "plain window": StoreDefinition(**WINDOWED, format="plain"),
    "window with duplicates": StoreDefinition(**WINDOWED, retain_duplicates=True),
    "session": StoreDefinition(name=STORE, kind="session", retention_ms=4 * MINUTE),
}
WITH_HEADERS = {
    "key-value with headers": StoreDefinition(name=STORE, format="headers"),
    "window with headers": StoreDefinition(**WINDOWED, format="headers"),
    "session with headers": StoreDefinition(name=STORE, kind="session", retention_ms=4 * MINUTE, format="headers"),
}
ALL_STORES = STORES | WITH_HEADERS
#: Names of all, those with headers for `make faults`.
EVERY_KIND = [*STORES, *(pytest.param(kind, marks=pytest.mark.long) for kind in WITH_HEADERS)]
NOTES: list[list[tuple[str, bytes | None]]] = [[], [("trace", b"1")], [("null", None), ("trace", b"\xff" * 70)]]


def changes(store: StoreDefinition, count: int, seed: int, minute: int = 0) -> list[Row]:
    """Changes of a log, deletes and empty values too; for windows and sessions time goes on, and segments expire."""
    chance = random.Random(seed)
    rows: list[Row] = []
    for number in range(count):
        key = b"key-%02d" % chance.randrange(60)
        value = None if chance.random() < 0.2 else b"%d" % number if number % 13 else b""
        start = T0 - T0 % MINUTE + (minute + number // 10 - chance.randrange(3)) * MINUTE
        if store.kind == "window":
            key = window_key.encode(key, start, number if store.retain_duplicates else 0)
        elif store.kind == "session":
            # Within the minute, and always the same: sessions of a key are disjoint.
            key = session_key.encode(key, start, start + zlib.crc32(b"%s %d" % (key, start)) % MINUTE)
        rows.append((key, value, chance.choice(NOTES)) if store.values.keeps_headers else (key, value))
    return rows


def logged(servers: str, directory: Path, store: StoreDefinition, rows: Sequence[Row]) -> Application:
    """Return an application of which there is nothing but a changelog."""
    application = Application(servers, directory, stores=[store], processor="echo")
    broker.transaction(servers, application.changelog, rows)
    return application


def stored(store: StorePartitionSpec, directory: Path) -> dict[bytes, bytes]:
    """Rows of all databases below a directory, as they are stored."""
    families = store.store.values.column_families
    rows: dict[bytes, bytes] = {}
    for path in sorted(directory.rglob("CURRENT")):
        database = RocksDB(path.parent, families, read_only=True)
        for family in families:
            rows |= dict(database.scan(family))
        database.close()
    return rows
