"""Clean-ups beside writers, readers, pins and each other, request by request: nobody ever misses a blob.

All are the real functions on a real directory. Each makes one request when the test lets it, so that hypothesis finds
the orders that do harm. The clock is a number; each object gets the time at which it was written.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from statestore.archive import cleanup, fetch, snapshots, upload
from statestore.archive.cleanup import Retention, expendable, mark, sweep
from statestore.archive.grown_from import GrownFrom
from statestore.archive.layout import TRASH
from statestore.archive.manifest import Manifest, from_bytes
from statestore.archive.pins import Pin, kept_snapshots, pin, pins, put_back, unpin
from statestore.archive.server_time import server_time_ms
from statestore.archive.snapshots import history, missing_files, read_manifest, readable
from statestore.errors import ArchiveUnavailableError, SnapshotError
from statestore.objects.store import ObjectStore
from tests.archive.snapshots import manifest, publish, written
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
        self.known: list[GrownFrom] = []
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
            "writer": (partial(self._write, content, at), GRACE_MS // 2),
            "reader": (partial(self._read, self.count, at), GRACE_MS),
            "pin": (partial(self._make_pin, f"pin-{self.count}", at), GRACE_MS // 2),
            "clean-up": (self._clean_up, GRACE_MS // 2),
        }[name]
        self.roles.append(_Role(name, Actor(work), self.now_ms + within_ms))
        self._go_on(self.roles[-1], requests)

    def _write(self, content: list[int], at: int) -> None:
        """Publish, as `publish_live` does, a store that grew from one of the latest snapshots, which may be gone."""
        made = manifest({f"{number}.sst": b"%d" % number for number in content}, committed=self.count)
        store = written(self.root / f"store-{self.count}", {file.path: file.path[0].encode() for file in made.files})
        self.writing.add(made.uuid)
        grown = None if at == 0 or at > len(self.known) else self.known[-at]
        _publish_grown_from(grown, made, self.objects, store)
        self.known.append(_known(made))
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
        with suppress(SnapshotError):  # it is gone, and that is said
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
            whole = missing_files(objects, made.files) == []
            complete += whole
            # A writer looks at its blobs once more.
            assert whole or made.uuid in self.writing, f"{made.name} can be used, and lacks files"
        for made in self.reading.values():
            assert missing_files(objects, made.files) == [], f"{made.name} is being read, and lacks files"
        for place in {place for found in pins(objects) for place in found.snapshots}:
            made = _pinned(objects, place)
            assert missing_files(objects, made.files) == [], f"{made.name} is pinned, and lacks files"
        assert complete or not self.published, "no snapshot is left"


def _known(made: Manifest) -> GrownFrom:
    return GrownFrom(url="", cluster="", generation=0, snapshot=str(made.name), files=made.files)


def _publish_grown_from(grown: GrownFrom | None, made: Manifest, objects: ObjectStore, store: Path) -> None:
    """Publish with the requests of `publish_live`."""
    uploading = upload.Uploading(objects, store)
    if grown is not None:
        uploading.upload(made.files, grown.files)
    found = history(objects, DIRECTORY)
    uploading.upload(made.files, () if grown is None else grown.kept(found))
    uploading.publish(made)


def _pinned(objects: ObjectStore, place: str) -> Manifest:
    """Return the manifest of a pinned snapshot, which may have been marked while the pin was made."""
    (name,) = [name for name in (snapshots.layout.snapshot_name(place.rpartition("/")[2]),) if name is not None]
    try:
        return read_manifest(objects, DIRECTORY, name)
    except SnapshotError:
        return from_bytes(objects.read(f"{TRASH}/{place}", 1 << 20), DIRECTORY, name)


TestCleanUpsBesideOthers = CleanUpsBesideOthers.TestCase
TestCleanUpsBesideOthers.settings = settings(max_examples=4, stateful_step_count=30)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_many_more_orders() -> None:
    how = settings(max_examples=300, stateful_step_count=30, phases=[Phase.generate])
    run_state_machine_as_test(CleanUpsBesideOthers, settings=how)


# -- orders that did harm ---------------------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path) -> ObjectStore:
    return ObjectStore(f"file://{tmp_path}/archive")


def _published(objects: ObjectStore, tmp_path: Path, committed: int) -> Manifest:
    made = manifest({"a.sst": b"a%d" % committed}, committed=committed)
    publish(objects, made, written(tmp_path / f"store-{committed}", {"a.sst": b"a%d" % committed}))
    return made


def test_what_is_put_back_while_another_clean_up_marks_it_is_never_in_neither_place(
    directory: ObjectStore, tmp_path: Path
) -> None:
    made, _ = (_published(directory, tmp_path, committed) for committed in (1, 2))
    (found,) = [one for one in history(directory, DIRECTORY).snapshots if one.name == made.name]
    place = DIRECTORY.snapshot(made.name)
    marking = Actor(lambda: mark(SteppedStore(directory.url), found))
    while directory.stat(f"{TRASH}/{place}") is None:
        marking.step()
    assert put_back(directory, [place]) == []
    while not marking.ended:
        marking.step()
    assert put_back(directory, [place]) == [place]
    assert made.name in [one.name for one in history(directory, DIRECTORY).usable]
    sweep(directory, 0, 1 << 50)
    assert missing_files(directory, made.files) == []


def test_a_pin_that_is_removed_while_pins_are_read_keeps_nothing(
    directory: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(directory, Pin(name="kept", snapshots=(), by="me", why="test", written_ms=0))
    listed = list(directory.entries("pins"))
    unpin(directory, "kept")
    monkeypatch.setattr(directory, "entries", lambda _: iter(listed))
    assert list(pins(directory)) == []


def test_what_grew_from_a_snapshot_that_is_gone_does_not_rely_on_its_blobs(
    directory: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = (_published(directory, tmp_path, committed) for committed in (1, 2))
    mark(directory, history(directory, DIRECTORY).snapshots[-1])
    later = manifest({"a.sst": b"a1"}, committed=3)
    delete = cleanup._delete_if_unchanged

    def published_before_it_deletes(*arguments: Any) -> None:
        monkeypatch.setattr(cleanup, "_delete_if_unchanged", delete)
        _publish_grown_from(_known(old), later, directory, tmp_path / "store-1")
        delete(*arguments)

    monkeypatch.setattr(cleanup, "_delete_if_unchanged", published_before_it_deletes)
    sweep(directory, 0, 1 << 50)
    assert missing_files(directory, later.files) == []


def test_a_blob_that_goes_between_its_upload_and_the_manifest_is_uploaded_again(
    directory: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swept(point: str) -> None:
        for found in directory.entries("blobs") if point == "snapshot, blobs uploaded" else ():
            directory.delete(found.name)

    monkeypatch.setattr("statestore.kill_switch.reached", swept)
    made = _published(directory, tmp_path, 1)
    assert missing_files(directory, made.files) == []
