"""The layout of Kafka Streams from 3.9 to 4.2: a new store gets it before it goes live.

Since 4.3 a store has its offsets in a column family of its own (KIP-1035), and versions before do not open a database
with a family that they do not know. They keep offsets in the task's `.checkpoint`. So that family is dropped from what
was built, and the swap enters the offset into the file behind the last rename: killed in between, the store has no
offset, and Kafka Streams restores it.

An SST file that is newer than the `.checkpoint` shows a killed run (partition/inspection.py). The file keeps its time
while other stores have entries in it, and the new store's files get that time.
"""

from __future__ import annotations

import os

from statestore.durable import sync_directory
from statestore.errors import StoreCorruptedError
from statestore.formats.database_files import files_with_rows
from statestore.formats.offsets import COLUMN_FAMILY
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.full import Built
from statestore.stores.rocksdb import column_families, drop_column_family


def move_offsets_out(store: StorePartitionSpec, built: Built) -> tuple[tuple[TopicPartition, int | None], ...]:
    """Take the offsets out of the databases of a staged store; return the entries of the checkpoint file.

    Raises
    ------
    StoreCorruptedError
        If they are still in one.
    """
    written_ns = store.paths.checkpoint.stat().st_mtime_ns if store.paths.checkpoint.exists() else None
    for directory in store.store.store_kind.databases(store.paths.staging(store.store.name)):
        drop_column_family(directory, COLUMN_FAMILY)
        if COLUMN_FAMILY in column_families(directory):
            raise StoreCorruptedError(f"{directory} still has the column family {COLUMN_FAMILY}; run the restore again")
        if written_ns is not None:
            for path in files_with_rows(directory):
                os.utime(path, ns=(written_ns, written_ns))
        sync_directory(directory)
    return tuple(built.committed.items())
