"""The context that a task gives its stores: their location, and their limits."""

from __future__ import annotations

from typing import Any

from statestore.statedir.paths import TaskPaths
from statestore.stores.api import StoreContext


def store_context(paths: TaskPaths, **settings: Any) -> StoreContext:
    """Return the context that a task's stores are opened in; settings are those of `StoreContext`."""
    return StoreContext(paths.application, paths.task, paths.task_dir, paths.own_dir, **settings)


def forget_mode(paths: TaskPaths, store: str) -> None:
    """Remove the record of how a store was last used; call it once the store is closed cleanly, or gone.

    A record that a power cut brings back is not believed: it speaks of no other opening than its own.
    """
    paths.mode(store).unlink(missing_ok=True)
