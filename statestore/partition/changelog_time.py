"""Stream time in the log of a window or session store, from its last records."""

from __future__ import annotations

from statestore.changelog.reader import LogReader
from statestore.changelog.topics import LogRange
from statestore.errors import StoreCorruptedError
from statestore.partition.spec import StorePartitionSpec

#: Offsets that are looked at: any record tells a time that is not too late.
_LAST = 500


def stream_time_at_least(spec: StorePartitionSpec, log: LogRange) -> int | None:
    """Return the largest time (ms) in the row keys of a log's last records; None if it has none there.

    Timestamps would not tell: those of transaction markers are of the wall clock.

    Raises
    ------
    StoreBehindLogStartError
        If the log's start moves meanwhile.
    KafkaUnavailableError
        If Kafka does not answer.
    """
    latest = None
    with LogReader(spec.bootstrap_servers, spec.partition, stall_timeout_s=spec.kafka_timeout_s) as reader:
        for batch in reader.read(max(log.start, log.last_stable - _LAST), log.last_stable):
            for key in batch.column(0).to_pylist():
                found = None if key is None else _row_time(spec, key)
                if found is not None and (latest is None or found > latest):
                    latest = found
    return latest


def _row_time(spec: StorePartitionSpec, row_key: bytes) -> int | None:
    try:
        return spec.store.store_kind.row_time(row_key)
    except StoreCorruptedError:  # no row of such a store, and it tells no time
        return None
