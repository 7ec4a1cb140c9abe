"""Stores of every kind and format, logs that such a store may have, and the bytes that a store has on disk."""

from __future__ import annotations

import struct

from hypothesis import strategies as st
from samples import CHANGELOG

from statestore.bulk.routing import routing_of
from statestore.definitions.store import StoreDefinition
from statestore.formats.offsets import COLUMN_FAMILY
from statestore.formats.value_format import value_format
from statestore.model import TaskId
from statestore.stores.api import StoreContext
from statestore.stores.rocksdb import RocksDB, column_families

RETENTION_MS = 200_000  # segments of 100 s
WINDOW = {"kind": "window", "retention_ms": RETENTION_MS, "window_size_ms": 1_000}
STORES = {
    "key-value": StoreDefinition(name="s"),
    "plain key-value": StoreDefinition(name="s", format="plain"),
    "window": StoreDefinition(name="s", **WINDOW),
    "plain window": StoreDefinition(name="s", format="plain", **WINDOW),
    "duplicates": StoreDefinition(name="s", retain_duplicates=True, **WINDOW),
    "session": StoreDefinition(name="s", kind="session", retention_ms=RETENTION_MS),
    "timestamped session": StoreDefinition(name="s", kind="session", format="timestamped", retention_ms=RETENTION_MS),
}
KEYS = st.sampled_from([b"", b"a", b"a\0", b"\xff"]) | st.binary(max_size=20)
TIMES = st.integers(0, 700_000) | st.sampled_from([0, 99_999, 100_000])


@st.composite
def logs(draw, definition):
    suffix = routing_of(definition).suffix_bytes
    keys = KEYS
    if suffix:
        keys = st.tuples(KEYS, TIMES).map(lambda row: row[0] + struct.pack(">q", row[1]) + bytes(suffix - 8))
    values = st.binary(max_size=30) if definition.retain_duplicates else st.none() | st.binary(max_size=30)
    return draw(st.lists(st.tuples(keys, values, st.integers(1, 1 << 41)), max_size=60))


def context(definition, directory, **changes):
    return StoreContext(
        application="app",
        task=TaskId(0, 0),
        task_directory=directory.parent / "task",
        own_directory=directory.parent / "own",
        changelogs={definition.name: (CHANGELOG,)},
        directories={definition.name: directory},
        **changes,
    )


def databases(definition, directory):
    """Contents of each database of a store: rows and what is kept beside them, by column family."""
    families = value_format(definition.format).column_families
    segmented = definition.kind != "key-value"
    found = {}
    for path in sorted(directory.iterdir()) if segmented else [directory]:
        database = RocksDB(path, families, read_only=True)
        assert sorted(column_families(path)) == sorted({"default", *families, COLUMN_FAMILY})
        found[path.name if segmented else ""] = {
            family: dict(database.scan(family)) for family in (*families, COLUMN_FAMILY)
        }
        database.close()
    return found
