"""Cleans up a node with its own state directory: copies of tasks that now run elsewhere.

A copy goes if another node has published a complete snapshot of the same log, as far or farther, in the generation that
counts, and if its log has lost nothing that the copy has and the snapshot lacks. Where that is not certain, it stays.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from statestore.archive.manifest import Manifest
from statestore.durable import remove_durably, remove_tree, write_durably
from statestore.errors import ArchiveUnavailableError, KafkaUnavailableError, StateStoreError
from statestore.partition.archived import look_into_archive
from statestore.partition.facts import Needs
from statestore.partition.generations import replaced_with
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.bringing import covers
from statestore.recovery.task_cleanup import CleaningSpec, changed_last, clean_task, tasks_with_own_files
from statestore.reports import Loss
from statestore.statedir.context import forget_mode
from statestore.statedir.lock import require_alone
from statestore.statedir.paths import OWN_DIRECTORY, TaskPaths
from statestore.statedir.record import read_record
from statestore.statedir.seal import break_seal, forget_digests
from statestore.statedir.swap import locked_task
from statestore.verification.check import examine
from statestore.verification.options import VerifyOptions

_log = logging.getLogger(__name__)
_OFFSETS, _SCAN = VerifyOptions(depth="offsets"), VerifyOptions(depth="scan")
#: A node is looked through so often, s.
_EVERY_S = 24 * 60 * 60.0
_WAIT_S = 0.0


def clean_copies(stores: Sequence[StorePartitionSpec], older_than_s: float) -> list[Path]:
    """Remove what this node has of the other tasks of a subtopology and nobody needs; return the stores that went.

    A failure is logged. Whoever runs here a day later tries again.

    Parameters
    ----------
    stores
        Those of a task that has just run here.
    older_than_s
        Age in seconds from which on something is old.
    """
    if not stores or any(store.home.disks_are_shared for store in stores):
        return []
    gone: list[Path] = []
    own = stores[0].paths
    for paths in _others(own):
        try:
            is_old = time.time() - changed_last(paths.own_dir) >= older_than_s
            row = clean_task(CleaningSpec(paths, tuple(store.store for store in stores), older_than_s, dry_run=False))
            if row.failure is not None:
                _log.warning("%s was not cleaned up: %s", row.place, row.failure.message)
            for store in stores if is_old else ():
                gone += _removed(store.model_copy(update={"task": paths.task}))
        except (StateStoreError, OSError) as error:
            _log.warning("copies of %s/%s stay on this node: %s", paths.application, paths.task, error)
            if isinstance(error, KafkaUnavailableError | ArchiveUnavailableError):  # each would wait as long
                break
    return gone


def _others(own: TaskPaths) -> list[TaskPaths]:
    """Return the subtopology's other tasks that are here; none if this node was looked through not long ago."""
    looked = own.state_dir / OWN_DIRECTORY / f"looked-through-{own.application}-{own.task.subtopology}"
    its = (own.application, own.task.subtopology)
    try:
        if looked.exists() and time.time() - looked.stat().st_mtime < _EVERY_S:
            return []
        write_durably(looked, "", several_writers=True)
        found = tasks_with_own_files(own.state_dir)
    except OSError as error:
        _log.warning("%s is not searched: %s", own.state_dir, error)
        return []
    return [paths for paths in found if (paths.application, paths.task.subtopology) == its and paths.task != own.task]


def _removed(store: StorePartitionSpec) -> list[Path]:
    """Remove a copy that nobody needs; return its directory, or nothing if it stays."""
    if not store.live.exists():
        return []
    ((seen, snapshot),) = look_into_archive([store], look_at_files=True)
    if snapshot is None or seen.trouble is not None or snapshot.host == socket.gethostname():
        return []
    with locked_task(store.paths, _WAIT_S):
        if not store.live.exists() or replaced_with(store) is not None or not _is_dispensable(store, snapshot):
            return []
        _remove(store)
    return [store.live]


def _is_dispensable(store: StorePartitionSpec, snapshot: Manifest) -> bool:
    """Tell whether log and snapshot give all that a copy has; unlike a store that is replaced, it would be gone."""
    _, found = examine(store, _OFFSETS)
    if found.loss is None:
        _, found = examine(store, _SCAN)
    if found.loss is None or found.loss.loss is not Loss.NONE:
        needs = Needs.of(read_record(store.paths, store.store.name))
        if not found.lost_its_start or not needs.met_by(snapshot.record):
            return False
    return covers(store, snapshot, found)


def _remove(store: StorePartitionSpec) -> None:
    """Remove a store with all that is kept of it; what a kill leaves of it is no store, and the archive has it."""
    paths, name = store.paths, store.store.name
    require_alone(paths)
    break_seal(paths, name)
    remove_tree(store.live)
    remove_tree(paths.segments(name))
    forget_digests(paths, name)
    forget_mode(paths, name)
    remove_tree(paths.commits(name))
    for path in (paths.snapshot(name), paths.offsets(name), paths.record(name)):
        remove_durably(path)
