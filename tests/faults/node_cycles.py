"""Cycles on nodes with a disk each: work that is killed or stopped on one, done to its end on another, and the oracle.

A cycle is drawn from the seed: a task that processes and publishes, or a restore. It is killed at a point or at any
moment, or stopped and woken when another node has done the work. Copies on the nodes are lost and damaged meanwhile.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from statestore.definitions.fields import Engine
from statestore.model import StoreFormat
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import RestoreSpec
from statestore.reports import Status
from statestore.requests.restore import RestoreRequest
from statestore.verification.check import verify_many
from statestore.verification.options import VerifyOptions
from tests.faults import oracle
from tests.faults.applications import with_processor
from tests.faults.archive_oracle import RUN_BYTES, ArchiveOracle
from tests.faults.children import Child, Hook, Kill, Work
from tests.faults.hooks import at_a_moment, file_by_file
from tests.faults.made import STORES
from tests.faults.subject import Subject
from tests.integration.broker import unique

NODES = ("a", "b", "c")
_PUBLISH = ["snapshot, file uploaded", "snapshot, blobs uploaded", "snapshot, manifest written"]
_BRING = [
    "restore, file fetched",
    "restore, snapshot fetched",
    "restore, tail replayed",
    "restore, built, not swapped",
    "swap, old store in quarantine",
    "swap, new store live",
    "restore, swapped, not sealed",
]
#: Where each kind of work is killed; a point need not be met, and then the kill does not count.
POINTS = {
    "process": [
        "recovered",
        "flushed, not committed",
        "Kafka committed, stores not",
        "before close",
        "store recorded, not sealed",
        *_BRING,
        *_PUBLISH,
    ],
    "restore": [*_BRING, *_PUBLISH],
}
#: Where a task is stopped, until another node has done its work.
_STOPS = ["transactions initialized", "before produce", "flushed, not committed", "before close", _PUBLISH[1]]
_DAMAGES = ["none", "none", "disk lost", "store lost", "table changed", "own directory lost"]


class NodeCycles:
    """The cycles of one campaign, one after the other on the same application and archive.

    Attributes
    ----------
    kills
        How many kills and stops there were, by point.
    """

    def __init__(self, servers: str, directory: Path, seed: int, number: int) -> None:
        self._draw = draw = random.Random(f"nodes-{seed}-{number}")
        engines: dict[str, Engine] = {name: draw.choice(["txn_rocksDB", "rocksDB"]) for name in STORES}
        formats = {
            **{name: draw.choice([StoreFormat.PLAIN, StoreFormat.TIMESTAMPED]) for name in STORES},
            "visits": StoreFormat.PLAIN,
        }
        self._exactly = number % 4 != 3
        guarantee = "exactly_once_v2" if self._exactly else "at_least_once"
        definition = with_processor(unique("nodes"), engines, formats, guarantee, commit_interval_ms=600_000)
        self.subject = Subject(
            servers,
            directory,
            definition,
            seed=seed + number,
            partitions=1,
            archive=f"file://{directory}/archive",
            node_local=True,
        )
        self.oracle = ArchiveOracle(self.subject)
        self.kills: Counter[str] = Counter()
        self._number = 0
        self._took_s = dict.fromkeys(POINTS, 0.3)
        self.subject.produce(40)
        self._run_on("a")

    def cycle(self) -> str:
        """Draw work, kill or stop it, have it done, and check; return what it was."""
        self._number += 1
        kind = self._draw.choices(["process", "restore", "stop"], [4, 2, 2])[0]
        first, second = self._draw.choice(NODES), self._draw.choice(NODES)
        damage = self._damage(first)
        self.subject.produce(self._draw.randint(5, 40), jump=self._draw.random() < 0.2)
        what = self._stopped(first, second) if kind == "stop" else self._killed(kind, first)
        self._run_on(second)
        self._check(second)
        return f"{kind} on {first} ({damage}), {what}, then on {second}"

    def end(self) -> None:
        """Check everything, on a node that never ran."""
        self.subject.produce(20)
        self._run_on("d")
        self._check("d")
        oracle.check(self.subject)

    # -- what is done -------------------------------------------------------------------------------------------------

    def _run_on(self, node: str) -> None:
        self.subject.state_dir = self._disk(node)
        for row in self.subject.run():
            failed = [found for found in row.snapshots if found.failure is not None]
            assert not failed, f"not published: {failed}"

    def _killed(self, kind: str, node: str) -> str:
        draw = self._draw
        kill, hooks, what = None, [file_by_file], "any moment"
        if draw.random() < 0.3:
            hooks: list[Hook] = [at_a_moment(draw.uniform(0, self._took_s[kind]))]
        else:
            kill = Kill(draw.choice(POINTS[kind]), draw.choice([1, 1, 2, 3]))
            what = str(kill)
        child = Child(self._work(kind, node), self.subject.directory / f"run-{node}", kill=kill, hooks=hooks)
        if child.was_killed():
            self.kills[f"{kind}: {kill.point if kill else what}"] += 1
            return f"killed at {what}"
        self._took_s[kind] = child.seconds
        return f"not killed at {what}"

    def _work(self, kind: str, node: str) -> Sequence[Work]:
        (spec,) = self.subject.specs(state_dir=self._disk(node))
        if kind == "process":
            return [spec]
        request = RestoreRequest(mode=self._draw.choice(["auto", "snapshot", "full"]), force=self._draw.random() < 0.7)
        label = f"restore-{self._number}"
        return [RestoreSpec(spec.store_partition(name), request, label, RUN_BYTES) for name in STORES]

    def _stopped(self, node: str, other: str) -> str:
        """Stop a task, have another node do its work, and wake it: it is fenced, or has done nothing that matters."""
        at = Kill(self._draw.choice(_STOPS))
        (spec,) = self.subject.specs(state_dir=self._disk(node))
        child = Child([spec], self.subject.directory / f"stopped-{node}", pause=at)
        try:
            if not child.paused_or_ended():
                return f"not stopped at {at}"
            if other == node:  # it holds the task's lock on its disk
                other = next(name for name in NODES if name != node)
            self._run_on(other)
            child.wake()
            child.ended()
        finally:
            child.end()
        self.kills[f"stop: {at.point}"] += 1
        return f"stopped at {at}, while {other} worked"

    # -- what happens besides -----------------------------------------------------------------------------------------

    def _disk(self, node: str) -> Path:
        return self.subject.directory / f"disk-{node}"

    def _damage(self, node: str) -> str:
        damage = self._draw.choice(_DAMAGES)
        (spec,) = self.subject.specs(state_dir=self._disk(node))
        store = spec.store_partition(self._draw.choice(STORES))
        places = {"disk lost": self._disk(node), "store lost": store.live, "own directory lost": store.paths.own_dir}
        if damage in places:
            shutil.rmtree(places[damage], ignore_errors=True)
        elif damage == "table changed" and (tables := sorted(store.live.rglob("*.sst"))):
            table = self._draw.choice(tables)
            content = bytearray(table.read_bytes())
            content[self._draw.randrange(len(content))] ^= 1 << self._draw.randrange(8)
            table.unlink()  # files that are linked have the same bytes
            table.write_bytes(content)
        return damage

    # -- what must hold -----------------------------------------------------------------------------------------------

    def _check(self, node: str) -> None:
        """The node's copies are their logs' folds, snapshots are true, and the archive's stores are whole."""
        self.subject.state_dir = self._disk(node)
        self.oracle.check_rows_and_snapshots()
        (spec,) = self.subject.specs(state_dir=self._disk("looks"))
        stores: list[StorePartitionSpec] = [spec.store_partition(name) for name in STORES]
        for row in verify_many(stores, VerifyOptions("deep" if self._draw.random() < 0.3 else "scan")):
            # At least once, nobody publishes but restores.
            good = (Status.OK,) if self._exactly else (Status.OK, Status.LAGGING)
            assert row.status in good, f"{row.store} in the archive is {row.status}: {row.detail}"
