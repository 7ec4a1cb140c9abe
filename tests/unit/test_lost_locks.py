"""Lock files that somebody has deleted: two processes never both take a task for theirs, or an open store for free."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from children import child, hold_lock_file, hold_store, received
from samples import TIMESTAMPED, contents

from statestore.errors import LockedError
from statestore.partition.quarantine import release
from statestore.statedir import lock
from statestore.statedir.lock import locked, locked_file
from statestore.statedir.swap import swap
from statestore.stores.open import open_key_value_store

_WAIT_S = 60


@pytest.mark.parametrize("name", ["lock", ".lock"])
def test_who_waited_for_a_file_that_was_deleted_waits_for_the_one_that_came_after_it(paths, name, monkeypatch):
    path = (paths.own_dir if name == "lock" else paths.application_dir) / name
    took: list[str] = []
    waits, goes_on = threading.Event(), threading.Event()

    def sleep(seconds: float) -> None:
        waits.set()
        goes_on.wait(_WAIT_S)
        time.sleep(seconds)

    def take() -> None:
        try:
            with locked(paths, wait_s=3):
                took.append("held")
        except LockedError as error:
            took.append(str(error))

    with child(hold_lock_file, path) as (_, first):
        assert received(first) == "held"
        # Nothing but its sleep tells from outside that somebody waits.
        monkeypatch.setattr(lock, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
        waiting = threading.Thread(target=take)
        waiting.start()
        assert waits.wait(_WAIT_S)
        other = path.with_name("other")
        with child(hold_lock_file, other) as (_, second):
            assert received(second) == "held"
            other.replace(path)  # deleted and made anew, and at no time free
            first.send("release")
            assert received(first) == "released"
            goes_on.set()  # before that, it would make the file anew itself
            waiting.join(_WAIT_S)
            assert [found.partition(" by another process")[0] for found in took] == [f"{path} is locked"]


def test_a_file_that_was_replaced_right_before_it_was_locked_is_no_lock(tmp_path, monkeypatch):
    path, other = tmp_path / "lock", tmp_path / "other"
    try_lock = lock._try_lock

    def replaced_before(descriptor: int, kind: int) -> bool:
        if other.exists():  # between opening and locking are microseconds, which no test can meet
            other.replace(path)
        return try_lock(descriptor, kind)

    with child(hold_lock_file, other) as (_, connection):
        assert received(connection) == "held"
        monkeypatch.setattr(lock, "_try_lock", replaced_before)
        with pytest.raises(LockedError, match="lock is locked by another process"):
            locked_file(path, wait_s=0.2).__enter__()


def test_a_lock_whose_file_is_deleted_again_and_again_is_had_in_the_end(paths):
    stop = threading.Event()

    def delete() -> None:
        while not stop.is_set():
            (paths.own_dir / "lock").unlink(missing_ok=True)

    deleting = threading.Thread(target=delete)
    deleting.start()
    timer = threading.Timer(0.5, stop.set)
    timer.start()
    try:
        with locked(paths, wait_s=_WAIT_S):
            pass
    finally:
        timer.join()
        stop.set()
        deleting.join(_WAIT_S)


def lay_out(paths):
    """A live store, one that is to replace it, and one that was replaced."""
    for directory, raw in ((paths.store("s"), b"old"), (paths.staging("s"), b"new"), (paths.quarantine("s", "r"), b"")):
        directory.mkdir(parents=True)
        (directory / "CURRENT").write_bytes(raw)


@pytest.mark.parametrize("taken", [True, False], ids=["taken by another", "gone"])
@pytest.mark.parametrize("name", ["lock", ".lock"])
def test_who_has_lost_its_lock_file_neither_replaces_nor_removes_a_store(paths, name, taken):
    lay_out(paths)
    before = contents(paths.state_dir)
    path = (paths.own_dir if name == "lock" else paths.application_dir) / name
    with locked(paths):
        path.unlink()
        with child(hold_lock_file, path) if taken else nullcontext((None, None)) as (_, other):
            assert not taken or received(other) == "held"
            lost = rf"{name} is no longer the file that this process has locked.*run again"
            with pytest.raises(LockedError, match=lost):
                swap(paths, TIMESTAMPED, "run")
            with pytest.raises(LockedError, match=lost):
                release(paths, "s", "r")
    after = contents(paths.state_dir)
    assert {file: raw for file, raw in after.items() if "lock" not in file} == before


def test_a_task_that_is_locked_can_still_be_had_by_its_holder_when_it_looks_again(paths):
    lay_out(paths)
    with locked(paths):
        assert swap(paths, TIMESTAMPED, "run") == paths.quarantine("s", "run")
        release(paths, "s", "r")
    assert contents(paths.store("s")) == {"CURRENT": b"new"}


# -- databases that are open ------------------------------------------------------------------------------------------


def database_of(paths, kind):
    """Directory of a store's database, or of a window store's newest segment."""
    return paths.store("s") if kind == "key-value" else paths.task_dir / "s" / "s.60000"


@pytest.mark.parametrize("kind", ["key-value", "window"])
def test_a_database_that_another_process_has_open_is_locked_whatever_our_own_locks_say(paths, kind):
    directory = database_of(paths, kind)
    with child(hold_store, directory) as (process, connection):
        assert received(connection) == "open"
        held = rf"{directory}/LOCK is locked by process {process.pid}: .*stop"
        with pytest.raises(LockedError, match=held), locked(paths, wait_s=0.2):
            pass
        process.kill()
        process.join(_WAIT_S)
    with locked(paths, wait_s=0):
        pass


def test_a_database_that_is_closed_meanwhile_is_had(paths):
    with child(hold_store, paths.store("s")) as (_, connection):
        assert received(connection) == "open"
        timer = threading.Timer(0.3, connection.send, ["close"])
        timer.start()
        with locked(paths, wait_s=_WAIT_S):
            pass
        timer.join()


def test_a_database_whose_own_lock_file_was_deleted_is_locked_as_long_as_somebody_has_it_open(paths):
    with child(hold_store, paths.store("s")) as (process, connection):
        assert received(connection) == "open"
        (paths.store("s") / "LOCK").unlink()
        with pytest.raises(LockedError, match=rf"{paths.store('s')} is open in process {process.pid}.*LOCK"):
            locked(paths, wait_s=0).__enter__()
        process.kill()
        process.join(_WAIT_S)
    with locked(paths, wait_s=0):
        pass


def test_no_store_is_replaced_that_another_process_has_opened_since(paths):
    lay_out(paths)
    (paths.store("s") / "CURRENT").unlink()
    with locked(paths), child(hold_store, paths.store("s")) as (_, connection):
        assert received(connection) == "open"
        with pytest.raises(LockedError, match="LOCK is locked by process"):
            swap(paths, TIMESTAMPED, "run")
        assert not paths.journal("s").exists()


def test_looking_for_others_lets_nobody_in_to_what_this_process_has_open(paths):
    # All POSIX locks of a process on a file are gone when it closes any descriptor of that file.
    with locked(paths):
        store = open_key_value_store(TIMESTAMPED, paths.store("s"))
        other = paths._replace(task=paths.task._replace(partition=1))
        with locked(other, wait_s=0), pytest.raises(LockedError):
            locked(paths, wait_s=0).__enter__()
    with locked(paths, wait_s=0):  # ours is no other process
        with child(hold_store, paths.store("s")) as (process, _):
            process.join(_WAIT_S)
            assert process.exitcode == 1, "another process has opened it"
        store.close()
