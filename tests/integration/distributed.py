"""A restore whose pieces of work each run on a node of their own, with nothing but the archive in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from statestore.archive.archive import archive_spec
from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.many import restore_many
from statestore.recovery.spec import RestoreSpec
from statestore.reports import RestoreRow
from statestore.requests.restore import RestoreRequest
from tests.integration import broker
from tests.integration.archived import TINY_RUN, Archived
from tests.integration.broker import Row
from tests.integration.support import Application


class Nodes:
    """Runs pieces one after the other, each on the disk of another node.

    Attributes
    ----------
    ran
        What was done with how many pieces, such as `_read_log_range`.
    before
        Called before pieces are run, with what is done and with them.
    """

    def __init__(self, directory: Path, before: Callable[[str, Sequence[Any]], None] = lambda *_: None) -> None:
        self.directory = directory
        self.before = before
        self.ran: list[tuple[str, int]] = []

    def __call__(self, pieces: Sequence[Any], work: Callable[[Any], Any], *_: Any) -> list[Any]:
        name = work.__name__
        self.before(name, pieces)
        self.ran.append((name, len(pieces)))
        return [work(self._moved(piece, f"{name}-{number}")) for number, piece in enumerate(pieces)]

    def parts(self) -> dict[str, int]:
        """Return how many ranges of the log were read, and ranges of keys were merged."""
        return {name: count for name, count in self.ran if name in ("_read_log_range", "_merge_key_range")}

    def _moved(self, piece: Any, node: str) -> Any:
        if isinstance(piece, list):
            return [self._moved(one, node) for one in piece]
        if isinstance(piece, StorePartitionSpec):
            return piece.model_copy(update={"state_dir": self.directory / node.lstrip("_") / "state"})
        if isinstance(piece, RestoreSpec):
            return piece._replace(store=self._moved(piece.store, node))
        return piece._replace(spec=self._moved(piece.spec, node))


class DistributedRestore(NamedTuple):
    """A restore of one store partition."""

    spec: RestoreSpec
    directory: Path

    def run(self, nodes: Nodes | None = None) -> RestoreRow:
        """Restore it, whatever comes of it."""
        (row,) = restore_many([self.spec], nodes or Nodes(self.directory), self.directory / "progress")
        return row

    @property
    def there(self) -> StorePartitionSpec:
        """The store partition on the node that gets it."""
        return self.spec.store.model_copy(update={"state_dir": self.directory / "restore_tasks-0" / "state"})


def run_distributed(restore: DistributedRestore) -> RestoreRow:
    """Restore it in a process that may be killed."""
    return restore.run()


class Distributed(Archived):
    """An application of which there is nothing but a changelog, on nodes with a disk each."""

    def __init__(self, servers: str, directory: Path, store: StoreDefinition, rows: Sequence[Row]) -> None:
        Application.__init__(self, servers, directory, stores=[store], processor="echo")
        found = archive_spec(f"file://{directory}/archive", 10, Cluster(servers, 60).topics)
        assert found is not None
        self.archive = found.model_copy(update={"node_local": True})
        self.directory = directory
        self.log(rows)

    def log(self, rows: Sequence[Row]) -> None:
        """Add records to the changelog."""
        broker.transaction(self.servers, self.changelog, rows)

    def distributed(
        self, label: str = "run", *, ranges: int = 3, run_bytes: int = TINY_RUN, **how: Any
    ) -> DistributedRestore:
        """Plan a restore of the store partition of task 0_0 in so many ranges."""
        request = RestoreRequest(**how)
        spec = RestoreSpec(self.store_spec(archive=self.archive), request, label, run_bytes, ranges=ranges)
        return DistributedRestore(spec, self.directory / label)

    def builds(self) -> list[str]:
        """Objects of builds in the archive."""
        return sorted(found.name for found in self.objects.entries("builds"))
