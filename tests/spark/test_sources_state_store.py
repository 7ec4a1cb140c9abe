"""`state_store` gives the rows of stores of every kind, reads no more than is asked for, and disturbs nobody."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.discovery import links
from statestore.errors import (
    InputError,
    LockedError,
    RetryError,
    StoreCorruptedError,
    UnknownApplicationError,
    UnknownStoreError,
)
from statestore.formats.value_format import TIMESTAMPED_COLUMN_FAMILY
from statestore.kafka.cluster import Cluster
from statestore.metastore.metastore import Metastore
from statestore.statedir.lock import locked
from statestore.stores import linked_view
from statestore.stores.rocksdb import RocksDB
from statestore.stores.scan import ScannedDatabase
from tests.integration.broker import unique
from tests.integration.support import put
from tests.lost_current import begin_anew
from tests.spark.store_files import (
    ALL_STORES,
    HOUR_MS,
    MINUTE_MS,
    PLAIN,
    StoreFiles,
    batches_of,
    defined,
    names_and_sizes,
    read,
    reader_of,
    schema_of,
    text_of,
)

_TIMES = {"window": ["window_start", "window_end"], "session": ["session_start", "session_end"]}


def _frame(spark: SparkSession, options: dict[str, Any]) -> DataFrame:
    return spark.read.format("state_store").options(**text_of(options)).load()


def _filled(tmp_path: Path, definition: StoreDefinition, partitions: int = 1) -> StoreFiles:
    files = StoreFiles(tmp_path / "state", definition)
    for partition in range(partitions):
        files.fill(partition)
    return files


def _columns(definition: StoreDefinition) -> list[str]:
    """Columns that the library's own readers have, too: not the sequence."""
    return ["partition", "key", *_TIMES.get(definition.kind, []), "value", "timestamp"]


# -- every kind -------------------------------------------------------------------------------------------------------


@pytest.mark.short_for("window", "session")
@pytest.mark.parametrize("definition", ALL_STORES, ids=lambda definition: definition.name)
def test_the_rows_are_those_that_the_library_reads_in_the_promised_types(
    spark: SparkSession, tmp_path: Path, definition: StoreDefinition
) -> None:
    files = _filled(tmp_path, definition, partitions=2)

    frame = _frame(spark, files.options)

    times = [StructField(name, LongType()) for name in _TIMES.get(definition.kind, [])]
    sequence = [StructField("sequence", IntegerType())] if definition.retain_duplicates else []
    assert frame.schema == StructType(
        [
            StructField("partition", IntegerType()),
            StructField("key", BinaryType()),
            *times,
            *sequence,
            StructField("value", BinaryType()),
            StructField("timestamp", LongType()),
        ]
    )
    found = [
        tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row)
        for row in frame.select(*_columns(definition)).collect()
    ]
    assert sorted(found, key=repr) == sorted(files.rows(0) + files.rows(1), key=repr)
    assert len(found) > 50
    assert frame.rdd.getNumPartitions() == 2


def test_only_the_partitions_asked_for_are_read(tmp_path: Path) -> None:
    files = _filled(tmp_path, defined("counts"), partitions=3)

    rows = read({**files.options, "partitions": "2, 0"})

    assert [row["partition"] for row in rows] == [0] * len(files.rows(0)) + [2] * len(files.rows(2))


def test_duplicates_of_a_window_are_told_apart_by_their_sequence(tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("twice", "window", retain_duplicates=True))
    with files.opened() as store:
        for value in (b"one", b"one", b"two"):
            files.put(store, b"k", value, MINUTE_MS)
        store.commit({})

    rows = read(files.options)

    assert sorted(row["value"] for row in rows) == [b"one", b"one", b"two"]
    assert len({row["sequence"] for row in rows}) == 3
    assert {(row["window_start"], row["window_end"]) for row in rows} == {(MINUTE_MS, 2 * MINUTE_MS)}


def test_rows_that_have_expired_are_shown_while_their_segment_has_not(tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("window", "window"))
    with files.opened() as store:
        files.put(store, b"old", b"v", 0)
        files.put(store, b"new", b"v", HOUR_MS + MINUTE_MS)
        store.commit({})
        assert [key.key for key, _ in store.all()] == [b"new"], "the old one should be hidden, and still be there"

    assert [row["key"] for row in read(files.options)] == [b"old", b"new"]


