"""Which definition each changelog was written under, also of stores and applications that were dropped.

A changelog stays when its store is dropped, and a new store of the same name would be filled from it. The catalogue
keeps the definition, also after a compaction. If an earlier version that does not keep former topics has compacted the
commands, only the record in the task's own directory shows it (tasks/shape.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from statestore.errors import InvalidCommandError
from statestore.kafka.topics import Topics
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import Entry, PutApplication
from statestore.metastore.evolution import Defined, require_takeover
from statestore.model import changelog_number

#: Name and id of a topic -> the application as it was when it last wrote the topic.
Writers = Mapping[tuple[str, str], Defined]


def writers(catalogue: Catalogue) -> Writers:
    """Return the definition under which each internal topic was last written."""
    found: dict[tuple[str, str], Defined] = {
        (name, topic.topic_id): topic for name, topic in catalogue.former.items() if topic.topic_id is not None
    }
    for entry in catalogue.applications.values():
        found.update(dict.fromkeys((entry.topics or {}).items(), entry))
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


def require_own_logs(topics: Topics, old: Entry | None, new: PutApplication, known: Writers) -> None:
    """Refuse stores that are new to an application, and whose changelogs another definition of them has written.

    Raises
    ------
    InvalidCommandError
        With the path of each field, and what to do.
    """
    name = new.definition.name
    had = set() if old is None else {store.name for store in old.definition.stores}
    added = {store.changelog_of(name): store.name for store in new.definition.logged_stores if store.name not in had}
    _require_latest(topics, name, added, known)
    made_for = {
        added[topic.name]: known[topic.name, topic.topic_id]
        for topic in topics.describe(added).values()
        if (topic.name, topic.topic_id) in known
    }
    # Names of an application and a store are joined by a dash, so two pairs of names can have one changelog name.
    foreign = [
        f"stores.{store}: its changelog {store_changelog} was written by application {owner}"
        for store_changelog, store in added.items()
        if store in made_for and (owner := made_for[store].definition.name) != name
    ]
    if foreign:
        raise InvalidCommandError(
            f"application {name}: {'; '.join(foreign)}. Give the stores other names. If you no longer need the old "
            "rows, delete the changelog topics, then apply again"
        )
    require_takeover(made_for, new)
