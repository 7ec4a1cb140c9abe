"""The oracle of an archive: what each snapshot holds, and what a restore gives that begins with one.

Each snapshot is a fact: its files are the fold of the changelog up to its offset. So a restore on an empty disk, from
the newest one or as is cheapest, gives the fold of the whole changelog, and deep verification agrees.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from statestore.archive.contents import all_histories, archived_snapshots, check_archive
from statestore.archive.fetch import fetch
from statestore.archive.manifest import Manifest
from statestore.archive.pins import pins
from statestore.definitions.store import StoreDefinition
from statestore.model import changelog_topic
from statestore.objects.store import ObjectStore
from statestore.recovery.restore import RestoreSpec, restore
from statestore.reports import RestoreRow, Status
from statestore.requests.restore import RestoreRequest
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.faults.oracle import assert_same, folded_log
from tests.faults.subject import Subject
from tests.integration.broker import Logged
from tests.oracle.rows import unexpired

RUN_BYTES = 16_384
DEEP = VerifyOptions("deep")


class ArchiveOracle:
    """Looks at the archive of an application of one task, again and again.

    Attributes
    ----------
    facts
        How many snapshots were compared with their log.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._seen: set[str] = set()
        self.facts = 0

    @property
    def objects(self) -> ObjectStore:
        """What is in the archive."""
        assert self._subject.archive is not None
        return ObjectStore(self._subject.archive)

    def check(self, modes: Sequence[str] = ("snapshot",), restored: Sequence[str] | None = None) -> None:
        """Check all snapshots, the live stores, and what is restored from the archive in each of these modes.

        Parameters
        ----------
        restored
            Names of the stores that are verified and restored; None: all.
        """
        subject, stores = self._subject, self._subject.definition.stores
        (spec,) = subject.specs()
        logs, usable = self.check_rows_and_snapshots()
        chosen = [store for store in stores if restored is None or store.name in restored]
        for store in chosen:
            row = verify(spec.store_partition(store.name), DEEP)
            assert row.status is Status.OK, f"{store.name} is {row.status}: {row.detail}"
        for mode in modes:
            for store in chosen:
                row = self.restored_elsewhere(store.name, mode)
                if mode == "snapshot":  # O8
                    assert (row.mode == "snapshot") is (store.name in usable), f"{store.name} was restored by {row}"
                self._check_rows(store, logs[store.name], subject.directory / "elsewhere")
            shutil.rmtree(subject.directory / "elsewhere")

    def check_rows_and_snapshots(self) -> tuple[dict[str, list[Logged]], set[str]]:
        """Check all snapshots and the live stores; return the logs, and which stores have a usable snapshot."""
        stores = self._subject.definition.stores
        logs = {store.name: self._log(store) for store in stores}
        usable = self._check_snapshots(logs)
        for store in stores:
            self._check_rows(store, logs[store.name], None)
        return logs, usable

    def restored_elsewhere(self, store: str, mode: str) -> RestoreRow:
        """Restore a store on an empty disk, and verify it deeply."""
        (spec,) = self._subject.specs(state_dir=self._subject.directory / "elsewhere")
        there = spec.store_partition(store)
        row = restore(RestoreSpec(there, RestoreRequest.read({"mode": mode}), "elsewhere", RUN_BYTES, publish=False))
        assert row.failure is None, f"O5: {store} was not restored: {row.failure}"
        found = verify(there, DEEP)
        assert found.status is Status.OK, f"O5: {store}, restored by {row.mode}, is {found.status}: {found.detail}"
        return row

    def snapshots(self, store: str) -> list[Manifest]:
        """Return a store's usable snapshots, the newest first."""
        found = archived_snapshots(self.objects, all_histories(self.objects))
        return [
            one.manifest
            for one in found
            if one.manifest is not None and one.state == "usable" and one.manifest.definition.name == store
        ]

    def _log(self, store: StoreDefinition) -> list[Logged]:
        topic = changelog_topic(self._subject.name, store.name)
        return self._subject.logged(topic)[topic, 0][0]

    def _check_rows(self, store: StoreDefinition, log: Sequence[Logged], state_dir: Path | None) -> None:
        (task,) = self._subject.tasks
        expected, now = folded_log(store, log)
        found = unexpired(store, self._subject.stored(task, store.name, state_dir)[0], now)
        where = "live" if state_dir is None else "O5: restored"
        assert_same(self._subject, store, found, expected, f"{where}: {store.name} is not its changelog's fold")

    def _check_snapshots(self, logs: dict[str, list[Logged]]) -> set[str]:
        """Check what is in the archive; return the stores that have a usable snapshot."""
        objects = self.objects
        broken = check_archive(objects).broken
        assert broken == {}, f"snapshots that cannot be used: {broken}"
        live, usable = set(), set()
        for found in archived_snapshots(objects, all_histories(objects)):
            assert found.manifest is not None
            place, store = found.listed.directory.snapshot(found.listed.name), found.manifest.definition
            live.add(place)
            if found.state == "usable":
                usable.add(store.name)
            if place not in self._seen:
                self._check_fact(objects, store, found.manifest, logs[store.name])
                self._seen.add(place)
        for pin in pins(objects):
            assert live >= set(pin.snapshots), f"pin {pin.name} has lost {set(pin.snapshots) - live}"
        return usable

    def _check_fact(
        self, objects: ObjectStore, store: StoreDefinition, manifest: Manifest, log: Sequence[Logged]
    ) -> None:
        (task,), state_dir = self._subject.tasks, self._subject.directory / "snapshot"
        paths = self._subject.paths(task, state_dir)
        fetch(objects, manifest, paths.live(store), {})
        for name, text in manifest.own.items():
            if not name.startswith("segments/"):
                continue
            kept = paths.own_dir / "segments" / store.name / name.partition("/")[2]
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(text)
        rows, committed = self._subject.stored(task, store.name, state_dir)
        shutil.rmtree(state_dir)
        told = -1 if manifest.committed is None else manifest.committed
        below = [record for record in log if record.offset <= told]
        expected, now = folded_log(store, below)
        what = f"snapshot {manifest.name} of {store.name} is not its changelog's fold"
        assert_same(self._subject, store, unexpired(store, rows, now), expected, what)
        assert committed == manifest.committed, f"snapshot {manifest.name} of {store.name} has offset {committed}"
        self.facts += 1
