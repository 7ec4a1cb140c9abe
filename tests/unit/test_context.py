"""What a task tells its stores when they are opened."""

from __future__ import annotations

from statestore.durable import write_durably
from statestore.statedir.context import forget_mode, store_context
from statestore.stores.api import UNCOMMITTED_MAX_BYTES, StoreContext


def test_a_store_is_opened_in_the_context_of_its_task_and_with_what_was_asked_for(paths):
    def opening(store):
        raise AssertionError(f"{store} is not opened here")

    def setter(store, options):
        raise AssertionError(f"{store} is not set up here")

    made = store_context(
        paths,
        uncommitted_max_bytes=5,
        recording_level="DEBUG",
        opening=opening,
        read_only=True,
        exactly_once=False,
        config_setter=setter,
    )
    assert made == StoreContext(
        application="app",
        task=paths.task,
        task_directory=paths.task_dir,
        own_directory=paths.own_dir,
        read_only=True,
        exactly_once=False,
        uncommitted_max_bytes=5,
        recording_level="DEBUG",
        opening=opening,
        config_setter=setter,
    )
    usual = store_context(paths)
    assert (usual.read_only, usual.exactly_once, usual.recording_level) == (False, True, "INFO")
    assert (usual.uncommitted_max_bytes, usual.opening, usual.config_setter) == (UNCOMMITTED_MAX_BYTES, None, None)


def test_how_a_store_was_used_is_forgotten_by_itself(paths):
    for store in ("s", "t"):
        write_durably(paths.mode(store), "record")
    forget_mode(paths, "s")
    forget_mode(paths, "s")
    assert (paths.mode("s").exists(), paths.mode("t").exists()) == (False, True)
