"""The stream of `changelog`: each committed record once, in batches as large as asked, and no lost record unnoticed."""

from __future__ import annotations

import json
import pickle
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from statestore_jobs.sources.changelog import _SCHEMA, ChangelogDataSource

from statestore.errors import InputError, StoreBehindLogStartError, TopicMismatchError
from tests.integration.broker import (
    add_partitions,
    create_topic,
    delete_records,
    delete_topic,
    produce,
    settle,
    transaction,
    unique,
)


class Query:
    """Calls a reader as Spark calls it, and keeps its checkpoint."""

    def __init__(self, servers: str, topic: str, **options: Any) -> None:
        self.options = {
            "bootstrap_servers": servers,
            "topic": topic,
            **{name: str(is_) for name, is_ in options.items()},
        }
        self.planned: list[str] = []
        self.committed = 0
        self.start()

    def start(self, **options: Any) -> None:
        """Begin, or begin again after a kill."""
        said = self.options | {name: str(value) for name, value in options.items()}
        source = ChangelogDataSource({name.lower(): value for name, value in said.items()})
        self.reader = source.streamReader(from_arrow_schema(_SCHEMA))
        self.tasks = pickle.loads(pickle.dumps(self.reader))
        if self.planned:
            self.reader.partitions(json.loads(self.planned[-1]), json.loads(self.planned[-1]))

    def plan(self) -> bool:
        """Plan a batch; False if there is nothing new."""
        latest = json.dumps(self.reader.latestOffset())
        if self.planned and latest == self.planned[-1]:
            return False
        self.planned.append(latest)
        return True

    def run(self) -> list[tuple[int, int]]:
        """Run the planned batch, and commit it: partitions and offsets."""
        if self.committed:
            start = json.loads(self.planned[self.committed - 1])
        else:
            start = json.loads(json.dumps(self.reader.initialOffset()))
        parts = self.reader.partitions(start, json.loads(self.planned[self.committed]))
        found: list[tuple[int, int]] = []
        for part in parts:
            for batch in self.tasks.read(part):
                found += zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
        self.committed += 1
        return sorted(found)

    def batches(self) -> list[list[tuple[int, int]]]:
        """Run batches until nothing is left."""
        found = []
        while self.plan():
            found.append(self.run())
        return found


def filled(servers: str, *records: int) -> str:
    """Make a topic with so many records in each partition."""
    topic = unique("streamed")
    create_topic(servers, topic, partitions=len(records))
    for partition, count in enumerate(records):
        if count:
            produce(servers, topic, [(b"k%d" % number, b"v") for number in range(count)], partition)
    return topic


def more(servers: str, topic: str, count: int, partition: int = 0) -> None:
    produce(servers, topic, [(b"more", b"v")] * count, partition)


def offsets(partition: int, *range_: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(*range_)]


def test_each_record_comes_once_and_new_ones_in_the_next_batch(bootstrap_servers: str) -> None:
    topic = filled(bootstrap_servers, 5, 3)
    query = Query(bootstrap_servers, topic)
    assert query.batches() == [offsets(0, 5) + offsets(1, 3)]
    assert query.batches() == []
    more(bootstrap_servers, topic, 2, partition=1)
    assert query.batches() == [offsets(1, 3, 5)]
    query.start()
    assert query.batches() == []
    more(bootstrap_servers, topic, 1)
    assert query.batches() == [offsets(0, 5, 6)]


def test_batches_have_as_many_offsets_as_asked(bootstrap_servers: str) -> None:
    query = Query(bootstrap_servers, filled(bootstrap_servers, 20, 5, 0), maxOffsetsPerTrigger=10)
    batches = query.batches()
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert sorted(chain(*batches)) == offsets(0, 20) + offsets(1, 5)
    assert {partition for partition, _ in batches[0]} == {0, 1}


