"""What a task tells its stores: where they live, and how they were last used.

A store that was left open by use without transactions may hold rows that were never committed, also when it is opened
with transactions the next time. The database does not tell how it was used, so that is kept in our own directory while
the store is open. After a clean close it goes: whoever leaves the store open next, such as Kafka Streams, is not us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from statestore.durable import remove_durably, write_durably
from statestore.errors import about
from statestore.statedir.paths import TaskPaths
from statestore.stores.api import UNCOMMITTED_MAX_BYTES, StoreContext

_MODES = {"transactional": True, "direct": False}


def store_context(
    paths: TaskPaths,
    stores: Iterable[str],
    *,
    uncommitted_max_bytes: int = UNCOMMITTED_MAX_BYTES,
    recording_level: str = "INFO",
    opening: Callable[[str], None] | None = None,
    read_only: bool = False,
    exactly_once: bool = True,
) -> StoreContext:
    """Return the context that a task's stores are opened in."""
    last = {name: mode for name in stores if (mode := _last_mode(paths.mode(name))) is not None}
    return StoreContext(
        application=paths.application,
        task=paths.task,
        task_directory=paths.task_dir,
        own_directory=paths.own_dir,
        last_transactional=last,
        read_only=read_only,
        exactly_once=exactly_once,
        uncommitted_max_bytes=uncommitted_max_bytes,
        recording_level=recording_level,
        opening=opening,
    )


def remember_mode(paths: TaskPaths, store: str, *, transactional: bool) -> None:
    """Keep how an open store is used; call it before anything is written to the store."""
    if _last_mode(paths.mode(store)) is not transactional:
        write_durably(paths.mode(store), "transactional" if transactional else "direct")


def forget_mode(paths: TaskPaths, store: str) -> None:
    """Forget how a store was used; call it once the store is closed cleanly."""
    remove_durably(paths.mode(store))


def _last_mode(path: Path) -> bool | None:
    try:
        with about(path):
            return _MODES.get(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, UnicodeDecodeError):
        return None