@pytest.mark.parametrize(("retention", "shown"), [({"retention_ms": HOUR_MS}, False), ({}, True)])
def test_rows_of_expired_segments_are_shown_only_if_asked_for(
    tmp_path: Path, retention: dict[str, int], shown: bool
) -> None:
    """Given a segment that Kafka Streams has not deleted yet; without the retention, that is not known."""
    files = StoreFiles(tmp_path, defined("window", "window"))
    with files.opened() as store:
        files.put(store, b"new", b"v", 3 * HOUR_MS)
        store.commit({})
    new = next(files.live().iterdir())
    shutil.copytree(new, new.with_name("window.0"))
    options = {name: value for name, value in files.options.items() if name != "retention_ms"} | retention
    assert len(read(options)) == 1 + shown
    assert len(read({**options, "expired": "true"})) == 2


def test_plain_rows_that_wait_for_their_upgrade_have_an_unknown_timestamp(tmp_path: Path) -> None:
    old = StoreFiles(tmp_path, defined("counts", format=PLAIN))
    with old.opened() as store:
        store.put_all((b"%03d" % number, b"plain") for number in range(5))
        store.commit({})
    new = StoreFiles(tmp_path, defined("counts"))
    with new.opened() as store:
        new.put(store, b"003", b"upgraded", timestamp=7)
        store.commit({})

    rows = read(new.options)

    assert [(row["value"], row["timestamp"]) for row in rows[2:]] == [(b"plain", -1), (b"upgraded", 7), (b"plain", -1)]


def test_a_store_is_read_from_wherever_its_directory_lies(tmp_path: Path) -> None:
    for definition in (defined("counts"), defined("session", "session")):
        files = _filled(tmp_path, definition, partitions=4)
        expected = [list(row.values()) for row in read({**files.options, "partitions": 3})]
        quarantined = files.paths(3).quarantine(definition.name, "run-1")
        elsewhere = tmp_path / f"copy of {definition.name}"
        for directory in (quarantined, elsewhere):
            shutil.copytree(files.live(3), directory)

        assert [list(row.values()) for row in read({"path": files.live(3)})] == expected
        assert [list(row.values()) for row in read({"path": quarantined})] == expected
        assert [list(row.values()) for row in read({"path": elsewhere})] == [[None, *row[1:]] for row in expected]
    by_application = read({"path": files.paths().application_dir, "store": "session", "partitions": "3"})
    assert [list(row.values()) for row in by_application] == expected


# -- what it is -------------------------------------------------------------------------------------------------------


def test_a_file_of_definitions_says_what_the_files_of_the_store_do_not(tmp_path: Path) -> None:
    files = StoreFiles(tmp_path / "state", defined("window", "window", retain_duplicates=True))
    with files.opened() as store:
        store.commit({files.changelog(): 0})
    application = ApplicationDefinition(name="app", input_topic="in", processor="a:b", stores=(files.definition,))
    path = tmp_path / "app.yaml"
    path.write_text(application.model_dump_json())
    options = {name: value for name, value in files.options.items() if name != "window_size_ms"}

    assert read({**options, "definitions": path}) == []
    assert "sequence" in schema_of({**options, "definitions": path}).names
    with pytest.raises(InputError, match=r"no row that tells its kind; add .option\('kind', 'window'\) or 'session'"):
        read(options)
    assert read({**options, "kind": "window", "window_size_ms": 5}) == []


def test_the_catalogue_says_what_the_files_of_the_store_do_not(bootstrap_servers: str, tmp_path: Path) -> None:
    files = _filled(tmp_path, defined("window", "window"))
    application = ApplicationDefinition(name="app", input_topic="in", processor="a:b", stores=(files.definition,))
    service_id = unique("service")
    options = {name: value for name, value in files.options.items() if name != "window_size_ms"}
    options |= {"bootstrap_servers": bootstrap_servers, "service_id": service_id}

    with pytest.raises(UnknownApplicationError, match="no application 'app' is defined"):
        read(options)
    put(Metastore(Cluster(bootstrap_servers, 60), service_id), application, {"in": 1})

    assert read(options) == read(files.options)


# -- pushdown ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what comes out of RocksDB: databases opened to be read, and rows."""
    counted: Counter[str] = Counter()
    original = ScannedDatabase.rows

    def rows(self: ScannedDatabase, start: bytes | None = None, stop: bytes | None = None) -> Iterator[pa.RecordBatch]:
        counted["databases"] += 1
        for batch in original(self, start, stop):
            counted["rows"] += batch.num_rows
            yield batch

    monkeypatch.setattr(ScannedDatabase, "rows", rows)
    return counted


