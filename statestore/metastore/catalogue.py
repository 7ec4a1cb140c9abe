"""The catalogue: which applications and stores there are, as the pure fold of the commands of the log.

No Kafka, no clock, no side effect: the same commands give the same catalogue, whoever reads them and however often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InvalidCommandError, UnknownApplicationError
from statestore.metastore.commands import (
    AdoptChangelogs,
    CatalogueContent,
    Command,
    DropApplication,
    DropStore,
    Entry,
    EvidenceRecord,
    FormerTopics,
    PutApplication,
    RecordEvidence,
    RecordTopics,
    Snapshot,
    canonical,
    digest_of,
)
from statestore.metastore.evolution import (
    internal_topic_names,
    require_compatible,
    require_droppable,
    require_partitions,
)
from statestore.model import changelog_number, changelog_topic


class FormerTopic(NamedTuple):
    """An internal topic that its application has left: the application or the store was dropped, or has another one.

    Attributes
    ----------
    topic_id
        The last id that was recorded; None if none was.
    definition, partitions
        As the application had them when it last wrote the topic.
    """

    topic_id: str | None
    definition: ApplicationDefinition
    partitions: dict[str, int]


@dataclass(frozen=True)
class Catalogue:
    """All applications after some prefix of the log.

    Attributes
    ----------
    applications
        By name, in order of names.
    next_id
        The id that the next command has.
    former
        By name, the topics that applications have left. A current application may have a topic of that name again.
    evidence
        By application, the head of its evidence. It is no part of the content, so drills do not change the digest.
    """

    applications: Mapping[str, Entry] = field(default_factory=dict)
    next_id: int = 1
    former: Mapping[str, FormerTopic] = field(default_factory=dict)
    evidence: Mapping[str, EvidenceRecord] = field(default_factory=dict)

    def apply(self, command: Command) -> Catalogue:
        """Return the catalogue after one more command; many are applied faster by a `Rebuild`.

        Raises
        ------
        InvalidCommandError
            If the command does not fit.
        """
        rebuild = Rebuild(self)
        rebuild.apply(command)
        return rebuild.catalogue()

    def definitions(self) -> dict[str, ApplicationDefinition]:
        """Return the definitions by name, in order of names."""
        return {name: entry.definition for name, entry in self.applications.items()}

    def entry(self, application: str) -> Entry:
        """Return an application.

        Raises
        ------
        UnknownApplicationError
            If there is none of that name; the message lists those that there are.
        """
        try:
            return self.applications[application]
        except KeyError:
            raise UnknownApplicationError(_unknown(application, self.applications)) from None

    def content(self) -> CatalogueContent:
        """Return what a snapshot holds."""
        return CatalogueContent(applications=dict(self.applications))

    def digest(self) -> str:
        """Return the SHA-256, hex, of the applications: the same for the same content, wherever the log has got to."""
        return self._digest

    def snapshot(self) -> Snapshot:
        """Return the command that says all of this at once. It is not stamped."""
        return Snapshot(
            catalogue=self.content(), digest=self.digest(), former=_grouped(self.former), evidence=dict(self.evidence)
        )

    @cached_property
    def _digest(self) -> str:
        return digest_of(self.content())


class _Changed(NamedTuple):
    """Data of an `Entry`. Most are changed again before the catalogue is requested."""

    definition: ApplicationDefinition
    partitions: dict[str, int]
    topics: dict[str, str] | None
    created_id: int
    changed_id: int
    changed_ms: int
    changed_by: str


class Rebuild:
    """A fold in progress. A command that is refused has changed nothing, and the fold can go on or stop before it.

    Parameters
    ----------
    start
        The catalogue to go on from.
    """

    def __init__(self, start: Catalogue | None = None) -> None:
        start = start or Catalogue()
        self._applications: dict[str, Entry | _Changed] = dict(start.applications)
        self._former = dict(start.former)
        self._evidence = dict(start.evidence)
        self._next_id = start.next_id
        self._in_order = True

    def apply(self, command: Command) -> None:
        """Apply one command.

        Raises
        ------
        InvalidCommandError
            If it does not fit; nothing was changed.
        """
        if command.id != self._next_id and not isinstance(command, Snapshot):
            # Writers exclude each other, so a gap or a repetition is no accident of the protocol: something is missing,
            # or was written past it.
            raise InvalidCommandError(f"the command has id {command.id}; expected {self._next_id}, the next one")
        match command:
            case PutApplication():
                self._put(command)
            case Snapshot():
                self._take(command)
            case DropApplication():
                old = self._entry(command.name)
                self._leave(old, internal_topic_names(old.definition))
                del self._applications[command.name]
            case DropStore():
                self._drop_store(command)
            case RecordTopics():
                self._record(command)
            case AdoptChangelogs():
                self._adopt(command)
            case RecordEvidence():
                self._record_evidence(command)
        self._next_id = command.id + 1

    def catalogue(self) -> Catalogue:
        """Return the catalogue as it is by now."""
        if not self._in_order:
            self._applications = dict(sorted(self._applications.items()))
            self._in_order = True
        entries = {
            name: found if isinstance(found, Entry) else Entry(**found._asdict())
            for name, found in self._applications.items()
        }
        self._applications = {**entries}
        return Catalogue(entries, self._next_id, dict(self._former), dict(self._evidence))

    def _put(self, command: PutApplication) -> None:
        definition, name = command.definition, command.definition.name
        old = self._applications.get(name)
        require_compatible(old, command)
        topics = None if old is None else old.topics
        known = [] if old is None else [store.name for store in old.definition.stores]
        names = [store.name for store in definition.stores]
        if names != known:
            self._require_own_changelogs(name, [store for store in names if store not in known])
        if old is not None and (names != known or old.definition.aggregations != definition.aggregations):
            needed = internal_topic_names(definition)
            self._leave(old, set(internal_topic_names(old.definition)).difference(needed))
            topics = None if topics is None else _only(topics, needed)
        created_id = command.id if old is None else old.created_id
        self._applications[name] = _Changed(
            definition, command.partitions, topics, created_id, command.id, command.written_ms, command.written_by
        )
        self._in_order &= old is not None

    def _drop_store(self, command: DropStore) -> None:
        old = self._entry(command.application)
        require_droppable(old, command.store)
        stores = tuple(store for store in old.definition.stores if store.name != command.store)
        definition = old.definition.model_copy(update={"stores": stores})
        needed = internal_topic_names(definition)
        self._leave(old, set(internal_topic_names(old.definition)).difference(needed))
        topics = None if old.topics is None else _only(old.topics, needed)
        self._applications[command.application] = _Changed(
            definition, old.partitions, topics, old.created_id, command.id, command.written_ms, command.written_by
        )

    def _record(self, command: RecordTopics) -> None:
        old = self._entry(command.application)
        if foreign := sorted(set(command.topics).difference(internal_topic_names(old.definition))):
            raise InvalidCommandError(
                f"application {command.application} has no internal topics {', '.join(foreign)}: its definition was "
                f"changed since. Check it, then run again"
            )
        topics = dict(sorted({**(old.topics or {}), **command.topics}.items()))
        self._applications[command.application] = _Changed(
            old.definition, old.partitions, topics, old.created_id, old.changed_id, old.changed_ms, old.changed_by
        )

    def _adopt(self, command: AdoptChangelogs) -> None:
        old, name = self._entry(command.application), command.application
        definition, topics = old.definition, dict(old.topics or {})
        stores = {found.name: found for found in definition.stores}
        for of, new in command.changelogs.items():
            if of not in stores:
                raise InvalidCommandError(f"application {name} no longer has a store {of!r}. Check it, then run again")
            if (now := stores[of].changelog_of(name)) != new.before:
                raise InvalidCommandError(
                    f"the changelog of {name}/{of} is {now}, expected {new.before}: another writer has changed it "
                    "since. Check it, then run again"
                )
            if not stores[of].logged:
                raise InvalidCommandError(f"{name}/{of} has no changelog (logged: false), so it cannot get another one")
            if changelog_number(name, of, new.topic) is None:
                raise InvalidCommandError(
                    f"{new.topic} is not a valid changelog name for {name}/{of}; expected {changelog_topic(name, of)}, "
                    "or that name followed by -2, -3 and so on"
                )
            try:
                definition = definition.with_changelog(of, new.topic, new.format)
            except ValueError as error:
                raise InvalidCommandError(f"{name}/{of} cannot have the format {new.format}: {error}") from error
            topics.pop(new.before, None)
            topics[new.topic] = new.topic_id
        self._leave(old, [new.before for new in command.changelogs.values()])
        self._applications[name] = _Changed(
            definition,
            old.partitions,
            dict(sorted(topics.items())),
            old.created_id,
            command.id,
            command.written_ms,
            command.written_by,
        )

    def _record_evidence(self, command: RecordEvidence) -> None:
        before, application = self._evidence.get(command.application), command.application
        if before is not None and command.head.length <= before.length:
            raise InvalidCommandError(
                f"evidence of {application}: the recorded head is document {before.length}, so document "
                f"{command.head.length} cannot become the head. Check it with `statestore evidence verify`"
            )
        self._evidence = dict(sorted({**self._evidence, application: command.head}.items()))

    def _leave(self, old: Entry | _Changed, topics: Iterable[str]) -> None:
        """Keep what is known of topics that an application no longer has."""
        for topic in topics:
            topic_id = (old.topics or {}).get(topic)
            if topic_id is not None or topic not in self._former:  # without an id, it was perhaps never written
                self._former[topic] = FormerTopic(topic_id, old.definition, old.partitions)

    def _take(self, command: Snapshot) -> None:
        """Take over a snapshot at the start of a log; behind its commands, compare it with what they have made."""
        if command.id < self._next_id:
            raise InvalidCommandError(f"the snapshot has id {command.id}; expected at least {self._next_id}")
        if self._next_id > 1:
            if command.catalogue.applications != self.catalogue().applications:
                raise InvalidCommandError(
                    f"snapshot {command.id} does not match the catalogue of the commands before it; expected "
                    f"digest {self.catalogue().digest()}, found {command.digest}"
                )
            if command.version > 1 and _ungrouped(command.former) != self._former:
                raise InvalidCommandError(
                    f"snapshot {command.id} does not have the topics that dropped applications and stores left before "
                    "it"
                )
            if command.version > 2 and command.evidence != self._evidence:
                raise InvalidCommandError(f"snapshot {command.id} does not have the heads of evidence before it")
            return
        fresh = Rebuild()
        for name, entry in sorted(command.catalogue.applications.items()):
            if name != entry.definition.name or not entry.created_id <= entry.changed_id < command.id:
                raise InvalidCommandError(
                    f"snapshot {command.id} contradicts itself: {name} holds {entry.definition.name}, created by "
                    f"command {entry.created_id}, changed by {entry.changed_id}"
                )
            require_partitions(entry.definition, entry.partitions)
            fresh._require_own_changelogs(name, [store.name for store in entry.definition.stores])
            fresh._applications[name] = entry
        self._applications = fresh._applications
        self._former = _ungrouped(command.former)
        self._evidence = dict(command.evidence)

    def _entry(self, application: str) -> Entry | _Changed:
        try:
            return self._applications[application]
        except KeyError:
            raise InvalidCommandError(_unknown(application, self._applications)) from None

    def _require_own_changelogs(self, name: str, stores: Iterable[str]) -> None:
        """Refuse another application's changelog topic: `a-b` with `c`, and `a` with `b-c`, would share one."""
        for store in stores:
            for application, rest in _splits(f"{name}-{store}"):
                other = self._applications.get(application)
                if other is None or application == name:
                    continue
                if any(found.name == rest for found in other.definition.stores):
                    raise InvalidCommandError(
                        f"{name}/{store} and {application}/{rest} would share the changelog topic "
                        f"{changelog_topic(name, store)}; rename one"
                    )


