"""Restores of an application to a point as the command does them, without Spark: no suite is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from statestore import clock
from statestore.archive.archive import ArchiveSpec
from statestore.cli.point_command import PointAsked, found_point
from statestore.config import Settings
from statestore.discovery.partitions import store_partition_specs, tasks_of
from statestore.kafka.cluster import Cluster
from statestore.metastore.adoption import adoption_hooks
from statestore.metastore.metastore import Metastore
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.point_restore import PointPlan, PointSpec, require_restorable, restore_to_point
from statestore.rewrite.staged_stores import Rewritten


class PuttingBack(NamedTuple):
    """What is done: to a time (ms), or to a set of an archive."""

    servers: str
    service_id: str
    application: str
    state_dir: Path
    to: int | str
    archive: ArchiveSpec | None = None

    @property
    def metastore(self) -> Metastore:
        return Metastore(Cluster(self.servers, 60), self.service_id)

    def carry_out(
        self,
        judge: Callable[[Sequence[StorePartitionSpec]], None] = lambda _: None,
        asked: Callable[[PointPlan], None] = lambda _: None,
    ) -> list[Rewritten]:
        definition = self.metastore.view().catalogue.entry(self.application).definition
        settings = Settings(
            bootstrap_servers=self.servers,
            state_dir=self.state_dir,
            reports_dir=self.state_dir.with_name("reports"),
            data_docs_dir=self.state_dir.with_name("data_docs"),
        )
        topics = Cluster(self.servers, 60).topics
        stores = store_partition_specs(settings, topics, [definition])
        stores = [store.model_copy(update={"archive": self.archive, "lock_wait_s": 1}) for store in stores]
        require_restorable(definition, stores)
        point = PointAsked(str(self.to), self.archive, clock.now_ms(), dry_run=False, yes=True, json=None)
        with ExitStack() as held:
            spec = PointSpec(
                definition=definition,
                name=f"point {self.to}",
                find=lambda scratch: found_point(held, topics, definition, stores, point, scratch, 1 << 24),
                stores=stores,
                tasks=tasks_of(topics, definition),
                run_bytes=1 << 24,
                started_ms=point.started_ms,
            )
            hooks = adoption_hooks(self.metastore, self.application, judge)
            with restore_to_point(spec, hooks, lambda pieces, work, *_: [work(piece) for piece in pieces]) as work:
                asked(work.plan)
                return work.carry_out()


def run_restore_to_point(work: PuttingBack) -> None:
    """Do it; in a child process that is killed."""
    work.carry_out()
