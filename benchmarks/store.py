"""`make bench-store`: put, get, range and commit of every engine, beside raw rocksdict on the same work.

Rows are 16-byte keys and 100-byte values. `ours` is a typed key-value store with bytes serdes, as a task uses it, with
its changelog hook off. The peer is rocksdict with the same options, called directly: no offsets, no transaction, no
types. Each figure is microseconds per row, disk writes included only where the case says so.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rocksdict import Rdict, WriteBatch, WriteOptions

from benchmarks.measure import SMALL, Case, measure, report
from statestore.definitions.store import StoreDefinition
from statestore.model import StoreFormat, TaskId, TopicPartition
from statestore.stores.api import StoreContext
from statestore.stores.open import build_store
from statestore.stores.rocksdb_options import options
from statestore.stores.typed import KeyValueStore

ROWS = 20_000 if SMALL else 100_000
GETS = 10_000 if SMALL else 50_000
SCANS = 2_000 if SMALL else 10_000
SCAN_ROWS = 10
BATCH = 1_000
CHANGELOG = TopicPartition("bench-s-changelog", 0)
_random = random.Random(7)
KEYS = [_random.randbytes(16) for _ in range(ROWS)]
VALUE = b"v" * 100
ASKED = _random.choices(KEYS, k=GETS)
STARTS = _random.choices(KEYS, k=SCANS)
ENGINES = ("txn_rocksDB", "rocksDB", "in_memory")
Store = KeyValueStore[bytes, bytes]


@contextmanager
def opened(engine: str) -> Iterator[Store]:
    """A fresh plain store."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        context = StoreContext("bench", TaskId(0, 0), directory / "bench" / "0_0", directory / "own")
        definition = StoreDefinition.model_validate({"name": "s", "format": StoreFormat.PLAIN, "engine": engine})
        store = build_store(definition)
        assert isinstance(store, KeyValueStore)
        store.init(context)
        try:
            yield store
        finally:
            store.close()


def per_row(rows: int, work: Callable[[], object]) -> float:
    """Microseconds per row."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) / rows * 1e6


def fill(store: Store) -> None:
    """Write all rows and commit."""
    put = store.put
    for key in KEYS:
        put(key, VALUE)
    store.commit({CHANGELOG: ROWS})


def write_and_commit(engine: str) -> float:
    """Write a transaction of all rows and commit it."""
    with opened(engine) as store:
        return per_row(ROWS, lambda: fill(store))


def commit_small(engine: str) -> float:
    """Commit after each hundred rows."""
    with opened(engine) as store:

        def work() -> None:
            for at in range(0, ROWS, 100):
                for key in KEYS[at : at + 100]:
                    store.put(key, VALUE)
                store.commit({CHANGELOG: at})

        return per_row(ROWS, work)


def read(engine: str, work: Callable[[Store], object], rows: int) -> float:
    """Fill a store, put its rows on disk, then measure reads."""
    with opened(engine) as store:
        fill(store)
        store.sync()
        work(store)  # the first round fills the block cache
        return per_row(rows, lambda: work(store))


def get_each(store: Store) -> None:
    """Read keys one by one."""
    get = store.get
    for key in ASKED:
        assert get(key) is not None


def get_batches(store: Store) -> None:
    """Read keys by the thousand."""
    for at in range(0, GETS, BATCH):
        assert None not in store.get_many(ASKED[at : at + BATCH])


def short_ranges(store: Store) -> None:
    """Read ten rows from many starts."""
    for start in STARTS:
        rows = store.range(start)
        for _ in range(SCAN_ROWS):
            if next(rows, None) is None:
                break


def whole_range(store: Store) -> None:
    """Read every row in order."""
    assert sum(1 for _ in store.all()) == ROWS


# -- the peer: rocksdict itself -----------------------------------------------------------------------------------


@contextmanager
def raw() -> Iterator[tuple[Rdict, WriteOptions]]:
    """A fresh database with the same options, WAL off."""
    write_options = WriteOptions()
    write_options.disable_wal = True
    with tempfile.TemporaryDirectory() as scratch:
        database = Rdict(scratch, options())
        try:
            yield database, write_options
        finally:
            database.close()


def raw_batch(database: Rdict, write_options: WriteOptions) -> None:
    """Write all rows in one batch."""
    batch = WriteBatch(raw_mode=True)
    for key in KEYS:
        batch.put(key, VALUE)
    database.write(batch, write_options)


def raw_put(database: Rdict, write_options: WriteOptions) -> None:
    """Write rows one by one."""
    put = database.put
    for key in KEYS:
        put(key, VALUE, write_options)


def raw_write(work: Callable[[Rdict, WriteOptions], None]) -> float:
    """Measure a way of writing."""
    with raw() as (database, write_options):
        return per_row(ROWS, lambda: work(database, write_options))


def raw_read(work: Callable[[Rdict], object], rows: int) -> float:
    """Measure a way of reading."""
    with raw() as (database, write_options):
        raw_batch(database, write_options)
        database.flush()
        work(database)
        return per_row(rows, lambda: work(database))


def raw_get_each(database: Rdict) -> None:
    """Read keys one by one."""
    get = database.get
    for key in ASKED:
        assert get(key) is not None


def raw_get_batches(database: Rdict) -> None:
    """Read keys by the thousand."""
    for at in range(0, GETS, BATCH):
        assert None not in database.get(ASKED[at : at + BATCH])


def raw_short_ranges(database: Rdict) -> None:
    """Read ten rows from many starts."""
    for start in STARTS:
        rows = database.iter()
        rows.seek(start)
        for _ in range(SCAN_ROWS):
            if not rows.valid():
                break
            rows.key(), rows.value()
            rows.next()


def raw_whole_range(database: Rdict) -> None:
    """Read every row in order."""
    rows = database.iter()
    rows.seek_to_first()
    count = 0
    while rows.valid():
        rows.key(), rows.value()
        rows.next()
        count += 1
    assert count == ROWS


def cases() -> list[Case]:
    """Every case for every engine; a peer stands beside each."""
    result = [
        Case(
            f"put and commit {ROWS:,} rows",
            "µs/row",
            {
                "ours": lambda: write_and_commit("txn_rocksDB"),
                "ours, rocksDB": lambda: write_and_commit("rocksDB"),
                "ours, in_memory": lambda: write_and_commit("in_memory"),
                "rocksdict, put": lambda: raw_write(raw_put),
                "rocksdict, batch": lambda: raw_write(raw_batch),
            },
        ),
        Case(
            "put, commit each 100 rows",
            "µs/row",
            {
                "ours": lambda: commit_small("txn_rocksDB"),
                "ours, rocksDB": lambda: commit_small("rocksDB"),
                "ours, in_memory": lambda: commit_small("in_memory"),
            },
        ),
    ]
    for engine in ENGINES:
        for name, work, peer, rows in (
            ("get", get_each, raw_get_each, GETS),
            ("get_many of 1,000", get_batches, raw_get_batches, GETS),
            ("range of 10 rows", short_ranges, raw_short_ranges, SCANS),
            ("range of all rows", whole_range, raw_whole_range, ROWS),
        ):
            result.append(
                Case(
                    f"{name}, {engine}",
                    "µs/call" if rows == SCANS else "µs/row",
                    {
                        "ours": partial(read, engine, work, rows),
                        "rocksdict": partial(raw_read, peer, rows),
                    },
                )
            )
    return result


if __name__ == "__main__":
    report("store", measure(cases()))
