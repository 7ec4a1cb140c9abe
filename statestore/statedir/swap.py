"""Replacing a live store by a staged one: renames and a journal.

    1  write the journal                          live = old
    2  remove the store's entries in the legacy checkpoint file
    3  rename live -> quarantine                  live is absent
    4  remove the old store's seal, digests, mode and offsets file
    5  rename what we kept of the old segments -> quarantine, and what we shall keep of the new ones -> its place
    6  rename staged -> live                      live = new
    7  write what lies beside the new store: its record, or all that lay there if it is an old one that comes back
    8  write what lay beside the old store -> quarantine, and remove the journal

Whoever takes the task's lock next finishes what was begun: before 3 the swap is forgotten, from 3 on it is completed.
The entries go before the old store, because Kafka Streams would copy their offsets over those of whatever lies there.
They may be all that tells how far the old store is, so a swap that is forgotten puts them back, from the journal.
Step 5 is for window and session stores only. Call everything here under the task's lock.

A rollback is a swap whose staged store is a directory in quarantine: the journal says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from statestore import kill_switch
from statestore.definitions.store import StoreDefinition
from statestore.durable import read_checked, remove_durably, remove_tree, rename_durably, with_checksum, write_checked
from statestore.errors import InvalidStateError
from statestore.model import TopicPartition
from statestore.reports import Loss
from statestore.statedir.context import forget_mode
from statestore.statedir.legacy import forget_legacy_offset, put_back_legacy_offsets
from statestore.statedir.lock import is_writable, locked, require_alone, require_locks
from statestore.statedir.paths import TaskPaths
from statestore.statedir.record import StoreRecord
from statestore.statedir.seal import break_seal, forget_digests
from statestore.statedir.sidecar import (
    Judgement,
    Sidecar,
    beside_quarantined,
    keep_others,
    put_back,
    read_text,
    take_down,
)

_BY_HAND = "see which of live, staging and quarantine holds the store, put it in place by hand, and remove the journal"


class _Journal(BaseModel):
    """A swap that has begun.

    Attributes
    ----------
    label
        The name that what was replaced has in quarantine.
    staged_segments
        Our records of the new segments.
    changelogs
        Partitions that the store is filled from.
    legacy
        The old store's entries in the legacy checkpoint file.
    kept
        Sidecar files of the old store; None without an old store.
    keeps_commits
        The store has no changelog, so its commits that are in files go to quarantine with it.
    back
        Sidecar files of the staged store: its record, or those that it had when it was replaced itself.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str
    staged: Path
    live: Path
    quarantine: Path | None
    label: str
    changelogs: tuple[TopicPartition, ...]
    legacy: tuple[tuple[TopicPartition, int | None], ...]
    staged_segments: Path
    kept: Sidecar | None
    back: Sidecar | None
    keeps_commits: bool


