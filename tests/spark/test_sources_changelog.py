"""The source `changelog`: ranges, splits, and the fold to what a store of each kind would have."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType
from statestore_jobs.sources import changelog_ranges
from statestore_jobs.sources.changelog_fold import folded
from statestore_jobs.sources.changelog_ranges import Bounds, LogPart, parts_of

from statestore.bulk.routing import Routing
from statestore.definitions.store import StoreDefinition
from statestore.formats import session_key, timestamped_value, window_key
from statestore.kafka.cluster import Cluster
from statestore.kafka.record_columns import SCHEMA
from statestore.model import StoreFormat, TopicPartition
from tests.integration.broker import T0, transaction
from tests.integration.kinds import MINUTE, STORES, changes, logged, stored
from tests.integration.support import Application
from tests.spark.logged_store import LoggedStore

LoggedStores = Callable[..., LoggedStore]

#: Little enough for more runs than are merged at once.
TINY_RUN = 4_096
RECORDS = [(b"a", b"1", 1000), (b"b", b"2", 1001), (b"a", b"3", 1002), (b"b", None, 1003)]
#: A window and a session store, as options say it.
WINDOW = {"kind": "window", "retention_ms": 4 * MINUTE, "window_size_ms": MINUTE}
SESSION = {"kind": "session", "retention_ms": 4 * MINUTE}


def changelog(spark: SparkSession, servers: str, topic: str, options: Mapping[str, object]) -> DataFrame:
    given = {"bootstrap_servers": servers, "topic": topic, **options}
    return spark.read.format("changelog").options(**given).load()


def log_of(spark: SparkSession, store: LoggedStore, **options: object) -> DataFrame:
    return changelog(spark, store.settings.bootstrap_servers, store.topic, options)


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    found = frame.select(*columns).collect() if columns else frame.collect()
    return [tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row) for row in found]


def in_order(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(found, key=repr)


# -- all records ------------------------------------------------------------------------------------------------------


def test_changelog_gives_all_committed_records(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store(2)
    store.log(0, [(b"gone", b"0", 999)], abort=True)  # offset 0, and its marker offset 1
    store.log(0, RECORDS)
    store.log(1, [(None, b"5", 1005)])

    frame = log_of(spark, store)

    of_first = [(0, 2 + index, timestamp, key, value) for index, (key, value, timestamp) in enumerate(RECORDS)]
    assert sorted(rows(frame), key=lambda row: row[:2]) == [*of_first, (1, 0, 1005, None, b"5")]
    assert frame.schema == StructType(
        [
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("timestamp", LongType()),
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
        ]
    )
    assert frame.rdd.getNumPartitions() == 2
    assert rows(log_of(spark, store, partitions="1"), "partition") == [(1,)]


def test_records_of_a_transaction_that_is_open_are_not_read(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store()
    store.log(0, RECORDS[:2])
    writer = transaction(store.settings.bootstrap_servers, store.topic, [(b"open", b"9")], end="open")

    assert rows(log_of(spark, store), "key") == [(b"a",), (b"b",)]
    writer.abort_transaction(30)


@pytest.mark.long
def test_changelog_leaves_values_out(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store()
    store.log(0, RECORDS)

    all_records = log_of(spark, store, values="false")
    latest = log_of(spark, store, values="false", latest="true")

    assert rows(all_records, "key", "value") == [(key, None) for key, _, _ in RECORDS]
    assert rows(latest, "key", "value", "timestamp") == [(b"a", None, 1002)]


@pytest.mark.short_for(every=2)
@pytest.mark.parametrize(
    ("latest", "tombstones", "keys"),
    [
        ("false", "true", [b"a", b"b", b"a", b"b"]),
        ("false", "false", [b"a", b"b", b"a"]),
        ("true", "true", [b"a", b"b"]),
        ("true", "false", [b"a"]),
    ],
)
def test_tombstones_are_given_as_asked(
    spark: SparkSession, logged_store: LoggedStores, latest: str, tombstones: str, keys: list[bytes]
) -> None:
    store = logged_store()
    store.log(0, RECORDS)

    assert rows(log_of(spark, store, latest=latest, tombstones=tombstones), "key") == [(key,) for key in keys]


# -- ranges and splits ------------------------------------------------------------------------------------------------


@pytest.mark.short_for(every=3)
@pytest.mark.parametrize(
    ("starts", "ends", "offsets"),
    [
        ({"0": 3}, {}, [3, 5]),
        ({"0": 0}, {"0": 4}, [2, 3]),  # the log starts at 2
        ({"0": 4}, {"0": 5}, []),  # a marker
        ({"0": 5}, {"0": 3}, []),
        ({"0": 100}, {}, []),
        ({}, {"0": 1}, []),
        ({}, {"0": 7}, [2, 3, 5]),
    ],
)
def test_offsets_bound_what_is_read(
    spark: SparkSession,
    logged_store: LoggedStores,
    starts: dict[str, int],
    ends: dict[str, int],
    offsets: list[int],
) -> None:
    store = logged_store()
    store.log(0, RECORDS)  # its marker is at offset 4
    store.log(0, RECORDS[:1])
    store.forget(0, 2)

    frame = log_of(spark, store, starts=json.dumps(starts), ends=json.dumps(ends))

    assert rows(frame, "offset") == [(offset,) for offset in offsets]


def test_offsets_bound_each_partition_by_itself(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store(2)
    store.log(0, RECORDS)
    store.log(1, RECORDS)

    frame = log_of(spark, store, latest="true", starts=json.dumps({"1": 1}), ends=json.dumps({"0": 2}))

    assert sorted(rows(frame, "partition", "key", "value")) == [(0, b"a", b"1"), (0, b"b", b"2"), (1, b"a", b"3")]


@pytest.mark.short_for("options4-offsets4")
@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({"start_time": "1500"}, [1, 3, 4]),
        ({"start_time": "2001"}, [3, 4]),  # Kafka finds the marker at offset 2, whose time is now
        ({"start_time": "0"}, [0, 1, 3, 4]),
        ({"start_time": "3001"}, []),
        ({"end_time": "2000"}, [0]),
        ({"end_time": "2500"}, [0, 1]),
        (
            {"end_time": "1970-01-01T00:00:03+00:00"},
            [0, 1],
        ),  # the record at offset 4 is older, and behind one that is not
        ({"end_time": "1000"}, []),
        ({"end_time": "4000"}, [0, 1, 3, 4]),
        ({"start_time": "1970-01-01T00:00:02", "end_time": "3000"}, [1]),
        ({"start_time": "3000", "end_time": "2000"}, []),
    ],
)
def test_times_bound_what_is_read(
    spark: SparkSession, logged_store: LoggedStores, options: dict[str, str], offsets: list[int]
) -> None:
    store = logged_store()
    store.log(0, [(b"a", b"1", 1000), (b"b", b"2", 2000)])
    store.log(0, [(b"c", b"3", 3000), (b"d", b"4", 2500)])

    assert rows(log_of(spark, store, **options), "offset") == [(offset,) for offset in offsets]


@pytest.mark.long
@pytest.mark.parametrize("splits", [2, 7])
def test_a_split_partition_gives_each_record_once(spark: SparkSession, logged_store: LoggedStores, splits: int) -> None:
    store = logged_store(2)
    for number in range(6):  # splits begin and end within transactions, aborted ones among them
        records = [(b"%d-%d" % (number, at), b"v", 1000 + at) for at in range(40)]
        store.log(0, records, abort=number % 2 == 1)
    store.log(1, RECORDS[:1])

    whole, split = log_of(spark, store), log_of(spark, store, splits=splits)

    assert in_order(rows(split)) == in_order(rows(whole))
    assert len(rows(whole)) == 121
    assert (whole.rdd.getNumPartitions(), split.rdd.getNumPartitions()) == (2, splits + 2)


def test_a_large_log_is_cut_and_a_folded_one_is_not(
    bootstrap_servers: str, logged_store: LoggedStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = logged_store()
    store.log(0, [(b"k", b"v", 1000)] * 24)
    monkeypatch.setattr(changelog_ranges, "SPLIT_OFFSETS", 10)

    def parts(bounds: Bounds, splits: int | None) -> list[LogPart]:
        return parts_of(Cluster(bootstrap_servers), store.topic, None, bounds, splits)

    assert parts(Bounds(), None) == [LogPart(0, 0, 8), LogPart(0, 8, 16), LogPart(0, 16, 25)]
    assert parts(Bounds(ends={0: 10}), None) == [LogPart(0, 0, 10)]
    assert parts(Bounds(), 1) == [LogPart(0, 0, 25)]
    assert parts(Bounds(starts={0: 25}), 4) == [LogPart(0, 25, 25)]
    assert len(parts(Bounds(), 100)) == 25


# -- the fold ---------------------------------------------------------------------------------------------------------


def test_r1_changelog_folds_to_the_latest_record_of_each_key(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store()
    store.log(0, [*RECORDS, (None, b"4", 1004)])
    many = [(b"m%06d" % number, b"v", number) for number in range(1, 20_001)]
    store.log(0, many)

    live = rows(log_of(spark, store, latest="true"), "key", "value", "timestamp")
    everything = rows(log_of(spark, store, latest="true", tombstones="true"), "key", "offset")

    assert sorted(live) == sorted([(b"a", b"3", 1002), *many])
    assert sorted(everything)[:2] == [(b"a", 2), (b"b", 3)]
    assert len(everything) == len(live) + 1


@pytest.mark.long
def test_a_fold_that_does_not_fit_into_memory_is_the_same(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store()
    chance = random.Random(1)
    numbers = [chance.randrange(4_000) for _ in range(6_000)]
    values = [b"v" * (number % 90) if number % 7 else None for number in numbers]
    keys = [b"%d" % number for number in numbers]
    store.log(0, list(zip(keys, values, range(1, len(keys) + 1), strict=True)))
    last = {number: at + 1 for at, number in enumerate(numbers)}

    for tombstones in ("true", "false"):
        in_memory, spilled = (
            log_of(spark, store, latest="true", tombstones=tombstones, run_bytes=run_bytes)
            for run_bytes in (1 << 26, TINY_RUN)
        )
        assert rows(spilled) == rows(in_memory)
        assert {time for (time,) in rows(spilled, "timestamp")} == {
            time for number, time in last.items() if tombstones == "true" or number % 7
        }


@pytest.mark.short_for("False")
@pytest.mark.parametrize("deletes", [True, False])
def test_what_a_fold_spilled_is_gone_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletes: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keys = [b"%06d" % number for number in range(4_000)]
    columns = [keys, [b"v" * 20] * len(keys), [1] * len(keys), list(range(len(keys)))]

    def fold() -> Iterator[pa.RecordBatch]:
        batch = pa.record_batch(columns, schema=SCHEMA)
        return folded([batch], TopicPartition("t", 0), 0, len(keys), Routing(), TINY_RUN, deletes=deletes)

    stopped = fold()
    next(stopped)
    assert len(list(tmp_path.rglob("run-*"))) > 64
    stopped.close()
    assert not list(tmp_path.iterdir())
    assert [key for batch in fold() for key in batch.column("key").to_pylist()] == keys
    assert not list(tmp_path.iterdir())


# -- kinds ------------------------------------------------------------------------------------------------------------


def options_of(store: StoreDefinition) -> dict[str, object]:
    found = {"retention_ms": store.retention_ms, "window_size_ms": store.window_size_ms}
    given = {name: value for name, value in found.items() if value is not None}
    duplicates = {"retain_duplicates": "true"} if store.retain_duplicates else {}
    return {"kind": store.kind, "format": store.format.value, **given, **duplicates}


def split(store: StoreDefinition, row_key: bytes) -> tuple[Any, ...]:
    """A row's key, and the columns of its time."""
    if store.kind == "window":
        key, start, sequence = window_key.decode(row_key)
        return key, start, start + MINUTE, *((sequence,) if store.retain_duplicates else ())
    return session_key.decode(row_key) if store.kind == "session" else (row_key,)


