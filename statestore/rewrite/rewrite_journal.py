"""What an interrupted rewrite leaves for the next one: of which application another is made, and how far that is.

<state.dir>/.statestore/<application.id>/rewrite.json

While it is there, nobody but a rewrite opens a task of the application (`statedir/lock.py`). Until the new changelogs
are whole, all that is there of the application is thrown away by the next attempt. From then on it is only finished.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from statestore.changelog.group import GroupOffset
from statestore.changelog.topics import Topic
from statestore.durable import read_checked, remove_durably, write_checked
from statestore.errors import InvalidStateError
from statestore.model import TopicPartition
from statestore.statedir.paths import rewrite_journal


class NewTopic(BaseModel):
    """A changelog that is made.

    Attributes
    ----------
    topic_id
        None until it is made: then one of the name that has no record is ours.
    records
        By partition, how many it gets.
    cleanup_policy
        What it gets in the end: while it is written, nothing is removed from it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic_id: str | None = None
    records: tuple[int, ...]
    cleanup_policy: str

    def described(self, name: str) -> Topic:
        """Return the topic, once it is made, as the brokers describe it."""
        return Topic(name, self.topic_id or "", len(self.records))


class RewriteJournal(BaseModel):
    """An application that is made of the state of another.

    Attributes
    ----------
    source, application
        The two.
    partitions
        Of what the new application reads.
    started_ms
        When it began, ms since the epoch: timestamp of records whose rows tell none.
    topics
        Its changelogs, by name.
    offsets
        What its group gets, as topic, partition, next offset and metadata.
    committed
        What the group of the other had committed, as topic, partition and next offset.
    whole
        The changelogs have all records, and its stores are built and in place.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    application: str
    partitions: int
    started_ms: int
    topics: dict[str, NewTopic]
    offsets: tuple[tuple[str, int, int, str], ...] = ()
    committed: tuple[tuple[str, int, int], ...] = ()
    whole: bool = False

    @property
    def label(self) -> str:
        """Name of the restores that put its stores in place."""
        return f"rewrite-{self.started_ms}"

    @property
    def group_offsets(self) -> dict[TopicPartition, GroupOffset]:
        """What its group gets."""
        return {
            TopicPartition(topic, number): GroupOffset(offset, metadata)
            for topic, number, offset, metadata in self.offsets
        }


def read_rewrite_journal(state_dir: Path, application: str) -> RewriteJournal | None:
    """Return the journal of a rewrite that has not ended; None: there is none.

    Raises
    ------
    InvalidStateError
        If it is damaged: then it is not known whose the topics are.
    """
    path = rewrite_journal(state_dir, application)
    try:
        return RewriteJournal.model_validate_json(read_checked(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InvalidStateError(
            f"{path} cannot be read: {error}. It said how far a rewrite is that makes application {application}. "
            f"Nothing was changed. If the group {application} has no committed offsets, delete its changelog topics, "
            f"its directories in {path.parent.parent.parent} and {path.parent}, and run the rewrite again"
        ) from error


def write_rewrite_journal(state_dir: Path, journal: RewriteJournal) -> None:
    """Write it, durably."""
    write_checked(rewrite_journal(state_dir, journal.application), journal.model_dump_json())


def remove_rewrite_journal(state_dir: Path, application: str) -> None:
    """Remove it: the application is whole, or nothing is left of it."""
    remove_durably(rewrite_journal(state_dir, application))
