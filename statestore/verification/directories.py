"""Which stores lie in a state directory, by the names of its directories alone; nothing is opened.

    <state.dir>/<application.id>/<task id>/rocksdb/<store>/                    key-value stores
    <state.dir>/<application.id>/<task id>/<store>/<store>.<segment start>/    window and session stores
    <state.dir>/<application.id>/global/...                                    global stores, laid out as a task's

What is named otherwise is no store of Kafka Streams, or one that we do not know: it is told and left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from statestore.errors import InputError
from statestore.model import TaskId, check_name
from statestore.partition.spec import GLOBAL_TASK

_KEY_VALUE_STORES = "rocksdb"


class StoreHere(NamedTuple):
    """A store of one task that has a directory."""

    name: str
    task: TaskId
    segmented: bool
    directory: Path


class LeftAlone(NamedTuple):
    """Something that is not touched, and why."""

    path: Path
    reason: str


def applications_in(state_dir: Path) -> list[str]:
    """Return the applications that have a directory, in order."""
    found = _directories(state_dir) if state_dir.is_dir() else ()
    return sorted(path.name for path in found if not path.name.startswith(".") and _problem(path) is None)


def tasks_in(state_dir: Path, application: str) -> list[TaskId]:
    """Return the tasks that have a directory, with `GLOBAL_TASK` if there is one of global stores."""
    directory = _application(state_dir, application)
    found = [_task(path.name) for path in _directories(directory)] if directory.is_dir() else []
    return sorted(task for task in found if task is not None)


def stores_in(state_dir: Path, application: str) -> tuple[list[StoreHere], list[LeftAlone]]:
    """Return the stores that have a directory, and what is no store that we know.

    Raises
    ------
    InputError
        If the application's directory or a task's is a symbolic link, or the name cannot be that of an application.
    """
    directory = _application(state_dir, application)
    stores: list[StoreHere] = []
    others: list[LeftAlone] = []
    for task in tasks_in(state_dir, application):
        task_dir = directory / str(task)
        for path in (directory, task_dir):
            if path.is_symlink():
                raise InputError(f"{path} is a symbolic link, expected a directory; name the state directory itself")
        for path in _directories(task_dir):
            if path.name.startswith("."):
                continue
            segmented = path.name != _KEY_VALUE_STORES
            for store in [path] if segmented else _directories(path):
                reason = _problem(store) or (_foreign_segment(store) if segmented else None)
                if reason is None:
                    stores.append(StoreHere(store.name, task, segmented, store))
                else:
                    others.append(LeftAlone(store, reason))
    return stores, others


def segments_in(store: Path) -> list[tuple[int, Path]]:
    """Return start (ms) and directory of each segment, in order of time."""
    found = [(int(path.name.removeprefix(f"{store.name}.")), path) for path in _directories(store)]
    return sorted(found)


def _application(state_dir: Path, name: str) -> Path:
    try:
        return state_dir / check_name(name)
    except ValueError as error:
        raise InputError(f"application {error}") from error


def _foreign_segment(store: Path) -> str | None:
    for path in _directories(store):
        start = path.name.removeprefix(f"{store.name}.")
        if path.is_symlink() or not path.name.startswith(f"{store.name}.") or not (start.isascii() and start.isdigit()):
            return f"{path.name} in it is no segment, expected {store.name}.<start in ms>"
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
    return (found for found in sorted(path.iterdir()) if found.is_dir())
