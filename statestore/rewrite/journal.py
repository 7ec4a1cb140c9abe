"""The journal of an interrupted rewrite for the next one: the changelogs that it has created, and its progress.

<state.dir>/.statestore/<application.id>/reseed-<store>.json     a lost changelog is written anew from its stores
<state.dir>/.statestore/<application.id>/overwrite-<store>.json  a store gets other rows
<state.dir>/.statestore/<application.id>/transform.json          several stores get other rows
<state.dir>/.statestore/<application.id>/rewrite.json            the application is made of the state of another
<state.dir>/.statestore/<application.id>/point.json              all stores and the group's offsets go back to a point
<state.dir>/.statestore/<application.id>/point-hold              exists while these are of different points
<state.dir>/.statestore/<application.id>/undo.json               an overwrite, a transform, or a restore to a point is
                                                                 undone

The journal of an overwrite, a transform, or a restore to a point that has ended is kept as
`done-<name>-<started_ms>.json` until it is undone: it tells the way back.

While `rewrite.json` or `point-hold` is there, only a rewrite opens a task of the application
(`statedir/lock.py`). The others close nothing: until its new changelog counts, a store is as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from statestore.durable import read_checked, remove_durably, write_checked
from statestore.errors import InvalidStateError
from statestore.kafka.groups import GroupOffset
from statestore.kafka.topics import Topic
from statestore.model import StoreFormat, TopicPartition, check_name
from statestore.statedir.paths import rewrite_journal
from statestore.statedir.rewritten import keep_rewritten

Kind = Literal["reseed", "overwrite", "transform", "rewrite", "point", "undo"]
#: By partition, input as topic, partition and last offset; None: it cannot be told.
Positions = tuple[tuple[tuple[str, int, int], ...] | None, ...]
_UNREADABLE = {
    "reseed": "It said which changelog topic a reseed of store {store} has made. Nothing was changed. If the stores "
    "are as they were, delete that topic and {path}, and run again",
    "overwrite": "It said which changelog topic an overwrite of store {store} has made. Nothing was changed. Run "
    "`statestore verify --application {application}`: if its stores are healthy, delete {path}, and run again",
    "transform": "It said which changelog topics a transform has made. Nothing was changed. Run `statestore verify "
    "--application {application}`: if its stores are healthy, delete {path}, and run again",
    "point": "It said which changelog topics and input offsets a restore to a point has made. Nothing was changed. Run "
    "`statestore verify --application {application}`: if its stores are healthy, delete {path}, and run again",
    "undo": "It said which rewrite is undone. Nothing was changed. Run `statestore verify --application "
    "{application}`: if its stores are healthy, delete {path}; if they are not, restore them with --accept-loss first",
    "rewrite": "It said how far a rewrite is that makes application {application}. Nothing was changed. If the group "
    "{application} has no committed offsets, delete its changelog topics, its directories in {state_dir} and "
    "{path.parent}, and run the rewrite again",
}


class Rewrite(NamedTuple):
    """What is rewritten.

    Attributes
    ----------
    store
        None: several, or the whole application.
    """

    kind: Kind
    application: str
    store: str | None = None

    def path(self, state_dir: Path) -> Path:
        """Return where its journal is."""
        name = self.kind if self.store is None else f"{self.kind}-{check_name(self.store)}"
        return rewrite_journal(state_dir, self.application).with_name(f"{name}.json")


class NewTopic(BaseModel):
    """A changelog that is made.

    Attributes
    ----------
    store, format
        Whose it is, and the format that the store has with it.
    topic_id
        None until it is made: then one of the name that has no record is ours.
    records
        By partition, how many it gets.
    settings
        What it gets in the end: while it is written, nothing is removed from it.
    before, before_id, before_format
        Name of the changelog in whose place it comes, which stays, its id, and the format that the store had with it;
        None: of none. The id is None if there was no such topic.
    positions
        By partition, the input that the rows are of, as topic, partition and last offset; None: it cannot be told.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str
    format: StoreFormat
    topic_id: str | None = None
    records: tuple[int, ...]
    settings: dict[str, str]
    before: str | None = None
    before_id: str | None = None
    before_format: StoreFormat | None = None
    positions: Positions = ()

    def described(self, name: str) -> Topic:
        """Return the topic, once it is made, as the brokers describe it."""
        return Topic(name, self.topic_id or "", len(self.records))

    def position(self, partition: int) -> dict[TopicPartition, int] | None:
        """Return the input that the rows of a partition are of; None: it cannot be told."""
        found = self.positions[partition]
        return None if found is None else {TopicPartition(topic, number): last for topic, number, last in found}


