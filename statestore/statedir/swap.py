"""Replacing a live store by a staged one: two renames and a journal.

    1  write the journal                     live = old
    2  rename live -> quarantine             live is absent
    3  remove the old store's seal
    4  rename staged -> live                 live = new
    5  remove the journal

Whoever takes the task's lock next finishes what was begun: before 2 the swap is forgotten, from 2 on it is completed.
Call everything here under the task's lock.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from statestore.durable import remove_durably, rename_durably, write_durably
from statestore.errors import InvalidStateError
from statestore.statedir.legacy import forget_legacy_offset
from statestore.statedir.paths import TaskPaths
from statestore.statedir.seal import break_seal, forget_digests


class _Journal(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str
    staged: Path
    live: Path
    quarantine: Path | None


def swap(paths: TaskPaths, store: str, staged: Path, label: str) -> Path | None:
    """Put the staged store in the place of the live one.

    Its entry in the checkpoint file goes first: Kafka Streams would copy that offset over the new store's. The seal
    goes with the old store and not before: if the swap never begins, it is still what proves that store damaged.

    Returns
    -------
    Path or None
        Where the old store is now; None if there was none.
    """
    live = paths.store(store)
    quarantine = _unused(paths.quarantine(store, label)) if live.exists() else None
    forget_legacy_offset(paths, store)
    journal = _Journal(store=store, staged=staged, live=live, quarantine=quarantine)
    write_durably(paths.journal(store), journal.model_dump_json())
    _finish(paths, journal)
    remove_durably(paths.journal(store))
    return quarantine


def finish_swaps(paths: TaskPaths) -> list[str]:
    """Complete or forget swaps that a former holder of the lock has left; return the stores concerned."""
    stores = []
    for path in sorted(paths.own_dir.glob("swap-*.json")):
        try:
            journal = _Journal.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise InvalidStateError(
                f"{path} is no journal of a swap: {error}; see which of live, staging and quarantine holds the store, "
                "put it in place by hand, and remove the journal"
            ) from error
        begun = not journal.live.exists() and journal.staged.exists()
        if begun:
            _finish(paths, journal)
        elif journal.quarantine is not None and not journal.live.exists() and journal.quarantine.exists():
            rename_durably(journal.quarantine, journal.live)  # somebody removed the staged store: the old one is left
        elif not journal.staged.exists():
            _forget_old(paths, journal.store)
        remove_durably(path)
        stores.append(journal.store)
    return stores


def _finish(paths: TaskPaths, journal: _Journal) -> None:
    if journal.live.exists() and journal.quarantine is not None:
        rename_durably(journal.live, journal.quarantine)
    _forget_old(paths, journal.store)
    rename_durably(journal.staged, journal.live)


def _forget_old(paths: TaskPaths, store: str) -> None:
    break_seal(paths, store)
    forget_digests(paths, store)


def _unused(directory: Path) -> Path:
    """The directory, or one beside it if a run of the same name left one: no old store is ever overwritten."""
    number = 2
    found = directory
    while found.exists():
        found = directory.with_name(f"{directory.name}-{number}")
        number += 1
    return found
