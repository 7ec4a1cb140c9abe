"""The directory of a store, wherever it lies: live in a state directory, in quarantine, or copied elsewhere.

A key-value store is one database. A window or session store is a directory of segments, `<store>.<start in ms>`, a
database each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from statestore.errors import InputError
from statestore.kinds.segment_directories import segment_store, segments_in
from statestore.model import KEY_VALUE_DIRECTORY, TaskId
from statestore.partition.spec import GLOBAL_TASK
from statestore.statedir.paths import OWN_DIRECTORY, TaskPaths, task_paths

#: File that each database has.
DATABASE_FILE = "CURRENT"
#: So many directories lie between a store and its task's at most: `quarantine/<store>/` are two.
_LEVELS = 3


@dataclass(frozen=True)
class StoreDirectory:
    """The directory of a store partition.

    Attributes
    ----------
    segmented
        True for a window or session store.
    directory
        A key-value store's database, or all segments of another.
    application, task
        Whose store it is; None if the directory does not tell.
    """

    name: str
    segmented: bool
    directory: Path
    application: str | None
    task: TaskId | None

    @property
    def partition(self) -> int | None:
        """Partition of the task."""
        return None if self.task is None else self.task.partition

    @property
    def paths(self) -> TaskPaths | None:
        """Paths of the task, whose lock guards the store; None if it is not live, and no task could be using it."""
        return None

    def databases(self) -> dict[int, Path]:
        """Directories of its databases by segment start (ms), in order; a key-value store's only one is at 0.

        Raises
        ------
        FileNotFoundError
            If the store is no longer there.
        """
        return segments_in(self.directory) if self.segmented else {0: self.directory}


@dataclass(frozen=True)
class LiveStore(StoreDirectory):
    """The directory of a store partition that lies where its task uses it."""

    application: str
    task: TaskId
    state_dir: Path

    @property
    def paths(self) -> TaskPaths:
        """Paths of the task, whose lock guards the store."""
        return task_paths(self.state_dir, self.application, self.task)


def store_at(path: Path) -> StoreDirectory | None:
    """Return the store that a directory is, wherever it lies; None if it is none.

    Raises
    ------
    InputError
        If it is one segment of a store.
    """
    is_database = (path / DATABASE_FILE).exists()
    inside = [found.name for found in path.iterdir() if found.is_dir()]
    segments = [store for name in inside if (store := segment_store(name)) is not None]
    segmented = bool(segments) and len(segments) == len(inside) and len(set(segments)) == 1
    if is_database and segment_store(path.name) == path.parent.name:
        raise InputError(f"{path} is one segment of a window or session store: give the path {path.parent}")
    live = _live_store(path)
    if not (is_database or segmented):
        return live if not inside else None
    if live is not None:
        return replace(live, segmented=segmented)
    name = segments[0] if segmented else path.name
    if path.parent.parent.name == "quarantine":
        name = path.parent.name
    task_dir, task = _task_above(path)
    return StoreDirectory(name, segmented, path, None if task is None else task_dir.parent.name, task)


def _live_store(path: Path) -> LiveStore | None:
    """Return the store that lies at a place where Kafka Streams has live ones."""
    task_dir, task = _task_above(path)
    segmented = path.parent == task_dir
    live = segmented or path.parent == task_dir / KEY_VALUE_DIRECTORY
    if task is None or not live or OWN_DIRECTORY in path.parts:
        return None
    application_dir = task_dir.parent
    return LiveStore(path.name, segmented, path, application_dir.name, task, application_dir.parent)


def _task_above(path: Path) -> tuple[Path, TaskId | None]:
    """Return the nearest directory above that has a task's name, and that task."""
    for above in path.parents[:_LEVELS]:
        if above.name == str(GLOBAL_TASK):
            return above, GLOBAL_TASK
        if re.fullmatch(r"\d{1,9}_\d{1,9}", above.name):
            return above, TaskId.parse(above.name)
    return path, None
