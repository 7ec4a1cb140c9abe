"""Where stores lie that are to be read: by a directory, or by the name of an application."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from statestore.errors import InputError, UnknownApplicationError, UnknownStoreError
from statestore.model import TaskId, check_name
from statestore.partition.spec import GLOBAL_TASK
from statestore.statedir.paths import TaskPaths
from statestore.verification.directories import StoreHere, stores_in, tasks_in
from statestore_jobs.sources.options import partition_list, required

#: Options that say where stores are (see `places_of`).
PLACE_OPTIONS = ("path", "application", "state_dir", "store", "partitions")
_STATE_DIR_VARIABLE = "STATESTORE_STATE_DIR"
_DATABASE_FILE = "CURRENT"
#: So many directories lie between a store and its task's at most: `quarantine/<store>/` are two.
_LEVELS = 3
_SEGMENT = re.compile(r"(?P<store>.+)\.(?P<start>[0-9]{1,19})")
_EXPECTED = (
    "expected a store's own directory (a RocksDB database, or a directory of segments) or an application's, "
    "<state_dir>/<application>, with its tasks"
)


class Place(NamedTuple):
    """A store partition on disk.

    Attributes
    ----------
    application
        Whose store it is; None if the directory does not tell.
    task
        Whose task's; None if the directory does not tell.
    segmented
        True for a window or session store.
    directory
        A key-value store's database, or all segments of another.
    state_dir
        The state directory that it is live in; None where it is elsewhere, in quarantine for example, where it has no
        task that could be using it.
    """

    application: str | None
    store: str
    task: TaskId | None
    segmented: bool
    directory: Path
    state_dir: Path | None

    @property
    def partition(self) -> int | None:
        """Partition of the task."""
        return None if self.task is None else self.task.partition

    @property
    def paths(self) -> TaskPaths | None:
        """Paths of the task, whose lock guards the store; None if it is not live."""
        if self.state_dir is None or self.application is None or self.task is None:
            return None
        return TaskPaths(self.state_dir, self.application, self.task)

    def databases(self) -> dict[int, Path]:
        """Directories of its databases by segment start (ms), in order; a key-value store's only one is at 0.

        Raises
        ------
        FileNotFoundError
            If the store is no longer there.
        """
        if not self.segmented:
            return {0: self.directory}
        return dict(sorted((_segment_start(path), path) for path in self.directory.iterdir() if path.is_dir()))


def places_of(options: Mapping[str, str]) -> list[Place]:
    """Find the partitions of the store that the options name, in order; of all stores if they name none.

    Raises
    ------
    InputError
        If the options contradict each other, or name what is not there; the message tells what is.
    """
    if ("path" in options) == ("application" in options):
        raise InputError("expected exactly one of the options path and application")
    if "application" in options:
        try:
            application = check_name(required(options, "application"))
        except ValueError as error:
            raise InputError(f"option application: {error}") from error
        return _of_application(_state_dir(options), application, options)
    if "state_dir" in options:
        raise InputError("option state_dir goes with application; a path needs none")
    path = Path(required(options, "path")).absolute()
    if not path.is_dir():
        raise UnknownStoreError(f"{path} is no directory; {_EXPECTED}")
    if (place := _store_at(path)) is None:
        try:
            return _of_application(path.parent, check_name(path.name), options)
        except ValueError as error:
            raise UnknownStoreError(f"{path} is no store; {_EXPECTED}") from error
    for name in ("store", "partitions"):
        if name in options:
            raise InputError(f"{path} is one partition of one store: leave option {name} out")
    return [place]


def _state_dir(options: Mapping[str, str]) -> Path:
    given = options.get("state_dir", "").strip() or os.environ.get(_STATE_DIR_VARIABLE, "").strip()
    if not given:
        raise InputError(
            f"option state_dir is missing: add .option('state_dir', ...), or set {_STATE_DIR_VARIABLE} for the driver"
        )
    return Path(given).absolute()


def _of_application(state_dir: Path, application: str, options: Mapping[str, str]) -> list[Place]:
    directory = state_dir / application
    tasks = tasks_in(state_dir, application)
    if not tasks:
        by_name = "correct state_dir or application" if "application" in options else _EXPECTED
        raise UnknownApplicationError(f"no task directory 0_0, 0_1, ... in {directory}: {by_name}")
    stores, others = stores_in(state_dir, application)
    asked = partition_list(options)
    if "store" not in options:
        found = [store for store in stores if asked is None or store.task.partition in asked]
        return [_place(state_dir, application, store) for store in found]
    try:
        name = check_name(required(options, "store"))
    except ValueError as error:
        raise InputError(f"option store: {error}") from error
    here = {store.task: store for store in stores if store.name == name}
    if not here:
        reason = next((f"; {other.path}: {other.reason}" for other in others if other.path.name == name), "")
        known = ", ".join(sorted({store.name for store in stores})) or "none"
        raise UnknownStoreError(
            f"no store {name} of application {application} in {directory}, its stores there are: {known}{reason}"
        )
    wanted = _tasks_of(here, tasks, asked)
    if missing := [task for task in wanted if task not in here]:
        raise UnknownStoreError(
            f"no store {name} of application {application} for partition {missing[0].partition} in "
            f"{directory / str(missing[0])}: restore the store, or name the partitions to read"
        )
    return [_place(state_dir, application, here[task]) for task in wanted]


def _tasks_of(
    here: Mapping[TaskId, StoreHere], tasks: Sequence[TaskId], asked: Sequence[int] | None
) -> Sequence[TaskId]:
    """Tasks that must have the store: those of its subtopology."""
    if GLOBAL_TASK in here:
        return [GLOBAL_TASK]
    subtopology = min(here).subtopology
    if asked is not None:
        return [TaskId(subtopology, partition) for partition in asked]
    return [task for task in tasks if task.subtopology == subtopology]


def _place(state_dir: Path, application: str, store: StoreHere) -> Place:
    return Place(application, store.name, store.task, store.segmented, store.directory, state_dir)


def _store_at(path: Path) -> Place | None:
    """Return the store that a directory is, wherever it lies; None if it is none."""
    is_database = (path / _DATABASE_FILE).exists()
    inside = [found.name for found in path.iterdir() if found.is_dir()]
    segments = [match["store"] for name in inside if (match := _SEGMENT.fullmatch(name))]
    segmented = bool(segments) and len(segments) == len(inside) and len(set(segments)) == 1
    live = _live_store(path)
    if is_database and (match := _SEGMENT.fullmatch(path.name)) and path.parent.name == match["store"]:
        raise InputError(f"{path} is one segment of a window or session store: give the path {path.parent}")
    if is_database or segmented:
        name = segments[0] if segmented else path.name
        if live is not None:
            return live._replace(segmented=segmented)
        if path.parent.parent.name == "quarantine":
            name = path.parent.name
        task_dir, task = _task_above(path)
        return Place(None if task is None else task_dir.parent.name, name, task, segmented, path, None)
    return live if live is not None and not inside else None


def _live_store(path: Path) -> Place | None:
    """Return the store that lies at a place where Kafka Streams has live ones."""
    task_dir, task = _task_above(path)
    segmented = path.parent == task_dir
    if task is None or not (segmented or path.parent == task_dir / "rocksdb") or ".statestore" in path.parts:
        return None
    application_dir = task_dir.parent
    return Place(application_dir.name, path.name, task, segmented, path, application_dir.parent)


def _task_above(path: Path) -> tuple[Path, TaskId | None]:
    """Return the nearest directory above that has a task's name, and that task."""
    for above in path.parents[:_LEVELS]:
        if above.name == str(GLOBAL_TASK):
            return above, GLOBAL_TASK
        if re.fullmatch(r"\d{1,9}_\d{1,9}", above.name):
            return above, TaskId.parse(above.name)
    return path, None


def _segment_start(path: Path) -> int:
    match = _SEGMENT.fullmatch(path.name)
    if match is None:
        raise InputError(f"{path} is no segment of a window or session store, expected <store>.<start in ms>")
    return int(match["start"])
