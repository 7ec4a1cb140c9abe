"""Applications that have an archive."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from statestore.archive.archive import ArchiveSpec, archive_spec
from statestore.archive.snapshots import histories, history
from statestore.kafka.cluster import Cluster
from statestore.objects.store import ObjectStore
from statestore.recovery.restore import restore
from statestore.reports import ProcessRow, RestoreRow
from tests.integration.support import STORE, Application

TINY_RUN = 1_000
ROWS = [(b"key-%03d" % number, b"value") for number in range(200)]


class Archived(Application):
    """An application whose snapshots are in a directory."""

    def __init__(self, servers: str, directory: Path, **settings: Any) -> None:
        super().__init__(servers, directory, **settings)
        found = archive_spec(f"file://{directory}/archive", 10, Cluster(servers, 60).topics)
        assert found is not None
        self.archive: ArchiveSpec = found

    def run(self, partition: int = 0, **changes: Any) -> ProcessRow:
        """Run a task, and publish."""
        return super().run(partition, **{"archive": self.archive, **changes})

    def restored(self, mode: str = "snapshot", **how: Any) -> RestoreRow:
        """Restore the store partition of task 0_0, which must succeed."""
        row = restore(self.restore_spec(mode, archive=self.archive, **how))
        assert row.failure is None, row.failure
        return row

    @property
    def objects(self) -> ObjectStore:
        """What is in the archive."""
        return self.archive.open()

    def snapshots(self) -> list[str]:
        """Names of the first store's usable snapshots, the newest first."""
        (directory,) = {found for found in self.directories() if found.store_partition.store == STORE}
        return [str(found.name) for found in history(self.objects, directory).usable]

    def directories(self) -> list[Any]:
        """Where its snapshots are."""
        return list(histories(self.objects, self.archive.cluster, self.name))

    def lose_all(self) -> None:
        """Lose the node: stores and all that is known of them."""
        shutil.rmtree(self.state_dir)

    def log_end(self) -> int:
        """Where the first store's changelog ends, exclusive."""
        partition = self.store_spec().partition
        return Cluster(self.servers, 60).topics.log_ranges([partition])[partition].high_watermark