def split_rows(application: Application) -> list[tuple[Any, ...]]:
    """Rows of the store's databases: key, columns of time, value, timestamp."""
    spec = application.store_spec()
    timestamped = spec.store.format is StoreFormat.TIMESTAMPED
    return [
        (*split(spec.store, row_key), *(timestamped_value.decode(value) if timestamped else (value, None)))
        for row_key, value in stored(spec, spec.live).items()
    ]


@pytest.mark.short_for("session")
@pytest.mark.parametrize("name", STORES)
def test_a_fold_of_each_kind_has_the_rows_of_its_restored_store(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, name: str
) -> None:
    store = STORES[name]
    application = logged(bootstrap_servers, tmp_path, store, changes(store, 400, 2))
    application.restore()
    expected = split_rows(application)
    times = {"key-value": [], "window": ["window_start", "window_end"], "session": ["session_start", "session_end"]}
    sequence = ["sequence"] if store.retain_duplicates else []
    columns = ["key", *times[store.kind], *sequence, "value", "timestamp"]

    for run_bytes in (1 << 26, TINY_RUN):
        options = {"latest": "true", "run_bytes": run_bytes, **options_of(store)}
        frame = changelog(spark, bootstrap_servers, application.changelog, options)
        assert frame.columns == ["partition", "offset", *columns]
        assert in_order(rows(frame, *columns)) == in_order(expected)
        assert len(expected) > 20


