"""Cycles with an archive: work on it that is killed, the same work to its end, and the oracle.

A cycle is drawn from the seed: a task that processes and publishes, restores of stores that were lost or damaged,
snapshots from the logs, a clean-up, or a store that is put back. It is killed at a point or at any moment, perhaps with
a clean-up beside it. Between cycles an hour goes by: all objects in the archive become older.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from statestore.archive.cleanup import Retention
from statestore.archive.pins import Pin, pin, pins, unpin
from statestore.definitions.fields import Engine
from statestore.model import StoreFormat
from statestore.partition.rollback import RollbackSpec, roll_back
from statestore.recovery.restore import RestoreSpec
from statestore.reports import SnapshotRow
from statestore.requests.restore import RestoreRequest
from tests.faults import oracle
from tests.faults.applications import with_processor
from tests.faults.archive_oracle import RUN_BYTES, ArchiveOracle
from tests.faults.children import Child, CleanUp, FromLog, Hook, Kill, Work
from tests.faults.hooks import at_a_moment, file_by_file, sorted_tails
from tests.faults.made import STORES
from tests.faults.subject import Subject
from tests.integration.broker import unique

HOUR_S = 3_600
GRACE_MS = HOUR_S * 1000 // 2
_PUBLISH = ["snapshot, file uploaded", "snapshot, blobs uploaded", "snapshot, manifest written"]
_SWAP = [
    "swap, journal written",
    "swap, old store in quarantine",
    "swap, before the last rename",
    "swap, new store live",
]
_BUILD = [
    "restore, file fetched",
    "restore, snapshot fetched",
    "restore, batch of a tail read",
    "restore, tail taken over, not committed",
    "restore, tail replayed",
    "restore, built, not swapped",
]
#: Where each kind of work is killed; a point need not be met, and then the kill does not count.
POINTS = {
    "process": ["Kafka committed, stores not", "before close", "store recorded, not sealed", *_PUBLISH * 2],
    "restore": [*_BUILD * 2, *_SWAP, "restore, swapped, not sealed", "restore, sealed, runs still there", *_PUBLISH],
    "from the log": [*_BUILD, "restore, swapped, not sealed", *_PUBLISH],
    "clean up": ["clean-up, manifest in trash and live", "clean-up, blobs deleted"],
    "put back": _PUBLISH,
}
_OFTEN = {"process": 3, "restore": 3, "from the log": 2, "clean up": 2, "put back": 1}
_DAMAGES = ["node lost", "store lost", "table cut", "table changed", "own directory lost", "none"]


class ArchiveCycles:
    """The cycles of one campaign, one after the other on the same application, state and archive.

    Attributes
    ----------
    kills
        How many there were, by point.
    """

    def __init__(self, servers: str, directory: Path, seed: int, number: int) -> None:
        self._draw = draw = random.Random(f"{seed}-{number}")
        engines: dict[str, Engine] = {name: draw.choice(["txn_rocksDB", "rocksDB"]) for name in STORES}
        formats = {
            **{name: draw.choice([StoreFormat.PLAIN, StoreFormat.TIMESTAMPED]) for name in STORES},
            "visits": StoreFormat.PLAIN,
        }
        guarantee = "at_least_once" if number % 4 == 3 else "exactly_once_v2"
        definition = with_processor(unique("archived"), engines, formats, guarantee, commit_interval_ms=600_000)
        archive = f"file://{directory}/archive"
        self.subject = Subject(servers, directory, definition, seed=seed + number, partitions=1, archive=archive)
        self.oracle = ArchiveOracle(self.subject)
        self.kills: Counter[str] = Counter()
        self._number = 0
        #: How long each kind of work took last.
        self._took_s = dict.fromkeys(POINTS, 0.3)
        self._exactly = guarantee == "exactly_once_v2"
        self.subject.produce(40)
        self._run()

    def cycle(self) -> str:
        """Draw work, kill it, do it to its end, and check; return what it was."""
        self._number += 1
        kind = self._draw.choices(list(_OFTEN), list(_OFTEN.values()))[0]
        self._let_an_hour_go_by()
        work = self._work(kind)
        beside = kind != "clean up" and self._draw.random() < 0.3
        cleaning = Child([self._clean_up()], self.subject.directory / "beside") if beside else None
        try:
            what = self._killed(kind, work)
            if kind in ("restore", "from the log"):
                again = Child(work, self.subject.directory / "again").restored()
                failures = [row.failure.message for row in again if row.failure is not None]
                assert not failures, failures
            shutil.rmtree(self.subject.directory / "scratch", ignore_errors=True)  # of a process that was killed
            self._run()
            if cleaning is not None:
                cleaning.ended()
                what += ", with a clean-up beside it"
        finally:
            if cleaning is not None:
                cleaning.end()
        self._pin()
        self.oracle.check((self._draw.choice(["snapshot", "snapshot", "auto"]),), self._draw.sample(STORES, 2))
        return f"{kind}, {what}"

    def end(self) -> None:
        """Check everything."""
        self.oracle.check(("snapshot", "auto"))
        oracle.check(self.subject)

    # -- what is killed -----------------------------------------------------------------------------------------------

    def _work(self, kind: str) -> Sequence[Work]:
        subject, draw = self.subject, self._draw
        (spec,) = subject.specs()
        names = draw.sample(STORES, len(STORES))
        match kind:
            case "restore":
                damage = draw.choice(_DAMAGES)
                self._damage(damage, names[0])
                unasked = damage == "none"  # what was put back may have no snapshot yet
                how = {"mode": draw.choice(["snapshot", "auto"]), "force": unasked, "accept_loss": unasked}
                request, label = RestoreRequest.read(how), f"restore-{self._number}"
                return [RestoreSpec(spec.store_partition(name), request, label, RUN_BYTES) for name in names]
            case "from the log":
                (subject.directory / "scratch").mkdir()
                label, scratch = f"log-{self._number}", subject.directory / "scratch"
                return [FromLog(spec.store_partition(name), label, scratch) for name in names]
            case "clean up":
                return [self._clean_up()]
            case "put back":
                self._put_back(names[0])
            case _:
                if draw.random() < 0.2:
                    shutil.rmtree(subject.state_dir)
        subject.produce(draw.randint(5, 40), jump=draw.random() < 0.2)
        return [spec]

    def _killed(self, kind: str, work: Sequence[Work]) -> str:
        """Work in a process that is killed, if it comes to that; tell where."""
        draw, directory = self._draw, self.subject.directory / "run"
        kill, hooks, what = None, [file_by_file], "any moment"
        if draw.random() < 0.3:
            hooks: list[Hook] = [at_a_moment(draw.uniform(0, self._took_s[kind]))]
        else:
            kill = Kill(draw.choice(POINTS[kind]), draw.choice([1, 1, 2, 3, 4]))
            what = str(kill)
        hooks += [sorted_tails] if draw.random() < 0.5 else []
        child = Child(work, directory, kill=kill, hooks=hooks)
        if child.was_killed():
            self.kills[f"{kind}: {kill.point if kill else what}"] += 1
            return f"killed at {what}"
        self._took_s[kind] = child.seconds
        return f"not killed at {what}"

    def _run(self) -> None:
        for row in self.subject.run():
            self._assert_published(row.snapshots)

    def _assert_published(self, rows: Sequence[SnapshotRow]) -> None:
        failed = [row for row in rows if row.failure is not None]
        assert not failed, f"not published: {failed}"
        for row in rows:
            assert self.oracle.snapshots(row.store), f"{row.store} has no usable snapshot"

    # -- what happens besides -----------------------------------------------------------------------------------------

    def _let_an_hour_go_by(self) -> None:
        for path in (self.subject.directory / "archive").rglob("*"):
            if path.is_file():
                changed = path.stat().st_mtime - HOUR_S
                os.utime(path, (changed, changed))

    def _clean_up(self) -> CleanUp:
        (spec,) = self.subject.specs()
        assert spec.archive is not None
        return CleanUp(spec.archive, self.subject.servers, Retention(self._draw.choice([1, 1, 2]), 0, GRACE_MS))

    def _pin(self) -> None:
        """Pin a snapshot, which may be an old one, or remove the pin."""
        objects = self.oracle.objects
        if self._draw.random() < 0.2 and list(pins(objects)):
            unpin(objects, "kept")
        elif not list(pins(objects)):
            found = self.oracle.snapshots(self._draw.choice(STORES))
            places = tuple(one.directory.snapshot(one.name) for one in found[-1:])
            pin(objects, Pin(name="kept", snapshots=places, by="test", why="test", written_ms=0))

    def _damage(self, damage: str, store: str) -> None:
        paths = self.subject.paths(self.subject.tasks[0])
        live = paths.live(self.subject.definition.store(store))
        lost: dict[str, Callable[[], Path]] = {
            "node lost": lambda: self.subject.state_dir,
            "store lost": lambda: live,
            "own directory lost": lambda: paths.own_dir,
        }
        if damage in lost:
            shutil.rmtree(lost[damage]())
        elif damage != "none" and (tables := sorted(live.rglob("*.sst"))):
            table = self._draw.choice(tables)
            content = bytearray(table.read_bytes())
            at = self._draw.randrange(len(content))
            content[at] ^= 1 << self._draw.randrange(8)
            table.unlink()  # files that are linked have the same bytes
            table.write_bytes(content[:at] if damage == "table cut" else content)

    def _put_back(self, store: str) -> None:
        """Replace a store, and put it back: its next snapshot begins a generation."""
        (spec,) = self.subject.specs()
        there, label = spec.store_partition(store), f"replaced-{self._number}"
        request = RestoreRequest.read({"mode": "full", "force": True})
        (row,) = Child([RestoreSpec(there, request, label, RUN_BYTES)], self.subject.directory / "again").restored()
        assert row.failure is None
        back = roll_back(RollbackSpec(there, f"back-{self._number}"))
        assert back.failure is None
