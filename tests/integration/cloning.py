"""An application and its clone: what both tests of clones do with them, and look at."""

from __future__ import annotations

from typing import Any

from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import committed_offsets
from statestore.kafka.partitioner import partition_of
from tests.integration.broker import T0, consume
from tests.integration.catalogued import CatalogueCommand
from tests.integration.test_repartition import Counting
from tests.integration.test_snapshot_sets import WithSets


class Clones:
    """An application with two partitions, and the clone that a command makes of it."""

    command: CatalogueCommand
    source: WithSets
    target: Counting

    @staticmethod
    def send(application: Any, keys: list[bytes], at: int = T0) -> None:
        for task in range(2):
            application.send([(key, b"1") for key in keys if partition_of(key, 2) == task], task, at)

    @staticmethod
    def rows_of(application: Any) -> list[dict[bytes, Any]]:
        return [application.contents(task) for task in range(2)]

    @property
    def both(self) -> tuple[WithSets, Counting]:
        return self.source, self.target

    def found(self) -> Any:
        """What a clone must leave as it is."""
        logs = [consume(self.source.servers, self.source.changelog, task) for task in range(2)]
        files = {path: path.stat().st_mtime_ns for path in (self.source.state_dir / self.source.name).rglob("*.sst")}
        return logs, files, committed_offsets(Cluster(self.source.servers), self.source.name)

    def assert_recorded_and_nothing_left(self) -> None:
        """The catalogue has the clone's changelog, and the command has left nothing of its own."""
        target = self.target
        entry = self.command.catalogue.entry(target.name)
        assert (entry.topics or {})[target.changelog] == Cluster(target.servers, 60).topics.require(
            target.changelog
        ).topic_id
        own = target.store_spec().paths.own_dir.parent
        assert not [*own.glob("*.json"), *own.glob("*/swap-*"), *own.glob("*/staging"), *own.glob("*/runs/*")]
        assert not [*own.parent.glob(".scratch/*")]

    def assert_goes_on(self) -> None:
        """The clone processes what its input has, and has what the first application has."""
        for task in range(2):
            assert self.target.run(task).failure is None
        values = [[{key: row.value for key, row in rows.items()} for rows in self.rows_of(app)] for app in self.both]
        assert values[0] == values[1]