@pytest.mark.short_for(every=4)
@pytest.mark.parametrize("name", ["window", "session"])
@pytest.mark.parametrize("run_bytes", [1 << 26, TINY_RUN])
def test_expired_deletes_are_left_out_of_a_fold_as_expired_rows_are(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, name: str, run_bytes: int
) -> None:
    store = STORES[name]
    application = logged(bootstrap_servers, tmp_path, store, changes(store, 400, 2))
    start = f"{store.kind}_start"

    def given(tombstones: str) -> list[tuple[Any, ...]]:
        options = {"latest": "true", "tombstones": tombstones, "run_bytes": run_bytes, **options_of(store)}
        return rows(changelog(spark, bootstrap_servers, application.changelog, options), "key", start, "value")

    with_deletes, live = given("true"), given("false")
    assert in_order([row for row in with_deletes if row[2] is not None]) == in_order(live)
    deleted = [row for row in with_deletes if row[2] is None]
    assert deleted
    assert min(row[1] for row in deleted) >= T0 - T0 % MINUTE + 30 * MINUTE  # stream time is at least 37 minutes on


@pytest.mark.long
@pytest.mark.parametrize("name", STORES)
def test_all_changes_of_a_kind_are_given_with_their_keys_split(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, name: str
) -> None:
    store = STORES[name]
    application = logged(bootstrap_servers, tmp_path, store, changes(store, 400, 2))
    log = changes(store, 400, 2)

    frame = changelog(spark, bootstrap_servers, application.changelog, options_of(store))

    timestamped = store.format is StoreFormat.TIMESTAMPED
    assert rows(frame.orderBy("offset")) == [
        (0, at, *split(store, key or b""), value, T0 + at if timestamped else None)
        for at, (key, value) in enumerate(log)
    ]
    without = changelog(spark, bootstrap_servers, application.changelog, {**options_of(store), "values": "false"})
    assert rows(without.orderBy("offset")) == [
        tuple(None if column == "value" else cell for column, cell in zip(frame.columns, row, strict=True))
        for row in rows(frame.orderBy("offset"))
    ]


