"""Stores that were replaced: kept until they are validated or old, and never removed while they might be needed.

Only a store of which nothing can be lost goes by itself. One that may be the only copy of something waits for a person.
"""

from __future__ import annotations

import time
from pathlib import Path

from statestore.archive.grown_from import GrownFrom, read_grown_from
from statestore.definitions.store import StoreDefinition
from statestore.durable import remove_durably, remove_tree
from statestore.errors import InvalidStateError, SnapshotError, StoreCorruptedError
from statestore.reports import Loss
from statestore.statedir.lock import require_alone
from statestore.statedir.paths import TaskPaths
from statestore.statedir.record import StoreRecord, read_record
from statestore.statedir.seal import check_seal
from statestore.statedir.sidecar import beside_quarantined

#: What is known of a predecessor whose judgement was kept in a file that is damaged, or was not kept.
UNREADABLE = "its status when it was replaced can no longer be read"
ANOTHER_LOG = "the live store may have a different changelog than it had"
UNJUDGED = "its status when it was replaced is unknown"


def quarantined(paths: TaskPaths, store: str) -> list[Path]:
    """Directories of a store's predecessors."""
    parent = paths.replaced / store
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.exists() else []


def last_replaced(paths: TaskPaths, store: str) -> Path | None:
    """Directory of the predecessor that was replaced last; None if there is none."""
    return max(quarantined(paths, store), key=lambda path: path.stat().st_mtime_ns, default=None)


def replaced_by(paths: TaskPaths, store: str, label: str, topic_id: str | None) -> Path | None:
    """Return the predecessor that a run replaced, if its changelog is the topic with this id; None: it is not kept.

    Raises
    ------
    InvalidStateError
        If what lay beside it cannot be read.
    """
    for path in quarantined(paths, store):
        if path.name == label or path.name.startswith(f"{label}-"):
            record = _record_of(beside_quarantined(paths, store, path.name).record)
            if record is None or record.topic_id == topic_id:
                return path
    return None


def release(paths: TaskPaths, store: str, label: str) -> None:
    """Remove a predecessor with all that is kept of it; the caller holds the task's lock."""
    require_alone(paths)
    remove_tree(paths.quarantine(store, label))
    remove_tree(paths.quarantined_segments(store, label))
    remove_tree(paths.quarantined_commits(store, label))
    remove_durably(paths.quarantined_own(store, label))


def release_validated(paths: TaskPaths, store: StoreDefinition, label: str) -> bool:
    """Remove a predecessor whose successor has passed validation; the caller holds the task's lock.

    Returns
    -------
    bool
        False, and nothing is removed: the predecessor waits for a person, or the live store is not sealed. It may then
        be another store than the one that passed, such as an empty one that a run began and could not use.
    """
    if waits_for_a_person(paths, store.name, label) is not None or not is_whole(paths, store, contents=False):
        return False
    release(paths, store.name, label)
    return True


def waits_for_a_person(paths: TaskPaths, store: str, label: str) -> str | None:
    """Say why a predecessor may be the only copy of something, however good its successor is.

    Returns
    -------
    str or None
        What was or may have been lost when it was replaced, or that this is not known. It is then removed by nobody
        but a person. None: its successor was built from a log that had all of it.
    """
    try:
        beside = beside_quarantined(paths, store, label)
    except InvalidStateError:
        return UNREADABLE
    if beside.loss is Loss.NONE:
        same = _has_same_log(paths, store, beside.record)
        return _chosen_by_hand(paths, store, beside.snapshot) if same else ANOTHER_LOG
    if beside.loss is None:
        return UNJUDGED
    return f"it was {beside.status}, and {beside.why}"


def _has_same_log(paths: TaskPaths, store: str, kept: str | None) -> bool:
    """Whether the record that lay beside a predecessor names the same topic as the live store's."""
    if kept is None:  # it had nothing
        return True
    live, replaced = read_record(paths, store), _record_of(kept)
    return live is not None and replaced is not None and live.topic_id == replaced.topic_id


def _chosen_by_hand(paths: TaskPaths, store: str, kept: str | None) -> str | None:
    """Say by what a person has put a predecessor in place, of which its log need not give the rows.

    Returns
    -------
    str or None
        None: by nothing, or the live store grew from it.
    """
    if kept is None:
        return None
    try:
        chosen, live = GrownFrom.model_validate_json(kept.splitlines()[0]).by_hand, read_grown_from(paths, store)
    except (IndexError, ValueError, SnapshotError):
        return UNREADABLE
    if chosen is None or (live is not None and live.by_hand == chosen):
        return None
    return f"it was put in place by {chosen}, and its changelog need not give its rows"


def _record_of(kept: str | None) -> StoreRecord | None:
    try:
        return StoreRecord.model_validate_json((kept or "").splitlines()[0])
    except (IndexError, ValueError):
        return None


def old_quarantined(paths: TaskPaths, store: str, older_than_s: float) -> list[Path]:
    """Directories of a store's predecessors that were replaced so many seconds ago, or more."""
    latest = time.time() - older_than_s
    return [path for path in quarantined(paths, store) if path.stat().st_mtime <= latest]


def clean_quarantine(
    paths: TaskPaths, store: StoreDefinition, older_than_s: float, *, accept_loss: bool = False, dry_run: bool = False
) -> list[Path]:
    """Remove a store's predecessors that are old enough, if the live store is whole; return their directories.

    Those that may be the only copy of something stay.

    Whole is a store that is sealed, and whose files are byte for byte as they were sealed. The caller holds the task's
    lock.

    Parameters
    ----------
    older_than_s
        Age in seconds since a store was replaced, from which on it is removed.
    accept_loss
        Remove also those that may be the only copy of something.
    dry_run
        Return what would be removed, and remove nothing.
    """
    old = [
        path
        for path in old_quarantined(paths, store.name, older_than_s)
        if accept_loss or waits_for_a_person(paths, store.name, path.name) is None
    ]
    if not old or not is_whole(paths, store):
        return []
    for path in [] if dry_run else old:
        release(paths, store.name, path.name)
    return old


def is_whole(paths: TaskPaths, store: StoreDefinition, *, contents: bool = True) -> bool:
    """Say whether the live store is sealed, and its files are as they were sealed; with `contents`, byte for byte."""
    if not paths.live(store).exists():
        return False
    try:
        return bool(check_seal(paths, store.name, store.store_kind, contents=contents))
    except StoreCorruptedError:
        return False
