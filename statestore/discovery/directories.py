"""Finds the stores in a state directory by the names of its directories; nothing is opened.

    <state.dir>/<application.id>/<task id>/rocksdb/<store>/                    key-value stores
    <state.dir>/<application.id>/<task id>/<store>/<store>.<segment start>/    window and session stores
    <state.dir>/<application.id>/global/...                                    global stores, laid out as a task's

What is named otherwise is no store of Kafka Streams, or one that we do not know: it is told and left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from statestore.discovery.store_directory import DATABASE_FILE, LiveStore, StoreDirectory, store_at
from statestore.errors import InputError, UnknownApplicationError, UnknownStoreError
from statestore.kinds.segment_directories import segment_store
from statestore.model import KEY_VALUE_DIRECTORY, TaskId, check_name
from statestore.partition.spec import GLOBAL_TASK
from statestore.statedir.paths import OWN_DIRECTORY

_EXPECTED = (
    "expected a store's own directory (a RocksDB database, or a directory of segments) or an application's, "
    "<state_dir>/<application>, with its tasks"
)


class LeftAlone(NamedTuple):
    """Something that is not touched, and why."""

    path: Path
    reason: str


def applications_in(state_dir: Path) -> list[str]:
    """Return the applications that have a directory, in order."""
    found = [path for path in _directories(state_dir) if _problem(path) is None] if state_dir.is_dir() else []
    return [path.name for path in found if not path.name.startswith(".") or tasks_in(state_dir, path.name)]


def unusable_applications(state_dir: Path) -> list[LeftAlone]:
    """Return the directories that have tasks in them, as those of applications, and cannot be looked into."""
    found = [(path, _problem(path)) for path in _directories(state_dir)] if state_dir.is_dir() else []
    return [
        LeftAlone(path, reason)
        for path, reason in found
        if reason is not None and (_has_tasks(path) or _is_dangling(path))
    ]


def tasks_in(state_dir: Path, application: str) -> list[TaskId]:
    """Return the tasks that have a directory, with `GLOBAL_TASK` if there is one of global stores."""
    directory = state_dir / _checked("application", application)
    found = [_task(path.name) for path in _directories(directory)] if directory.is_dir() else []
    return sorted(task for task in found if task is not None)


def stores_in(state_dir: Path, application: str) -> tuple[list[LiveStore], list[LeftAlone]]:
    """Return the stores that have a directory, and what is no store that we know.

    Raises
    ------
    InputError
        If the application's directory or a task's is a symbolic link, or the name cannot be that of an application.
    """
    directory = state_dir / _checked("application", application)
    stores: list[LiveStore] = []
    inside = _directories(directory) if directory.is_dir() else ()
    others = [
        LeftAlone(path, "it has tasks in it, as the directories of named topologies, which are not supported")
        for path in inside
        if _task(path.name) is None and _has_tasks(path)
    ]
    for task in tasks_in(state_dir, application):
        task_dir = directory / str(task)
        for path in (directory, task_dir):
            if path.is_symlink():
                raise InputError(f"{path} is a symbolic link, expected a directory; name the state directory itself")
        for path in _directories(task_dir):
            segmented = path.name != KEY_VALUE_DIRECTORY
            if _is_dangling(path) and not segmented:
                others.append(LeftAlone(path, "it is a symbolic link to a directory that does not exist"))
                continue
            for store in [path] if segmented else _directories(path):
                if store.name.startswith(".") and not _is_store(store):
                    continue  # such as the snapshots of a file system
                reason = _problem(store) or (_foreign_segment(store) if segmented else None)
                if reason is None:
                    stores.append(LiveStore(store.name, segmented, store, application, task, state_dir))
                else:
                    others.append(LeftAlone(store, reason))
    return stores, others


def stores_named(
    state_dir: Path,
    application: str,
    name: str | None = None,
    partitions: Collection[int] | None = None,
) -> list[LiveStore]:
    """Return the partitions of a store of an application, in order: each of its tasks must have it.

    Parameters
    ----------
    name
        The store; None: all stores, where they are.
    partitions
        Only these; None: all tasks of the store's sub-topology that have a directory.

    Raises
    ------
    UnknownApplicationError, UnknownStoreError
        If there is no such application or store partition; the message tells what there is.
    InputError
        As `stores_in`.
    """
    directory = state_dir / application
    tasks = tasks_in(state_dir, application)
    if not tasks:
        raise UnknownApplicationError(f"no task directory 0_0, 0_1, ... in {directory}; {_EXPECTED}")
    stores, others = stores_in(state_dir, application)
    if name is None:
        return [store for store in stores if partitions is None or store.task.partition in partitions]
    _checked("store", name)
    here = {store.task: store for store in _live(state_dir, [store for store in stores if store.name == name])}
    if not here:
        reason = next((f"; {other.path}: {other.reason}" for other in others if other.path.name == name), "")
        known = ", ".join(sorted({store.name for store in stores})) or "none"
        raise UnknownStoreError(
            f"no store {name} of application {application} in {directory}, its stores there are: {known}{reason}"
        )
    wanted = _tasks_with(here, tasks, partitions)
    if missing := [task for task in wanted if task not in here]:
        raise UnknownStoreError(
            f"no store {name} of application {application} for partition {missing[0].partition} in "
            f"{directory / str(missing[0])}: restore the store, or name the partitions to read"
        )
    return [here[task] for task in wanted]


def stores_at(
    path: Path, name: str | None = None, partitions: Collection[int] | None = None
) -> Sequence[StoreDirectory]:
    """Return the store whose directory this is, or those of the application whose it is; see `stores_named`.

    Raises
    ------
    UnknownStoreError
        If it is no directory, or neither of these.
    InputError
        If it is one store partition, and a name or partitions are asked for.
    """
    if not path.is_dir():
        raise UnknownStoreError(f"{path} is not a directory; {_EXPECTED}")
    if (store := store_at(path)) is None:
        try:
            check_name(path.name)
        except ValueError as error:
            raise UnknownStoreError(f"{path} is not a store; {_EXPECTED}") from error
        return stores_named(path.parent, path.name, name, partitions)
    for option, asked in ("store", name), ("partitions", partitions):
        if asked is not None:
            raise InputError(f"{path} is one partition of one store: leave option {option} out")
    return [store]


def _live(state_dir: Path, stores: Sequence[LiveStore]) -> Sequence[LiveStore]:
    """Return the directories of a store that are live, if a former topology has left others behind.

    Raises
    ------
    InputError
        If only a verification can find that out.
    """
    from statestore.discovery.known_stores_file import read_known  # only here: it imports this module
    from statestore.discovery.places import Place, place_name

    if not stores:
        return stores
    application, name = stores[0].application, stores[0].name
    known = read_known(state_dir, application).get(name)
    live = [store for store in stores if known is None or place_name(store) not in known.stale]
    if len({Place.of(store) for store in live}) != 1:
        raise InputError(
            f"store {name} has the directories {' and '.join(str(store.directory) for store in stores)}, and a former "
            f"topology may have left them. Run `statestore verify --application {application}`, which records which "
            "are live; or read one directory by its path"
        )
    return live


def _tasks_with(
    here: Collection[TaskId], tasks: Sequence[TaskId], partitions: Collection[int] | None
) -> Sequence[TaskId]:
    """Tasks that must have the store: those of its sub-topology."""
    if GLOBAL_TASK in here:
        return [GLOBAL_TASK]
    subtopology = min(here).subtopology
    if partitions is not None:
        return [TaskId(subtopology, partition) for partition in sorted(partitions)]
    return [task for task in tasks if task.subtopology == subtopology]


def _checked(what: str, name: str) -> str:
    try:
        return check_name(name)
    except ValueError as error:
        raise InputError(f"{what} {error}") from error


def _has_tasks(path: Path) -> bool:
    """Return whether a directory has directories of tasks in it."""
    if path.name == OWN_DIRECTORY or not path.is_dir():
        return False
    return any(_task(found.name) is not None for found in _directories(path))


def _is_store(path: Path) -> bool:
    """Return whether a directory has a database or a segment in it."""
    is_segment = (segment_store(found.name) == path.name for found in _directories(path))
    return (path / DATABASE_FILE).exists() or any(is_segment)


def _foreign_segment(store: Path) -> str | None:
    for path in _directories(store):
        if path.is_symlink() or segment_store(path.name) != store.name:
            return f"{path.name} in it is not a segment, expected {store.name}.<start in ms>"
    return None


def _problem(path: Path) -> str | None:
    if path.is_symlink():
        return "it is a symbolic link, expected a directory"
    try:
        check_name(path.name)
    except ValueError as error:
        return str(error)
    return None


def _task(name: str) -> TaskId | None:
    if name == str(GLOBAL_TASK):
        return GLOBAL_TASK
    try:
        return TaskId.parse(name)
    except InputError:
        return None


def _directories(path: Path) -> Iterator[Path]:
    """Yield the directories, and links to what does not exist, such as a disk that is not mounted."""
    return (found for found in sorted(path.iterdir()) if found.is_dir() or _is_dangling(found))


def _is_dangling(path: Path) -> bool:
    return path.is_symlink() and not path.exists()
