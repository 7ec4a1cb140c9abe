"""Clean-ups beside writers, readers, pins and each other, request by request: nobody ever misses a blob.

All are the real functions on a real directory. Each makes one request when the test lets it, so that hypothesis finds
the orders that do harm. The clock is a number; each object gets the time at which it was written.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from statestore.archive import cleanup, fetch, snapshots, upload
from statestore.archive.cleanup import Retention, expendable, mark, server_time_ms, sweep
from statestore.archive.layout import TRASH
from statestore.archive.manifest import Manifest, from_bytes
from statestore.archive.objects import ObjectStore
from statestore.archive.pins import Pin, kept_snapshots, pin, pins, put_back, unpin
from statestore.archive.snapshots import history, missing_files, read_manifest, readable
from statestore.errors import ArchiveUnavailableError, SnapshotError
from tests.archive.snapshots import manifest, written
from tests.archive.stepped import Actor, InOneThread, SteppedStore, one_step

GRACE_MS = 1_000
DIRECTORY = manifest().directory
#: Actors at a time, and more requests than any of them makes.
_MOST, _ALL = 4, 10_000
_CONTENT = st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True)
_REQUESTS = st.sampled_from([1, 2, 3, 4, 5, 7, 9, 12, 15, _ALL, _ALL, _ALL])
_MS = st.sampled_from([1, GRACE_MS // 2 - 1, GRACE_MS, GRACE_MS])


class _Role(NamedTuple):
    """What an actor does, and within which time (ms) it has done it."""

    name: str
    actor: Actor
    until_ms: int


class CleanUpsBesideOthers(RuleBasedStateMachine):
    """Writers, readers, pins and clean-ups that take less than they may, in any order of their requests."""

    def __init__(self) -> None:
        super().__init__()
        self._scratch = tempfile.TemporaryDirectory()
        self.root = Path(self._scratch.name)
        self.objects = SteppedStore(f"file://{self.root}/archive")
        self.now_ms = 10 * GRACE_MS
        self.count = 0
        self.roles: list[_Role] = []
        self.writing: set[str] = set()
        self.reading: dict[int, Manifest] = {}
        self.published = False
        self._patch = pytest.MonkeyPatch()
        for module in (cleanup, fetch, snapshots, upload):
            self._patch.setattr(module, "ThreadPoolExecutor", InOneThread)
        self._patch.setattr(ObjectStore, "_sync", lambda *_: None)  # no power is cut here
        self._patch.setattr(upload, "MOST_S", GRACE_MS / 2_000)
        self._patch.setattr("statestore.archive.upload.time.monotonic", lambda: self.now_ms / 1_000)
        delete = cleanup._delete_if_unchanged

        def delete_at_once(*arguments: object) -> None:  # the gap that cleanup.py tells of
            with one_step():
                delete(*arguments)  # type: ignore[arg-type]

        self._patch.setattr(cleanup, "_delete_if_unchanged", delete_at_once)

    def teardown(self) -> None:
        for role in self.roles:
            role.actor.abandon()
        self._patch.undo()
        self._scratch.cleanup()

    # -- who is there -------------------------------------------------------------------------------------------------

    @initialize(contents=st.lists(_CONTENT, min_size=2, max_size=3), ms=st.lists(_MS, min_size=3, max_size=3))
    def some_are_published(self, contents: list[list[int]], ms: list[int]) -> None:
        for content, later_ms in zip(contents, ms, strict=False):
            self.one_begins("writer", content, 0, _ALL)
            self.now_ms += later_ms

    @precondition(lambda self: len(self.roles) < _MOST)
    @rule(
        name=st.sampled_from(["writer", "writer", "reader", "pin", "clean-up", "clean-up"]),
        content=_CONTENT,
        at=st.integers(0, 2),
        requests=_REQUESTS,
    )
    def one_begins(self, name: str, content: list[int], at: int, requests: int) -> None:
        self.count += 1
        work, within_ms = {
            "writer": (partial(self._write, content, bool(at)), GRACE_MS // 2),
            "reader": (partial(self._read, self.count, at), GRACE_MS),
            "pin": (partial(self._make_pin, f"pin-{self.count}", at), GRACE_MS // 2),
            "clean-up": (self._clean_up, GRACE_MS // 2),
        }[name]
        self.roles.append(_Role(name, Actor(work), self.now_ms + within_ms))
        self._go_on(self.roles[-1], requests)

    def _write(self, content: list[int], grows: bool) -> None:
        made = manifest({f"{number}.sst": b"%d" % number for number in content}, committed=self.count)
        store = written(self.root / f"store-{self.count}", {file.path: file.path[0].encode() for file in made.files})
        self.writing.add(made.uuid)
        found = history(self.objects, DIRECTORY).usable if grows else ()
        parent = next(readable(self.objects, found, []), None)
        upload.publish(self.objects, made, store, parent)
        self.writing.remove(made.uuid)
        self.published = True

    def _read(self, number: int, at: int) -> None:
        found = list(readable(self.objects, history(self.objects, DIRECTORY).usable[at:], []))
        if found and found[0].uuid not in self.writing:
            self.reading[number] = found[0]
            fetch.fetch(self.objects, found[0], self.root / f"copy-{number}", {})
            self.reading.pop(number)

    def _make_pin(self, name: str, at: int) -> None:
        found = history(self.objects, DIRECTORY).usable[at : at + 1]
        places = tuple(one.directory.snapshot(one.name) for one in found if one.name.uuid not in self.writing)
        pin(self.objects, Pin(name=name, snapshots=places, by="test", why="test", written_ms=0))

    def _clean_up(self) -> None:
        now_ms, kept = server_time_ms(self.objects), kept_snapshots(self.objects)
        found = history(self.objects, DIRECTORY)
        for one in expendable(self.objects, found, Retention(1, 0, GRACE_MS), kept, lambda *_: False, now_ms):
            mark(self.objects, one)
        put_back(self.objects, kept_snapshots(self.objects))
        sweep(self.objects, GRACE_MS, now_ms)

    @precondition(lambda self: self._pins())
    @rule()
    def a_pin_is_removed(self) -> None:
        unpin(self.objects, self._pins()[0].name)

    def _pins(self) -> list[Pin]:
        return list(pins(ObjectStore(self.objects.url)))

    # -- what goes on -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.roles)
    @rule(at=st.integers(0, _MOST - 1), requests=_REQUESTS)
    def one_goes_on(self, at: int, requests: int) -> None:
        self._go_on(self.roles[at % len(self.roles)], requests)

    def _go_on(self, role: _Role, requests: int) -> None:
        for _ in range(requests):
            before = self._times()
            role.actor.step()
            for path, changed in self._times().items():
                if before.get(path) != changed:
                    os.utime(path, ns=(self.now_ms * 10**6, self.now_ms * 10**6))
            self.nobody_misses_a_blob()
            if role.actor.ended:
                self.roles.remove(role)
                error = role.actor.error
                if isinstance(error, ArchiveUnavailableError) and "took more than" in str(error):
                    return  # it gave up, as it must
                assert error is None, f"the {role.name} failed: {error!r}"
                return

    def _times(self) -> dict[Path, int]:
        return {path: path.stat().st_ctime_ns for path in (self.root / "archive").rglob("*") if path.is_file()}

    @rule(ms=_MS)
    def time_goes_on(self, ms: int) -> None:
        """Nobody takes longer than he may: who would, ends first."""
        for role in [role for role in self.roles if self.now_ms + ms >= role.until_ms]:
            self._go_on(role, _ALL)
        self.now_ms += ms

    # -- what holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def nobody_misses_a_blob(self) -> None:
        objects = ObjectStore(self.objects.url)
        complete = 0
        for found in history(objects, DIRECTORY).usable:
            made = read_manifest(objects, DIRECTORY, found.name)
            missing = missing_files(objects, made.files)
            if made.uuid not in self.writing:  # its writer looks at them once more
                assert missing == [], f"{made.name} can be used, and lacks files"
            complete += not missing
        for made in self.reading.values():
            assert missing_files(objects, made.files) == [], f"{made.name} is being read, and lacks files"
        for place in {place for found in pins(objects) for place in found.snapshots}:
            made = _pinned(objects, place)
            assert missing_files(objects, made.files) == [], f"{made.name} is pinned, and lacks files"
        assert complete or not self.published, "no snapshot is left"


def _pinned(objects: ObjectStore, place: str) -> Manifest:
    """Return the manifest of a pinned snapshot, which may have been marked while the pin was made."""
    (name,) = [name for name in (snapshots.layout.snapshot_name(place.rpartition("/")[2]),) if name is not None]
    try:
        return read_manifest(objects, DIRECTORY, name)
    except SnapshotError:
        return from_bytes(objects.read(f"{TRASH}/{place}", 1 << 20), DIRECTORY, name)


TestCleanUpsBesideOthers = pytest.mark.long(CleanUpsBesideOthers.TestCase)
TestCleanUpsBesideOthers.settings = settings(stateful_step_count=30)
