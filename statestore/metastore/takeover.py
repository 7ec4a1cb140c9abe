"""Which definition each changelog was written under, also of stores and applications that were dropped.

A changelog stays when its store is dropped, and a new store of the same name would be filled from it. The history of
the commands tells what is in it; where the history was compacted, only the task's own directory tells (tasks/shape.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from statestore.changelog.topics import Topics
from statestore.errors import InvalidCommandError
from statestore.metastore.commands import (
    AdoptChangelogs,
    DropApplication,
    DropStore,
    Entry,
    PutApplication,
    RecordTopics,
    Snapshot,
)
from statestore.metastore.evolution import internal_topic_names, require_takeover
from statestore.metastore.view import LoggedCommand
from statestore.model import changelog_number, changelog_topic

#: Name and id of a topic -> the application as it was when it last wrote the topic.
Writers = Mapping[tuple[str, str], Entry | PutApplication]


def writers(history: Iterable[LoggedCommand]) -> Writers:
    """Return the definition under which each internal topic was last written, as the commands tell."""
    found: dict[tuple[str, str], Entry | PutApplication] = {}
    now: dict[str, Entry | PutApplication] = {}
    ids: dict[str, dict[str, str]] = {}

    def keep(entry: Entry | PutApplication, recorded: Mapping[str, str]) -> None:
        name, names = entry.definition.name, internal_topic_names(entry.definition)
        now[name] = entry
        ids[name] = {topic: topic_id for topic, topic_id in recorded.items() if topic in names}
        found.update(dict.fromkeys(ids[name].items(), entry))

    for logged in history:
        if logged.problem:
            continue
        match logged.command:
            case PutApplication() as command:
                keep(command, ids.get(command.definition.name, {}))
            case RecordTopics() as command:
                keep(now[command.application], {**ids[command.application], **command.topics})
            case DropApplication() as command:
                del ids[command.name]
            case DropStore() as command:
                ids[command.application].pop(_changelog(now[command.application], command.store), None)
            case AdoptChangelogs() as command:
                entry = now[command.application]
                definition, made = entry.definition, ids[command.application]
                for store, new in command.changelogs.items():
                    definition = definition.with_changelog(store, new.topic, new.format)
                    made = {**made, new.topic: new.topic_id}
                keep(entry.model_copy(update={"definition": definition}), made)
            case Snapshot() as command:
                for entry in command.catalogue.applications.values():
                    keep(entry, entry.topics or {})
    return found


def _require_latest(topics: Topics, application: str, added: Mapping[str, str], known: Writers) -> None:
    """Refuse a store that is added again with a changelog in whose place it had another one.

    Raises
    ------
    InvalidCommandError
        Naming the latest.
    """
    for wanted, store in added.items():
        number = changelog_number(application, store, wanted) or 1
        numbers = {topic: changelog_number(application, store, topic) or 0 for topic, _ in known}
        names = [topic for topic, found in numbers.items() if found > number]
        there = topics.describe(names).values() if names else ()
        later = sorted((numbers[topic.name], topic.name) for topic in there if (topic.name, topic.topic_id) in known)
        if later:
            raise InvalidCommandError(
                f"application {application}: stores.{store}.changelog: the store last had {later[-1][1]}, and {wanted} "
                "has the rows from before it was overwritten. Name the last one, or delete it"
            )


def _changelog(entry: Entry | PutApplication, store: str) -> str:
    name = entry.definition.name
    known = (found.changelog_of(name) for found in entry.definition.stores if found.name == store)
    return next(known, changelog_topic(name, store))


def require_own_logs(topics: Topics, old: Entry | None, new: PutApplication, known: Writers) -> None:
    """Refuse stores that are new to an application, and whose changelogs another definition of them has written.

    Raises
    ------
    InvalidCommandError
        With the path of each field, and what to do.
    """
    name = new.definition.name
    had = set() if old is None else {store.name for store in old.definition.stores}
    added = {store.changelog_of(name): store.name for store in new.definition.stores if store.name not in had}
    _require_latest(topics, name, added, known)
    made_for = {
        added[topic.name]: known[topic.name, topic.topic_id]
        for topic in topics.describe(added).values()
        if (topic.name, topic.topic_id) in known
    }
    require_takeover(made_for, new)
