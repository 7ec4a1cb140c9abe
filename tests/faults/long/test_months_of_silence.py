"""Applications rest until Kafka has deleted their groups' offsets, on a broker that keeps them for a minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.kafka import Kafka
from demo.processes import Processes
from statestore.kafka.cluster import Cluster
from statestore.tasks.offset_refresh import refresh_offsets
from tests.integration.broker import T0, group_offset, wait_for
from tests.integration.silence import SILENCES, Silence
from tests.integration.support import Application

_SETTINGS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
_EXPIRED_S = 300.0


@pytest.fixture
def forgetful_broker(tmp_path: Path) -> Iterator[str]:
    """A broker that keeps a group's offsets for a minute."""
    with Processes(tmp_path / "processes") as processes:
        kafka = Kafka(processes, tmp_path / "kafka", settings=_SETTINGS)
        yield kafka.start()
        kafka.stop()


class QuietPartition(Silence):
    """A partition has no input for a year, while the other one of the application is busy."""

    def __init__(self, servers: str, directory: Path, guarantee: str) -> None:
        super().__init__(servers, directory, guarantee, partitions=2)

    def before(self) -> None:
        """Count in both partitions."""
        for partition in (0, 1):
            self._count(partition, 3)

    def after(self) -> None:
        """Count in both, after the group's offsets were refreshed once."""
        assert refresh_offsets(Cluster(self.servers, 60).topics, self.application.definition) == 2
        for partition in (0, 1):
            self._count(partition, 0)
            self._count(partition, 2)
            assert {found.value for found in self.application.contents(partition).values()} == {b"5"}

    def _count(self, partition: int, records: int) -> None:
        self.application.send([(b"k", b"1")] * records, partition, T0)
        row = self.application.run(partition)
        assert (row.failure, row.records_in) == (None, records)


@pytest.mark.share_for(why="one wait for all")
def test_whatever_has_rested_until_its_offsets_had_expired_continues_where_it_was(
    forgetful_broker: str, tmp_path: Path
) -> None:
    guarantees = ("exactly_once_v2", "at_least_once")
    resting = [
        kind(forgetful_broker, tmp_path / f"{kind.__name__}-{guarantee}", guarantee)
        for kind in (*SILENCES, QuietPartition)
        for guarantee in guarantees
    ]
    for silence in resting:
        silence.before()

    def expired(application: Application) -> bool:
        partitions = range(application.partitions)
        offsets = [group_offset(forgetful_broker, application.name, application.input, at) for at in partitions]
        return max(offsets) < 0

    for silence in resting:
        wait_for(lambda: expired(silence.application), f"offsets of {type(silence).__name__} to expire", _EXPIRED_S)  # noqa: B023
    for silence in resting:
        silence.after()
