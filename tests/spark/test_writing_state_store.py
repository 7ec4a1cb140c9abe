"""A DataFrame takes the place of a store's rows, and of its changelog, or nothing is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from statestore.changelog.topic_settings import changelog_config
from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.kafka.partitioner import partition_of
from statestore.metastore.metastore import Metastore
from statestore.partition.quarantine import last_replaced
from statestore.recovery.restore import restore
from statestore.reports import Status, WriteReport, read_report
from statestore.rewrite.row_stage import writes_of
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration.broker import T0, unique
from tests.integration.kinds import ALL_STORES, changes, logged, stored
from tests.integration.support import STORE, Application, register
from tests.integration.test_overwrite_versions import MINUTE, answers, processed

KEYS = [b"key-%02d" % number for number in range(20)]


class Written:
    """An application of a catalogue, whose store is read and written as a DataFrame."""

    def __init__(self, spark: SparkSession, servers: str, directory: Path, **settings: Any) -> None:
        self._of(spark, Application(servers, directory, partitions=2, **settings), directory)
        self.process()

    @classmethod
    def of(cls, spark: SparkSession, application: Application, directory: Path) -> Written:
        """Put an application that is there into a catalogue."""
        made = cls.__new__(cls)
        made._of(spark, application, directory)
        return made

    def _of(self, spark: SparkSession, application: Application, directory: Path) -> None:
        self.spark, self.servers, self.directory = spark, application.servers, directory
        self.app, self.service_id = application, unique("service")
        register(self.servers, application.definition, service_id=self.service_id)

    def process(self, at: int = T0) -> None:
        """Send each key once, to where the partitioner puts it, and process."""
        for task in range(2):
            self.app.send([(key, b"1") for key in KEYS if partition_of(key, 2) == task], task, at)
            row = self.app.run(task)
            assert row.failure is None, row.failure

    def read(self) -> DataFrame:
        store = self.app.definition.stores[0]
        options = {"state_dir": str(self.app.state_dir), "application": self.app.name, "store": store.name}
        if store.window_size_ms is not None:
            options["window_size_ms"] = str(store.window_size_ms)
        return self.spark.read.format("state_store").options(**options).load()

    def write(self, rows: DataFrame, mode: str = "overwrite", **options: str) -> None:
        given = {
            "application": self.app.name,
            "store": self.app.definition.stores[0].name,
            "state_dir": str(self.app.state_dir),
            "bootstrap_servers": self.servers,
            "service_id": self.service_id,
            "reports_dir": str(self.directory / "reports"),
            "data_docs_dir": str(self.directory / "data_docs"),
            **options,
        }
        rows.write.format("state_store").options(**given).mode(mode).save()
        entry = Metastore(Cluster(self.servers, 60), self.service_id).view().catalogue.entry(self.app.name)
        self.app.definition = entry.definition

    def refused(self, rows: DataFrame, **options: str) -> str:
        """Write rows, which must be refused without a change; return the reason."""
        before = self.found()
        with pytest.raises(PySparkException) as error:
            self.write(rows, **options)
        assert self.found() == before
        return str(error.value)

    def found(self) -> Any:
        """What a refusal must leave as it is: topics, and the files of the state directory but for our locks."""
        topics = sorted(name for name in Cluster(self.servers, 60).topics.names() if name.startswith(self.app.name))
        files = {path: path.stat().st_mtime_ns for path in self.app.state_dir.rglob("*.sst")}
        own = writes_of(self.app.state_dir, self.app.name, self.app.definition.stores[0].name)
        return topics, files, [*own.glob("*")], [*own.parent.parent.glob("overwrite-*")]

    def statuses(self) -> set[Status]:
        store = self.app.definition.stores[0].name
        return {
            verify(self.app.store_spec(task, store), VerifyOptions("deep")).status
            for task in range(self.app.partitions)
        }


@pytest.fixture
def written(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> Written:
    return Written(spark, bootstrap_servers, tmp_path)


def _rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.drop("partition").collect())


@pytest.mark.long
def test_what_was_read_and_corrected_takes_the_place_of_the_store_and_processing_counts_on(written: Written) -> None:
    before = written.app.changelog
    corrected = written.read().withColumn("value", F.expr("cast('7' as binary)")).repartition(3)
    rows = _rows(corrected)
    written.write(corrected)
    assert written.app.changelog == f"{before}-2"
    assert _rows(written.read()) == rows
    assert written.statuses() == {Status.OK}
    assert [*(written.directory / "data_docs").rglob("verdicts/*/overwrite-*.json")]
    assert all(last_replaced(written.app.store_spec(task).paths, STORE) for task in range(2))
    written.process(T0 + 1_000)
    assert {bytes(row.value) for row in written.read().collect()} == {b"8"}
    assert written.statuses() == {Status.OK}


@pytest.mark.long
def test_rows_that_a_store_cannot_have_are_named_and_nothing_is_changed(written: Written) -> None:
    rows = written.read()
    one = rows.limit(1)
    for wrong, reason in (
        (rows.drop("timestamp"), "columns timestamp are missing"),
        (rows.withColumn("extra", F.lit(1)), "columns extra are not known"),
        (rows.withColumn("key", F.col("key").cast("string").cast("double")), "column key is double"),
        (rows.withColumn("key", F.lit(None).cast("binary")), "rows have no key"),
        (rows.withColumn("value", F.lit(None).cast("binary")), "no value: an overwrite has rows only"),
        (rows.withColumn("timestamp", F.lit(0).cast("long")), "the timestamp 0; expected ms since 1970, above 0"),
        (rows.withColumn("partition", F.lit(7)), "has partition 7; Kafka's partitioner puts it into"),
        (rows.union(one), "1 keys more than once, such as b'key-"),
        (rows.where("false"), "the DataFrame has no rows"),
    ):
        assert reason in written.refused(wrong)
    assert "no application 'other' is in the catalogue" in written.refused(rows, application="other")
    assert "no store 'other'" in written.refused(rows, store="other")
    assert "has no option stor, perhaps store is meant" in written.refused(rows, stor="counts")
    assert written.statuses() == {Status.OK}


@pytest.mark.long
def test_rows_that_do_not_pass_the_stores_suite_are_refused_and_nothing_is_changed(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    suite = tmp_path / "own.json"
    condition = {"type": "expect_store_rows_to_satisfy", "kwargs": {"condition": "length(value) = 1"}}
    suite.write_text(json.dumps({"name": "own", "expectations": [condition]}))
    store = StoreDefinition(name=STORE, expectations=str(suite))
    written = Written(spark, bootstrap_servers, tmp_path, stores=(store,))
    reason = written.refused(written.read().withColumn("value", F.expr("cast('77' as binary)")))
    assert "do not pass the store's suite" in reason
    assert written.statuses() == {Status.OK}


@pytest.mark.long
def test_an_attempt_that_failed_writes_nothing_and_one_that_is_repeated_writes_once(
    written: Written, tmp_path: Path
) -> None:
    rows = _rows(written.read())
    first = tmp_path / "first"

    def fail_once(batches: Any) -> Any:
        yield from batches
        if not first.exists():
            first.touch()
            raise ValueError("the first attempt fails behind its last row")

    repeated = written.read().mapInArrow(fail_once, written.read().schema)
    reason = written.refused(repeated)  # a local master repeats no task
    assert "the first attempt fails" in reason
    written.write(repeated)
    assert _rows(written.read()) == rows
    assert written.statuses() == {Status.OK}


@pytest.mark.long
@pytest.mark.parametrize("kind", [name for name, store in ALL_STORES.items() if not store.store_kind.has_history])
def test_a_store_of_any_kind_goes_through_a_dataframe_and_is_equal(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, kind: str
) -> None:
    store = ALL_STORES[kind]
    application = logged(bootstrap_servers, tmp_path, store, changes(store, 300, 1))
    Cluster(bootstrap_servers, 60).topics.set_config(application.changelog, changelog_config(store))
    assert restore(application.restore_spec(force=True)).failure is None
    written = Written.of(spark, application, tmp_path)
    rows = _rows(written.read())
    assert rows
    before = stored(application.store_spec(), application.store_spec().live)
    written.write(written.read())
    assert _rows(written.read()) == rows
    assert stored(application.store_spec(), application.store_spec().live) == before
    assert written.statuses() == {Status.OK}


@pytest.mark.long
def test_a_versioned_store_goes_through_a_dataframe_and_has_the_same_versions_and_deletes(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    application = processed(bootstrap_servers, tmp_path)
    written = Written.of(spark, application, tmp_path)
    frame = written.read()
    rows = sorted(frame.collect())
    ended = {(row.key, row.valid_to) for row in rows if row.valid_to is not None}
    deleted = ended - {(row.key, row.valid_from) for row in rows}
    assert len(rows) > 100
    assert len(deleted) > 10
    asked = list(answers(application, int(rows[-1].valid_from)))
    written.write(frame.repartition(3))
    assert sorted(written.read().collect()) == rows
    assert list(answers(application, int(rows[-1].valid_from))) == asked
    assert written.statuses() == {Status.OK}
    twice = frame.union(frame.limit(1))
    assert "versions more than once, such as of b'" in written.refused(twice)
    one = frame.where("valid_to is not null").limit(1)
    for wrong, reason in (
        (one.withColumn("valid_to", F.expr("valid_from")), "or after its valid_from"),
        (one.withColumn("timestamp", F.expr("valid_from + 1")), "expected its valid_from"),
        (one.withColumn("valid_from", F.lit(0).cast("long")).drop("timestamp"), "valid_from 0; expected ms since 1970"),
        (one.withColumn("value", F.lit(None).cast("binary")), "no value: an overwrite has rows only"),
        (one.drop("valid_to"), "columns valid_to are missing"),
    ):
        assert reason in written.refused(wrong)


@pytest.mark.long
def test_single_versions_are_put_and_deleted_and_processing_goes_on(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    application = processed(bootstrap_servers, tmp_path)
    written = Written.of(spark, application, tmp_path)
    before = {(bytes(row.key), row.valid_from): bytes(row.value) for row in written.read().collect()}
    latest = {key: max(time for found, time in before if found == key) for key, _ in before}
    now = max(latest.values())
    key, *_ = (found for found, time in latest.items() if time > now - 5 * MINUTE)
    puts = [(b"new", b"1", now), (b"new", None, now + 5), (key, b"corrected", latest[key])]
    written.write(spark.createDataFrame(puts, "key binary, value binary, valid_from long"), "append")
    after = {(bytes(row.key), row.valid_from): bytes(row.value) for row in written.read().collect()}
    assert after == before | {(b"new", now): b"1", (key, latest[key]): b"corrected"}
    (new,) = written.read().where("cast(key as string) = 'new'").collect()
    assert new.valid_to == now + 5
    assert written.statuses() == {Status.OK}
    for time, reason in ((now - 11 * MINUTE, "past the store's retention"), (now + 30 * MINUTE, "would have all rows")):
        with pytest.raises(PySparkException, match=reason):
            written.write(
                spark.createDataFrame([(b"k", b"1", time)], "key binary, value binary, valid_from long"), "append"
            )
    assert written.statuses() == {Status.OK}


@pytest.mark.long
@pytest.mark.parametrize("kind", [name for name, store in ALL_STORES.items() if store.store_kind.numbers])
def test_single_rows_of_windows_and_sessions_are_put_and_deleted(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, kind: str
) -> None:
    store = ALL_STORES[kind]
    application = logged(bootstrap_servers, tmp_path, store, changes(store, 300, 1))
    Cluster(bootstrap_servers, 60).topics.set_config(application.changelog, changelog_config(store))
    assert restore(application.restore_spec(force=True)).failure is None
    written = Written.of(spark, application, tmp_path)
    frame = written.read()
    before = sorted(frame.drop("partition").collect())
    put = [row.asDict() | {"value": b"corrected"} for row in before[:3]]
    deleted = [] if store.retain_duplicates else [row.asDict() | {"value": None} for row in before[3:5]]
    schema = frame.drop("partition").schema
    written.write(spark.createDataFrame(put + deleted, schema), "append")
    found = [row.asDict() for row in sorted(written.read().drop("partition").collect())]
    assert found == put + [row.asDict() for row in before[3 + len(deleted) :]]
    assert written.statuses() == {Status.OK}
    ahead = {name: before[0][name] + 10**9 for name in schema.names if name.startswith(("window_", "session_"))}
    behind = {name: at - 2 * 10**9 for name, at in ahead.items()}
    for times, reason in ((ahead, "would have all rows before"), (behind, "past the store's retention")):
        row = spark.createDataFrame([before[0].asDict() | times], schema)
        with pytest.raises(PySparkException, match=reason):
            written.write(row, "append")
    if store.retain_duplicates:
        row = spark.createDataFrame([before[0].asDict() | {"value": None}], schema)
        with pytest.raises(PySparkException, match="a record without a value deletes nothing"):
            written.write(row, "append")
    assert [row.asDict() for row in sorted(written.read().drop("partition").collect())] == found


@pytest.mark.long
def test_single_rows_are_put_and_deleted_in_one_transaction_and_processing_counts_on(written: Written) -> None:
    changelog = written.app.changelog
    assert {"key-00", "key-01"} <= {bytes(row.key).decode() for row in written.read().collect()}
    rows = written.spark.createDataFrame(
        [(b"key-00", b"41", T0 + 5), (b"key-01", None, T0 + 5), (b"new", b"5", T0 + 5)],
        "key binary, value binary, timestamp long",
    )
    written.write(rows, "append")
    assert written.app.changelog == changelog
    found = {bytes(row.key): bytes(row.value) for row in written.read().collect()}
    assert found == dict.fromkeys(KEYS[2:], b"1") | {b"key-00": b"41", b"new": b"5"}
    assert written.statuses() == {Status.OK}
    written.process(T0 + 1_000)
    assert {bytes(row.key): bytes(row.value) for row in written.read().collect()}[b"key-00"] == b"42"
    assert written.statuses() == {Status.OK}
    (path,) = (written.directory / "reports" / "write").glob("*.json")
    report = read_report(path, WriteReport)
    assert (report.mode, report.changelog) == ("append", changelog)
    assert (sum(row.puts for row in report.rows), sum(row.deletes for row in report.rows)) == (2, 1)
    assert all(row.healthy and row.caught_up for row in report.rows)
    with pytest.raises(PySparkException, match=r"bytes in one transaction; expected 3 at most"):
        written.write(rows, "append", transaction_bytes="3")
