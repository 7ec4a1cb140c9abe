"""The locks of a task, held by real processes: ours, and a Java one that locks as Kafka Streams does."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from children import hold_locks, hold_store, release_locks_with_a_fork_alive, wait_for_lock
from samples import TIMESTAMPED, open_below

from statestore.durable import write_durably
from statestore.errors import LockedError
from statestore.model import TaskId
from statestore.statedir import lock as lock_module
from statestore.statedir.lock import give_way, locked, locked_file, require_locks
from statestore.statedir.paths import TaskPaths, point_hold, rewrite_journal
from statestore.stores.open import open_key_value_store
from tests.forked import child, received

HOLD_LOCK = Path(__file__).parent / "resources" / "HoldLock.java"


@contextmanager
def kafka_streams_lock(paths):
    """A Java process that tries the application's lock; yields `held` or `refused`."""
    paths.application_dir.mkdir(parents=True, exist_ok=True)
    command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", str(HOLD_LOCK), str(paths.application_dir / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as java:
        watchdog = threading.Timer(60, java.kill)
        watchdog.start()
        try:
            yield java.stdout.readline().strip()
        finally:
            java.stdin.close()
            java.wait(60)
            watchdog.cancel()


@pytest.mark.behaviour("R11")
def test_r11_a_lock_held_by_another_process_is_waited_for_and_then_a_clear_error(paths):
    with child(hold_locks, paths) as (_, connection):
        assert received(connection) == "held"
        started = time.monotonic()
        clear = r"0_0/lock is locked by another process.*wait until it has ended"
        with pytest.raises(LockedError, match=clear), locked(paths, wait_s=0.3):
            pass
        assert 0.3 <= time.monotonic() - started < 60


@pytest.mark.behaviour("R11")
def test_r11_a_lock_given_back_meanwhile_is_had(paths):
    with child(hold_locks, paths) as (_, connection):
        assert received(connection) == "held"
        timer = threading.Timer(0.2, connection.send, ["release"])
        timer.start()
        with locked(paths, wait_s=60):
            assert received(connection) == "released"
        timer.join()


@pytest.mark.behaviour("R11")
def test_r11_the_lock_of_a_killed_process_is_free(paths):
    with child(hold_locks, paths) as (process, connection):
        assert received(connection) == "held"
        process.kill()
        process.join(120)
        with locked(paths, wait_s=60):
            pass


@pytest.mark.behaviour("R11")
def test_r11_lock_files_are_never_removed_nor_replaced(paths):
    with locked(paths):
        files = [paths.application_dir / ".lock", paths.own_dir / "lock"]
        before = [file.stat().st_ino for file in files]
    with pytest.raises(RuntimeError), locked(paths):
        raise RuntimeError
    with locked(paths):
        assert [file.stat().st_ino for file in files] == before


def test_two_tasks_of_an_application_run_at_the_same_time(paths):
    other = TaskPaths(paths.state_dir, paths.application, TaskId(0, 1))
    with child(hold_locks, paths) as (_, connection):
        assert received(connection) == "held"
        with locked(other, wait_s=0):
            pass


def test_a_task_is_locked_against_another_thread_of_the_same_process_too(paths):
    with locked(paths), pytest.raises(LockedError), locked(paths, wait_s=0):
        pass


def test_giving_one_lock_back_keeps_another_tasks_lock(paths):
    # POSIX locks would all be lost when any descriptor of `.lock` in this process is closed.
    other = TaskPaths(paths.state_dir, paths.application, TaskId(0, 1))
    with locked(paths):
        with locked(other):
            pass
        with kafka_streams_lock(paths) as said:
            assert said == "refused"


def test_a_lock_is_given_back_also_while_a_fork_of_its_holder_lives(paths):
    with child(release_locks_with_a_fork_alive, paths) as (_, connection):
        assert received(connection) == "held"
        connection.send("release")
        assert received(connection) == "released"


@pytest.mark.behaviour("R11")
def test_r11_kafka_streams_keeps_us_out(paths):
    with kafka_streams_lock(paths) as said:
        assert said == "held"
        clear = r"app/\.lock is locked by another process.*Kafka Streams"
        with pytest.raises(LockedError, match=clear), locked(paths, wait_s=0.2):
            pass
    with locked(paths, wait_s=60):
        pass


