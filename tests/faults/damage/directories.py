"""Faults of whole directories: gone, emptied, an older copy, another store's, another partition's.

A segment is a database of its own, so window and session stores lose and mix up those, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from statestore.reports import Action, Status
from statestore.statedir.paths import TaskPaths
from tests.faults.damage.stores import FORMATS, OTHER_TASK, TASK, Copy

#: A store of the same kind and another format, or of the other windowed kind.
_NEIGHBOUR = {"counts": "latest", "latest": "counts", "hourly": "visits", "visits": "hourly"}
SEGMENTED = ("hourly", "visits")


class DirectoryFault(NamedTuple):
    """What is done to a copy and a store in it.

    Attributes
    ----------
    sealed, unsealed
        What it may be taken for; an unsealed store is verified deeply.
    action
        What must follow; None: whatever mends it.
    """

    inflict: Callable[[Copy, str], object]
    sealed: set[Status]
    unsealed: set[Status]
    action: Action | None = Action.FULL


def faults_of(store: str) -> dict[str, DirectoryFault]:
    """Faults of the directories of a store, by name."""
    lost, corrupt, foreign = {Status.MISSING}, {Status.CORRUPT}, {Status.CORRUPT, Status.DOWNGRADED}
    faults = {
        "gone": DirectoryFault(_lose, lost, lost),
        # Where the log is not compacted, a tail mends it.
        "older copy": DirectoryFault(_put_older_back, corrupt, {Status.LAGGING}, None),
        "older copy with all that we keep": DirectoryFault(
            _put_all_back, {Status.LAGGING}, {Status.LAGGING}, Action.TAIL
        ),
        "another store's": DirectoryFault(_put_another_stores, foreign, foreign),
        "another partition's": DirectoryFault(_put_another_partitions, corrupt, corrupt),
        # By its record it may have had more than this log has, and then it is for a person.
        "another partition's with all that we keep": DirectoryFault(
            _put_all_of_another_partition, corrupt, corrupt, None
        ),
    }
    if store not in SEGMENTED:
        return {**faults, "emptied": DirectoryFault(_empty, corrupt, corrupt)}
    return {
        **faults,
        # Without segments there are no offsets, so the log is read from its start.
        "emptied": DirectoryFault(_empty, corrupt, {Status.LAGGING}, None),
        "segment gone": DirectoryFault(_lose_a_segment, corrupt, {Status.DIVERGED, Status.WRONG_OFFSET}),
        "segments swapped": DirectoryFault(_swap_segments, corrupt, {Status.DIVERGED}),
        "another partition's segment": DirectoryFault(_put_another_partitions_segment, corrupt, corrupt),
    }


def _lose(copy: Copy, store: str) -> None:
    shutil.rmtree(copy.live(store))


def _empty(copy: Copy, store: str) -> None:
    _lose(copy, store)
    copy.live(store).mkdir()


def _replace(copy: Copy, store: str, source: Path) -> None:
    _lose(copy, store)
    shutil.copytree(source, copy.live(store))


def _put_older_back(copy: Copy, store: str) -> None:
    subject = copy.original.subject
    _replace(copy, store, subject.paths(TASK, copy.original.older).live(copy.original.store(store)))


def _put_all_back(copy: Copy, store: str) -> None:
    _put_older_back(copy, store)
    _replace_own(copy, store, copy.original.subject.paths(TASK, copy.original.older))


def _replace_own(copy: Copy, store: str, source: TaskPaths) -> None:
    """Replace what we keep of a store, the seal only where there is one."""
    sealed = copy.paths.seal(store).exists()
    shutil.copy2(source.record(store), copy.paths.record(store))
    if sealed:
        shutil.copy2(source.seal(store), copy.paths.seal(store))
        shutil.copy2(source.digests(store), copy.paths.digests(store))


def _put_another_stores(copy: Copy, store: str) -> None:
    other = _NEIGHBOUR[store]
    assert FORMATS[other] is not FORMATS[store]
    _replace(copy, store, copy.live(other))


def _put_another_partitions(copy: Copy, store: str) -> None:
    _replace(copy, store, copy.live(store, OTHER_TASK))


def _put_all_of_another_partition(copy: Copy, store: str) -> None:
    _put_another_partitions(copy, store)
    _replace_own(copy, store, copy.original.subject.paths(OTHER_TASK, copy.state_dir))


def _segments(directory: Path) -> list[Path]:
    found = sorted(directory.iterdir(), key=lambda path: int(path.name.rpartition(".")[2]))
    assert len(found) > 1, f"too few segments in {directory}"
    return found


def _lose_a_segment(copy: Copy, store: str) -> None:
    shutil.rmtree(_segments(copy.live(store))[-1])


def _swap_segments(copy: Copy, store: str) -> None:
    first, second, *_ = _segments(copy.live(store))
    aside = copy.state_dir / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def _put_another_partitions_segment(copy: Copy, store: str) -> None:
    theirs = {path.name: path for path in _segments(copy.live(store, OTHER_TASK))}
    ours = next(path for path in _segments(copy.live(store)) if path.name in theirs)
    shutil.rmtree(ours)
    shutil.copytree(theirs[ours.name], ours)
