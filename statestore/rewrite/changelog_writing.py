"""Writing rows as the records of a changelog that nobody owns yet, after earlier processes were fenced."""

from __future__ import annotations

from collections.abc import Iterable

from statestore.changelog.writer import AtLeastOnceWriter, RecordWriter, TransactionalWriter
from statestore.model import transactional_id
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.rows import Records

#: Bytes that are produced before it is waited until they are acknowledged.
_UNACKNOWLEDGED_BYTES = 16 * 1024 * 1024


class NewChangelogWriter:
    """Writes the records of one changelog, some of them ahead of what is acknowledged.

    Parameters
    ----------
    name
        Of the producer, for errors.
    max_batch_bytes
        `max.message.bytes` of the topic.
    """

    def __init__(self, store: StorePartitionSpec, topic: str, name: str, max_batch_bytes: int) -> None:
        self._topic = topic
        self._writer = AtLeastOnceWriter(store.bootstrap_servers, name, store.kafka_timeout_s, max_batch_bytes)
        self._writer.begin()
        self._unacknowledged = 0

    def write(self, partition: int, records: Records, size: int) -> None:
        """Write records of so many bytes to a partition.

        Raises
        ------
        StateStoreError
            If one is not taken, or one before was not.
        """
        produce(self._writer, self._topic, partition, records)
        self._unacknowledged += size
        if self._unacknowledged >= _UNACKNOWLEDGED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Wait until all are acknowledged."""
        self._writer.flush()
        self._unacknowledged = 0

    def close(self) -> None:
        """Give back what it holds."""
        self._writer.close()


def produce(writer: RecordWriter, topic: str, partition: int, records: Records) -> None:
    """Hand records to a producer."""
    writer.produce_many(
        topic,
        partition,
        records.keys.to_pylist(),
        records.values.to_pylist(),
        records.timestamps.tolist(),
        records.headers,
    )


def fence(stores: Iterable[StorePartitionSpec]) -> None:
    """Keep processes that still take the tasks of our own applications for theirs from committing."""
    for store in stores:
        if store.owned and store.exactly_once:
            name = transactional_id(store.application, store.task)
            writer = TransactionalWriter(store.bootstrap_servers, name, store.kafka_timeout_s)
            try:
                writer.init()
            finally:
                writer.close()
