"""Rows of stores of every kind, as `statestore read` shows them: keys, times, ranges, and what is no text."""

from __future__ import annotations

import struct

import pytest
from samples import store_partition
from store_samples import STORES
from test_bulk_databases import built
from test_time_ordered_stores import BUFFER
from test_time_ordered_stores import STORES as TIME_ORDERED

from statestore.cli.read_command import printable, row_range
from statestore.cli.store_rows import Row, Serdes, history_from, number_names, read_rows
from statestore.definitions.store import StoreDefinition
from statestore.discovery.row_range import RowRange
from statestore.errors import InputError, StoreCorruptedError
from statestore.formats.headers_value import encode
from statestore.stores.open import build_store
from statestore.stores.rocksdb import RocksDB

TEXT = Serdes("utf8", "utf8")
VERSIONED = StoreDefinition(name="s", kind="versioned", retention_ms=10_000)
WITH_HEADERS = StoreDefinition(name="s", format="headers")
WINDOWED = [store for store in (*STORES.values(), *TIME_ORDERED.values()) if "window" in store.kind]
SESSIONS = [store for store in (*STORES.values(), *TIME_ORDERED.values()) if "session" in store.kind]


def read(directory, store, *, keys=(None, None, None), times=(None, None), serdes=TEXT, latest=False) -> list[Row]:
    wanted = row_range(store.store_kind, keys, times, serdes.key)
    return list(read_rows(store_partition(directory, store=store), wanted, serdes, latest=latest))


def written(directory, store, log):
    built(store, log, store_partition(directory, store=store).live)


@pytest.mark.parametrize("format", ["plain", "timestamped"])
def test_keys_of_a_key_value_store_are_read_alone_in_ranges_and_all(tmp_path, format):
    store = StoreDefinition(name="s", format=format)
    written(tmp_path, store, [(key, key * 2, 5) for key in (b"a", b"a\0", b"b", b"\xff")])
    stamp = 5 if format == "timestamped" else None
    [row] = read(tmp_path, store, keys=("a", None, None))
    assert (row.label, row.key, row.value, row.timestamp, row.numbers) == ("app/s/0_0", "a", "aa", stamp, {})
    assert [row.key for row in read(tmp_path, store, keys=(None, "a", "b"))] == ["a", "a\0"]
    assert [(row.key, row.key_bytes, row.value_bytes) for row in read(tmp_path, store)][2:] == [
        ("b", None, None),
        (None, "ff", "ffff"),
    ]
    assert [row.key for row in read(tmp_path, store, keys=("62", None, None), serdes=Serdes("bytes", "bytes"))] == [
        "62"
    ]
    assert read(tmp_path / "elsewhere", store) == []


@pytest.mark.parametrize("store", WINDOWED, ids=lambda store: f"{store.kind} {store.format} {store.retain_duplicates}")
def test_windows_are_read_by_key_and_by_when_they_start(tmp_path, store):
    starts = [1_000, 2_000, 150_000]
    # Behind a key, a longer one may stand between its windows.
    log = [(key + struct.pack(">qi", start, 0), b"%d" % start, 5) for key in (b"a", b"a\0") for start in starts]
    written(tmp_path, store, log)
    found = read(tmp_path, store, keys=("a", None, None))
    assert [(row.key, row.numbers["window_start"], row.numbers["window_end"], row.value) for row in found] == [
        ("a", start, start + 1_000, str(start)) for start in starts
    ]
    assert ("sequence" in found[0].numbers) == store.retain_duplicates
    assert [row.value for row in read(tmp_path, store, times=(2_000, 150_000))] == ["2000", "2000"]
    assert {row.key for row in read(tmp_path, store, keys=(None, None, "a\0"))} == {"a"}
    assert len(read(tmp_path, store)) == 6


@pytest.mark.parametrize("store", SESSIONS, ids=lambda store: f"{store.kind} {store.format}")
def test_sessions_are_read_by_when_they_are_active(tmp_path, store):
    times = [(10, 20), (30, 40), (150_000, 150_001)]
    written(tmp_path, store, [(b"a" + struct.pack(">qq", end, start), b"%d" % start, 5) for start, end in times])
    found = read(tmp_path, store, keys=("a", None, None))
    assert [(row.numbers["session_start"], row.numbers["session_end"]) for row in found] == times
    assert [row.value for row in read(tmp_path, store, times=(20, 31))] == ["10", "30"]
    assert [row.value for row in read(tmp_path, store, times=(21, 30))] == []