def swap(
    paths: TaskPaths,
    store: StoreDefinition,
    label: str,
    changelogs: Sequence[TopicPartition] = (),
    *,
    verdict: Judgement | None = None,
    record: StoreRecord | None = None,
    replaced: str | None = None,
    grown_from: str | None = None,
    legacy: tuple[tuple[TopicPartition, int | None], ...] = (),
) -> Path | None:
    """Put the staged store in the place of the live one, or one that a swap has replaced before.

    The seal goes with the old store and not before: if the swap never begins, it is still what proves that store
    damaged.

    Parameters
    ----------
    changelogs
        Partitions that the store is filled from, where they are not those of the topic named after it.
    verdict
        How the live store was judged; it is kept with the store in quarantine.
    record
        Of the staged store.
    replaced
        Name in quarantine of the store that is put back, and its record with it; None: it is the staged one.
    grown_from
        What is to be known of the new store's snapshots (`archive/grown_from.py`); None: nothing.
    legacy
        The staged store's entries in the legacy checkpoint file, where that has its offsets.

    Returns
    -------
    Path or None
        Where the old store is now; None if there was none.
    """
    name, live = store.name, paths.live(store)
    unused = unused_label(paths, name, label)
    quarantine = paths.quarantine(name, unused) if live.exists() else None
    kept = take_down(paths, name, changelogs, verdict) if live.exists() else None
    staged, segments = paths.staging(name), paths.staged_segments(name)
    back = None
    if record is not None:
        offsets = read_text(paths.staged_offsets(name))
        back = Sidecar(record=with_checksum(record.as_written()), offsets=offsets, legacy=legacy)
    if replaced is not None:
        staged, segments = paths.quarantine(name, replaced), paths.quarantined_segments(name, replaced)
        back = beside_quarantined(paths, name, replaced)
        if store.segmented:  # if nothing was kept, the present segments' must go all the same
            segments.mkdir(parents=True, exist_ok=True)
    if back is not None:
        back = back.model_copy(update={"snapshot": grown_from})
    journal = _Journal(
        store=name,
        staged=staged,
        live=live,
        quarantine=quarantine,
        label=unused,
        changelogs=tuple(changelogs),
        staged_segments=segments,
        legacy=kept.legacy if kept else (),
        kept=kept,
        back=back,
        keeps_commits=not store.logged,
    )
    require_alone(paths)
    if not staged.exists():
        raise InvalidStateError(f"there is no store in {staged} to put in the place of {live}; nothing was changed")
    if verdict is not None and verdict.loss is not Loss.NONE:
        keep_others(paths, name, verdict)
    write_checked(paths.journal(name), journal.model_dump_json())
    kill_switch.reached("swap, journal written")
    _finish(paths, journal)
    _end(paths, journal)
    return quarantine


@contextmanager
def locked_task(
    paths: TaskPaths,
    wait_s: float = 10.0,
    *,
    urgent: bool = False,
    rewriting: bool = False,
    reading: bool = False,
) -> Iterator[None]:
    """Hold the task's locks (`lock.locked`), with what a former holder has begun to replace finished.

    With `reading`, that is left unfinished where nothing can be written.

    Raises
    ------
    LockedError
        If somebody else holds the task.
    InvalidStateError
        If a swap cannot be finished.
    """
    with locked(paths, wait_s, urgent=urgent, rewriting=rewriting, reading=reading):
        if not reading or is_writable(paths.own_dir):
            finish_swaps(paths)
        elif (left := next(paths.own_dir.glob("swap-*.json"), None)) is not None:
            raise InvalidStateError(
                f"{left} exists: the replacement of a store was interrupted, and can only be finished where the "
                "directory can be written. Verify the state directory itself instead of this read-only one"
            )
        yield


def finish_swaps(paths: TaskPaths) -> list[str]:
    """Complete or forget swaps that a former holder of the lock has left; return the stores concerned."""
    stores = []
    for path in sorted(paths.own_dir.glob("swap-*.json")):
        try:
            journal = _Journal.model_validate_json(read_checked(path))
        except ValueError as error:
            raise InvalidStateError(f"{path} is not a swap journal: {error}; {_BY_HAND}") from error
        if not _fits(paths, path, journal):
            raise InvalidStateError(
                f"{path} is damaged: it names places that are not those of store {journal.store}; {_BY_HAND}"
            )
        begun = not journal.live.exists() and journal.staged.exists()
        if begun:
            _finish(paths, journal)
            _end(paths, journal)
        elif journal.quarantine is not None and not journal.live.exists() and journal.quarantine.exists():
            _put_back(paths, journal)  # somebody removed the staged store: the old one is left
        elif not journal.staged.exists():
            _forget_old(paths, journal)
            if journal.quarantine is None or journal.quarantine.exists():
                _end(paths, journal)
        else:  # not begun
            put_back_legacy_offsets(paths, dict(journal.legacy))
        remove_durably(path)
        stores.append(journal.store)
    return stores


def _fits(paths: TaskPaths, path: Path, journal: _Journal) -> bool:
    """Whether all that a journal moves is the store's: a damaged one would put a store where nobody finds it."""
    store = journal.store
    if path.name != paths.journal(store).name:
        return False
    replaced, segments = paths.replaced / store, paths.replaced_segments(store)
    return (
        _is_one(journal.live, paths.store(store), paths.task_dir / store)
        and (_is_one(journal.staged, paths.staging(store)) or _is_one(journal.staged.parent, replaced))
        and (journal.quarantine is None or _is_one(journal.quarantine.parent, replaced))
        and (
            _is_one(journal.staged_segments, paths.staged_segments(store))
            or _is_one(journal.staged_segments.parent, segments)
        )
    )


