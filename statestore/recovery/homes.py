"""What a restore does differently if the home of a store is the archive: its disks have copies."""

from __future__ import annotations

import logging
from pathlib import Path

from statestore.archive.grown_from import beginning, continuing
from statestore.partition.archived import known_of
from statestore.partition.facts import RebuildLoss
from statestore.partition.generations import built_from_log, newest_generation, superseded
from statestore.partition.home import Copy
from statestore.partition.reinstating import keep_replaced, replaced_by
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.sources.source import Work
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Loss
from statestore.statedir.record import read_record, restored_by
from statestore.statedir.sidecar import Judgement, read_text
from statestore.verification.check import examine
from statestore.verification.options import VerifyOptions

_log = logging.getLogger(__name__)
_OFFSETS = VerifyOptions(depth="offsets")


class DiskHome:
    """Where a store is put in place, and what becomes of the one that it replaces: both are on this disk."""

    def __init__(self, store: StorePartitionSpec) -> None:
        self._store = store

    def done_before(self, spec: RestoreSpec) -> dict[str, object]:
        """Return figures of a healthy store: whether an earlier attempt of this restore put it there.

        That attempt may have ended before its report, and then it would not be known what is to be validated.
        """
        return done_on_disk(spec)

    def replaced_verdict(self, work: Work) -> Judgement:
        """Return how the store that is replaced on this disk was judged."""
        return work.plan.replaced

    def keep_replaced(self, work: Work) -> str | None:
        """Keep the replaced snapshot, if there is one, and return its name: here, the old store waits in quarantine."""
        return None

    def kept(self, quarantine: Path | None) -> str | None:
        """Return where the replaced store is, if it may be put back from there."""
        return None if quarantine is None else str(quarantine)

    def lineage(self, work: Work, begins: str) -> str | None:
        """Return which snapshots those of the new store follow; None: those of its log.

        Parameters
        ----------
        begins
            Why they begin a generation; empty if they do not.
        """
        store, snapshot = self._store, work.snapshot
        if work.plan.mode == "tail":
            return read_text(store.paths.snapshot(store.store.name))
        if begins:
            return beginning(begins, _generation(work), by_hand=snapshot is not None)
        return self.lineage_of_log() if snapshot is None else continuing(store.snapshot_archive.url, snapshot)

    def lineage_of_log(self) -> str | None:
        """Return which snapshots those of a store follow that was built from its log."""
        return None


class ArchiveHome(DiskHome):
    """The store is its newest snapshot, and the one on this disk is a copy."""

    def done_before(self, spec: RestoreSpec) -> dict[str, object]:
        """Return whether an earlier attempt of this restore published the newest snapshot."""
        newest, replaced = known_of(spec.store), replaced_by(spec.store, spec.label)
        if newest is None or (newest.record.restored_by != spec.label and replaced in (None, str(newest.name))):
            return {"outcome": "skipped"}
        return {"outcome": "restored", "replaced": replaced}

    def replaced_verdict(self, work: Work) -> Judgement:
        """Judge the copy on this disk, which was not looked at before."""
        _, copy = examine(self._store, _OFFSETS)
        # Another store may count in its place, and then its log does not give it.
        loss = copy.loss or RebuildLoss(Loss.UNPROVEN)
        lost = loss.loss if superseded(self._store) is None else Loss.UNPROVEN
        return Judgement(copy.status, lost, loss.why or "it was a copy, and not all is known of it")

    def keep_replaced(self, work: Work) -> str | None:
        """Pin the snapshot that counts, if the new store does not continue it."""
        if not work.spec.publish:
            return None
        newest, base = known_of(self._store), work.snapshot  # another node may have published one since
        if newest is None or (base is not None and newest.name == base.name):
            return None
        return keep_replaced(self._store, newest, work.spec.label)

    def kept(self, quarantine: Path | None) -> str | None:
        """Return None: what lay here was a copy of what was replaced, or of an older store."""
        return None

    def lineage_of_log(self) -> str | None:
        """Return the newest generation."""
        return built_from_log(self._store)


_HOMES = {Copy.DISK: DiskHome, Copy.SNAPSHOT: ArchiveHome}


def home_of(store: StorePartitionSpec) -> DiskHome:
    """Return the home of a store partition."""
    return _HOMES[store.home.copy](store)


def done_on_disk(spec: RestoreSpec) -> dict[str, object]:
    """Return whether an earlier attempt of a restore put the store on this disk."""
    paths, name = spec.store.paths, spec.store.store.name
    quarantine = paths.quarantine(name, spec.label)
    if quarantine.exists():
        return {"outcome": "restored", "quarantine": str(quarantine)}
    return {"outcome": "restored" if restored_by(read_record(paths, name)) == spec.label else "skipped"}


def _generation(work: Work) -> int:
    """Return the newest generation, as it was when the restore was planned."""
    history = work.facts.known_archive.history
    return newest_generation(work.store) if history is None else history.generation
