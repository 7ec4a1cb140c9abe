"""The `.checkpoint` file of a task from before KIP-1035: read, and emptied store by store.

Kafka Streams copies its offsets over those of the stores, so an entry must be gone before its store changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from statestore.durable import remove_durably, write_durably
from statestore.errors import StoreCorruptedError
from statestore.formats import checkpoint_file
from statestore.model import StorePartition, TopicPartition
from statestore.statedir.paths import TaskPaths


def legacy_offsets(paths: TaskPaths) -> dict[TopicPartition, int | None]:
    """Offsets in the task's checkpoint file; empty if there is none.

    Raises
    ------
    StoreCorruptedError
        If the file is torn.
    """
    return checkpoint_file.read(paths.checkpoint) if paths.checkpoint.exists() else {}


def forget_legacy_offset(paths: TaskPaths, store: str, changelogs: Iterable[TopicPartition] = ()) -> None:
    """Remove one store's entries, durably; the other stores of the task keep theirs. A torn file is removed.

    Parameters
    ----------
    changelogs
        Partitions that the store is filled from, where they are not those of the topic named after it.
    """
    gone = {StorePartition(paths.application, store, paths.task).changelog, *changelogs}
    try:
        kept = {partition: offset for partition, offset in legacy_offsets(paths).items() if partition not in gone}
    except StoreCorruptedError:
        kept = {}
    if kept:
        write_durably(paths.checkpoint, checkpoint_file.write(kept))
    else:
        remove_durably(paths.checkpoint)
