"""Undoes as the command does them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from statestore import clock
from statestore.config import Settings
from statestore.discovery.partitions import store_partition_specs
from statestore.kafka.cluster import Cluster
from statestore.metastore.adoption import adoption_hooks
from statestore.metastore.metastore import Metastore
from statestore.rewrite.undo import Undone, UndoPlan, UndoSpec, undo


class Undoing(NamedTuple):
    """What is done."""

    servers: str
    service_id: str
    application: str
    state_dir: Path
    store: str | None = None
    accept_loss: bool = False

    def carry_out(self, asked: Callable[[UndoPlan], None] = lambda _: None) -> list[Undone]:
        metastore = Metastore(Cluster(self.servers, 60), self.service_id)
        definition = metastore.view().catalogue.entry(self.application).definition
        settings = Settings(
            bootstrap_servers=self.servers,
            state_dir=self.state_dir,
            reports_dir=self.state_dir.with_name("reports"),
            data_docs_dir=self.state_dir.with_name("data_docs"),
        )
        stores = store_partition_specs(settings, Cluster(self.servers, 60).topics, [definition])
        tasks = sorted({store.task for store in stores})
        spec = UndoSpec(stores, self.store, self.accept_loss, 1 << 24, clock.now_ms(), tasks)
        with undo(spec, adoption_hooks(metastore, self.application, lambda _: None)) as work:
            asked(work.plan)
            return work.carry_out()


def run_undo(work: Undoing) -> None:
    """Do it; in a child process that is killed."""
    work.carry_out()
