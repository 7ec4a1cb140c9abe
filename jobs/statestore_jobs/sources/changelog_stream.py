"""The changelog as a stream: its offsets, how many of them a batch has, and what is no longer there.

An offset of the stream is JSON, which Spark keeps in the query's checkpoint:

    {"topic_id": "...", "offsets": {"0": 120, "1": 7}, "begun": {"0": 100}}

`offsets` are the next to be read, by partition. `begun` is in the first batch's end alone, and says where that batch
begins: Spark does not keep it, and asks again where the stream starts if the query died in its first batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from statestore.errors import InputError, StoreBehindLogStartError, TopicMismatchError
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from statestore_jobs.sources.changelog_ranges import cut
from statestore_jobs.sources.options import flag, number, offsets_by_partition, partition_list, required

#: Options of the stream alone, in the words of Spark's own Kafka source.
STARTING, ENDING, MOST, FAIL = "startingOffsets", "endingOffsets", "maxOffsetsPerTrigger", "failOnDataLoss"
STREAM_OPTIONS = (STARTING, ENDING, MOST, FAIL)

_Offset = dict[str, Any]


class ChangelogStreamReader(DataSourceStreamReader):
    """Reads a log batch by batch.

    Parameters
    ----------
    records
        Reads parts of the log, in the tasks.
    """

    def __init__(self, options: Mapping[str, str], records: DataSourceReader) -> None:
        self._cluster = Cluster(required(options, "bootstrap_servers"))
        self._topic = required(options, "topic")
        self._asked = partition_list(options)
        self._splits = number(options, "splits", 1)
        self._most = number(options, MOST, 1)
        self._fail = flag(options, FAIL, True)
        self._starts = _said(options, STARTING, ("earliest", "latest"), "earliest")
        self._ends = _said(options, ENDING, ("latest",), None)
        self._records = records
        self._begun: _Offset | None = None
        self._last: _Offset | None = None

    def initialOffset(self) -> _Offset:
        """Where the stream starts: where it first said so, unless the query died since."""
        if self._begun is None:
            topic_id, logs = self._logs()
            offsets = {}
            for partition, log in logs.items():
                offsets[partition] = log.start
                if self._starts == "latest":
                    offsets[partition] = log.last_stable
                elif isinstance(self._starts, dict):
                    offsets[partition] = self._starts.get(partition, log.start)
            self._begun = _offset(topic_id, offsets)
        return self._begun

    def latestOffset(self) -> _Offset:
        """Where the next batch ends: where the last one did, if there is nothing to read."""
        before = self._last if self._last is not None else self.initialOffset()
        topic_id, logs = self._logs()
        if self._ends == "latest":
            self._ends = {partition: log.last_stable for partition, log in logs.items()}
        at = self._positions(before, topic_id, logs)
        ends = {partition: max(at[partition], log.last_stable) for partition, log in logs.items()}
        if isinstance(self._ends, dict):
            ends = {one: max(at[one], min(end, self._ends.get(one, at[one]))) for one, end in ends.items()}
        after = _offset(topic_id, _limited(at, ends, self._most))
        if (after["topic_id"], after["offsets"]) == (before["topic_id"], before["offsets"]) and self._last is not None:
            return before
        if self._last is None:
            after["begun"] = before["offsets"]
        self._last = after
        return after

    def partitions(self, start: _Offset, end: _Offset) -> Sequence[InputPartition]:
        """Parts of the log between two offsets. Spark calls it with the last offset twice before a query goes on."""
        self._last = end
        if start == end:
            return []
        begun = start if "begun" not in end else {**start, "topic_id": end["topic_id"], "offsets": end["begun"]}
        topic_id, logs = self._logs()
        if topic_id != end["topic_id"]:
            raise TopicMismatchError(
                f"topic {self._topic} has id {topic_id}, expected {end['topic_id']} of a batch that has begun: it was "
                "deleted and recreated. Start the query with a new checkpoint"
            )
        at = self._positions(begun, topic_id, logs)
        parts: list[InputPartition] = []
        for partition, until in _by_partition(end["offsets"]).items():
            # All up to there was stable when the batch was planned: a leader that says less of its last stable offset
            # has not caught up, and the tasks wait for it.
            if partition in logs and logs[partition].high_watermark < until:
                end_of_log = logs[partition].high_watermark
                self._lost(partition, f"ends at offset {end_of_log}, expected records up to {until}")
                until = end_of_log
            if at.get(partition, until) < until:
                parts += cut(partition, at[partition], until, self._splits)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one part, in offset order."""
        return self._records.read(partition)

    def _logs(self) -> tuple[str, dict[int, LogRange]]:
        """Id of the topic, and the logs of the partitions that are read."""
        topics = self._cluster.topics
        topic = topics.require(self._topic)
        partitions = range(topic.partitions) if self._asked is None else self._asked
        named = [*self._starts] if isinstance(self._starts, dict) else []
        if unknown := sorted({*partitions, *named} - {*range(topic.partitions)}):
            raise TopicMismatchError(
                f"topic {self._topic} has the partitions 0 to {topic.partitions - 1}, asked for: {unknown}"
            )
        logs = topics.log_ranges(TopicPartition(self._topic, partition) for partition in partitions)
        return topic.topic_id, {log.partition: found for log, found in logs.items()}

    def _positions(self, offset: _Offset, topic_id: str, logs: Mapping[int, LogRange]) -> dict[int, int]:
        """Return the offset from which to read each log: that of the stream, or a new partition's first."""
        if offset["topic_id"] != topic_id:
            self._lost(None, f"has id {topic_id}, expected {offset['topic_id']}: it was deleted and recreated")
            return {partition: log.start for partition, log in logs.items()}
        known = _by_partition(offset["offsets"])
        if left_out := sorted(set(known) - set(logs)):
            raise InputError(
                f"option partitions leaves out {left_out}, which the query's checkpoint has. Read them on, or start "
                "the query with a new checkpoint"
            )
        at = {}
        for partition, log in logs.items():
            at[partition] = known.get(partition, 0)
            if at[partition] < log.start:
                self._lost(partition, f"starts at offset {log.start}, expected records from {at[partition]} on")
                at[partition] = log.start
            elif at[partition] > log.high_watermark:
                self._lost(partition, f"ends at offset {log.high_watermark}, expected records from {at[partition]} on")
                at[partition] = log.last_stable
        return at

    def _lost(self, partition: int | None, what: str) -> None:
        if not self._fail:
            return
        where = f"topic {self._topic}" if partition is None else f"partition {partition} of topic {self._topic}"
        error = TopicMismatchError if partition is None else StoreBehindLogStartError
        raise error(
            f"{where} {what}. Records that the stream has not read are lost. Start the query with a new checkpoint, or "
            f"continue without them: .option('{FAIL}', 'false')"
        )


