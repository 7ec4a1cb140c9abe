"""`<task directory>/<store>.position`: input offsets from before KIP-1035, text like a `.checkpoint` file.

They are merged into the store by maximum, and the file is removed once they are on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from statestore.durable import remove_durably
from statestore.formats import checkpoint_file
from statestore.stores.database import Database


def migrate_position(task_directory: Path, store: str, databases: Sequence[Database]) -> None:
    """Take the offsets of a store's position file over into its databases.

    Raises
    ------
    StoreCorruptedError
        If the file is torn; it is kept.
    """
    path = task_directory / f"{store}.position"
    if not path.exists() or not databases:
        return
    found = {partition: offset for partition, offset in checkpoint_file.read(path).items() if offset is not None}
    for database in databases:
        database.commit({}, found)
        database.sync()
    remove_durably(path)