def _unknown(application: str, known: Iterable[str]) -> str:
    names = ", ".join(sorted(known)) or "none"
    return f"no application {application!r} is in the catalogue; the applications are: {names}"


def _splits(text: str) -> Iterator[tuple[str, str]]:
    """Split at each dash in turn."""
    at = text.find("-")
    while at >= 0:
        yield text[:at], text[at + 1 :]
        at = text.find("-", at + 1)


def _grouped(former: Mapping[str, FormerTopic]) -> tuple[FormerTopics, ...]:
    """Return the topics as a snapshot has them: by definition, in order of names."""
    groups: dict[tuple[bytes, bytes], FormerTopics] = {}
    for name, found in sorted(former.items()):
        group = FormerTopics(definition=found.definition, partitions=found.partitions, topics={})
        key = canonical(found.definition), canonical(found.partitions)
        groups.setdefault(key, group).topics[name] = found.topic_id
    return tuple(groups.values())


def _ungrouped(groups: Iterable[FormerTopics]) -> dict[str, FormerTopic]:
    return {
        name: FormerTopic(topic_id, group.definition, group.partitions)
        for group in groups
        for name, topic_id in group.topics.items()
    }


def _only(topics: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return those of the topics that have one of the names."""
    kept = set(names)
    return {name: topic_id for name, topic_id in topics.items() if name in kept}