def test_nothing_of_ours_lies_in_kafka_streams_directory(paths):
    with locked(paths):
        assert [file.name for file in paths.application_dir.iterdir()] == [".lock"]


@pytest.mark.behaviour("R11")
def test_a_store_open_in_another_process_is_locked_and_not_damaged(tmp_path):
    with child(hold_store, tmp_path / "s") as (process, connection):
        assert received(connection) == "open"
        with pytest.raises(LockedError, match="open in another process"):
            open_key_value_store(TIMESTAMPED, tmp_path / "s")
        process.kill()
        process.join(120)
    open_key_value_store(TIMESTAMPED, tmp_path / "s").close()  # RocksDB's LOCK file is there, nobody holds it


@pytest.mark.behaviour("R11")
@pytest.mark.parametrize("inside", ["", "s.0"], ids=["a key-value store", "a segment"])
def test_r11_a_replacement_that_is_open_in_another_process_keeps_us_out(paths, inside):
    with child(hold_store, paths.staging("s") / inside) as (process, connection):
        assert received(connection) == "open"
        said = rf"/staging/s.*/LOCK is locked by process {process.pid}: the database is open there"
        with pytest.raises(LockedError, match=said), locked(paths, wait_s=0):
            pass


def test_given_a_rewrite_that_has_not_ended_then_nothing_of_its_application_is_used(paths):
    journal = rewrite_journal(paths.state_dir, "app")
    write_durably(journal, "{}")
    with pytest.raises(LockedError) as raised, locked(paths, wait_s=0):
        pass
    assert str(raised.value) == (
        f"application app is being made by `statestore rewrite`, which has not ended: {journal} is there. If it was "
        "interrupted, run the same command again; until then nothing of the application can be used"
    )
    with locked(paths, rewriting=True):
        journal.unlink()
    with locked(paths):
        pass


def test_given_an_application_between_two_points_then_nothing_of_it_is_used(paths):
    hold = point_hold(paths.state_dir, "app")
    write_durably(hold, "point-1")
    with (
        pytest.raises(LockedError, match=r"is being restored to a point.*run the same command again"),
        locked(paths, 0),
    ):
        pass
    with locked(paths, rewriting=True):
        hold.unlink()
    with locked(paths):
        pass


def test_the_whole_of_a_lock_file_is_locked_whatever_part_another_program_asks_for(tmp_path):
    path = tmp_path / "lock"
    with locked_file(path, 0), path.open("r+b") as other:
        for byte in (0, 1, 1 << 40):
            one = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, byte, 1, 0)
            with pytest.raises(BlockingIOError):
                fcntl.fcntl(other, fcntl.F_OFD_SETLK, one)


def test_a_file_is_held_by_one_alone_or_by_many_that_share_it(tmp_path):
    path = tmp_path / "new" / "runs.lock"
    with locked_file(path, 0, shared=True), locked_file(path, 0, shared=True), pytest.raises(LockedError):
        locked_file(path, 0).__enter__()
    with locked_file(path, 0):
        for shared in (True, False):
            with pytest.raises(LockedError, match=r"runs\.lock is locked"), locked_file(path, 0, shared=shared):
                pass
    with locked_file(path, 0):
        pass


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(lock_module, "time", found)
    return found


@pytest.mark.parametrize(("wait_s", "waited_s"), [(None, 10), (0.5, 0.5), (0, 0)])
def test_given_a_task_that_is_locked_then_it_is_waited_for_until_its_deadline_has_passed(
    paths, clock, wait_s, waited_s
):
    with locked(paths):
        before_s = clock.now_s
        with pytest.raises(LockedError):
            (locked(paths) if wait_s is None else locked(paths, wait_s)).__enter__()
        assert waited_s < clock.now_s - before_s < waited_s + 0.3


def test_given_a_file_that_is_locked_then_it_is_waited_for_until_its_deadline_has_passed(tmp_path, clock):
    with locked_file(tmp_path / "lock", 0):
        before_s = clock.now_s
        with pytest.raises(LockedError) as raised:
            locked_file(tmp_path / "lock", 2).__enter__()
        assert 2 < clock.now_s - before_s < 2.3
    assert str(raised.value) == (
        f"{tmp_path / 'lock'} is locked by another process: a running task, another job, or Kafka Streams; wait until "
        "it has ended, or stop it"
    )


