"""Lock files that somebody has deleted: two processes never both take a task for theirs, or an open store for free."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from children import hold_lock_file, hold_store
from samples import TIMESTAMPED, contents, open_below

from statestore.errors import LockedError
from statestore.kinds.known import BUILT_IN
from statestore.partition.quarantine import release
from statestore.partition.replacement import clear_built
from statestore.statedir import lock, open_databases
from statestore.statedir.lock import locked, locked_file, require_alone
from statestore.statedir.open_databases import open_elsewhere
from statestore.statedir.record import StoreRecord, write_record
from statestore.statedir.seal import break_seal, check_seal, seal
from statestore.statedir.swap import swap
from statestore.stores.open import open_key_value_store
from tests.forked import child, received

KEY_VALUE = BUILT_IN["key-value"]

_WAIT_S = 60


@pytest.mark.short_for("lock")
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


@pytest.mark.parametrize("name", ["lock", ".lock"])
def test_who_has_lost_its_lock_file_to_another_neither_replaces_nor_removes_a_store(paths, name):
    lay_out(paths)
    before = contents(paths.state_dir)
    path = (paths.own_dir if name == "lock" else paths.application_dir) / name
    with locked(paths):
        path.unlink()
        with child(hold_lock_file, path) as (_, other):
            assert received(other) == "held"
            lost = rf"{name} is no longer the file that this process has locked.*run again"
            with pytest.raises(LockedError, match=lost):
                swap(paths, TIMESTAMPED, "run")
            with pytest.raises(LockedError, match=lost):
                release(paths, "s", "r")
    after = contents(paths.state_dir)
    assert {file: raw for file, raw in after.items() if "lock" not in file} == before


@pytest.mark.long
def test_a_task_that_is_locked_can_still_be_had_by_its_holder_when_it_looks_again(paths):
    lay_out(paths)
    with locked(paths):
        assert swap(paths, TIMESTAMPED, "run") == paths.quarantine("s", "run")
        release(paths, "s", "r")
    assert contents(paths.store("s")) == {"CURRENT": b"new"}


# -- databases that are open ------------------------------------------------------------------------------------------


@pytest.mark.short_for("live-key-value")
@pytest.mark.parametrize("segment", ["", "s.60000"], ids=["key-value", "window"])
@pytest.mark.parametrize("built", [False, True], ids=["live", "built to replace it"])
def test_a_database_that_another_process_has_open_is_locked_whatever_our_own_locks_say(paths, built, segment):
    live = paths.task_dir / "s" if segment else paths.store("s")
    directory = (paths.staging("s") if built else live) / segment
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
        other = replace(paths, task=paths.task._replace(partition=1))
        with locked(other, wait_s=0), pytest.raises(LockedError):
            locked(paths, wait_s=0).__enter__()
    with locked(paths, wait_s=0):  # ours is no other process
        with child(hold_store, paths.store("s")) as (process, _):
            process.join(_WAIT_S)
            assert process.exitcode == 1, "another process has opened it"
        store.close()


def lay_databases(paths, *names):
    """Directories of databases that nobody has open, each with RocksDB's lock file."""
    for name in names:
        paths.store(name).mkdir(parents=True)
        (paths.store(name) / "LOCK").touch()
    return [paths.store(name) for name in names]


@contextmanager
def locked_part(path, start, length):
    """A lock on a part of a file; it belongs to the descriptor, so the system names no process as its holder."""
    with path.open("r+b") as file:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, start, length, 0))
        yield


@pytest.fixture
def none_is_ours(monkeypatch):
    """Takes what this process has open for another's."""
    monkeypatch.setattr(open_databases, "_open_here", set)


@pytest.mark.parametrize(("start", "length"), [(0, 0), (0, 1), (1, 1), (1 << 40, 1)])
def test_given_a_lock_on_any_part_of_a_databases_lock_file_then_it_is_open(paths, none_is_ours, start, length):
    (database,) = lay_databases(paths, "s")
    with locked_part(database / "LOCK", start, length):
        assert open_elsewhere(paths) == (
            f"{database}/LOCK is locked by a process that the system does not show: the database is open there; wait "
            "until that has ended, or stop it"
        )
    assert open_elsewhere(paths) is None


@pytest.mark.parametrize(
    ("process", "named"),
    [
        (-1, "a process that the system does not show"),
        (0, "a process that the system does not show"),
        (1, "process 1"),
        (7, "process 7"),
    ],
)
def test_the_holder_of_a_database_is_named_if_the_system_shows_it(paths, monkeypatch, process, named):
    lay_databases(paths, "s")
    monkeypatch.setattr(open_databases, "_holder_of", lambda _: process)
    assert f"is locked by {named}: the database is open there" in open_elsewhere(paths)


def test_given_other_files_and_databases_before_it_then_an_open_database_is_found(paths, none_is_ours):
    free, held = lay_databases(paths, "free", "held")
    without_lock, file = paths.store("made"), paths.store("notes.txt")
    without_lock.mkdir()
    file.touch()
    gone = paths.store("gone")
    live = SimpleNamespace(glob=lambda _: [file, without_lock, gone, free, held])
    in_this_order = SimpleNamespace(task_dir=live, staged=paths.staged)
    with locked_part(held / "LOCK", 0, 0):
        assert open_elsewhere(in_this_order).startswith(f"{held}/LOCK is locked")
    assert open_elsewhere(in_this_order) is None