def test_a_key_and_a_range_of_keys_are_sought_and_not_filtered(tmp_path: Path, rows_read: Counter[str]) -> None:
    files = StoreFiles(tmp_path, defined("counts"))
    with files.opened() as store:
        for number in range(5_000):
            files.put(store, b"%04d" % number, b"v")
        store.commit({})
    utf8 = {**files.options, "key_serde": "utf8"}

    assert [row["key"] for row in read({**utf8, "key": "0042"})] == ["0042"]
    assert rows_read["rows"] == 1
    assert [row["key"] for row in read({**utf8, "key_from": "0042", "key_to": "0045"})] == ["0042", "0043", "0044"]
    assert rows_read["rows"] == 1 + 3
    assert [row["key"] for row in read({**files.options, "key_from": b"4998".hex()})] == [b"4998", b"4999"]
    assert rows_read["rows"] == 1 + 3 + 2


@pytest.mark.short_for("ts-window", "ts-session")
@pytest.mark.parametrize("definition", ALL_STORES, ids=lambda definition: definition.name)
def test_ranges_give_the_rows_that_a_filter_would(tmp_path: Path, definition: StoreDefinition) -> None:
    files = _filled(tmp_path, definition)
    everything = read(files.options)
    keys = [b"", b"\x00", b"a", b"a\x00", b"key-050", b"kkk", b"\xff"]
    for key in keys:
        found = read({**files.options, "key": key.hex()})
        assert found == [row for row in everything if row["key"] == key], key
    for key_from, key_to in pairwise(keys):
        found = read({**files.options, "key_from": key_from.hex(), "key_to": key_to.hex()})
        assert found == [row for row in everything if key_from <= row["key"] < key_to], (key_from, key_to)
    if definition.kind == "key-value":
        return
    first, last = _TIMES[definition.kind]
    last = first if definition.kind == "window" else last
    times = [0, 1, 10 * MINUTE_MS, 30 * MINUTE_MS - 1, 30 * MINUTE_MS, 50 * MINUTE_MS, 2 * HOUR_MS]
    for time_from, time_to in pairwise(times):
        expected = [row for row in everything if row[last] >= time_from and row[first] < time_to]
        asked = {**files.options, "time_from": time_from, "time_to": time_to}
        assert read(asked) == expected, (time_from, time_to)
        assert read({**asked, "key": b"a".hex()}) == [row for row in expected if row["key"] == b"a"]


def test_segments_outside_the_time_range_are_not_opened(tmp_path: Path, rows_read: Counter[str]) -> None:
    files = StoreFiles(tmp_path, defined("window", "window"))
    with files.opened() as store:  # three segments of half an hour
        for minute in range(80):
            files.put(store, b"%02d" % minute, b"v", minute * MINUTE_MS)
        store.commit({})
    asked = {**files.options, "time_from": "1970-01-01T00:31:00", "time_to": 33 * MINUTE_MS}

    assert [row["key"] for row in read(asked)] == [b"31", b"32"]
    assert rows_read == {"databases": 1, "rows": 30}
    # Of one key, the time range is sought, too.
    assert [row["key"] for row in read({**asked, "key": b"31".hex()})] == [b"31"]
    assert rows_read == {"databases": 2, "rows": 31}


def test_a_session_is_found_by_any_time_in_it(tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("session", "session"))
    with files.opened() as store:
        files.put(store, b"long", b"v", 10 * MINUTE_MS, 40 * MINUTE_MS)
        store.commit({})

    def found(time_from: int, time_to: int) -> bool:
        return bool(read({**files.options, "time_from": time_from * MINUTE_MS, "time_to": time_to * MINUTE_MS}))

    assert [found(5, 10), found(5, 11), found(20, 21), found(40, 41), found(41, 50)] == [False, True, True, True, False]


# -- beside an owner --------------------------------------------------------------------------------------------------


def test_reading_live_disturbs_no_writer_that_holds_the_lock(spark: SparkSession, tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("counts"))
    with locked(files.paths(), 0), files.opened() as store:
        files.put(store, b"a", b"flushed")
        store.commit({files.changelog(): 1})
        store.sync()
        files.put(store, b"b", b"staged")
        before = names_and_sizes(tmp_path)

        assert [bytes(row.key) for row in _frame(spark, files.options).collect()] == [b"a"]

        assert names_and_sizes(tmp_path).keys() <= before.keys()
        store.commit({files.changelog(): 2})
    assert [row["key"] for row in read(files.options)] == [b"a", b"b"]


