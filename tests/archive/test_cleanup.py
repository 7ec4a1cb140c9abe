"""Clean-up keeps what is needed, and what it removes nobody misses, whoever is writing or reading meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.archive import cleanup
from statestore.archive.cleanup import Retention, expendable, mark, sweep, sweep_sets
from statestore.archive.contents import listed_sets
from statestore.archive.fetch import fetch
from statestore.archive.layout import BLOBS, TRASH
from statestore.archive.manifest import Manifest
from statestore.archive.pins import SnapshotSet, all_sets, put_back, write_set
from statestore.archive.server_time import server_time_ms
from statestore.archive.snapshots import begin_generation, history, mark_suspect, missing_files
from statestore.errors import SnapshotError
from statestore.objects.store import ObjectStore
from tests.archive.snapshots import manifest, publish, written

LATER = 1 << 50
NOTHING_LOST = lambda *_: False  # noqa: E731
NOW = Retention(newest=1, age_ms=0, grace_ms=0)


def _publish(objects: ObjectStore, tmp_path: Path, committed: int, **changes: object) -> Manifest:
    files = {"shared.sst": b"shared", f"{committed}.sst": b"%d" % committed}
    made = manifest(files, committed=committed, **changes)
    publish(objects, made, written(tmp_path / "store", files))
    return made


def _chosen(objects: ObjectStore, made: Manifest, retention: Retention = NOW, **changes: object) -> list[int]:
    options = {"kept": (), "holds_lost": NOTHING_LOST, "now_ms": LATER, **changes}
    found = expendable(objects, history(objects, made.directory), retention, **options)  # type: ignore[arg-type]
    return [one.name.offset - 1 for one in found]


def test_all_but_the_newest_may_go(objects: ObjectStore, tmp_path: Path) -> None:
    made = [_publish(objects, tmp_path, committed) for committed in (1, 2, 3)]
    assert _chosen(objects, made[0]) == [2, 1]
    assert _chosen(objects, made[0], NOW._replace(newest=2)) == [1]
    assert _chosen(objects, made[0], NOW._replace(age_ms=3_600_000), now_ms=server_time_ms(objects)) == []
    assert _chosen(objects, made[0], kept=[made[0].directory.snapshot(made[0].name)]) == [2]


def test_what_the_log_can_no_longer_give_stays(objects: ObjectStore, tmp_path: Path) -> None:
    made = [_publish(objects, tmp_path, committed) for committed in (1, 2, 3)]
    assert _chosen(objects, made[0], holds_lost=lambda found, _: found.committed == 1) == [2]


def test_the_newest_that_is_complete_and_of_the_current_generation_stays(objects: ObjectStore, tmp_path: Path) -> None:
    made = [_publish(objects, tmp_path, committed) for committed in (1, 2, 3, 4)]
    (newest, *_) = history(objects, made[0].directory).snapshots
    mark_suspect(objects, newest.directory, newest.name, "CORRUPT")
    objects.delete(missing_place(objects, made[2]))
    assert _chosen(objects, made[0]) == [3, 1]  # 4 is the newest, 3 lacks a blob, 2 is the newest that can be used
    began = _publish(objects, tmp_path, 0, generation=1)
    begin_generation(objects, began, "a rollback")
    assert _chosen(objects, made[0]) == [4, 3, 2, 1]


def test_what_never_began_its_generation_does_not_count_among_the_newest(objects: ObjectStore, tmp_path: Path) -> None:
    made = [_publish(objects, tmp_path, committed) for committed in (1, 2, 3)]
    for committed in (4, 5):  # of attempts that were killed
        _publish(objects, tmp_path, committed, generation=1)
    assert _chosen(objects, made[0], NOW._replace(newest=2)) == [5, 4, 1]
    now_ms = server_time_ms(objects)
    began_lately = NOW._replace(newest=0, grace_ms=3_600_000)  # and may be about to begin it
    assert _chosen(objects, made[0], began_lately, now_ms=now_ms) == [2, 1]


def missing_place(objects: ObjectStore, made: Manifest) -> str:
    """Object of a blob that no other snapshot has."""
    (own,) = [file for file in made.files if file.path != "shared.sst"]
    return f"{BLOBS}/{own.sha256[:2]}/{own.sha256}"


def test_without_any_complete_snapshot_all_stay(objects: ObjectStore, tmp_path: Path) -> None:
    made = [_publish(objects, tmp_path, committed) for committed in (1, 2)]
    for one in made:
        objects.delete(missing_place(objects, one))
    assert _chosen(objects, made[0], NOW._replace(newest=0)) == []


def test_a_marked_snapshot_goes_with_its_own_blobs_after_the_grace_period(objects: ObjectStore, tmp_path: Path) -> None:
    made = [_publish(objects, tmp_path, committed) for committed in (1, 2)]
    mark(objects, history(objects, made[0].directory).snapshots[1])
    assert [one.name for one in history(objects, made[0].directory).snapshots] == [made[1].name]
    now = server_time_ms(objects)
    assert sweep(objects, 1 << 40, now) == ((), (), 0)
    before = {found.name for found in objects.entries()}
    dry = sweep(objects, 1000, now + 2000, dry_run=True)
    assert {found.name for found in objects.entries()} == before
    assert sweep(objects, 1000, now + 2000) == dry
    assert (len(dry.manifests), dry.blobs, dry.bytes) == (1, (missing_place(objects, made[0]),), 1)
    assert not missing_files(objects, made[1].files)
    assert list(objects.entries(TRASH)) == []


def test_who_reads_a_snapshot_when_it_is_marked_finds_its_blobs_until_the_grace_period_is_over(
    objects: ObjectStore, tmp_path: Path
) -> None:
    made = _publish(objects, tmp_path, 1)
    uploaded_ms = max(found.modified_ms for found in objects.entries(BLOBS))
    while server_time_ms(objects) == uploaded_ms:  # S3's clock has seconds
        pass
    mark(objects, history(objects, made.directory).snapshots[0])
    (marked,) = objects.entries(TRASH)
    grace_ms = marked.modified_ms - uploaded_ms
    assert sweep(objects, grace_ms, marked.modified_ms) == ((), (), 0)  # the blobs are old, the mark is not
    fetch(objects, made, tmp_path / "copy", {})


def test_sets_go_with_their_snapshots_unless_a_pin_names_them(objects: ObjectStore, tmp_path: Path) -> None:
    made = [_publish(objects, tmp_path, committed) for committed in (1, 2)]
    cuts = [
        SnapshotSet(
            cluster=one.cluster,
            application=one.application,
            uuid=one.uuid,
            snapshots=(one.directory.snapshot(one.name),),
            input_offsets=(),
            written_ms=1,
        )
        for one in made
    ]
    for one in cuts:
        write_set(objects, one)
    mark(objects, history(objects, made[0].directory).snapshots[1])
    assert sweep_sets(objects, ()) == ()  # marked, it can still be put back
    assert [(one.uuid, removed) for one, removed in listed_sets(objects)] == sorted(
        ((one.uuid, int(one is cuts[0])) for one in cuts), reverse=True
    )
    sweep(objects, 0, LATER)
    assert sweep_sets(objects, (cuts[0].place,)) == ()
    assert sweep_sets(objects, ()) == (cuts[0].place,)
    assert list(all_sets(objects)) == [cuts[1]]


def test_blobs_without_a_snapshot_go(objects: ObjectStore, tmp_path: Path) -> None:
    made = _publish(objects, tmp_path, 1)
    objects.delete(made.directory.snapshot(made.name))  # an upload that was killed
    uploaded_ms = sorted(found.modified_ms for found in objects.entries(BLOBS))
    assert sweep(objects, 1000, uploaded_ms[0] + 999).blobs == ()
    assert len(sweep(objects, 1000, uploaded_ms[-1] + 1000).blobs) == 2


def test_a_manifest_that_cannot_be_read_stops_the_sweep(objects: ObjectStore, tmp_path: Path) -> None:
    made = _publish(objects, tmp_path, 1)
    torn = manifest(committed=9)
    objects.create(torn.directory.snapshot(torn.name), b"{")
    with pytest.raises(SnapshotError, match=str(torn.name)):
        sweep(objects, 0, LATER)
    assert not missing_files(objects, made.files)
    assert _chosen(objects, made, NOW._replace(newest=0)) == []


def test_a_manifest_that_is_too_large_stops_the_clean_up_and_is_named(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _publish(objects, tmp_path, 1)
    (listed,) = history(objects, made.directory).snapshots
    monkeypatch.setattr(cleanup, "MAX_BYTES", 5)
    for clean in (lambda: mark(objects, listed), lambda: sweep(objects, 0, LATER)):
        with pytest.raises(SnapshotError, match=f"{made.name}.*expected 5 at most.*clean up again"):
            clean()
    assert not missing_files(objects, made.files)


def test_a_snapshot_that_was_left_in_both_places_has_its_grace_period_again(objects: ObjectStore, tmp_path) -> None:
    made = [_publish(objects, tmp_path, committed) for committed in (1, 2)]
    place = made[0].directory.snapshot(made[0].name)
    objects.create(f"{TRASH}/{place}", objects.read(place, 1 << 20))
    written_ms = objects.stat(f"{TRASH}/{place}").modified_ms
    while server_time_ms(objects) == written_ms:  # S3's clock has seconds
        pass
    mark(objects, history(objects, made[0].directory).snapshots[1])
    assert objects.stat(f"{TRASH}/{place}").modified_ms > written_ms


def test_what_was_marked_before_a_pin_named_it_is_put_back(objects: ObjectStore, tmp_path: Path) -> None:
    made = [_publish(objects, tmp_path, committed) for committed in (1, 2)]
    place = made[0].directory.snapshot(made[0].name)
    mark(objects, history(objects, made[0].directory).snapshots[1])
    assert put_back(objects, {place, "another"}) == [place]
    assert [one.name for one in history(objects, made[0].directory).usable] == [made[1].name, made[0].name]
    assert put_back(objects, {place}) == []
    objects.delete(place)  # by who was about to
    assert put_back(objects, {place}) == [place]
    swept = sweep(objects, 0, LATER)
    assert (swept.manifests, swept.blobs) == ((f"{TRASH}/{place}",), ())
    assert [one.name for one in history(objects, made[0].directory).usable] == [made[1].name, made[0].name]
