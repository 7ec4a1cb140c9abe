"""Ways in which stores get lost, done on purpose. Each is called under the task's lock, with no store open."""

from __future__ import annotations

import shutil
from pathlib import Path

from statestore.archive.layout import StoreDirectory, snapshot_name
from statestore.formats.offsets import STATUS_CLOSED, STATUS_OPEN
from statestore.formats.value_format import value_format
from statestore.model import StoreFormat, StorePartition, TopicPartition
from statestore.stores.rocksdb import RocksDB


def delete_directory(store: Path) -> None:
    """Lose the store, as with a lost disk."""
    shutil.rmtree(store)


def delete_snapshots(archive: Path, store_partition: StorePartition) -> Path:
    """Delete all snapshots of a store partition, so that only its changelog has it; return their directory."""
    (directory,) = archive.glob(str(StoreDirectory("*", store_partition)))
    for path in directory.iterdir():
        if snapshot_name(path.name) is not None:
            path.unlink()
    return directory


def flip_bit(store: Path) -> Path:
    """Flip one bit in a data block of the largest SST file, as a failing disk does; return the file."""
    largest = max(store.glob("*.sst"), key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 4] ^= 1  # data blocks come first in the file
    largest.write_bytes(content)
    return largest


def move_beyond(store: Path, changelog: TopicPartition, offset: int) -> None:
    """Claim an offset that the changelog does not have, as after the loss of a broker's log tail."""
    database = RocksDB(store, value_format(StoreFormat.TIMESTAMPED).column_families)
    try:
        database.write({}, {changelog: offset}, status=STATUS_CLOSED)
        database.sync()
    finally:
        database.close()


def leave_open(store: Path) -> None:
    """Leave a row that was never committed, and the store open, as a kill does without transactions."""
    families = value_format(StoreFormat.TIMESTAMPED).column_families
    database = RocksDB(store, families)
    try:
        database.write({families[0]: {b"never committed": bytes(8) + b"0"}}, status=STATUS_OPEN)
        database.sync()
    finally:
        database.close()
