"""Proves which offsets of its topic's partitions a global table equals: each partition has its own.

A key belongs to the partition that has its records. If several partitions have a key, Kafka Streams applies their
records in an unknown order, so this key is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from statestore.bulk.digest import Digest
from statestore.bulk.routing import routing_of
from statestore.compiled.batches import Int64s
from statestore.errors import unreadable_is_damaged
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.closed import Database, scanned
from statestore.verification.proof.kernels import KEY_BYTES, PRINT, RUNS_OF_MEMORY, SEGMENT, SHARED, STORED
from statestore.verification.proof.key_table import KeyTable
from statestore.verification.proof.prefix import Prefix, find_prefix
from statestore.verification.proof.records import LogRecords


class GlobalProof(NamedTuple):
    """The position of a global table in each partition of its topic, as its rows show it.

    Attributes
    ----------
    prefixes
        By partition, the offsets that its keys equal.
    without_record
        Rows whose keys have no record in any partition.
    shared
        Keys that several partitions have. They are not judged.
    digest
        Digest of all rows.
    """

    prefixes: Mapping[TopicPartition, Prefix]
    without_record: int
    shared: int
    digest: Digest

    @property
    def is_prefix(self) -> bool:
        """True if all rows are those of their partitions' committed records at some offsets."""
        settled = not any(found.by_optional or found.orphans for found in self.prefixes.values())
        return settled and self.may_be_prefix

    @property
    def may_be_prefix(self) -> bool:
        """True if all rows are those of their partitions' records, also of open transactions, at some offsets."""
        return not self.without_record and all(found.is_prefix for found in self.prefixes.values())

    @property
    def unproven(self) -> int:
        """Number of keys that compaction leaves unproven at the last offsets that the rows equal."""
        return sum(found.doubts.count_at(found.offsets[-1].last) for found in self.prefixes.values() if found.offsets)


def prove_global(
    spec: StorePartitionSpec, logs: Mapping[TopicPartition, LogRange], options: VerifyOptions, place: Database
) -> GlobalProof | None:
    """Find the offsets of its topic's partitions that a global table equals; None if its keys need too much memory.

    Parameters
    ----------
    logs
        Offsets of these partitions, asked for after the database was closed or linked.
    place
        The closed database, or an open view of a live one.

    Raises
    ------
    StoreCorruptedError
        If a row cannot be read.
    StoreBehindLogStartError
        If a log's start has moved since it was asked for.
    """
    values = spec.store.values
    table, digest = KeyTable(routing_of(spec.store), values), Digest(values)
    with unreadable_is_damaged(), scanned(spec, place) as database:
        if database.entries() * KEY_BYTES > RUNS_OF_MEMORY * options.run_bytes:
            return None
        for batch in database.rows():
            options.give_way()
            options.pace(batch.nbytes)
            table.add_rows(0, batch)
            digest.add_stored(*batch.columns)
    numbers = {partition: number for number, partition in enumerate(logs, 1)}  # 0: no record so far
    missing: dict[TopicPartition, Int64s] = {}
    for partition, log in logs.items():
        log_records = LogRecords(spec, log, options, partition)
        for records in log_records:
            table.take(records.columns, required=records.required, log_start=log.start, home=numbers[partition])
        missing[partition] = log_records.missing
    found = table.found
    prefixes = {
        partition: find_prefix(found, max(log.last_stable, log.high_watermark), numbers[partition], missing[partition])
        for partition, log in logs.items()
    }
    homes, stored = (found.facts[:, column] for column in (SEGMENT, PRINT))
    without_record = int(((homes == 0) & (stored & STORED != 0)).sum()) + table.misplaced
    return GlobalProof(prefixes, without_record, int(np.count_nonzero(homes == SHARED)), digest)
