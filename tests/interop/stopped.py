"""A stopped application of Kafka Streams, in the hands of the command: chosen, verified, restored."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from kafka_streams import KafkaStreams, Store

from statestore.cli.known_stores import keep
from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.selection import Chosen, PartitionSelection, Where, choose
from statestore.cli.verification import rows_without_work, verify_all
from statestore.definitions.fields import Guarantee
from statestore.kafka.topics import Topics
from statestore.reports import RestoreRow, VerifyRow
from statestore.verification.options import Depth, VerifyOptions
from tests.integration.restored import restored_here


@dataclass(frozen=True)
class Stopped:
    """A stopped application, and a state directory of it."""

    app: KafkaStreams
    state_dir: Path
    guarantee: Guarantee = "exactly_once_v2"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, str]:
        """Settings that Kafka Streams runs with."""
        return {"processing.guarantee": self.guarantee, **self.settings}

    @property
    def directory(self) -> Path:
        """Where its tasks are."""
        return self.state_dir / self.app.application_id

    @property
    def topics(self) -> Topics:
        """Kafka, as the command asks it."""
        return self.app.cluster.topics

    def databases(self, store: Store) -> list[Path]:
        """Directories of RocksDB of a store's first partition, in order of time."""
        if store.kind == "kv":
            return [*self.directory.glob(f"*_0/rocksdb/{store.name}")]
        segments = self.directory.glob(f"*_0/{store.name}/*")
        return sorted(segments, key=lambda path: int(path.name.rpartition(".")[2]))

    def copy(self, state_dir: Path) -> Self:
        """Copy the directory, so that the copy can be written to."""
        shutil.copytree(self.state_dir, state_dir)
        return self.at(state_dir)

    def at(self, state_dir: Path) -> Self:
        """The same application with another directory."""
        return replace(self, state_dir=state_dir)

    def chosen(self, *stores: str, **changes: Any) -> Chosen:
        """Choose stores; each may come with what is said of it."""
        where = Where(self.app.cluster, self.state_dir)
        asked = {"applications": [self.app.application_id], "stores": stores, "guarantee": self.guarantee, **changes}
        return choose(PartitionSelection(where, **asked), self.topics)

    def verified(self, *stores: str, depth: Depth = "scan") -> dict[str, VerifyRow]:
        """Verify stores, of one partition each."""
        return {row.store: row for row in self._rows(self.chosen(*stores), depth)}

    def keep_known(self) -> None:
        """Verify all stores, and keep what was found out about them, as the command does."""
        chosen = self.chosen()
        keep(chosen, self.state_dir, self._rows(chosen, "scan"))

    def _rows(self, chosen: Chosen, depth: Depth) -> list[VerifyRow]:
        chosen.require_known()
        return [*verify_all(chosen.specs, VerifyOptions(depth)), *rows_without_work(chosen, self.topics)]

    def restored(self, *stores: str, **how: Any) -> Sequence[RestoreRow]:
        """Restore stores, none of which may fail."""
        rows = restored_here(stores_to_restore(self.chosen(*stores), self.topics), **how)
        assert [row.failure for row in rows] == [None] * len(rows), [row.failure for row in rows]
        return rows
