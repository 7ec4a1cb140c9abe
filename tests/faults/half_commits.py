"""A process that commits to a store until it is killed, and what a reader of the store's files sees meanwhile.

Each commit gives all keys the same number, which is also its offset. So a reader that sees two numbers, or an offset
that is not the number, has seen half of a commit.
"""

from __future__ import annotations

from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from statestore.discovery.opening import close_all, open_databases
from statestore.discovery.store_directory import LiveStore
from statestore.model import StoreFormat, TaskId, TopicPartition
from statestore.stores import suppliers
from statestore.stores.api import StoreContext, Windowed
from statestore.stores.builders import key_value_store_builder, session_store_builder, window_store_builder
from statestore.stores.serdes import BYTES

KINDS = ["window", "session", "key-value"]
TASK = TaskId(0, 0)
CHANGELOG = TopicPartition("app-s-changelog", 0)
HOUR_MS = 3_600_000
KEYS = 24
#: So little is staged in memory that every commit to a key-value store spills, and some to a segment.
STAGED_BYTES = 128 * 1024
VALUE_BYTES = 8_000


def store_of(kind: str) -> Any:
    """Return a transactional store on disk, not yet open."""
    retention = timedelta(hours=10)
    if kind == "window":
        supplier: Any = suppliers.persistent_window_store("s", retention, timedelta(hours=1), transactional=True)
        return window_store_builder(supplier, BYTES, BYTES).build()
    if kind == "session":
        return session_store_builder(
            suppliers.persistent_session_store("s", retention, transactional=True), BYTES, BYTES
        ).build()
    return key_value_store_builder(suppliers.persistent_key_value_store("s", transactional=True), BYTES, BYTES).build()


def opened(kind: str, state_dir: Path) -> Any:
    """Return the store, open in its task's directories, with memtables that are full after some commits."""
    store = store_of(kind)
    task_dir, own_dir = state_dir / "app" / str(TASK), state_dir / ".statestore" / "app" / str(TASK)
    store.init(
        StoreContext(
            "app",
            TASK,
            task_dir,
            own_dir,
            uncommitted_max_bytes=STAGED_BYTES,
            config_setter=lambda _, options: options.set_write_buffer_size(256 * 1024),
        )
    )
    return store


def commit_until_killed(connection: Connection, kind: str, state_dir: Path) -> None:
    """Complete what an earlier process left, and commit numbers; say which was there, or the first commit."""
    store = opened(kind, state_dir)
    number = store.committed_offset(CHANGELOG) or 0
    if number:
        connection.send(number)
    while True:
        number += 1
        value = f"{number:08d}".encode() * (VALUE_BYTES // 8)
        for at in range(KEYS):
            key, time_ms = f"{at:02d}".encode(), at * HOUR_MS // 2
            if kind == "window":
                store.put(key, value, time_ms)
            elif kind == "session":
                store.put(Windowed(key, time_ms, time_ms + 1), value)
            else:
                store.put(key, value)
        store.commit({CHANGELOG: number})
        if number == 1:
            connection.send(number)


def seen(kind: str, state_dir: Path) -> int:
    """Return the number of the commit that a reader of the files sees; 0 before the first.

    Raises
    ------
    AssertionError
        If it sees half of one.
    """
    segmented = kind != "key-value"
    directory = state_dir / "app" / str(TASK) / ("s" if segmented else "rocksdb/s")
    databases = open_databases(LiveStore("s", segmented, directory, "app", TASK, state_dir), StoreFormat.PLAIN)
    try:
        offsets = {one.database.committed_offset(CHANGELOG) for one in databases}
        values = [value for one in databases for batch in one.rows() for value in batch.column(1).to_pylist()]
    finally:
        close_all(databases)
    numbers = {int(value[:8]) for value in values}
    if not values:
        return 0
    assert len(values) == KEYS, f"{len(values)} rows of {KEYS}"
    assert len(numbers) == 1, f"a half of a commit: {sorted(numbers)}"
    if segmented:  # a segment that is idle in the file gets its offset by the commits alone
        assert max(offsets, key=lambda offset: offset or 0) == max(numbers), f"offsets {offsets}, rows of {numbers}"
    else:
        assert offsets == numbers, f"offsets {offsets}, rows of {numbers}"
    return numbers.pop()