class RewriteJournal(BaseModel):
    """A rewrite that has begun.

    Attributes
    ----------
    store
        None: the whole application.
    started_ms
        When it began, ms since the epoch: timestamp of records whose rows tell none.
    topics
        The new changelogs, by name.
    whole
        The changelogs have all records, and give the rows: from now on it is only finished.
    source, partitions
        Of which application another is made, and the partitions of what that reads; None: of none.
    snapshot_set
        Of which set of its snapshots; None: of its stores.
    offsets
        New offsets of its group, as topic, partition, next offset and metadata; empty: they do not change.
    former_offsets
        Offsets of the group before that.
    point
        Name of the point that the application was put back to.
    committed
        What the group of the other had committed, as topic, partition and next offset.
    changelogs
        Changelogs of the other when its rows were read, as topic, id, partition, end; empty: not known, or of a set.
    undoes
        Label of the rewrite that is undone; empty: of none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    application: str
    store: str | None = None
    started_ms: int
    topics: dict[str, NewTopic]
    whole: bool = False
    source: str | None = None
    snapshot_set: str | None = None
    partitions: int | None = None
    offsets: tuple[tuple[str, int, int, str], ...] = ()
    committed: tuple[tuple[str, int, int], ...] = ()
    changelogs: tuple[tuple[str, str, int, int], ...] = ()
    undoes: str = ""
    former_offsets: tuple[tuple[str, int, int, str], ...] = ()
    point: str = ""

    @property
    def rewrite(self) -> Rewrite:
        """What is rewritten."""
        return Rewrite(self.kind, self.application, self.store)

    @property
    def label(self) -> str:
        """Name of the restores that put its stores in place, the same for all attempts, also in quarantine."""
        return f"{self.kind}-{self.started_ms}"

    @property
    def group_offsets(self) -> dict[TopicPartition, GroupOffset]:
        """New offsets of its group."""
        return _group_offsets(self.offsets)

    @property
    def former_group_offsets(self) -> dict[TopicPartition, GroupOffset]:
        """Offsets that its group had before."""
        return _group_offsets(self.former_offsets)

    def made(self, topic: Topic) -> RewriteJournal:
        """Return the journal of when a changelog was made."""
        new = self.topics[topic.name].model_copy(update={"topic_id": topic.topic_id})
        return self.model_copy(update={"topics": {**self.topics, topic.name: new}})


def _group_offsets(listed: Iterable[tuple[str, int, int, str]]) -> dict[TopicPartition, GroupOffset]:
    return {TopicPartition(topic, number): GroupOffset(offset, metadata) for topic, number, offset, metadata in listed}


def listed_offsets(offsets: Mapping[TopicPartition, GroupOffset]) -> tuple[tuple[str, int, int, str], ...]:
    """Return a group's offsets as journals keep them."""
    return tuple((*where, found.next_offset, found.metadata) for where, found in sorted(offsets.items()))


def read_journal(state_dir: Path, rewrite: Rewrite) -> RewriteJournal | None:
    """Return the journal of a rewrite that has not ended; None: there is none.

    Raises
    ------
    InvalidStateError
        If it is damaged: then it is not known whose the topics are.
    """
    path = rewrite.path(state_dir)
    try:
        return RewriteJournal.model_validate_json(read_checked(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        what = _UNREADABLE[rewrite.kind].format(path=path, state_dir=state_dir, **rewrite._asdict())
        raise InvalidStateError(f"{path} cannot be read: {error}. {what}") from error


def require_no_other(state_dir: Path, rewrite: Rewrite, stores: Iterable[str]) -> None:
    """Refuse to begin while another rewrite of one of the stores has not ended.

    Raises
    ------
    InvalidStateError
        Naming it.
    """
    names, application = set(stores), rewrite.application
    kinds: tuple[Kind, ...] = ("transform", "rewrite", "point", "undo")
    others = [Rewrite(kind, application) for kind in kinds]
    others += [Rewrite(kind, application, name) for kind in ("reseed", "overwrite") for name in sorted(names)]
    for other in others:
        journal = None if other == rewrite else read_journal(state_dir, other)
        if journal is not None and names & {new.store for new in journal.topics.values()}:
            raise InvalidStateError(
                f"{other.path(state_dir)} is there: a rewrite of the kind {other.kind} was interrupted. Run it again "
                "first. Nothing was changed"
            )


def write_journal(state_dir: Path, journal: RewriteJournal) -> None:
    """Write it, durably."""
    write_checked(journal.rewrite.path(state_dir), journal.model_dump_json())


def remove_journal(state_dir: Path, rewrite: Rewrite) -> None:
    """Remove it: nothing is left of the rewrite, or of what it has written."""
    remove_durably(rewrite.path(state_dir))


def end_journal(state_dir: Path, journal: RewriteJournal) -> None:
    """Remove it: the rewrite is done. How many records of the new changelogs are from it stays written down."""
    for new in journal.topics.values():
        keep_rewritten(state_dir, journal.application, new.topic_id, new.records)
    remove_journal(state_dir, journal.rewrite)


def keep_done(state_dir: Path, journal: RewriteJournal) -> None:
    """Keep the journal of a rewrite that has ended, durably."""
    write_checked(_done(state_dir, journal.rewrite, journal.label), journal.model_dump_json())


def read_done(state_dir: Path, application: str) -> list[RewriteJournal]:
    """Return the rewrites of an application that have ended, and were not undone.

    Raises
    ------
    InvalidStateError
        If one cannot be read.
    """
    found = []
    for path in sorted(rewrite_journal(state_dir, application).parent.glob("done-*.json")):
        try:
            found.append(RewriteJournal.model_validate_json(read_checked(path)))
        except ValueError as error:
            raise InvalidStateError(
                f"{path} cannot be read: {error}. It said how to undo a rewrite. Nothing was changed. To give that up, "
                "delete it"
            ) from error
    return found


def forget_done(state_dir: Path, undo: RewriteJournal) -> None:
    """Forget the rewrite that was undone."""
    for done in read_done(state_dir, undo.application):
        if done.label == undo.undoes and undo.topics.keys() == {new.before for new in done.topics.values()}:
            remove_durably(_done(state_dir, done.rewrite, done.label))


def _done(state_dir: Path, rewrite: Rewrite, label: str) -> Path:
    path = rewrite.path(state_dir)
    return path.with_name(f"done-{path.stem}-{label.rpartition('-')[2]}.json")


def listed(position: Mapping[TopicPartition, int] | None) -> tuple[tuple[str, int, int], ...] | None:
    """Return a position as journals keep it."""
    return None if position is None else tuple((*where, last) for where, last in sorted(position.items()))
