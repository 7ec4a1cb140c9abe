"""Which snapshots a store partition has, which of them count, and what must be kept."""

from __future__ import annotations

import pytest

from statestore.archive.manifest import Manifest
from statestore.archive.pins import Pin, SnapshotSet, pin, pins, sets, unpin, write_set
from statestore.archive.snapshots import (
    begin_generation,
    histories,
    history,
    mark_suspect,
    read_generation,
    read_manifest,
    read_snapshot,
    readable,
)
from statestore.errors import InputError, SnapshotError
from statestore.model import TopicPartition
from statestore.objects.store import ObjectStore
from statestore.statedir.record import StoreRecord
from tests.archive.snapshots import CLUSTER, manifest, publish


def _published(objects: ObjectStore, tmp_path, *made: Manifest) -> None:
    for one in made:
        publish(objects, one, tmp_path)


def test_the_newest_is_that_with_the_largest_offset_whoever_came_last(objects: ObjectStore, tmp_path) -> None:
    far, near = manifest(committed=99), manifest(committed=5)
    _published(objects, tmp_path, far, near)
    assert [found.name for found in history(objects, far.directory).usable] == [far.name, near.name]


def test_an_application_is_listed_at_once_and_store_partitions_by_themselves(objects: ObjectStore, tmp_path) -> None:
    made = [manifest(task=f"0_{number}") for number in range(3)]
    _published(objects, tmp_path, *made, manifest(application="app2"), manifest(cluster="another"))
    found = histories(objects, CLUSTER, "app")
    assert {directory: [one.name for one in its.snapshots] for directory, its in found.items()} == {
        one.directory: [one.name] for one in made
    }


def test_what_belongs_to_an_older_generation_is_history(objects: ObjectStore, tmp_path) -> None:
    old, new = manifest(committed=99), manifest(committed=5, generation=1)
    _published(objects, tmp_path, old, new)
    assert [found.name for found in history(objects, old.directory).usable] == [old.name]  # 1 is not committed yet
    assert begin_generation(objects, new, "a rollback")
    assert not begin_generation(objects, manifest(generation=1), "another")
    found = history(objects, old.directory)
    assert (found.generation, [one.name for one in found.usable]) == (1, [new.name])
    assert {one.name for one in found.snapshots} == {old.name, new.name}
    begun = read_generation(objects, old.directory, 1)
    assert (begun.snapshot, begun.why) == (str(new.name), "a rollback")


def test_a_snapshot_whose_generation_another_one_has_begun_is_not_used(objects: ObjectStore, tmp_path) -> None:
    first, rival = manifest(committed=5, generation=1, begins=True), manifest(committed=99, generation=1, begins=True)
    _published(objects, tmp_path, first, rival)  # the rival's writer is killed here
    assert begin_generation(objects, first, "a rollback")
    refused: list[str] = []
    assert list(readable(objects, history(objects, first.directory).usable, refused)) == [first]
    assert "not what began its generation" in refused[0]


def test_a_suspect_snapshot_is_listed_and_not_used(objects: ObjectStore, tmp_path) -> None:
    bad, good = manifest(committed=9), manifest(committed=5)
    _published(objects, tmp_path, bad, good)
    (listed,) = [found for found in history(objects, bad.directory).snapshots if found.name == bad.name]
    mark_suspect(objects, bad.directory, listed.name, "DIVERGED")
    mark_suspect(objects, bad.directory, listed.name, "CORRUPT")
    found = history(objects, bad.directory)
    assert [(one.name, one.suspect) for one in found.snapshots] == [(bad.name, True), (good.name, False)]
    assert [one.name for one in found.usable] == [good.name]


def test_files_of_somebody_else_are_no_snapshots(objects: ObjectStore, tmp_path) -> None:
    made = manifest()
    _published(objects, tmp_path, made)
    for name in ("README", "1-2-3.json", "generation-1.json", f"{made.name}.json.bak", "suspect-x.json"):
        objects.create(f"{made.directory}/{name}", b"x")
    objects.create(f"stores/{CLUSTER}/app/totals/none/{made.name}.json", b"x")
    assert [one.name for one in history(objects, made.directory).snapshots] == [made.name]
    assert list(histories(objects, CLUSTER, "app")) == [made.directory]


