"""What a task tells its stores: where they live, and what they may take of the machine."""

from __future__ import annotations

from collections.abc import Callable

from statestore.statedir.paths import TaskPaths
from statestore.stores.api import UNCOMMITTED_MAX_BYTES, StoreContext
from statestore.stores.rocksdb_options import ConfigSetter


def store_context(
    paths: TaskPaths,
    *,
    uncommitted_max_bytes: int = UNCOMMITTED_MAX_BYTES,
    recording_level: str = "INFO",
    opening: Callable[[str], None] | None = None,
    read_only: bool = False,
    exactly_once: bool = True,
    config_setter: ConfigSetter | None = None,
) -> StoreContext:
    """Return the context that a task's stores are opened in."""
    return StoreContext(
        application=paths.application,
        task=paths.task,
        task_directory=paths.task_dir,
        own_directory=paths.own_dir,
        read_only=read_only,
        exactly_once=exactly_once,
        uncommitted_max_bytes=uncommitted_max_bytes,
        recording_level=recording_level,
        opening=opening,
        config_setter=config_setter,
    )


def forget_mode(paths: TaskPaths, store: str) -> None:
    """Remove the record of how a store was last used; call it once the store is closed cleanly, or gone.

    A record that a power cut brings back is not believed: it speaks of no other opening than its own.
    """
    paths.mode(store).unlink(missing_ok=True)