def test_nothing_is_written_where_a_store_lies(tmp_path: Path) -> None:
    for definition in (defined("counts"), defined("window", "window")):
        files = _filled(tmp_path, definition)
        directories = [path for path in tmp_path.rglob("*") if path.is_dir()]
        modified = [path.stat().st_mtime_ns for path in directories]

        assert read(files.options)

        assert [path.stat().st_mtime_ns for path in directories] == modified


def test_what_was_opened_is_read_to_its_end_whatever_the_owner_does(tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("counts"))
    with files.opened() as store:
        for number in range(40_000):
            files.put(store, b"%05d" % number, b"v" * 50)
        store.commit({})
    expected = files.rows()

    batches = batches_of(reader_of(files.options))
    some = [next(batches)]
    shutil.rmtree(files.live())
    some += batches

    assert len(some) > 1
    assert pa.Table.from_batches(some).num_rows == len(expected)


def test_a_store_is_opened_again_if_its_files_change_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = StoreFiles(tmp_path, defined("counts"))
    files.fill()
    expected = read(files.options)
    families = [TIMESTAMPED_COLUMN_FAMILY, "default"]
    original: Callable[..., Path] = linked_view._link
    tries = 0

    def link_and_be_overtaken(directory: Path, view: Path, held: ExitStack) -> Path:
        nonlocal tries
        tries += 1
        linked = original(directory, view, held)
        if tries == 1:
            owner = RocksDB(directory, families)
            owner.family(TIMESTAMPED_COLUMN_FAMILY).rdict.compact_range(None, None)
            owner.close()
        return linked

    reader = reader_of(files.options)
    monkeypatch.setattr(linked_view, "_link", link_and_be_overtaken)
    assert [row for batch in batches_of(reader) for row in batch.to_pylist()] == expected
    assert tries == 2


def test_files_that_change_each_time_they_are_opened_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = StoreFiles(tmp_path, defined("counts"))
    files.fill()
    original: Callable[..., Path] = linked_view._link
    tries = 0

    def link_and_be_overtaken(directory: Path, view: Path, held: ExitStack) -> Path:
        nonlocal tries
        tries += 1
        linked = original(directory, view, held)
        for path in view.glob("*.sst"):  # its owner has compacted them
            path.unlink()
        (directory / f"{tries:06}.sst.tmp").touch()
        return linked

    reader = reader_of(files.options)
    monkeypatch.setattr(linked_view, "_link", link_and_be_overtaken)
    monkeypatch.setattr(links, "_FOR_S", 0.1)
    with pytest.raises(RetryError, match="changed each time they were opened"):
        list(batches_of(reader))
    assert tries > 1


def test_each_reading_is_of_one_moment_while_the_owner_goes_on(tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("counts"))
    stopped = threading.Event()
    started = threading.Event()

    def write() -> None:
        with files.opened() as store:
            for number in range(10_000):
                for key in range(50):
                    files.put(store, b"%02d" % key, b"%d" % number)
                store.commit({files.changelog(): number})
                store.sync()
                started.set()
                if stopped.is_set():
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert started.wait(60)
        for _ in range(10):
            rows = read(files.options)
            assert len(rows) == 50
            assert len({row["value"] for row in rows}) == 1
    finally:
        stopped.set()
        writer.join()


def test_a_reading_that_spark_does_not_end_holds_no_lock(spark: SparkSession, tmp_path: Path) -> None:
    files = _filled(tmp_path, defined("counts"))

    assert len(_frame(spark, {**files.options, "read": "locked"}).limit(1).collect()) == 1

    with locked(files.paths(), 30):
        pass


def test_locked_waits_for_the_lock_and_then_holds_it(tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("counts"))
    with files.opened() as store:
        for number in range(20_000):
            files.put(store, b"%05d" % number, b"v")
        store.commit({})
    asked = {**files.options, "read": "locked", "lock_wait_s": 0}

    with locked(files.paths(), 0), pytest.raises(LockedError, match="is locked by another process"):
        read(asked)
    batches = batches_of(reader_of(asked))
    next(batches)
    with pytest.raises(LockedError), locked(files.paths(), 0):
        pass
    assert sum(batch.num_rows for batch in batches) > 0
    with locked(files.paths(), 0):
        pass


