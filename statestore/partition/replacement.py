"""The replacement of a live store while it is built: its location, how it is opened, and whether it can be used."""

from __future__ import annotations

from statestore.changelog.compaction_gaps import holes
from statestore.durable import remove_tree
from statestore.errors import StoreBehindLogStartError
from statestore.kafka.topics import LogRange
from statestore.partition.spec import StorePartitionSpec
from statestore.statedir.lock import require_locks
from statestore.statedir.paths import TaskPaths
from statestore.stores.api import StoreContext
from statestore.stores.last_use import commits_directory, last_use_file


def staged_context(store: StorePartitionSpec, *, read_only: bool) -> StoreContext:
    """Return the context that a staged store is opened in."""
    staged = store.paths.staging(store.store.name)
    return StoreContext(
        application=store.application,
        task=store.task,
        task_directory=staged.parent,
        own_directory=store.paths.staged_own,
        changelogs={store.store.name: store.partitions},
        logged=store.store.logged,
        exactly_once=False,  # what was left open here was left by us, and is built anew
        directories={store.store.name: staged},
        read_only=read_only,
    )


def clear_built(paths: TaskPaths, store: str | None = None) -> None:
    """Remove what was built of a store; the caller holds the task's lock and has finished its swaps.

    Parameters
    ----------
    store
        None: any.
    """
    require_locks(paths)
    if store is None:
        found = [paths.staged, paths.staged_own]
    else:
        found = [paths.staging(store), paths.staged_segments(store), commits_directory(paths.staged_own, store)]
        for file in (paths.staged_offsets(store), last_use_file(paths.staged_own, store)):
            file.unlink(missing_ok=True)
    for directory in found:
        remove_tree(directory)
    for directory in (paths.staged, paths.staged_own / "segments", paths.staged_own / "commits", paths.staged_own):
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()


def may_follow(store: StorePartitionSpec) -> bool:
    """Tell whether a store that nobody knew whole may get the rest of its log, if that has lost nothing since.

    It then is the fold of its log as far as it is, and closed as such: a store of Kafka Streams, exactly once.
    """
    return store.origin.closed_as_fold and store.store.files_are_known


def has_lost_none(store: StorePartitionSpec, start: int, end: int) -> bool:
    """Tell whether compaction has removed nothing from a part of a store's log, so that every delete is still in it."""
    return holes(store.cluster, store.partition, start, end, enough=1) == 0


def may_lack_versions(store: StorePartitionSpec, committed: int | None, log: LogRange) -> bool:
    """Tell whether compaction may have removed something that a versioned store has of its log; of no other store.

    Each record of a key counts there. Compaction keeps the one that was logged last, which need not be the latest.

    Parameters
    ----------
    committed
        Offset of the last record that the store has; None: then nothing is known of what it has.
    """
    if store.store.compaction_keeps_rows or not store.log_is_compacted or committed is None:
        return False
    end = min(committed + 1, log.high_watermark)
    return log.start < end and not has_lost_none(store, log.start, end)


def require_tombstones(store: StorePartitionSpec, since_ms: int, now_ms: int, advice: str) -> None:
    """Refuse what was read so slowly that a delete which belongs to it may be gone from the log (conformance R6). Pure.

    A log that keeps tombstones for no time at all promises nothing, so there is nothing to wait for.

    Parameters
    ----------
    since_ms
        Time of the brokers from which on tombstones were sure to be in the log.
    now_ms
        Time of the brokers when the last record was read.
    advice
        What to do.

    Raises
    ------
    StoreBehindLogStartError
        If tombstones are not kept for so long.
    """
    changelog = store.changelog
    if not store.log_is_compacted or changelog is None or not changelog.delete_retention_ms:
        return
    if now_ms - since_ms >= changelog.delete_retention_ms:
        raise StoreBehindLogStartError(
            f"{store.store_partition}: when {changelog.topic} was read to its end, {(now_ms - since_ms) // 1000} s had "
            f"passed, and it keeps tombstones for {changelog.delete_retention_ms // 1000} s: deletes may be gone from "
            f"it; {advice}"
        )
