"""KIP-258 over every kind: timestamped rows, plain rows that are still there, and who may read which."""

from __future__ import annotations

import pytest
from store_under_test import contents
from store_under_test import time_of as start_of

from statestore.errors import UnknownFormatError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import StoreFormat
from statestore.stores.readers import IsolationLevel
from statestore.stores.rocksdb import RocksDB, column_families
from tests.compositions import ALL, CHANGELOG, STORE, compositions, gated

TIMESTAMPED = StoreFormat.TIMESTAMPED
timestamped = compositions(format=TIMESTAMPED)


@compositions(persistent=True)
@pytest.mark.behaviour("F1", "S1")
def test_rows_on_disk_are_kafka_streams_rows(store):
    for slot in (1, 7):
        store.put(slot, "texts")
    store.store.commit({CHANGELOG: 5})
    store.close()
    key, start = b"k01", start_of(1)
    row_key = {
        "key-value": key,
        "window": key + start.to_bytes(8, "big") + bytes(4),
        "session": key + (start + 1).to_bytes(8, "big") + start.to_bytes(8, "big"),
    }[store.composition.kind]
    layout = store.composition.layout
    stored = (1_005).to_bytes(8, "big") + b"texts" if store.composition.timestamped else b"texts"
    if layout.keeps_headers:  # of "of" with "slots", "null" with null, "of" with nothing
        stored = b"\x28\x06\x04of\x0aslots\x08null\x01\x04of\x00" + stored
    names = {"key-value": ["rocksdb/s"]}.get(store.composition.kind, ["s/s.0", "s/s.10800000"])
    assert [str(path.relative_to(store.home.task_directory)) for path in store.directories] == names
    family = layout.column_families[0]
    expected = {"default", "offsets", family}
    database = RocksDB(store.directories[0], expected - {"offsets"}, read_only=True)
    rows, offsets = dict(database.scan(family)), dict(database.scan("offsets"))
    database.close()
    assert set(column_families(store.directories[0])) == expected
    assert rows[row_key] == stored
    assert offsets == {b"app-s-changelog-0": bytes(7) + b"\x05", b"status": bytes(8)}


@timestamped
@pytest.mark.behaviour("F1", "F9")
def test_a_value_keeps_its_timestamp_and_none_stays_none(store):
    store.put(1, "text")
    assert store.get(1) == "text"  # with the timestamp that `value` gave it
    assert store.get(2) is None
    store.put(1, None)
    assert store.get(1) is None
    store.replay([(7, "from the changelog"), (8, "gone"), (8, None)])
    assert store.rows() == {7: "from the changelog"}


@pytest.mark.parametrize("composition", gated(one for one in ALL if one.timestamped or one.keeps_headers), ids=str)
@pytest.mark.behaviour("F10")
def test_a_null_value_with_its_timestamp_or_headers_deletes(store):
    logged = []
    store.store.log_changes_to(lambda key, value, *_: logged.append((key, value)))
    store.fill([1, 7], "text")
    null = store.value("text")._replace(**{store.value("text")._fields[0]: None})
    at = (start_of(1),) if store.composition.kind == "window" else ()
    store.store.put(store.key(1), null, *at)
    assert store.rows() == {7: "text"}
    assert logged[2:] == [(store.row_key(1), None)]
    if store.composition.kind == "key-value":
        store.store.put_all([(store.key(7), null)])
        assert store.rows() == {}


@pytest.mark.behaviour("F10")
def test_make_and_get_value_or_none_map_none_to_none():
    made = ValueAndTimestamp.make("text", 7)
    assert made == ValueAndTimestamp("text", 7)
    assert ValueAndTimestamp.make(None, 7) is None
    assert ValueAndTimestamp.get_value_or_none(made) == "text"
    assert ValueAndTimestamp.get_value_or_none(None) is None


@timestamped
@pytest.mark.behaviour("F5")
def test_a_timestamped_store_queried_as_plain_gives_values_alone(store):
    store.fill([1, 7], "text")
    store.store.commit({CHANGELOG: 1})
    for isolation in IsolationLevel:
        plain = store.reader(isolation, timestamps=False)
        values = [value for _, value in plain.all()]
        assert values == ["text", "text"]
        fetched = {
            "key-value": lambda plain=plain: plain.get("k01"),
            "window": lambda plain=plain: plain.fetch("k01", start_of(1)),
            "session": lambda plain=plain: plain.fetch_session(*store.key(1)),
        }[store.composition.kind]()
        assert fetched == "text"


@compositions(persistent=True)
@pytest.mark.behaviour("F4")
@pytest.mark.parametrize("database", [0, -1], ids=["first", "last"])
def test_a_store_with_a_column_family_of_a_later_version_is_refused_and_left_alone(store, database):
    store.fill([1, 7], "text")
    store.store.commit({CHANGELOG: 1})
    store.close()
    later = "versionedKeyValueWithHeaders"
    RocksDB(store.directories[database], [*store.composition.layout.column_families, later]).close()
    before = contents(store.home.root)
    with pytest.raises(UnknownFormatError, match=rf"{STORE}.*{later}.*was not changed"):
        store.open()
    assert contents(store.home.root) == before
