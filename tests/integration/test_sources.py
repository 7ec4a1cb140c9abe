"""The Spark sources give what the library reads, with the types they promise."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from logged_store import LoggedStore
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from statestore.model import StoreFormat
from statestore.stores.open import open_key_value_store

LoggedStores = Callable[..., LoggedStore]

_RECORDS = [(b"a", b"1", 1000), (b"b", b"2", 1001), (b"a", b"3", 1002), (b"b", None, 1003)]


def _store(spark: SparkSession, logged: LoggedStore, **options: object) -> DataFrame:
    given = {
        "state_dir": logged.settings.state_dir,
        "application": logged.application.name,
        "store": logged.definition.name,
        "format": logged.definition.format,
        **options,
    }
    return spark.read.format("state_store").options(**given).load()


def _changelog(spark: SparkSession, store: LoggedStore, **options: object) -> DataFrame:
    given = {"bootstrap_servers": store.settings.bootstrap_servers, "topic": store.topic, **options}
    return spark.read.format("changelog").options(**given).load()


def _rows(frame: DataFrame, *columns: str) -> list[tuple[object, ...]]:
    rows = frame.select(*columns).collect() if columns else frame.collect()
    return sorted(tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row) for row in rows)


# -- state_store ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store_format", list(StoreFormat))
def test_state_store_gives_the_rows_of_the_store(
    spark: SparkSession, logged_store: LoggedStores, store_format: StoreFormat
) -> None:
    store = logged_store(2, store_format)
    # More rows than one batch holds, empty values, and bytes that are no text.
    many = [(b"%06d" % number, b"", number) for number in range(1, 20_001)]
    store.change(0, many)
    store.change(1, [(b"\x00\xff", b"\xfe\x00", 5)])

    frame = _store(spark, store)

    assert _rows(frame) == store.rows(0) + store.rows(1)
    assert frame.schema == StructType(
        [
            StructField("partition", IntegerType()),
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("timestamp", LongType()),
        ]
    )
    assert frame.rdd.getNumPartitions() == 2


def test_state_store_reads_only_what_is_asked_for(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store(3)
    for partition in range(3):
        store.change(partition, [(b"k", b"v", 7)])

    assert _rows(_store(spark, store, partitions="2, 0", values="false")) == [(0, b"k", None, 7), (2, b"k", None, 7)]


def test_state_store_leaves_the_store_free_when_it_has_read(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store()
    store.change(0, [(b"%d" % number, b"v", 7) for number in range(100)])

    assert len(_store(spark, store).limit(1).collect()) == 1

    open_key_value_store(store.definition, store.directory(0)).close()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"store": "other"}, "no store other of application"),
        ({"application": "nobody"}, "no task directory 0_"),
        ({"partitions": "0,7"}, "for partition 7"),
        ({"partitions": "first"}, "expected partitions such as 0,1,3"),
        ({"format": "fancy"}, "option format: expected one of"),
        ({"store": "../counts"}, "is not a valid name"),
        ({"values": "perhaps"}, "option values: expected true or false"),
        ({"state_dir": ""}, "option state_dir is missing"),
    ],
)
def test_state_store_says_what_is_wrong(
    spark: SparkSession, logged_store: LoggedStores, options: dict[str, str], expected: str
) -> None:
    store = logged_store()
    store.change(0, [(b"k", b"v", 7)])

    with pytest.raises(PySparkException, match=expected):
        _store(spark, store, **options).count()


# -- changelog --------------------------------------------------------------------------------------------------------


def test_changelog_gives_all_committed_records(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store(2)
    store.log(0, [(b"gone", b"0", 999)], abort=True)  # offset 0, and its marker offset 1
    store.log(0, _RECORDS)
    store.log(1, [(b"c", b"5", 1005)])

    frame = _changelog(spark, store)

    of_first = [(0, 2 + index, timestamp, key, value) for index, (key, value, timestamp) in enumerate(_RECORDS)]
    assert sorted(frame.collect(), key=lambda row: row[:2]) == [*of_first, (1, 0, 1005, b"c", b"5")]
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
    assert _rows(_changelog(spark, store, partitions="1"), "key") == [(b"c",)]


def test_r1_changelog_folds_to_the_latest_record_of_each_key(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store()
    store.log(0, [*_RECORDS, (None, b"4", 1004)])
    many = [(b"m%06d" % number, b"v", number) for number in range(1, 20_001)]
    store.log(0, many)

    live = _rows(_changelog(spark, store, latest="true"), "key", "value", "timestamp")
    everything = _rows(_changelog(spark, store, latest="true", tombstones="true"), "key", "offset")

    assert live == sorted([(b"a", b"3", 1002), *many])
    assert everything[:2] == [(b"a", 2), (b"b", 3)]
    assert len(everything) == len(live) + 1


def test_changelog_stops_at_the_given_end(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store(2)
    store.log(0, _RECORDS)
    store.log(1, _RECORDS)

    frame = _changelog(spark, store, latest="true", ends=json.dumps({"0": 2, "1": 0}))

    assert _rows(frame, "partition", "key", "value") == [(0, b"a", b"1"), (0, b"b", b"2")]


def test_changelog_starts_at_the_given_offset(spark: SparkSession, logged_store: LoggedStores) -> None:
    store = logged_store(2)
    store.log(0, _RECORDS)
    store.log(1, _RECORDS)

    frame = _changelog(spark, store, starts=json.dumps({"0": 2, "1": 100}))

    assert _rows(frame, "partition", "offset") == [(0, 2), (0, 3)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": "nothing-changelog"}, "topic nothing-changelog does not exist"),
        ({"partitions": "4"}, "has the partitions 0 to 0, asked for: .4."),
        ({"ends": '{"0": 100}'}, "is stable up to offset 5, asked for records up to 100"),
        ({"ends": '{"0": -1}'}, "expected a JSON object of partition to offset"),
        ({"starts": "12"}, "expected a JSON object of partition to offset"),
        ({"latest": "1"}, "option latest: expected true or false"),
        ({"bootstrap_servers": " "}, "option bootstrap_servers is missing"),
    ],
)
def test_changelog_says_what_is_wrong(
    spark: SparkSession, logged_store: LoggedStores, options: dict[str, str], expected: str
) -> None:
    store = logged_store()
    store.log(0, _RECORDS)

    with pytest.raises(PySparkException, match=expected):
        _changelog(spark, store, **options).count()
