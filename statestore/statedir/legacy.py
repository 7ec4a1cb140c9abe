"""The `.checkpoint` file of a task from before KIP-1035: read, and emptied store by store.

Kafka Streams copies its offsets over those of the stores, so an entry must be gone before its store changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from statestore.durable import remove_durably, rename_durably, write_durably
from statestore.errors import StoreCorruptedError, unreadable_is_damaged
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


def legacy_offsets_of(
    paths: TaskPaths, store: str, changelogs: Iterable[TopicPartition] = ()
) -> dict[TopicPartition, int | None]:
    """Entries of one store; a torn file has none.

    Parameters
    ----------
    changelogs
        Partitions that the store is filled from, where they are not those of the topic named after it.
    """
    own = {StorePartition(paths.application, store, paths.task).changelog, *changelogs}
    return {partition: offset for partition, offset in _readable(paths).items() if partition in own}


def forget_legacy_offset(paths: TaskPaths, store: str, changelogs: Iterable[TopicPartition] = ()) -> None:
    """Remove the entries of one store, durably; the other stores of the task keep theirs. A torn file is removed."""
    gone = legacy_offsets_of(paths, store, changelogs)
    _write(paths, {partition: offset for partition, offset in _readable(paths).items() if partition not in gone})


def put_back_legacy_offsets(paths: TaskPaths, offsets: Mapping[TopicPartition, int | None]) -> None:
    """Enter offsets that were removed; those that are there by now stay."""
    if offsets:
        _write(paths, {**offsets, **_readable(paths)})


def _readable(paths: TaskPaths) -> dict[TopicPartition, int | None]:
    try:
        with unreadable_is_damaged():
            return legacy_offsets(paths)
    except StoreCorruptedError:
        return {}


def _write(paths: TaskPaths, offsets: Mapping[TopicPartition, int | None]) -> None:
    """Write the file, with the time that it had: what is newer than that was written after the offsets in it."""
    if not offsets:
        remove_durably(paths.checkpoint)
        return
    written_ns = paths.checkpoint.stat().st_mtime_ns if paths.checkpoint.exists() else None
    new = paths.checkpoint.with_name(f"{paths.checkpoint.name}.tmp")  # as Kafka Streams calls it
    write_durably(new, checkpoint_file.write(offsets))
    if written_ns is not None:
        os.utime(new, ns=(written_ns, written_ns))
    rename_durably(new, paths.checkpoint)
