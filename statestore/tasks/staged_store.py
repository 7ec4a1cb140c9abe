"""Builds a store of a task from its whole changelog, in the staging directory.

The caller puts it in place when it is complete. A task that is killed before, or that reads so slowly that deletes may
be gone from the log, leaves no store that looks complete.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from statestore import kill_switch
from statestore.kafka.topics import LogRange
from statestore.partition.replacement import clear_built, require_tombstones, staged_context
from statestore.partition.spec import StorePartitionSpec
from statestore.statedir.record import StoreRecord
from statestore.stores.open import build_store
from statestore.stores.rocksdb_options import ConfigSetter
from statestore.stores.typed import AnyStore
from statestore.tasks.task_changelogs import TaskChangelogs

_ADVICE = "run restore for it, which is faster, or raise that setting"


class StagedStore(NamedTuple):
    """A store in the staging directory, closed.

    Attributes
    ----------
    record
        Its record.
    restored
        Changelog records in it.
    restore_ns
        Time (ns) that applying them took.
    """

    record: StoreRecord
    restored: int
    restore_ns: float


def build_staged(
    spec: StorePartitionSpec,
    changelogs: TaskChangelogs,
    log: LogRange,
    asked_ms: int,
    config_setter: ConfigSetter | None,
) -> StagedStore:
    """Build a store from its whole changelog in the staging directory; the caller holds the task's lock.

    Parameters
    ----------
    log
        The changelog partition's offsets.
    asked_ms
        Time of the brokers before they were asked for.

    Raises
    ------
    StoreBehindLogStartError
        If reading took longer than the changelog keeps tombstones.
    """
    clear_built(spec.paths)
    staged = build_store(spec.store)
    try:
        staged.init(replace(staged_context(spec, read_only=False), config_setter=config_setter))
        kill_switch.reached("store being rebuilt")
        restored = changelogs.replay(staged, spec.partition, log.start, log)
        require_tombstones(spec, asked_ms, changelogs.now_ms(), _ADVICE)
        assert spec.changelog is not None, "it was read"
        record = StoreRecord(
            topic_id=spec.changelog.topic_id,
            caught_up_ms=asked_ms,
            committed=staged.committed_offset(spec.partition),
            end=log.last_stable,
            needed_from=log.start,
            stream_time=known_stream_time(staged),
        )
        took = staged.metrics.figures("restore")
        staged.close(clean=True)
    finally:
        if staged.is_open:
            staged.close(clean=False)
    kill_switch.reached("store rebuilt, not in its place")
    return StagedStore(record, restored, took.count * took.latency_avg)


def known_stream_time(store: AnyStore) -> int | None:
    """Return the stream time (ms) of a window or session store; None if it has none."""
    latest = store.inner.stream_time
    return latest if latest >= 0 else None