def test_one_offset_at_a_time_reaches_every_partition(bootstrap_servers: str) -> None:
    batches = Query(bootstrap_servers, filled(bootstrap_servers, 3, 2), maxOffsetsPerTrigger=1).batches()
    assert [len(batch) for batch in batches] == [1] * 5
    assert sorted(chain(*batches)) == offsets(0, 3) + offsets(1, 2)


def test_only_committed_records_come(bootstrap_servers: str) -> None:
    topic = filled(bootstrap_servers, 2)
    transaction(bootstrap_servers, topic, [(b"aborted", b"1")], end="abort")
    settle(bootstrap_servers, topic)
    query = Query(bootstrap_servers, topic)
    assert query.batches() == [offsets(0, 2)]
    writer = transaction(bootstrap_servers, topic, [(b"open", b"1")], end="open")
    assert query.batches() == []
    writer.commit_transaction(30)
    settle(bootstrap_servers, topic)
    assert query.batches() == [[(0, 4)]]


def test_a_batch_that_was_killed_is_read_again_from_where_the_stream_began(bootstrap_servers: str) -> None:
    topic = filled(bootstrap_servers, 5)
    query = Query(bootstrap_servers, topic, startingOffsets="latest")
    query.reader.initialOffset()
    more(bootstrap_servers, topic, 2)
    assert query.plan()
    more(bootstrap_servers, topic, 3)
    query.start()  # its reader would now say that the latest offset is a later one
    assert query.run() == offsets(0, 5, 7)
    assert query.batches() == [offsets(0, 7, 10)]


def test_a_stream_starts_and_ends_where_it_is_told(bootstrap_servers: str) -> None:
    topic = filled(bootstrap_servers, 6, 4)
    query = Query(bootstrap_servers, topic, startingOffsets='{"0": 4}', endingOffsets="latest", maxOffsetsPerTrigger=4)
    assert query.plan()
    more(bootstrap_servers, topic, 3)
    assert sorted([*query.run(), *chain(*query.batches())]) == offsets(0, 4, 6) + offsets(1, 4)
    assert Query(bootstrap_servers, topic, endingOffsets='{"1": 2}').batches() == [offsets(1, 2)]
    assert Query(bootstrap_servers, topic, partitions="1", tombstones="false").batches() == [offsets(1, 4)]


def test_new_partitions_are_read_from_their_first_record(bootstrap_servers: str) -> None:
    topic = filled(bootstrap_servers, 2)
    query = Query(bootstrap_servers, topic, startingOffsets="latest")
    assert query.batches() == [[]]  # which keeps where the stream began
    add_partitions(bootstrap_servers, topic, 2)
    more(bootstrap_servers, topic, 3, partition=1)
    assert query.batches() == [offsets(1, 3)]


def test_records_that_were_removed_unread_end_the_stream(bootstrap_servers: str) -> None:
    topic = filled(bootstrap_servers, 4)
    query = Query(bootstrap_servers, topic)
    assert query.batches() == [offsets(0, 4)]
    delete_records(bootstrap_servers, topic, 4)
    assert query.batches() == []  # these had been read
    more(bootstrap_servers, topic, 6)
    delete_records(bootstrap_servers, topic, 7)
    with pytest.raises(
        StoreBehindLogStartError, match=r"starts at offset 7, expected records from 4 on.*failOnDataLoss"
    ):
        query.plan()
    query.start(failOnDataLoss="false")
    assert query.batches() == [offsets(0, 7, 10)]


def test_records_that_were_removed_from_a_planned_batch_end_the_stream(bootstrap_servers: str) -> None:
    topic = filled(bootstrap_servers, 4)
    query = Query(bootstrap_servers, topic)
    assert query.plan()
    delete_records(bootstrap_servers, topic, 2)
    query.start()
    with pytest.raises(StoreBehindLogStartError, match="starts at offset 2, expected records from 0 on"):
        query.run()
    query.start(failOnDataLoss="false")
    assert query.run() == offsets(0, 2, 4)


