"""What an interrupted overwrite leaves for the next one: which topic it has made, and in the place of which.

<state.dir>/.statestore/<application.id>/overwrite-<store>.json

Whether it counts, the catalogue says: once that names the topic, the overwrite is only ever finished. Until then the
topic is nobody's, and it may be removed.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from statestore.durable import read_checked, remove_durably, write_checked
from statestore.errors import InvalidStateError
from statestore.model import check_name
from statestore.partition.rollback import OVERWRITTEN
from statestore.statedir.paths import OWN_DIRECTORY


class OverwriteJournal(BaseModel):
    """A changelog that is written in the place of another.

    Attributes
    ----------
    topic_id
        None until the topic is made: then one of the name that has no record is ours.
    before
        Name of the changelog until then, which stays.
    started_ms
        When it began, ms since the epoch: timestamp of records whose rows tell none.
    records
        By task, how many its partition gets.
    cleanup_policy
        What the topic gets in the end: while it is written, nothing is removed from it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    application: str
    store: str
    topic: str
    topic_id: str | None = None
    before: str
    started_ms: int
    records: dict[str, int]
    cleanup_policy: str

    @property
    def label(self) -> str:
        """Name in quarantine of what is replaced, the same for all attempts."""
        return f"{OVERWRITTEN}{self.started_ms}"


def _path(state_dir: Path, application: str, store: str) -> Path:
    return state_dir / OWN_DIRECTORY / check_name(application) / f"overwrite-{check_name(store)}.json"


def read_overwrite_journal(state_dir: Path, application: str, store: str) -> OverwriteJournal | None:
    """Return the journal of a store's overwrite that was interrupted; None: there is none.

    Raises
    ------
    InvalidStateError
        If it is damaged: then it is not known whose the topic is.
    """
    path = _path(state_dir, application, store)
    try:
        return OverwriteJournal.model_validate_json(read_checked(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InvalidStateError(
            f"{path} cannot be read: {error}. It said which changelog topic an overwrite of store {store} has made. "
            f"Nothing was changed. Run `statestore verify --application {application}`: if its stores are healthy, "
            f"delete {path}, and run again"
        ) from error


def write_overwrite_journal(state_dir: Path, journal: OverwriteJournal) -> None:
    """Write it, durably."""
    write_checked(_path(state_dir, journal.application, journal.store), journal.model_dump_json())


def remove_overwrite_journal(state_dir: Path, application: str, store: str) -> None:
    """Remove it: the overwrite is done, or its topic is gone."""
    remove_durably(_path(state_dir, application, store))
