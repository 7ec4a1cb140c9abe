"""Processes that work on a store until SIGKILL ends them: real crashes."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from store_under_test import Home, StoreUnderTest, time_of

from statestore.errors import StoreAccessError
from statestore.stores.rocksdb import RocksDB
from tests.compositions import CHANGELOG, INPUT, Composition
from tests.forked import WAIT_S, child, die_before, received

#: Calls into the operating system that change files, and into RocksDB that change a database, as CPython names them.
_CHANGES = {"rename", "replace", "unlink", "remove", "rmdir", "mkdir", "fsync"}
#: The same, and what follows when RocksDB has opened a database, to be read or written.
_OPENING = {*_CHANGES, "get_column_family", "write", "create_checkpoint"}


def run(script: Callable[..., Any], *arguments: Any) -> int:
    """Run the script until it is done or kills itself; then kill its process, which still holds what it returned.

    Returns the exit code; negative is the signal.
    """
    with child(_run, script, arguments) as (process, connection):
        try:
            failure = received(connection)
        except EOFError:
            failure = None  # it is dead already
        process.kill()
        process.join(WAIT_S)
        assert failure is None, failure
        return int(process.exitcode)


def _run(connection: Connection, script: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    kept = None
    try:
        kept = script(*arguments)  # a store that nobody holds would be closed, and flushed
    except BaseException as error:
        connection.send(f"{type(error).__name__}: {error}")
    else:
        connection.send(None)
    time.sleep(WAIT_S)  # to be killed
    del kept


# -- scripts: what a process does before it is killed ------------------------------------------------------------------


def commit_twice_and_stage(composition: Composition, home: Home) -> StoreUnderTest:
    """Commit offset 2 durably, commit offset 5, write more, and stay."""
    store = StoreUnderTest(composition, home)
    store.fill([1, 2, 7], "first")
    store.store.commit({CHANGELOG: 2}, {INPUT: 20})
    store.store.sync()
    store.fill([2, 3, 8], "second")
    store.store.commit({CHANGELOG: 5}, {INPUT: 50})
    store.put(1, None)
    store.fill([4, 7, 9], "staged")
    return store


def leave_open(composition: Composition, home: Home, exactly_once: bool, text: str = "text") -> StoreUnderTest:
    """Write, and leave the store open."""
    store = StoreUnderTest(composition, home, exactly_once=exactly_once)
    store.fill([1, 7], text)
    store.store.commit({CHANGELOG: 1})
    store.store.sync()
    return store


def open_only(composition: Composition, home: Home) -> StoreUnderTest:
    """Open the store."""
    return StoreUnderTest(composition, home)


def open_read_only(composition: Composition, home: Home) -> StoreUnderTest:
    """Open the store to be read."""
    return StoreUnderTest(composition, home, read_only=True)


def open_dying(composition: Composition, home: Home, number: int) -> None:
    """Die before the `number`-th step of opening."""
    die_before(_OPENING, number)
    store = StoreUnderTest(composition, home)
    sys.setprofile(None)
    os.kill(os.getpid(), signal.SIGTERM)
    store.close()


def make_segment_dying(composition: Composition, home: Home, number: int) -> None:
    """Die before the `number`-th step of making a segment for a row that is never committed."""
    store = StoreUnderTest(composition, home)
    die_before(_OPENING, number)
    store.put(NEW_SEGMENT_SLOT, "staged")
    sys.setprofile(None)
    os.kill(os.getpid(), signal.SIGTERM)


def expire_all(composition: Composition, home: Home) -> StoreUnderTest:
    """Commit offset 5 when every segment has expired, and stay."""
    store = StoreUnderTest(composition, home)
    store.put(1, "text")
    store.store.commit({CHANGELOG: 1})
    store.store.inner.advance_stream_time(time_of(EXPIRING_SLOT))
    store.store.commit({CHANGELOG: 5})
    return store


def close_dying(composition: Composition, home: Home, number: int) -> None:
    """Die before the `number`-th step of closing."""
    store = StoreUnderTest(composition, home)
    die_before(_OPENING, number)
    store.close()
    sys.setprofile(None)
    os.kill(os.getpid(), signal.SIGTERM)


def roll_manifests(composition: Composition, home: Home) -> StoreUnderTest:
    """Commit a few times, with options that have RocksDB make a new MANIFEST each time."""

    def setter(_: str, options: Any) -> None:
        options.set_max_manifest_file_size(1)

    with warnings.catch_warnings(action="ignore"):
        store = StoreUnderTest(composition, home, config_setter=setter)
    for number in range(5):
        store.put(1, str(number))
        store.store.commit({CHANGELOG: number})
        store.store.sync()
    return store


def commit_dying(composition: Composition, home: Home, bound_bytes: int, number: int) -> None:
    """Die before the `number`-th write of a commit, all before it on disk."""
    store = StoreUnderTest(composition, home, uncommitted_max_bytes=bound_bytes)
    store.fill(range(12), SPILLED_TEXT)
    die_before({"write"}, number, store.store.sync)
    store.store.commit({CHANGELOG: 12}, {INPUT: 12})
    sys.setprofile(None)
    os.kill(os.getpid(), signal.SIGTERM)


def commit_half(composition: Composition, home: Home, bound_bytes: int) -> None:
    """Die when the first part of a commit is in its database, and on disk."""
    store = StoreUnderTest(composition, home, uncommitted_max_bytes=bound_bytes)
    store.fill(range(12), SPILLED_TEXT)
    write = RocksDB.write

    def written_once(table: RocksDB, changes: Any, *rest: Any, **how: Any) -> None:
        write(table, changes, *rest, **how)
        if any(changes.values()):
            table.sync()
            os.kill(os.getpid(), signal.SIGKILL)

    RocksDB.write = written_once  # type: ignore[method-assign]
    store.store.commit({CHANGELOG: 12}, {INPUT: 12})


def commit_until_killed(composition: Composition, home: Home, bound_bytes: int, ready: Path) -> None:
    """Commit all slots, with the same text and the offset that it names, again and again; make a file first."""
    store = StoreUnderTest(composition, home, uncommitted_max_bytes=bound_bytes, config_setter=small_memtables)
    first = (store.store.committed_offset(CHANGELOG) or 0) + 1
    for number in range(first, first + 1_000_000):
        store.fill(range(12), numbered_text(number))
        store.store.commit({CHANGELOG: number}, {INPUT: number})
        ready.touch()


def numbered_text(number: int) -> str:
    """A text of some kilobytes, so that the memtables of small databases are full now and then."""
    return f"{number:09d}" * 400


def commit_and_stay(composition: Composition, home: Home, number: int) -> StoreUnderTest:
    """Make the commits up to a number without forcing them to the disk, and stay."""
    store = StoreUnderTest(composition, home)
    for at in range(1, number + 1):
        store.fill([1] if at > 1 else range(12), f"text {at}")
        store.store.commit({CHANGELOG: at}, {INPUT: at})
    return store


def expire_dying(composition: Composition, home: Home, number: int) -> None:
    """Die before the `number`-th change of files of a commit that drops an expired segment."""
    store = StoreUnderTest(composition, home)
    store.put(EXPIRING_SLOT, "now")
    die_before(_CHANGES, number)
    store.store.commit({CHANGELOG: 9})
    sys.setprofile(None)
    os.kill(os.getpid(), signal.SIGTERM)


def close_on_a_full_disk(composition: Composition, home: Home) -> None:
    """Have every file of RocksDB refused as too large, so that closing fails; then open the store again."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = StoreUnderTest(composition, home, config_setter=small_memtables)
    store.put(1, "text")
    store.store.commit({CHANGELOG: 0})
    store.store.sync()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
    with pytest.raises(StoreAccessError):
        commit_until_refused(store)
    with pytest.raises(StoreAccessError):
        store.close()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    store.open(exactly_once=False)
    assert store.get(1) is not None
    store.close()


#: Memory of a transaction so small that a few rows of this text spill.
SPILL_BYTES = 64 * 1024
SPILLED_TEXT = "spilled " * 2_500
#: A slot in a segment of its own.
NEW_SEGMENT_SLOT = 12
#: A slot whose window makes the segment of the slots 0 to 5 expire.
EXPIRING_SLOT = 20


def commit_until_refused(store: StoreUnderTest) -> None:
    """Write more than the memtables hold."""
    for number in range(1_000):
        store.put(number % 6, "text " * 400)
        store.store.commit({CHANGELOG: 1})


def small_memtables(_: str, options: Any) -> None:
    """Have RocksDB write to disk after few rows, as it does by itself after many."""
    options.set_write_buffer_size(64 * 1024)
