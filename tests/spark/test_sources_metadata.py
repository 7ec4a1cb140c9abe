"""`state_store_metadata` tells what is known of store partitions on disk, also of those that cannot be read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from statestore_jobs.sources.state_store_metadata import StateStoreMetadataReader

from statestore.errors import InputError
from statestore.model import TopicPartition
from statestore.statedir.lock import locked
from statestore.statedir.seal import seal
from statestore.stores.rocksdb import RocksDB
from tests.spark.store_files import HOUR_MS, PLAIN, StoreFiles, batches_of, defined, names_and_sizes, text_of


def _read(**options: Any) -> dict[str, dict[str, Any]]:
    rows = [row for batch in batches_of(_reader(options)) for row in batch.to_pylist(maps_as_pydicts="strict")]
    return {f"{row['store']}/{row['partition']}": row for row in rows}


def _reader(options: dict[str, Any]) -> StateStoreMetadataReader:
    return StateStoreMetadataReader(text_of(options))


def _sealed(files: StoreFiles, partition: int = 0) -> None:
    seal(files.paths(partition), files.definition.name, files.definition.store_kind)


def test_each_store_partition_has_a_row_with_what_its_files_tell(tmp_path: Path) -> None:
    counts = StoreFiles(tmp_path, defined("counts"))
    windows = StoreFiles(tmp_path, defined("windows", "window"))
    sessions = StoreFiles(tmp_path, defined("sessions", "session"))
    counts.fill(0)
    counts.fill(1)
    windows.fill()
    sessions.fill()
    before = names_and_sizes(tmp_path)

    rows = _read(application="app", state_dir=tmp_path)

    assert list(rows) == ["counts/0", "sessions/0", "windows/0", "counts/1"]
    assert names_and_sizes(tmp_path) == before
    found = rows["counts/1"]
    files = list(counts.live(1).glob("*.sst"))
    assert found == {
        "application": "app",
        "store": "counts",
        "task": "0_1",
        "partition": 1,
        "kind": "key-value",
        "format": "timestamped",
        "committed": {"app-counts-changelog-1": 300},
        "position": {"input-1": 300},
        "open": "closed",
        "estimated_keys": len(counts.rows(1)),
        "bytes": sum(path.stat().st_size for path in files),
        "files": len(files),
        "segments": None,
        "sealed": "unsealed",
        "problem": None,
        "snapshot": None,
    }
    for name, files_of in (("windows", windows), ("sessions", sessions)):
        row = rows[f"{name}/0"]
        assert (row["kind"], row["segments"]) == (name.removesuffix("s"), len(list(files_of.live().iterdir())))
        assert row["estimated_keys"] == len(files_of.rows())
        assert row["committed"] == {f"app-{name}-changelog-0": 300}
    assert rows["sessions/0"]["format"] == "plain"
    assert list(_read(path=tmp_path / "app", store="counts", partitions="1")) == ["counts/1"]
    assert _read(path=counts.live(1))["counts/1"] == rows["counts/1"]


def test_spark_has_the_rows_in_the_promised_types(spark: SparkSession, tmp_path: Path) -> None:
    StoreFiles(tmp_path, defined("windows", "window")).fill()

    frame = spark.read.format("state_store_metadata").option("path", str(tmp_path / "app")).load()

    [batch] = batches_of(_reader({"path": tmp_path / "app"}))
    assert to_arrow_schema(frame.schema) == batch.schema
    assert [row.asDict() for row in frame.collect()] == list(_read(path=tmp_path / "app").values())


def test_the_seal_is_told_without_taking_a_lock(tmp_path: Path) -> None:
    stores = {name: StoreFiles(tmp_path, defined(name)) for name in ("whole", "broken", "open")}
    for number, files in enumerate(stores.values()):
        files.fill(number)
        _sealed(files, number)
    largest = max(stores["broken"].live(1).glob("*.sst"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes() + b"\0")

    with locked(stores["open"].paths(2), 0):
        rows = _read(path=tmp_path / "app")

    assert {name: row["sealed"] for name, row in rows.items()} == {
        "whole/0": "sealed",
        "broken/1": "broken",
        "open/2": "in use",
    }
    assert rows["open/2"]["problem"] is None
    shutil.copytree(stores["whole"].live(0), tmp_path / "whole")
    assert _read(path=tmp_path / "whole")["whole/None"]["sealed"] is None


def test_a_store_that_was_left_open_says_so(tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("counts"))
    with pytest.raises(RuntimeError, match="crash"), files.opened():
        raise RuntimeError("crash")

    assert _read(path=tmp_path / "app")["counts/0"]["open"] == "open"


def test_a_segment_that_is_behind_holds_the_committed_offset_back(tmp_path: Path) -> None:
    files = StoreFiles(tmp_path, defined("windows", "window"))
    with files.opened() as store:
        files.put(store, b"k", b"v", 0)
        files.put(store, b"k", b"v", HOUR_MS)
        store.commit({files.changelog(): 9}, {TopicPartition("a", 0): 5, TopicPartition("b", 0): 7})
    behind = RocksDB(sorted(files.live().iterdir())[0], ["keyValueWithTimestamp"])
    behind.write({}, {files.changelog(): 4}, {TopicPartition("a", 0): 3})
    behind.sync()
    behind.close()

    row = _read(path=tmp_path / "app")["windows/0"]

    assert row["committed"] == {"app-windows-changelog-0": 4}
    assert row["position"] == {"a-0": 3, "b-0": 7}


def test_offsets_are_told_where_the_databases_do_not_have_them(tmp_path: Path) -> None:
    old = StoreFiles(tmp_path, defined("old", format=PLAIN))
    database = RocksDB(old.live(), ["default"])
    database.put("default", b"k", b"v")
    database.sync()
    database.close()
    (old.paths().checkpoint).write_text("0\n1\napp-old-changelog 0 42\n")
    expired = StoreFiles(tmp_path, defined("windows", "window"))
    with expired.opened() as store:
        store.commit({expired.changelog(): 6})
    for segment in expired.live().iterdir():
        shutil.rmtree(segment)

    rows = _read(path=tmp_path / "app")

    assert (rows["old/0"]["committed"], rows["old/0"]["open"]) == ({"app-old-changelog-0": 42}, None)
    assert (rows["windows/0"]["committed"], rows["windows/0"]["segments"]) == ({"app-windows-changelog-0": 6}, 0)
    asked = "say it when you read it, with .option('kind', ...)"
    assert rows["windows/0"]["problem"] == f"{expired.live()} has no row that tells its kind; {asked}"


def test_one_store_that_cannot_be_read_keeps_no_other_from_its_row(tmp_path: Path) -> None:
    for name in ("damaged", "foreign", "whole"):
        StoreFiles(tmp_path, defined(name)).fill()
    damaged = StoreFiles(tmp_path, defined("damaged")).live()
    (damaged / "CURRENT").write_text("MANIFEST-000099\n")
    foreign = RocksDB(StoreFiles(tmp_path, defined("foreign")).live(), ["keyValueWithTimestamp", "default", "versions"])
    foreign.close()

    rows = _read(path=tmp_path / "app")

    assert str(damaged) in rows["damaged/0"]["problem"]
    assert "has the column families ['versions']" in rows["foreign/0"]["problem"]
    assert rows["whole/0"]["problem"] is None


def test_a_wrong_option_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="state_store_metadata has no option values"):
        _read(path=tmp_path, values="false")
    with pytest.raises(InputError, match=r"option state_dir is missing: add .*, or set STATESTORE_STATE_DIR"):
        _read(application="app")
