"""A store and its changelog, filled and damaged as a test likes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from demo.processes import wait_until
from statestore.changelog.reader import ChangelogReader
from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.kafka.writer import TransactionalWriter
from statestore.model import StorePartition, TaskId
from statestore.statedir.paths import TaskPaths
from statestore.stores.open import open_key_value_store

#: Key, value (None deletes) and timestamp of a record.
Record = tuple[bytes | None, bytes | None, int]


@dataclass(frozen=True)
class LoggedStore:
    """A store and its changelog, each under the test's hand."""

    application: ApplicationDefinition
    settings: Settings
    partitions: int

    @property
    def definition(self) -> StoreDefinition:
        """Definition of the only store."""
        return self.application.stores[0]

    @property
    def topic(self) -> str:
        """The changelog topic."""
        return self.part(0).changelog.topic

    def part(self, partition: int) -> StorePartition:
        """One store partition."""
        return StorePartition(self.application.name, self.definition.name, TaskId(0, partition))

    def paths(self, partition: int) -> TaskPaths:
        """Paths of its task."""
        return TaskPaths(self.settings.state_dir, self.application.name, TaskId(0, partition))

    def directory(self, partition: int) -> Path:
        """Directory of its database."""
        return self.paths(partition).store(self.definition.name)

    def log(self, partition: int, records: list[Record], *, abort: bool = False) -> None:
        """Append records in one transaction."""
        writer = TransactionalWriter(self.settings.cluster, f"{self.application.name}-{partition}")
        writer.init()
        writer.begin()
        for key, value, timestamp in records:
            writer.produce(self.topic, key, value, timestamp, partition)
        if abort:
            writer.flush()
            writer.abort()
        else:
            writer.commit()
        wait_until(self._is_stable, 120, "the transaction's markers")

    def _is_stable(self) -> bool:
        # Kafka confirms a commit before the markers are in the log.
        partitions = [self.part(partition).changelog for partition in range(self.partitions)]
        ranges = self.settings.cluster.topics.log_ranges(partitions)
        return all(found.last_stable == found.high_watermark for found in ranges.values())

    def catch_up(self, partition: int) -> None:
        """Apply the whole changelog to the store and commit the offset of its last record."""
        changelog = self.part(partition).changelog
        end = self.settings.cluster.topics.log_ranges([changelog])[changelog].last_stable
        store = open_key_value_store(self.definition, self.directory(partition))
        with ChangelogReader(self.settings.cluster, changelog) as reader:
            offset = None
            for messages in reader.read_messages(0, end):
                for message in messages:
                    offset = message.offset()
                    if message.key() is not None:
                        store.apply_changelog([message.key()], [message.value()], [message.timestamp()[1]])
        store.commit({} if offset is None else {changelog: offset})
        store.close()

    def forget(self, partition: int, before: int) -> None:
        """Remove the changelog's records before an offset."""
        admin = AdminClient({"bootstrap.servers": self.settings.bootstrap_servers})
        for future in admin.delete_records([KafkaTopicPartition(self.topic, partition, before)]).values():
            future.result(30)

    def change(self, partition: int, records: list[Record], committed: int | None = None) -> None:
        """Change the store behind its changelog's back."""
        store = open_key_value_store(self.definition, self.directory(partition))
        for key, value, timestamp in records:
            assert key is not None
            store.apply_changelog([key], [value], [timestamp])
        store.commit({} if committed is None else {self.part(partition).changelog: committed})
        store.close()

    def rows(self, partition: int) -> list[tuple[int, bytes, bytes, int | None]]:
        """The store's rows as the library reads them: partition, key, value, timestamp."""
        store = open_key_value_store(self.definition, self.directory(partition), read_only=True)
        try:
            return [
                (partition, key, row.value, row.timestamp)
                if isinstance(row, ValueAndTimestamp)
                else (partition, key, row, None)
                for key, row in store.range()
            ]
        finally:
            store.close(clean=False)