def test_rows_of_expired_and_left_over_segments_are_read_only_if_asked_for(tmp_path):
    """Given segments that an application of Kafka Streams left, whose retention was 1 h and is 8 h."""
    hour = 3_600_000
    store = StoreDefinition(name="s", kind="window", format="plain", retention_ms=8 * hour, window_size_ms=1)
    spec = store_partition(tmp_path, store=store).model_copy(update={"owned": False})
    spec.live.mkdir(parents=True)
    for start in (0, 4 * hour, 5 * hour, 12 * hour):
        database = RocksDB(spec.live / f"s.{start}", store.values.column_families)
        database.write({"default": {b"a" + struct.pack(">qi", start, 0): b"%d" % (start // hour)}})
        database.close()

    def values(spec, **how):
        return [row.value for row in read_rows(spec, RowRange(store.store_kind), TEXT, **how)]

    assert values(spec) == ["4", "12"]
    assert values(spec, expired=True) == ["0", "4", "5", "12"]
    assert values(spec.model_copy(update={"owned": True})) == ["4", "5", "12"]


def test_versions_are_the_latest_those_of_a_time_or_all(tmp_path):
    spec = store_partition(tmp_path, store=VERSIONED)
    store = build_store(VERSIONED)
    store.init(spec.context())
    for key, value, time in ((b"a", b"1", 100), (b"a", b"2", 200), (b"b", b"3", 100), (b"b", None, 300)):
        store.put(key, value, time)
    store.commit({})
    store.close()
    assert [(row.key, row.value) for row in read(tmp_path, VERSIONED, latest=True)] == [("a", "2")]
    assert [(row.value, *row.numbers.values()) for row in read(tmp_path, VERSIONED)] == [
        ("1", 100, 200),
        ("2", 200, None),
        ("3", 100, 300),
    ]
    assert [row.value for row in read(tmp_path, VERSIONED, times=(199, 200))] == ["1", "3"]
    assert read(tmp_path, VERSIONED, keys=("b", None, None))[0].content()["valid_to"] == 300
    assert history_from(spec) == 300 - 10_000


def test_headers_and_unknown_timestamps_are_shown(tmp_path):
    spec = store_partition(tmp_path, store=WITH_HEADERS)
    families = WITH_HEADERS.values.column_families
    spec.live.parent.mkdir(parents=True)
    database = RocksDB(spec.live, families)
    database.write({families[0]: {b"a": encode(b"v", -1, (("trace", b"\x01"), ("null", None)))}})
    database.close()
    [row] = read(tmp_path, WITH_HEADERS)
    assert (row.value, row.timestamp, row.headers) == ("v", -1, (("trace", "01"), ("null", None)))


def test_a_buffer_is_shown_by_its_row_keys(tmp_path):
    key = b"\0" + struct.pack(">q", 7) + b"a" + bytes(4)
    written(tmp_path, BUFFER, [(key, b"v" + bytes(8), 5)])
    assert [(row.key, row.value) for row in read(tmp_path, BUFFER, serdes=Serdes("bytes", "utf8"))] == [
        (key.hex(), "v")
    ]


def test_a_row_key_that_is_too_short_is_damage_and_names_the_store_partition(tmp_path):
    plain = STORES["plain window"]
    spec = store_partition(tmp_path, store=plain)
    spec.live.mkdir(parents=True)
    database = RocksDB(spec.live / "s.0", plain.values.column_families)
    database.write({"default": {b"short": b"v"}})
    database.close()
    with pytest.raises(StoreCorruptedError, match="app/s/0_0: a window store's row key has at least 12 bytes, found 5"):
        read(tmp_path, plain)


def test_how_long_a_found_window_is_is_not_made_up():
    assert number_names(StoreDefinition(name="s", kind="window", retention_ms=5, window_size_ms=0)) == ["window_start"]


def test_a_range_without_a_key_is_refused():
    with pytest.raises(InputError, match="--key-to: expected a key after --key-from 'b' in the order of the bytes"):
        row_range(VERSIONED.store_kind, (None, "b", "a"), (None, None), "utf8")


def test_what_would_move_the_cursor_is_escaped():
    assert printable("Zürich\x1b[2J\n") == "Zürich\\x1b[2J\\n"
