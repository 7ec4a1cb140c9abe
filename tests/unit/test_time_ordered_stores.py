"""Stores with their times in front: a build and a replay write the same rows, which are read by their ordinary keys."""

import shutil
import struct

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from store_samples import RETENTION_MS, databases, logs
from test_bulk_databases import built, replayed, with_rows
from test_bulk_ingestion import replay, take_over

from statestore.bulk.routing import routing_of
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import StoreCorruptedError
from statestore.formats import time_ordered_key
from statestore.kinds.known import OF_THE_DSL
from statestore.stores.rocksdb import RocksDB
from statestore.stores.scan import ScannedDatabase
from statestore.verification.options import nobody_waits
from statestore.verification.time_ordered import time_ordered_rows

WINDOWS = {"window_size_ms": 1_000, "retention_ms": RETENTION_MS}
STORES = {
    "time-ordered-window": StoreDefinition(name="s", kind="time-ordered-window", **WINDOWS),
    "indexed-time-ordered-window": StoreDefinition(name="s", kind="indexed-time-ordered-window", **WINDOWS),
    "time-ordered-session": StoreDefinition(name="s", kind="time-ordered-session", retention_ms=RETENTION_MS),
}
BUFFER = StoreDefinition(name="s", kind="time-ordered-buffer")
PHASES = (Phase.explicit, Phase.generate)


def drawn(data, definition):
    log = data.draw(logs(definition))
    end = definition.store_kind.logged_values_end_with
    return [(key, None if value is None else value + end, time) for key, value, time in log]


@pytest.mark.parametrize("definition", [*STORES.values(), BUFFER], ids=lambda store: store.kind)
@settings(max_examples=3, phases=PHASES)
@given(data=st.data(), run_bytes=st.sampled_from([1, 6_000, 1 << 20]))
def test_r9_a_built_store_has_the_rows_of_a_replayed_one(tmp_path_factory, definition, data, run_bytes):
    directory = tmp_path_factory.mktemp("stores")
    log = drawn(data, definition)
    written = built(definition, log, directory / "built", run_bytes)
    replayed(definition, log, directory / "replayed")
    found, expected = (databases(definition, directory / name) for name in ("built", "replayed"))
    assert with_rows(found) == with_rows(expected)
    rows = [key for families in found.values() for key in families["default"]]
    assert written.rows == (len(rows) if definition is BUFFER else sum(key[0] == 0 for key in rows))
    shutil.rmtree(directory)


@pytest.mark.short_for("indexed-time-ordered-window", "time-ordered-session")
@pytest.mark.parametrize("definition", [*STORES.values(), BUFFER], ids=lambda store: store.kind)
@settings(max_examples=3, phases=PHASES)
@given(data=st.data(), run_bytes=st.sampled_from([1, 1 << 20]), sizes=st.lists(st.integers(1, 20), max_size=8))
def test_r9_a_store_that_takes_runs_over_has_the_rows_of_a_replayed_one(
    tmp_path_factory, definition, data, run_bytes, sizes
):
    directory = tmp_path_factory.mktemp("stores")
    log = drawn(data, definition)
    first = data.draw(st.integers(0, len(log)))
    replay(definition, log[:first], directory / "replayed" / "store", [], 0)
    shutil.copytree(directory / "replayed", directory / "taken")
    replay(definition, log[first:], directory / "replayed" / "store", sizes, first)
    take_over(definition, log[first:], directory / "taken" / "store", sizes, first, run_bytes)
    found, expected = (databases(definition, directory / name / "store") for name in ("taken", "replayed"))
    assert with_rows(found) == with_rows(expected)
    shutil.rmtree(directory)


@pytest.mark.parametrize("kind", STORES)
def test_rows_are_read_by_the_keys_of_the_changelog_and_a_lost_index_row_is_found(tmp_path, kind):
    definition = STORES[kind]
    behind = struct.pack(">qi", 7, 0) if "window" in kind else struct.pack(">qq", 7, 5)
    log = [(b"key%d" % number + behind, b"v", 1) for number in range(3)]
    built(definition, log, tmp_path / "s")
    layout = definition.store_kind.layout

    def keys():
        database = ScannedDatabase(tmp_path / "s" / "s.0", definition.format)
        try:
            found = time_ordered_rows(database, layout, 0, routing_of(definition), nobody_waits)
            return sorted(key for batch in found for key in batch.column(0).to_pylist())
        finally:
            database.close()

    assert keys() == [key for key, _, _ in log]
    lost = RocksDB(tmp_path / "s" / "s.0", ["default"])
    lost.write({"default": {time_ordered_key.index(log[1][0]): None if layout.indexed else b""}}, {})
    lost.close()
    said = "1 rows without their index rows" if layout.indexed else "a store of its kind has none"
    with pytest.raises(StoreCorruptedError, match=said):
        keys()


@pytest.mark.parametrize("kind", OF_THE_DSL, ids=lambda kind: kind.name)
def test_an_application_of_ours_cannot_define_them(kind):
    settings = {name: 1_000 for name in kind.times}
    with pytest.raises(ValueError, match="only Kafka Streams' DSL creates"):
        ApplicationDefinition(
            name="app",
            input_topic="input",
            processor="module:attribute",
            stores=[StoreDefinition(name="s", kind=kind.name, **settings)],
        )
