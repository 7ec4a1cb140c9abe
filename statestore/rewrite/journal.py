"""What an interrupted reseed leaves for the next one: which topic it has made, and whether that is whole.

<state.dir>/.statestore/<application.id>/reseed-<store>.json

Until the topic is whole nobody owns it, and it may be removed. From then on the reseed is only ever finished.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from statestore.durable import read_checked, remove_durably, write_checked
from statestore.errors import InvalidStateError
from statestore.statedir.paths import reseed_journal


class ReseedJournal(BaseModel):
    """A changelog that is being written.

    Attributes
    ----------
    topic_id
        Of the topic that was made for it.
    started_ms
        When it began, ms since the epoch: timestamp of records whose rows tell none.
    records
        By task, how many records its partition gets.
    whole
        The topic has all of them, and gives the rows of the stores: these are replaced one after the other.
    config
        Settings that the topic gets in the end: while it is written, nothing is removed from it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    application: str
    store: str
    topic: str
    topic_id: str
    started_ms: int
    records: dict[str, int]
    whole: bool = False
    config: dict[str, str]

    @property
    def label(self) -> str:
        """Name in quarantine of what is replaced, the same for all attempts."""
        return f"reseed-{self.started_ms}"


def read_journal(state_dir: Path, application: str, store: str) -> ReseedJournal | None:
    """Return the journal of a store's reseed that was interrupted; None: there is none.

    Raises
    ------
    InvalidStateError
        If it is damaged: then it is not known whose the topic is.
    """
    path = reseed_journal(state_dir, application, store)
    try:
        found = ReseedJournal.model_validate_json(read_checked(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InvalidStateError(
            f"{path} cannot be read: {error}. It said which changelog topic a reseed of store {store} has made. "
            f"Nothing was changed. If the stores are as they were, delete that topic and {path}, and run again"
        ) from error
    return found


def write_journal(state_dir: Path, journal: ReseedJournal) -> None:
    """Write it, durably."""
    write_checked(reseed_journal(state_dir, journal.application, journal.store), journal.model_dump_json())


def remove_journal(state_dir: Path, application: str, store: str) -> None:
    """Remove it: the reseed is done, or its topic is gone."""
    remove_durably(reseed_journal(state_dir, application, store))