def test_a_snapshot_is_read_without_the_lock_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    files = StoreFiles(tmp_path / "state", defined("counts"))
    with locked(files.paths(), 0), files.opened() as store:
        for number in range(20_000):
            files.put(store, b"%05d" % number, b"v")
        store.commit({})
    before = names_and_sizes(tmp_path)
    asked = {**files.options, "read": "snapshot", "lock_wait_s": 0}

    with locked(files.paths(), 0), pytest.raises(LockedError):
        read(asked)
    batches = batches_of(reader_of(asked))
    rows = next(batches).num_rows
    assert names_and_sizes(tmp_path) == before
    with locked(files.paths(), 0), files.opened() as store:
        files.put(store, b"later", b"v")
        store.commit({})
    rows += sum(batch.num_rows for batch in batches)

    assert rows == 20_000
    assert not list((tmp_path / "temporary").iterdir())


# -- decoding ---------------------------------------------------------------------------------------------------------


def test_keys_and_values_are_decoded_by_their_serdes(spark: SparkSession, tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("counts"))
    with files.opened() as store:
        files.put(store, (5).to_bytes(8, "big"), b'{"flights": 3, "delays": [1.5, null], "other": "x"}')
        files.put(store, (-6).to_bytes(8, "big", signed=True), b"{}")
        store.commit({})
    options = {**files.options, "key_serde": "int64", "value_serde": "json"}
    fields = "flights INT, delays ARRAY<DOUBLE>, `the name` STRING"

    structs = _frame(spark, {**options, "value_schema": fields})
    texts = _frame(spark, options)

    value = StructType(
        [
            StructField("flights", IntegerType()),
            StructField("delays", ArrayType(DoubleType())),
            StructField("the name", StringType()),
        ]
    )
    assert structs.schema["key"].dataType == LongType()
    assert structs.schema["value"].dataType == value
    assert [tuple(row) for row in structs.select("key", "value.*").collect()] == [
        (5, 3, [1.5, None], None),
        (-6, None, None, None),
    ]
    assert texts.schema["value"].dataType == StringType()
    assert [json.loads(row.value) for row in texts.collect()][1] == {}


def test_values_are_left_out_if_they_are_not_wanted(spark: SparkSession, tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("counts"))
    with files.opened() as store:
        files.put(store, b"k", b"no JSON", timestamp=7)
        store.commit({})

    frame = _frame(spark, {**files.options, "values": "false", "value_serde": "json", "value_schema": "a INT"})

    assert [tuple(row) for row in frame.collect()] == [(0, b"k", None, 7)]


def test_what_cannot_be_decoded_fails_or_is_kept_as_bytes(spark: SparkSession, tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("session", "session"))
    with files.opened() as store:
        files.put(store, b"good", b'{"a": 1}', 0, 9)
        files.put(store, b"odd", b'{"a": "one"}', 0, 9)
        files.put(store, b"\xff", b'{"a": 2}', 0, 9)
        store.commit({})
    options = {**files.options, "key_serde": "utf8", "value_serde": "json", "value_schema": "a INT"}

    with pytest.raises(PySparkException, match=r"session: key 6f6464 .* its value is not json: a"):
        _frame(spark, {**options, "key": "odd"}).collect()
    kept = _frame(spark, {**options, "undecodable": "keep"})

    assert kept.schema["undecodable"].dataType == BooleanType()
    rows = [tuple(row) for row in kept.select("key", "value.a", "undecodable", "key_bytes", "value_bytes").collect()]
    assert sorted(rows, key=repr) == [
        ("good", 1, False, None, None),
        ("odd", None, True, b"odd", b'{"a": "one"}'),
        (None, 2, True, b"\xff", b'{"a": 2}'),
    ]