def test_given_many_databases_then_the_files_of_this_process_are_listed_once(paths, monkeypatch):
    listed = []
    monkeypatch.setattr(open_databases, "_open_here", lambda: listed.append("listed") or set())
    assert open_elsewhere(paths) is None
    assert listed == []
    lay_databases(paths, "r", "s", "t")
    assert open_elsewhere(paths) is None
    assert listed == ["listed"]


def test_given_a_lock_file_that_is_deleted_while_it_is_looked_at_then_nobody_holds_it(tmp_path):
    assert open_databases._holder_of(tmp_path / "LOCK") is None


def test_looking_for_a_holder_leaves_no_file_open(paths, none_is_ours):
    (database,) = lay_databases(paths, "s")
    assert open_elsewhere(paths) is None
    with locked_part(database / "LOCK", 0, 0):
        assert open_elsewhere(paths) is not None
    assert open_below(database) == []


def test_given_a_file_that_is_closed_while_the_open_ones_are_listed_then_the_others_are_found(monkeypatch):
    def closed_meanwhile():
        raise FileNotFoundError

    @contextmanager
    def scandir(_):
        other = SimpleNamespace(stat=lambda: SimpleNamespace(st_dev=1, st_ino=2))
        yield [SimpleNamespace(stat=closed_meanwhile), other]

    with monkeypatch.context() as patch:
        patch.setattr(open_databases, "os", SimpleNamespace(scandir=scandir))
        assert open_databases._open_here() == {(1, 2)}


def test_a_database_whose_lock_file_was_deleted_is_free_if_only_this_process_has_it_open(paths):
    store = open_key_value_store(TIMESTAMPED, paths.store("s"))
    (paths.store("s") / "LOCK").unlink()
    assert open_elsewhere(paths) is None
    store.close()
    assert open_elsewhere(paths) is None


def test_given_a_database_whose_lock_file_was_deleted_then_the_process_to_stop_is_named(paths):
    with child(hold_store, paths.store("s2")) as (process, connection):
        assert received(connection) == "open"
        lay_databases(paths, "s")
        for name in ("s", "s2"):
            (paths.store(name) / "LOCK").unlink()
        (paths.store("s") / "CURRENT").touch()  # its name begins as that of the other, which is the one that is open
        link = replace(paths, state_dir=paths.state_dir.with_name("link"))
        link.state_dir.symlink_to(paths.state_dir)
        said = f"is open in process {process.pid}, and its file LOCK was deleted; stop that process"
        for found in (paths, link):
            assert open_elsewhere(found) == f"{found.store('s2')} {said}"


def test_given_a_process_that_has_ended_then_it_has_no_files_open(tmp_path):
    assert list(open_databases._files_of(tmp_path / "ended")) == []


def test_given_a_database_that_is_open_elsewhere_then_the_error_says_where(paths, none_is_ours):
    (database,) = lay_databases(paths, "s")
    with locked_part(database / "LOCK", 0, 0):
        found = open_elsewhere(paths)
        for take in (lambda: locked(paths, wait_s=0).__enter__(), lambda: require_alone(paths)):
            with pytest.raises(LockedError) as raised:
                take()
            assert str(raised.value) == found


# -- what is looked at before each step -------------------------------------------------------------------------------

_STEPS = {
    "record": lambda paths: write_record(paths, "s", StoreRecord(topic_id="t", caught_up_ms=1)),
    "seal": lambda paths: seal(paths, "s", KEY_VALUE),
    "open for writing": lambda paths: break_seal(paths, "s"),
    "clear what was built": clear_built,
    "replace": lambda paths: swap(paths, TIMESTAMPED, "run"),
    "remove": lambda paths: release(paths, "s", "r"),
}


@pytest.mark.parametrize("name", ["lock", ".lock"])
@pytest.mark.parametrize("step", list(_STEPS))
def test_given_a_lock_file_that_was_deleted_then_each_step_is_refused_and_changes_nothing(paths, step, name):
    open_key_value_store(TIMESTAMPED, paths.store("s")).close()
    with locked(paths):
        write_record(paths, "s", StoreRecord(topic_id="t", caught_up_ms=0))
        seal(paths, "s", KEY_VALUE)
        before = contents(paths.state_dir)
        path = (paths.own_dir if name == "lock" else paths.application_dir) / name
        path.unlink()
        with pytest.raises(LockedError, match=rf"{name} is no longer the file that this process has locked"):
            _STEPS[step](paths)
    after = contents(paths.state_dir)
    assert after == {file: raw for file, raw in before.items() if file != str(path.relative_to(paths.state_dir))}


def test_who_holds_no_lock_has_none_that_could_be_lost(paths):
    open_key_value_store(TIMESTAMPED, paths.store("s")).close()
    seal(paths, "s", KEY_VALUE)
    assert check_seal(paths, "s", KEY_VALUE)