def test_manifests_that_cannot_be_read_are_passed_over_and_named(objects: ObjectStore, tmp_path) -> None:
    torn, good = manifest(committed=9), manifest(committed=5)
    _published(objects, tmp_path, good)
    objects.create(torn.directory.snapshot(torn.name), b"{")
    refused: list[str] = []
    assert list(readable(objects, history(objects, good.directory).usable, refused)) == [good]
    assert len(refused) == 1
    assert str(torn.name) in refused[0]
    with pytest.raises(SnapshotError, match="no longer exists"):
        read_manifest(objects, good.directory, manifest().name)


def test_a_pin_keeps_its_name_until_it_is_removed(objects: ObjectStore, tmp_path) -> None:
    kept = manifest()
    _published(objects, tmp_path, kept)
    place = kept.directory.snapshot(kept.name)
    made = Pin(name="before-upgrade", snapshots=(place,), by="ann", why="upgrade", written_ms=1)
    pin(objects, made)
    with pytest.raises(InputError, match="pin before-upgrade already exists"):
        pin(objects, made)
    assert list(pins(objects)) == [made]
    with pytest.raises(InputError, match="no pin other; the pins are: before-upgrade"):
        unpin(objects, "other")
    unpin(objects, "before-upgrade")
    assert list(pins(objects)) == []


def test_a_pin_that_cannot_be_read_is_an_error_as_nobody_knows_what_it_keeps(objects: ObjectStore) -> None:
    objects.create("pins/damaged.json", b"{}")
    with pytest.raises(SnapshotError, match=r"pins/damaged.json cannot be read"):
        list(pins(objects))


def test_sets_come_back_in_order(objects: ObjectStore) -> None:
    made = [
        SnapshotSet(
            cluster=CLUSTER,
            application="app",
            uuid=f"{number:032x}",
            snapshots=(manifest().directory.snapshot(manifest().name),),
            input_offsets=((TopicPartition("t", 0), 5),),
            written_ms=number,
        )
        for number in (2, 1)
    ]
    for one in made:
        write_set(objects, one)
    assert list(sets(objects, CLUSTER, "app")) == [made[1], made[0]]
    assert list(sets(objects, CLUSTER, "other")) == []


def test_a_store_was_not_whole_later_than_its_snapshot_was_written(objects: ObjectStore, tmp_path) -> None:
    ahead = manifest(record=StoreRecord(topic_id="id", caught_up_ms=1 << 50, committed=41))
    rightly = manifest(committed=5)
    _published(objects, tmp_path, ahead, rightly)
    found = history(objects, ahead.directory).usable
    first, second = (read_snapshot(objects, one) for one in found)
    assert first.record.caught_up_ms == found[0].written_ms
    assert first.record.model_copy(update={"caught_up_ms": 1 << 50}) == ahead.record
    assert second == rightly


def test_a_pin_of_what_is_gone_is_refused(objects: ObjectStore, tmp_path) -> None:
    there, gone = manifest(committed=9), manifest(committed=5)
    _published(objects, tmp_path, there)
    places = tuple(one.directory.snapshot(one.name) for one in (there, gone))
    uuid = "0" * 32
    made = SnapshotSet(cluster=CLUSTER, application="app", uuid=uuid, snapshots=places, input_offsets=(), written_ms=1)
    write_set(objects, made)
    for name, what in (("one", places), ("set", (made.place,))):
        with pytest.raises(SnapshotError, match=places[1]):
            pin(objects, Pin(name=name, snapshots=what, by="somebody", why="why", written_ms=1))
    assert list(pins(objects)) == []


def test_a_set_of_another_applications_snapshots_is_refused() -> None:
    other = manifest(application="other")
    with pytest.raises(ValueError, match="is not a snapshot of application app"):
        SnapshotSet(
            cluster=CLUSTER,
            application="app",
            uuid="0" * 32,
            snapshots=(other.directory.snapshot(other.name),),
            input_offsets=(),
            written_ms=1,
        )
