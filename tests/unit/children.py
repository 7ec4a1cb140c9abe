"""What the unit tests let processes of their own do, which are killed or hold something meanwhile."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import samples

from statestore.definitions.store import StoreDefinition
from statestore.durable import write_durably
from statestore.errors import LockedError, StoreCorruptedError
from statestore.formats.offsets import STATUS_CLOSED
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.formats.value_format import value_format
from statestore.model import TopicPartition
from statestore.reports import VerifyReport, write_report
from statestore.statedir import lock as lock_module
from statestore.statedir.lock import locked, locked_file
from statestore.statedir.paths import TaskPaths
from statestore.statedir.record import StoreRecord
from statestore.statedir.swap import finish_swaps, swap
from statestore.stores.open import open_key_value_store
from statestore.stores.rocksdb import RocksDB
from tests.forked import WAIT_S, die_before

# -- dying at a chosen step ------------------------------------------------------------------------------------------


#: Calls into the operating system that change files, as CPython names them.
_CHANGES = {"open", "write", "flush", "fsync", "close", "__exit__", "rename", "replace", "remove", "unlink", "mkdir"}


def swap_dying(
    _: Connection,
    paths: TaskPaths,
    store: StoreDefinition,
    label: str,
    step: int,
    replaced: str | None = None,
    legacy: tuple[tuple[TopicPartition, int | None], ...] = (),
) -> None:
    """Swap the staged store in, or one that was replaced, dying before the given step."""
    record = None if replaced else StoreRecord(topic_id="new", caught_up_ms=1)
    die_before(_CHANGES, step)
    swap(paths, store, label, record=record, replaced=replaced, legacy=legacy)
    sys.setprofile(None)


def finish_swaps_dying(_: Connection, paths: TaskPaths, step: int) -> None:
    """Finish swaps, dying before the given step."""
    die_before(_CHANGES, step)
    finish_swaps(paths)
    sys.setprofile(None)


def write_report_dying(_: Connection, path: Path, report: VerifyReport, step: int) -> None:
    """Write a report, dying before the given step."""
    die_before(_CHANGES, step)
    write_report(path, report)
    sys.setprofile(None)


def write_durably_dying(_: Connection, path: Path, text: str, step: int) -> None:
    """Write a small file, dying before the given step."""
    die_before(_CHANGES, step)
    write_durably(path, text)
    sys.setprofile(None)


# -- locks -----------------------------------------------------------------------------------------------------------


def hold_locks(connection: Connection, paths: TaskPaths) -> None:
    """Take the task's locks, say so, and hold them until told otherwise."""
    try:
        with locked(paths, wait_s=0):
            connection.send("held")
            connection.recv()
        connection.send("released")
    except LockedError:
        connection.send("refused")


def hold_lock_file(connection: Connection, path: Path) -> None:
    """Take a lock file alone, say so, and hold it until told otherwise."""
    with locked_file(path, 0):
        connection.send("held")
        connection.recv()
    connection.send("released")


def release_locks_with_a_fork_alive(connection: Connection, paths: TaskPaths) -> None:
    """Fork while the locks are held, release them, and say whether they can be had again."""
    with locked(paths, wait_s=0):
        forked = os.fork()
        if not forked:
            time.sleep(WAIT_S)
            os._exit(0)
    try:
        hold_locks(connection, paths)
    finally:
        os.kill(forked, signal.SIGKILL)


def hold_store(connection: Connection, directory: Path) -> None:
    """Open a store and keep it open until told otherwise."""
    store = open_key_value_store(samples.TIMESTAMPED, directory)
    connection.send("open")
    connection.recv()
    store.close()


def read_with_flipped_bits(connection: Connection, directory: Path, file: Path, bits: list[tuple[int, int]]) -> None:
    """Flip one bit (byte, bit) of the file after the other; send what reading the whole store then gives.

    A process of its own, because RocksDB may never return from what it reads.
    """
    whole = file.read_bytes()
    for position, bit in bits:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << bit
        file.write_bytes(damaged)
        try:
            store = open_key_value_store(samples.TIMESTAMPED, directory, read_only=True)
        except StoreCorruptedError as error:
            connection.send(error)
            continue
        try:
            connection.send((dict(store.range()), store.committed_offset(samples.CHANGELOG)))
        except StoreCorruptedError as error:
            connection.send(error)
        finally:
            store.close(clean=False)


def open_without_file_descriptors(connection: Connection, directory: Path) -> None:
    """Open a store with next to no file descriptors left; say which error that gives."""
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 4, used + 4))
    try:
        open_key_value_store(samples.TIMESTAMPED, directory)
        connection.send("opened")
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


# -- crashes of a store ----------------------------------------------------------------------------------------------


def change_of(offset: int, value_bytes: int) -> samples.LogRecord:
    """The changelog record at an offset of the log that `commit_until_killed` writes; each fifth is a delete."""
    key = b"k%02d" % (offset * 7 % 50)
    value = None if offset % 5 == 4 else (b"%08d" % offset).ljust(value_bytes, b".")
    return key, value, 1_000 + offset


def commit_until_killed(connection: Connection, directory: Path, value_bytes: int, flushing: bool) -> None:
    """Commit one changelog record after the other, flushing at random in another thread, until killed.

    After each flush the highest offset known to be flushed is sent; without flushing, the committed one now and then.
    """
    store = open_key_value_store(samples.TIMESTAMPED, directory)
    found = store.committed_offset(samples.CHANGELOG)
    first = committed = -1 if found is None else found

    def flush() -> None:
        chance = random.Random(first)
        while True:
            time.sleep(chance.random() * 0.004)
            before = committed
            store.sync()
            connection.send(before)

    if flushing:
        threading.Thread(target=flush, daemon=True).start()
    for offset in range(first + 1, sys.maxsize):
        key, value, timestamp = change_of(offset, value_bytes)
        store.put(key, None if value is None else ValueAndTimestamp(value, timestamp))
        store.put(b"latest", ValueAndTimestamp(b"%d" % offset, timestamp))  # two rows, so that half a commit shows
        store.commit({samples.CHANGELOG: offset}, {samples.INPUT: offset * 2})
        committed = offset
        if not flushing and offset % 50 == 0:
            connection.send(offset)


def open_until_killed(connection: Connection, directory: Path) -> None:
    """Make a store, and be killed meanwhile."""
    connection.send("begun")
    open_key_value_store(samples.TIMESTAMPED, directory)
    time.sleep(WAIT_S)


def take_over_until_killed(connection: Connection, directory: Path, files: list[Path]) -> None:
    """Make a database of files of rows as a restore does, and be killed meanwhile."""
    family, *_ = families = value_format(samples.TIMESTAMPED.format).column_families
    database = RocksDB(directory, families)
    connection.send("begun")
    database.ingest(family, files)
    database.write({}, {samples.CHANGELOG: 39}, status=STATUS_CLOSED)
    database.sync()
    time.sleep(WAIT_S)


def wait_for_lock(connection: Connection, paths: TaskPaths, urgent: bool) -> None:
    """Wait for a task's lock that is held; say so once the wait has begun."""
    sleep = lock_module.time.sleep

    def say(seconds: float) -> None:
        if not said:
            said.append(True)
            connection.send("waits")
        sleep(seconds)

    said: list[bool] = []
    lock_module.time = SimpleNamespace(monotonic=time.monotonic, sleep=say)  # type: ignore[assignment]
    with locked(paths, WAIT_S, urgent=urgent):
        connection.send("held")
