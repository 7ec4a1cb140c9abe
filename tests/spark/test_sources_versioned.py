"""`state_store` gives the versions that a versioned store keeps of each key, from its directory and from a snapshot."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType
from statestore_jobs.sources.changelog import ChangelogDataSource
from statestore_jobs.sources.columns import layout_of
from statestore_jobs.sources.ranges import RANGE_OPTIONS
from statestore_jobs.sources.snapshots import definition_in, snapshots_of
from statestore_jobs.sources.state_store import StateStoreReader

from statestore.archive.archive import open_archive
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, StoreCorruptedError, UnknownFormatError
from statestore.formats.versioned_row import row_key
from statestore.stores.rocksdb import RocksDB
from tests.archive.snapshots import published
from tests.spark.store_files import HOUR_MS, MINUTE_MS, StoreFiles, batches_of, defined, read, text_of

PRICES = StoreDefinition(name="prices", kind="versioned", retention_ms=HOUR_MS)
KEYS = [b"", b"a", b"a\0", b"ab", *(b"key-%02d" % number for number in range(12))]


def _filled(tmp_path: Path, partition: int = 0) -> StoreFiles:
    """Versions of some hours, in any order, deletes among them."""
    files, chance = StoreFiles(tmp_path / "state", PRICES), random.Random(partition)
    with files.opened(partition) as store:
        for number in range(400):
            timestamp = number * MINUTE_MS // 2 - chance.choice([0, 0, 1, 9]) * MINUTE_MS
            value = None if chance.random() < 0.2 else b"%d" % number
            store.put(chance.choice(KEYS), value, max(timestamp, 0) + chance.randrange(5))
        store.commit({files.changelog(partition): 400})
    return files


def _with(tmp_path: Path, *versions: tuple[bytes, bytes | None, int]) -> StoreFiles:
    files = StoreFiles(tmp_path / "state", PRICES)
    with files.opened() as store:
        for key, value, timestamp in versions:
            store.put(key, value, timestamp)
        store.commit({files.changelog(): len(versions)})
    return files


def _expected(files: StoreFiles, partition: int = 0) -> list[tuple[Any, ...]]:
    """As the library reads them, in the order of the keys, oldest first."""
    with files.opened(partition, read_only=True) as store:
        return [
            (partition, key, found.timestamp, found.valid_to, found.value, found.timestamp)
            for key, found in store.all()
        ]


def _rows(options: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in read(options)]


def test_spark_shows_each_version_of_a_key_from_when_until_when_it_is_valid(
    spark: SparkSession, tmp_path: Path
) -> None:
    for partition in (0, 1):
        files = _filled(tmp_path, partition)

    frame = spark.read.format("state_store").options(**text_of(files.options)).load()

    times = [StructField(name, LongType()) for name in ("valid_from", "valid_to")]
    assert frame.schema == StructType(
        [
            StructField("partition", IntegerType()),
            StructField("key", BinaryType()),
            *times,
            StructField("value", BinaryType()),
            StructField("timestamp", LongType()),
        ]
    )
    found = [(row[0], bytes(row[1]), *row[2:4], bytes(row[4]), row[5]) for row in frame.collect()]
    assert found == _expected(files, 0) + _expected(files, 1)
    assert len(found) > 200
    still = [row[:2] for row in found if row[3] is None]
    assert len(still) == len(set(still)) > 20


def test_a_delete_ends_a_version_and_is_no_row(tmp_path: Path) -> None:
    files = _with(tmp_path, (b"k", b"one", 5), (b"k", None, 9), (b"k", b"two", 20), (b"gone", None, 7))

    assert [(row["key"], row["valid_from"], row["valid_to"], row["value"]) for row in read(files.options)] == [
        (b"k", 5, 9, b"one"),
        (b"k", 20, None, b"two"),
    ]


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ({"key": "61"}, lambda key: key == b"a"),
        ({"key": ""}, lambda key: key == b""),
        ({"key_from": "6100", "key_to": "6b65792d3033"}, lambda key: b"a\0" <= key < b"key-03"),
        ({"key_to": "61"}, lambda key: key < b"a"),
        ({"key": "ab", "key_serde": "utf8"}, lambda key: key in (b"ab", "ab")),
    ],
)
def test_only_the_keys_asked_for_are_read(tmp_path: Path, said: dict[str, str], key: Any) -> None:
    files = _filled(tmp_path)
    expected = [row[2:] for row in _expected(files) if key(row[1])]

    assert [row[2:] for row in _rows({**files.options, **said})] == expected != []


@pytest.mark.long
def test_versions_that_were_valid_at_a_time_are_told_by_a_range_of_times(tmp_path: Path) -> None:
    files = _filled(tmp_path)
    for time in range(0, 200 * MINUTE_MS, 7 * MINUTE_MS):
        then = _rows({**files.options, "time_from": time, "time_to": time + 1})
        assert then == [row for row in _expected(files) if row[2] <= time and (row[3] is None or time < row[3])]
    assert _rows({**files.options, "time_from": 0}) == _expected(files)


def test_values_are_decoded_or_left_out(tmp_path: Path) -> None:
    files = _with(tmp_path, (b"k", b"7", 5), (b"k", b"8", 6))

    decoded = read({**files.options, "key_serde": "utf8", "value_serde": "json"})
    assert [(row["key"], row["value"]) for row in decoded] == [("k", "7"), ("k", "8")]
    assert [row["value"] for row in read({**files.options, "values": "false"})] == [None, None]
    with pytest.raises(InputError, match="its value is not int64"):
        read({**files.options, "value_serde": "int64"})


@pytest.mark.parametrize("said", [{}, {"kind": "versioned", "retention_ms": HOUR_MS}])
def test_a_snapshot_is_read_as_the_store_was(tmp_path: Path, said: dict[str, Any]) -> None:
    files = _filled(tmp_path)
    expected = _expected(files)
    objects = open_archive(f"file://{tmp_path}/archive")
    published(objects, files.live(), definition=PRICES, task="0_0")
    shutil.rmtree(files.state_dir)
    options = text_of({"archive": objects.url, "snapshot": "latest", "application": "app", "store": "prices"})

    layout = layout_of(options, definition_in(snapshots_of(options, RANGE_OPTIONS), options), with_offset=False)
    found = [
        tuple(row.values())
        for batch in batches_of(StateStoreReader(options, from_arrow_schema(layout.schema)))
        for row in batch.to_pylist()
    ]
    assert found == expected


def test_a_row_that_was_cut_is_damage_and_names_its_key(tmp_path: Path) -> None:
    files = _filled(tmp_path)
    database = RocksDB(files.live(), ["default"])
    database.write({"default": {row_key(9, b"ab"): b"cut"}}, status=0)
    database.sync()
    database.close()

    with pytest.raises(StoreCorruptedError, match=r"prices.*key b'ab', segment 9: a row of a versioned store"):
        read({**files.options, "kind": "versioned"})


def test_a_store_of_another_kind_is_not_read_as_versioned(tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("counts", format="plain"))
    files.fill()

    with pytest.raises(UnknownFormatError, match="rows that are not those of a versioned store; correct its kind"):
        read({**files.options, "kind": "versioned"})


def test_a_changelog_is_not_shown_as_versions() -> None:
    options = {"bootstrap_servers": "b", "topic": "t", "kind": "versioned", "retention_ms": "5"}
    with pytest.raises(InputError, match="rows of a versioned store are not records of its changelog"):
        ChangelogDataSource(options).schema()