def test_the_columns_of_a_kind_have_its_types(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store()
    store.log(0, [(session_key.encode(b"k", 5, 9), b"7", 1000), (session_key.encode(b"l", 5, 9), None, 1001)])

    frame = log_of(spark, store, **SESSION, key_serde="utf8", value_serde="json", value_schema="n INT")
    plain = log_of(spark, store, **SESSION)

    assert plain.schema == StructType(
        [
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("key", BinaryType()),
            StructField("session_start", LongType()),
            StructField("session_end", LongType()),
            StructField("value", BinaryType()),
            StructField("timestamp", LongType()),
        ]
    )
    assert frame.schema["key"].dataType == StringType()
    assert frame.schema["value"].dataType == StructType([StructField("n", IntegerType())])


def test_keys_and_values_are_decoded_and_a_tombstone_stays_null(
    spark: SparkSession, logged_store: LoggedStores
) -> None:
    store = logged_store()
    # The second record is in no store: it has no key.
    store.log(0, [(b"a", (7).to_bytes(8, "big"), 1000), (None, b"no number", 1001), (b"b", None, 1002)])

    frame = log_of(spark, store, kind="key-value", key_serde="utf8", value_serde="int64")

    assert rows(frame, "key", "value", "timestamp") == [("a", 7, 1000), ("b", None, 1002)]


@pytest.mark.parametrize(
    ("latest", "found"),
    [
        ("true", "the record at offset 0 has a key of 1 bytes, expected at least 12"),
        ("false", "a window store's row key has at least 12 bytes, found 1"),
    ],
)
def test_a_log_of_another_kind_of_store_is_refused(
    spark: SparkSession, logged_store: LoggedStores, latest: str, found: str
) -> None:
    store = logged_store()
    store.log(0, [(b"a", b"1", 1000)])

    with pytest.raises(PySparkException, match=f"TopicMismatchError: {store.topic}-0: {found}"):
        log_of(spark, store, latest=latest, **WINDOW).count()


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.short_for("options0-topic nothing", "options10-option end_time")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": "nothing-changelog"}, "topic nothing-changelog does not exist"),
        ({"bootstrap_servers": " "}, "option bootstrap_servers is missing"),
        ({"partitions": "4"}, "has the partitions 0 to 0, asked for: .4."),
        ({"ends": '{"0": 100}'}, "is stable up to offset 5, asked for records up to 100"),
        ({"ends": '{"0": -1}'}, "expected a JSON object of partition to offset"),
        ({"starts": "12"}, "expected a JSON object of partition to offset"),
        ({"latest": "1"}, "option latest: expected true or false"),
        ({"tombstones": "no"}, "option tombstones: expected true or false"),
        ({"values": "no"}, "option values: expected true or false"),
        ({"start_time": "yesterday"}, "option start_time: expected"),
        ({"end_time": "-1"}, "option end_time: expected"),
        ({"starts": '{"0": 1}', "start_time": "5"}, "starts or start_time"),
        ({"ends": '{"0": 1}', "end_time": "5"}, "ends or end_time"),
        ({"splits": "0"}, "option splits: expected"),
        ({"splits": "many"}, "option splits: expected"),
        ({"splits": "2", "latest": "true"}, "option splits: latest needs"),
        ({"run_bytes": "12", "latest": "true"}, "option run_bytes: expected"),
        ({"run_bytes": "100000"}, "option run_bytes applies only to latest"),
        ({"kind": "table"}, "option kind: expected one of"),
        ({"kind": "window"}, "retention_ms, window_size_ms"),
        ({"kind": "window", "retention_ms": "long", "window_size_ms": "1"}, "option retention_ms: expected"),
        ({"kind": "key-value", "retention_ms": "5"}, "a key-value store has neither retention nor window"),
        ({"kind": "key-value", "format": "fancy"}, "option format: expected one of"),
        ({"kind": "key-value", "value_serde": "avro"}, "option value_serde: expected one of"),
        ({"key_serde": "utf8"}, "option key_serde is for rows of a store: add option kind"),
        ({"format": "plain"}, "option format describes a store: add option kind"),
        ({"tombstone": "true"}, "no option tombstone, perhaps tombstones is meant"),
    ],
)
def test_changelog_says_what_is_wrong(
    spark: SparkSession, logged_store: LoggedStores, options: dict[str, str], expected: str
) -> None:
    store = logged_store()
    store.log(0, RECORDS)

    with pytest.raises(PySparkException, match=expected):
        log_of(spark, store, **options).count()