def test_a_leader_that_has_not_caught_up_hides_no_record_of_a_planned_batch(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(bootstrap_servers, filled(bootstrap_servers, 4), failOnDataLoss=False)
    assert query.plan()
    topic_id, logs = query.reader._logs()
    # A last stable offset goes back only when a leader fails over; one broker cannot show that.
    behind = {partition: log._replace(last_stable=2) for partition, log in logs.items()}
    monkeypatch.setattr(query.reader, "_logs", lambda: (topic_id, behind))
    assert query.run() == offsets(0, 4)


def test_a_topic_that_was_made_anew_ends_the_stream(bootstrap_servers: str) -> None:
    topic = filled(bootstrap_servers, 4)
    query = Query(bootstrap_servers, topic)
    assert query.batches() == [offsets(0, 4)]
    delete_topic(bootstrap_servers, topic)
    create_topic(bootstrap_servers, topic)
    more(bootstrap_servers, topic, 6)
    with pytest.raises(TopicMismatchError, match="deleted and recreated"):
        query.plan()
    query.start(failOnDataLoss="false")
    assert query.batches() == [offsets(0, 6)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "newest"}, "option startingOffsets: expected earliest, latest, or a JSON object"),
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger: expected a whole number from 1"),
        ({"latest": "true"}, "changelog as a stream has no option latest"),
        ({"kind": "versioned", "retention_ms": "1000"}, "rows of a versioned store are not records"),
    ],
)
def test_a_wrong_option_is_told(bootstrap_servers: str, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        Query(bootstrap_servers, "any", **options)


def test_partitions_of_the_checkpoint_are_not_left_out(bootstrap_servers: str) -> None:
    query = Query(bootstrap_servers, filled(bootstrap_servers, 1, 1))
    query.batches()
    query.start(partitions="0")
    with pytest.raises(InputError, match=r"leaves out \[1\]"):
        query.plan()


# -- in Spark ---------------------------------------------------------------------------------------------------------


class Stream:
    """A streaming query that writes into a directory."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, directory: Path) -> None:
        self._spark, self._directory = spark, directory
        self._options = {"bootstrap_servers": servers, "topic": topic}

    def run(self, *, available_now: bool = False, **options: Any) -> list[int]:
        """Run a query until nothing is left; return how many rows each batch had."""
        frame = self._spark.readStream.format("changelog").options(**self._options, **options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self._directory / "checkpoint"))
        query = (writer.trigger(availableNow=True) if available_now else writer).start(str(self._directory / "rows"))
        try:
            if available_now:
                assert query.awaitTermination(120)
            else:
                query.processAllAvailable()
            return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        finally:
            query.stop()

    def rows(self) -> DataFrame:
        return self._spark.read.parquet(str(self._directory / "rows"))


@pytest.mark.long
def test_spark_goes_on_from_its_checkpoint(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> None:
    topic = filled(bootstrap_servers, 20, 5)
    stream = Stream(spark, bootstrap_servers, topic, tmp_path)
    assert stream.run(maxOffsetsPerTrigger=10, endingOffsets="latest") == [10, 10, 5]
    more(bootstrap_servers, topic, 3)
    assert stream.run() == [3]
    found = sorted((row.partition, row.offset) for row in stream.rows().collect())
    assert found == offsets(0, 23) + offsets(1, 5)
    delete_records(bootstrap_servers, topic, 23)
    more(bootstrap_servers, topic, 2)
    delete_records(bootstrap_servers, topic, 24)
    with pytest.raises(StreamingQueryException, match="expected records from 23 on"):
        stream.run()
    assert stream.run(failOnDataLoss="false") == [1]


@pytest.mark.long
def test_available_now_is_one_batch(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> None:
    topic = filled(bootstrap_servers, 20, 5)
    stream = Stream(spark, bootstrap_servers, topic, tmp_path)
    assert stream.run(available_now=True) == [25]
    more(bootstrap_servers, topic, 3)
    assert stream.run(available_now=True) == [3]
    more(bootstrap_servers, topic, 3)
    assert stream.run(available_now=True, maxOffsetsPerTrigger=2) == [2]
    assert stream.run(available_now=True) == [1]
    assert stream.rows().count() == 31