def _is_one(found: Path, *of: Path) -> bool:
    return found.resolve() in {path.resolve() for path in of}  # another run may have named the directory otherwise


def _finish(paths: TaskPaths, journal: _Journal) -> None:
    forget_legacy_offset(paths, journal.store, journal.changelogs)
    if journal.live.exists() and journal.quarantine is not None:
        # Its age in quarantine counts from here, also if nobody comes back after the rename; by the clock that will ask
        # for it, which need not be that of the file system.
        now_s = time.time()
        os.utime(journal.live, (now_s, now_s))
        _rename(paths, journal.live, journal.quarantine)
    kill_switch.reached("swap, old store in quarantine")
    if journal.keeps_commits and paths.commits(journal.store).exists():
        _rename(paths, paths.commits(journal.store), paths.quarantined_commits(journal.store, journal.label))
    _forget_old(paths, journal)
    # What is staged tells whose the present segments are: as long as it is there, they are the old store's.
    if (staged := journal.staged_segments).exists():
        kept = paths.segments(journal.store)
        if kept.exists():
            _rename(paths, kept, paths.quarantined_segments(journal.store, journal.label))
        kill_switch.reached("swap, old segments in quarantine")
        _rename(paths, staged, kept)
    kill_switch.reached("swap, before the last rename")
    _rename(paths, journal.staged, journal.live)
    kill_switch.reached("swap, new store live")


def _end(paths: TaskPaths, journal: _Journal) -> None:
    """Put beside the live store what belongs to it, keep what belonged to the old one, remove the journal."""
    require_locks(paths)
    # Not before the store is live: until then, what is in the place of the commits belongs to the old one.
    if journal.keeps_commits and journal.staged != paths.staging(journal.store):
        back = paths.quarantined_commits(journal.store, journal.staged.name)
        if back.exists():
            _rename(paths, back, paths.commits(journal.store))
    if journal.back is not None:
        put_back(paths, journal.store, journal.back)
    if journal.quarantine is not None and journal.kept is not None:
        write_checked(
            paths.quarantined_own(journal.store, journal.label), journal.kept.model_dump_json(exclude_none=True)
        )
    kill_switch.reached("swap, before the journal goes")
    remove_durably(paths.journal(journal.store))


def _rename(paths: TaskPaths, source: Path, target: Path) -> None:
    """Rename a directory, unless another process may have the task by now, and have finished the swap."""
    require_locks(paths)
    rename_durably(source, target)


def _put_back(paths: TaskPaths, journal: _Journal) -> None:
    assert journal.quarantine is not None
    old = paths.quarantined_segments(journal.store, journal.label)
    if old.exists():
        remove_tree(paths.segments(journal.store))
        rename_durably(old, paths.segments(journal.store))
    if journal.keeps_commits and (commits := paths.quarantined_commits(journal.store, journal.label)).exists():
        remove_tree(paths.commits(journal.store))
        rename_durably(commits, paths.commits(journal.store))
    rename_durably(journal.quarantine, journal.live)
    assert journal.kept is not None, "there was a store"
    put_back(paths, journal.store, journal.kept)  # not before: the place was empty


def _forget_old(paths: TaskPaths, journal: _Journal) -> None:
    store = journal.store
    break_seal(paths, store)
    forget_digests(paths, store)
    forget_mode(paths, store)
    if not journal.keeps_commits:  # else they are in quarantine
        remove_tree(paths.commits(store))  # they are of the databases that were here
    remove_durably(paths.snapshot(store))
    remove_durably(paths.offsets(store))


def unused_label(paths: TaskPaths, store: str, label: str) -> str:
    """Return the label, or one like it if a run of the same name left something: no old store is ever overwritten."""
    number = 2
    found = label
    while paths.quarantine(store, found).exists() or paths.quarantined_segments(store, found).exists():
        found = f"{label}-{number}"
        number += 1
    return found
