"""Making an earlier snapshot the store again, where stores live in the archive: a rollback without a node.

A manifest of the same files begins a generation. From then on no task goes on with a copy of an older one, wherever it
lies. Before, nothing has changed. What is replaced stays in the archive as history, and can be reinstated itself.
"""

from __future__ import annotations

import socket
from importlib.metadata import version
from uuid import uuid4

from statestore import clock, kill_switch
from statestore.archive.layout import snapshot_place, time_ordered_uuid
from statestore.archive.manifest import Manifest
from statestore.archive.pins import ListedPin, Pin, listed_pins, pin, unpin
from statestore.archive.server_time import server_time_ms
from statestore.archive.snapshots import begin_generation, history, mark_suspect, missing_files
from statestore.archive.upload import commit
from statestore.changelog import brokers_clock
from statestore.errors import InputError, SnapshotError
from statestore.objects.store import ObjectStore
from statestore.partition.generations import snapshot_directory
from statestore.partition.snapshots import compared_end, inadmissible
from statestore.partition.spec import StorePartitionSpec

#: Begins the names of pins that keep what restores have replaced.
REPLACED = "replaced-"


def reinstate(spec: StorePartitionSpec, snapshot: Manifest, why: str) -> Manifest:
    """Make a snapshot the store again; return the one that begins the generation, with the same files.

    Parameters
    ----------
    why
        For people: who did it, and on what occasion.

    Raises
    ------
    InputError
        If the store's log does not continue the snapshot any more, or the archive lacks one of its files.
    SnapshotError
        If another store has begun a generation meanwhile: nothing has changed then.
    """
    objects, directory = spec.snapshot_archive.open(), snapshot_directory(spec)
    asked_ms = brokers_clock.now_ms(spec.cluster)
    log = spec.cluster.topics.log_ranges([spec.partition])[spec.partition]
    if against := inadmissible(spec, snapshot, log, compared_end(spec, snapshot), asked_ms):
        raise InputError(
            f"snapshot {snapshot.name} of {spec.store_partition} cannot be reinstated: {against}. Build it "
            "elsewhere with restore, mode as-of and the same snapshot"
        )
    if missing := missing_files(objects, snapshot.files):
        raise InputError(
            f"snapshot {snapshot.name} of {spec.store_partition} cannot be reinstated: the archive lacks "
            f"{len(missing)} of its files; reinstate an older one"
        )
    newest = history(objects, directory).generation
    made = snapshot.model_copy(
        update={
            "generation": newest + 1,
            "uuid": time_ordered_uuid(clock.now_ms()),
            "parent": None,
            "begins": True,
            "by_hand": why,
            "source": "restore",
            "host": socket.gethostname(),
            "written_ms": clock.now_ms(),
            "written_by": version("statestore"),
        }
    )
    commit(objects, made)
    kill_switch.reached("snapshot, reinstated manifest written")
    # Clean-up sees from now on that its files are needed; what it had removed before, nobody has any more.
    if missing_files(objects, made.files) or not begin_generation(objects, made, why, uuid4().hex):
        mark_suspect(objects, directory, made.name, "it did not begin its generation")
        raise SnapshotError(
            f"{spec.store_partition}: another store has begun generation {newest + 1} in the meantime, or a file no "
            f"longer exists. List the snapshots, then decide again"
        )
    return made


def keep_replaced(spec: StorePartitionSpec, snapshot: Manifest, label: str) -> str:
    """Pin a snapshot that a restore is about to replace, so that it can be reinstated; return its name.

    If an earlier attempt has put this snapshot there, it is what that one has replaced.
    """
    before = replaced_by(spec, label)
    if before is not None and (before == str(snapshot.name) or snapshot.record.restored_by == label):
        return before
    made = Pin(
        name=f"{REPLACED}{uuid4().hex}",
        snapshots=(snapshot.directory.snapshot(snapshot.name),),
        by=_restore(label),
        why=f"{spec.store_partition} was restored",
        written_ms=clock.now_ms(),
    )
    pin(spec.snapshot_archive.open(), made)
    return str(snapshot.name)


def replaced_by(spec: StorePartitionSpec, label: str) -> str | None:
    """Return the name of the snapshot that a restore has replaced last, or was about to; None if there is none."""
    made = [one for one in _replaced_pins(spec) if one.pin.by == _restore(label)]
    last = max(made, key=lambda one: (one.created_ms, one.pin.written_ms), default=None)
    place = None if last is None else snapshot_place(last.pin.snapshots[0])
    return None if place is None else str(place[1])


def unpin_old(objects: ObjectStore, older_than_s: float, *, dry_run: bool) -> tuple[str, ...]:
    """Remove pins of snapshots that restores replaced so long ago, by the archive's clock; return these snapshots."""
    found = [one for one in listed_pins(objects) if one.pin.name.startswith(REPLACED)]
    before_ms = server_time_ms(objects) - older_than_s * 1000 if found else 0
    old = [one.pin for one in found if one.created_ms < before_ms]
    for one in () if dry_run else old:
        unpin(objects, one.name)
    return tuple(name for one in old for name in one.snapshots)


def release_replaced_pins(spec: StorePartitionSpec, before_ms: int) -> int:
    """Remove the pins that keep what restores of a store partition had replaced by then; return how many.

    Parameters
    ----------
    before_ms
        Time by the archive's clock (`server_time_ms`) before the store was read that has passed validation: pins of
        later replacements stay.
    """
    if not spec.home.pins_replaced:
        return 0
    found = [one.pin for one in _replaced_pins(spec) if one.created_ms < before_ms]
    for one in found:
        unpin(spec.snapshot_archive.open(), one.name)
    return len(found)


def _replaced_pins(spec: StorePartitionSpec) -> list[ListedPin]:
    objects, directory = spec.snapshot_archive.open(), f"{snapshot_directory(spec)}/"
    found = (one for one in listed_pins(objects) if one.pin.name.startswith(REPLACED))
    return [one for one in found if one.pin.snapshots[0].startswith(directory)]


def _restore(label: str) -> str:
    return f"restore {label}"
