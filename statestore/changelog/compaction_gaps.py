"""Offsets of a log that hold nothing any more: what compaction has removed."""

from __future__ import annotations

from contextlib import closing

from statestore.kafka.cluster import Cluster
from statestore.kafka.partition_fetcher import PartitionFetcher
from statestore.kafka.record_batch import split
from statestore.model import TopicPartition


def holes(
    cluster: Cluster,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    enough: int | None = None,
) -> int | None:
    """Count the offsets with `start <= offset < end` that hold neither a record nor a transaction's marker.

    Records of aborted transactions count as there. Only heads of record batches are looked at, so that a hole in a
    batch that reaches beyond the end counts, too, wherever it is.

    Parameters
    ----------
    enough
        Stop once so many are found; None: count all.

    Returns
    -------
    int or None
        None where the brokers cannot be asked for record batches (see `can_fetch`).

    Raises
    ------
    StoreBehindLogStartError
        If the log begins behind `start`.
    """
    if not cluster.can_fetch:
        return None
    found, position = 0, start
    fetcher = PartitionFetcher(cluster, partition, read_committed=False)
    with closing(fetcher):
        while position < end and (enough is None or found < enough):
            fetched = fetcher.fetch(position, end)
            if not len(fetched.records):
                return found + end - position
            for batch in split(fetched.records, partition):
                if batch.base_offset >= end:
                    return found + max(end - position, 0)
                found += max(batch.base_offset - position, 0)  # between the batches
                found += batch.last_offset + 1 - batch.base_offset - batch.record_count  # in this one
                position = max(batch.last_offset + 1, position)
    return found