# -- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.short_for(every=4)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"store": "other"}, "no store other of application app in .*, its stores there are: counts, window"),
        (
            {"application": "nobody"},
            "no task directory 0_0, 0_1, ... in .*nobody; expected a store.* an application",
        ),
        ({"partitions": "0,7"}, "no store counts of application app for partition 7 in .*: restore the store, or name"),
        ({"partitions": "first"}, "expected partitions such as 0,1,3"),
        ({"store": "../counts"}, "store '../counts' is not a valid name"),
        ({"state_dir": ""}, "option state_dir is missing: add .*, or set STATESTORE_STATE_DIR"),
        ({"format": "fancy"}, "option format: expected one of .'plain', 'timestamped', 'headers'., found 'fancy'"),
        ({"path": "."}, "exactly one of the options path and application"),
        ({"kind": "window", "window_size_ms": 5}, "is not that of a window store; correct its kind"),
        (
            {"store": "window", "kind": "session"},
            "row keys of a window store, not of a session store; correct its kind",
        ),
        ({"store": "window"}, r"no file tells how long windows are; add .option\('window_size_ms', ...\)"),
        ({"window_size_ms": 5}, "a key-value store has neither retention nor window"),
        ({"time_from": 5}, "option time_from: a key-value store has no times in its keys"),
        ({"key": "xyz"}, "option key: 'xyz' is not hexadecimal digits, as key_serde bytes requires"),
        ({"key_from": "02", "key_to": "01"}, "option key_to: '01' is not after key_from '02'"),
        ({"read": "now"}, "option read: expected one of .'live', 'locked', 'snapshot'., found 'now'"),
        ({"value_schema": "a INT"}, "option value_schema is for JSON values, found value_serde bytes"),
        ({"partition": 0}, "state_store has no option partition, perhaps partitions is meant"),
        (
            {"format": "plain"},
            "keyValueWithTimestamp, .* of a timestamped store, not of a plain one; correct its",
        ),
        ({"definitions": "nowhere.yaml"}, "nowhere.yaml does not exist"),
    ],
)
def test_a_wrong_option_is_told_with_what_was_expected(tmp_path: Path, options: dict[str, Any], expected: str) -> None:
    files = _filled(tmp_path, defined("counts"))
    StoreFiles(tmp_path / "state", defined("window", "window")).fill()

    with pytest.raises(InputError, match=expected):
        read({**files.options, **options})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"values": "perhaps"}, "option values: expected true or false, found 'perhaps'"),
        ({"value_serde": "json", "value_schema": "a DATE"}, "value.a is date32.day., expected BOOLEAN"),
        ({"value_serde": "json", "value_schema": "a INT a"}, "PARSE_SYNTAX_ERROR"),
    ],
)
def test_spark_passes_on_what_is_wrong(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(PySparkException, match=expected):
        _frame(spark, {**_filled(tmp_path, defined("counts")).options, **options}).count()


def test_a_path_that_is_no_store_is_told(tmp_path: Path) -> None:
    files = _filled(tmp_path, defined("window", "window"))
    segment = next(files.live().iterdir())
    for path, error, expected in (
        (tmp_path / "nowhere", UnknownStoreError, "is not a directory; expected a store's own directory"),
        (tmp_path, UnknownStoreError, "no task directory|is no store"),
        (files.paths().task_dir, UnknownApplicationError, "no task directory 0_0, 0_1, ... in .*; expected a store's"),
        (segment, InputError, f"is one segment of a window or session store: give the path {files.live()}"),
    ):
        with pytest.raises((error, UnknownApplicationError), match=expected):
            read({"path": path, "store": "window"})
    with pytest.raises(InputError, match="is one partition of one store: leave option store out"):
        read({"path": files.live(), "store": "window"})
    shutil.copytree(files.live(), tmp_path / "copy")
    with pytest.raises(InputError, match="has no task to lock; read it as live"):
        read({"path": tmp_path / "copy", "window_size_ms": 5, "read": "locked"})


def test_damage_is_told_with_the_stores_own_directory(tmp_path: Path) -> None:
    files = _filled(tmp_path, defined("counts"))
    [largest] = sorted(files.live().glob("*.sst"), key=lambda path: path.stat().st_size)[-1:]
    raw = bytearray(largest.read_bytes())
    raw[100] ^= 0xFF
    largest.write_bytes(raw)

    with pytest.raises(StoreCorruptedError, match=str(files.live())):
        read(files.options)
    largest.unlink()
    with pytest.raises(StoreCorruptedError, match=str(files.live())):
        read(files.options)


def test_an_empty_store_beside_the_files_of_one_that_was_lost_is_not_shown_as_empty(tmp_path: Path) -> None:
    files = _filled(tmp_path, defined("counts"))
    begin_anew(files.live())
    with pytest.raises(StoreCorruptedError, match=f"{files.live()} had the column families .* MANIFEST no longer has"):
        read(files.options)
    for path in files.live().glob("OPTIONS-*"):
        path.unlink()
    with pytest.raises(StoreCorruptedError, match=rf"{files.live()}/.*\.sst belongs to another database"):
        read(files.options)


def test_rows_of_another_kind_are_not_shown_as_what_they_are_not(tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("window", "window", format=PLAIN))
    files.fill()
    database = RocksDB(next(files.live().iterdir()), ["default"])
    database.put("default", b"short", b"v")
    database.sync()
    database.close()

    with pytest.raises(InputError, match="has row keys that are neither those of windows nor those of sessions"):
        read({**files.options, "partitions": 0})