def test_given_a_deadline_that_is_now_then_a_lock_is_tried_once_more(tmp_path, clock):
    with locked_file(tmp_path / "lock", 0), pytest.raises(LockedError):
        locked_file(tmp_path / "lock", 0).__enter__()
    assert clock.now_s == pytest.approx(1_000.1)


def test_a_lock_file_is_read_by_anybody_and_written_by_its_owner(tmp_path):
    mask = os.umask(0)
    try:
        for path in (tmp_path / "lock", tmp_path / "new" / "lock"):
            with locked_file(path, 0):
                assert path.stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(mask)


def test_a_directory_that_another_process_makes_meanwhile_is_used(tmp_path, monkeypatch):
    path, opened = tmp_path / "new" / "lock", os.open

    def too_early(*how):
        monkeypatch.setattr(os, "open", opened)
        path.parent.mkdir()
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "open", too_early)
    with locked_file(path, 0):
        assert path.exists()


def test_given_a_file_system_without_locks_then_its_error_is_raised_and_the_file_is_closed(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no locks available")

    monkeypatch.setattr(lock_module, "_try_lock", refuse)
    with pytest.raises(OSError, match="no locks available"):
        locked_file(tmp_path / "lock", 0).__enter__()
    assert open_below(tmp_path) == []


def test_given_a_lock_that_was_held_or_refused_then_no_file_stays_open(tmp_path):
    with locked_file(tmp_path / "lock", 0), pytest.raises(LockedError):
        locked_file(tmp_path / "lock", 0).__enter__()
    assert open_below(tmp_path) == []


@pytest.mark.parametrize("name", ["lock", ".lock"])
def test_given_a_lock_file_that_was_deleted_then_its_holder_is_told_not_to_delete_any(paths, name):
    path = (paths.own_dir if name == "lock" else paths.application_dir) / name
    with locked(paths):
        require_locks(paths)
        path.unlink()
        with pytest.raises(LockedError) as raised:
            require_locks(paths)
    assert str(raised.value) == (
        f"{path} is no longer the file that this process has locked. Another program has deleted it, so another "
        "process may take the task. Nothing was changed after that. Do not delete lock files, and run again"
    )


def test_given_a_lock_file_of_another_task_that_was_deleted_then_this_task_is_still_its_holders(paths, tmp_path):
    with locked_file(tmp_path / "another", 0), locked(paths):
        (tmp_path / "another").unlink()
        require_locks(paths)


def test_given_a_lock_that_was_given_back_then_its_file_may_be_deleted(paths):
    with locked(paths):
        pass
    (paths.own_dir / "lock").unlink()
    require_locks(paths)


# -- who only reads gives way -----------------------------------------------------------------------------------------


def test_who_only_reads_goes_on_while_nobody_urgent_waits(paths):
    give_way(paths)
    with locked(paths):
        give_way(paths)
        (paths.own_dir / "wanted").touch()  # left by somebody who waited before
        give_way(paths)


def test_who_only_reads_gives_way_to_somebody_urgent_and_not_to_others(paths):
    with locked(paths):
        with child(wait_for_lock, paths, False) as (_, connection):
            assert received(connection) == "waits"
            give_way(paths)
        with child(wait_for_lock, paths, True) as (_, connection):
            assert received(connection) == "waits"
            with pytest.raises(LockedError) as raised:
                give_way(paths)
            assert {path.name for path in paths.own_dir.iterdir()} == {"lock", "wanted"}
            assert str(raised.value) == f"another process waits for task {paths.task} of app: it goes first"
        give_way(paths)  # it was killed


def test_a_reader_that_may_not_write_creates_nothing_and_locks_what_is_there(paths, monkeypatch):
    # Root may write everywhere, and not every machine lets a test mount. So the system's answer about access is faked.
    monkeypatch.setattr(lock_module.os, "access", lambda path, mode: mode != os.W_OK)
    with locked(paths, wait_s=0, reading=True):
        assert not paths.own_dir.exists()
        assert not paths.application_dir.exists()
    monkeypatch.undo()
    with locked(paths, wait_s=0):
        pass
    monkeypatch.setattr(lock_module.os, "access", lambda path, mode: mode != os.W_OK)
    with locked(paths, wait_s=0, reading=True), locked(paths, wait_s=0, reading=True):
        pass  # readers share
    with child(hold_locks, paths) as (_, connection):
        assert received(connection) == "held"
        with pytest.raises(LockedError), locked(paths, wait_s=0, reading=True):
            pass