def _said(
    options: Mapping[str, str], name: str, words: Sequence[str], default: str | None
) -> str | dict[int, int] | None:
    text = options.get(name, "").strip()
    if not text:
        return default
    if text.lower() in words:
        return text.lower()
    if not text.startswith("{"):
        raise InputError(
            f"option {name}: expected {', '.join(words)}, or a JSON object of partition to offset, found {text!r}"
        )
    return offsets_by_partition(options, name)


def _offset(topic_id: str, offsets: Mapping[int, int]) -> _Offset:
    return {"topic_id": topic_id, "offsets": {str(partition): offsets[partition] for partition in sorted(offsets)}}


def _by_partition(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}


def _limited(starts: Mapping[int, int], ends: Mapping[int, int], most: int | None) -> dict[int, int]:
    """Return ends that are so many offsets behind the starts at most, each log's share as large as what it has."""
    left = {partition: end - starts[partition] for partition, end in ends.items()}
    total = sum(left.values())
    if most is None or total <= most:
        return dict(ends)
    shares = {partition: most * size // total for partition, size in left.items()}
    rest = most - sum(shares.values())
    for partition in sorted(left, key=lambda one: -left[one])[:rest]:
        shares[partition] += 1
    return {partition: starts[partition] + share for partition, share in shares.items()}
