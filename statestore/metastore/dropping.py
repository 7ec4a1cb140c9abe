"""Dropping an application or a store, and which other applications read what it writes."""

from __future__ import annotations

from collections.abc import Mapping

from statestore.errors import InvalidCommandError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import DropApplication, DropStore
from statestore.metastore.evolution import written_topics
from statestore.metastore.metastore import Make

#: Application -> the topic that it reads and another one writes.
Readers = Mapping[str, str]


def readers_of(catalogue: Catalogue, application: str) -> dict[str, str]:
    """Return the other applications whose input an application writes, and the topic of each.

    Raises
    ------
    UnknownApplicationError
        If the catalogue has no such application.
    """
    written = written_topics(catalogue.entry(application).definition)
    return {
        name: definition.input_topic
        for name, definition in catalogue.definitions().items()
        if name != application and definition.input_topic in written
    }


def drop_application(application: str, agreed: Readers) -> Make:
    """Return what makes the command that drops an application.

    Parameters
    ----------
    agreed
        The readers of which somebody knows. With others, the drop is refused: they came since.
    """

    def make(catalogue: Catalogue) -> DropApplication:
        new = {name: topic for name, topic in readers_of(catalogue, application).items() if agreed.get(name) != topic}
        if new:
            raise InvalidCommandError(f"{feeds(application, new)} since you were asked. Nothing was dropped. Run again")
        return DropApplication(name=application)

    return make


def drop_store(application: str, store: str) -> Make:
    """Return what makes the command that drops a store."""
    return lambda _: DropStore(application=application, store=store)


def feeds(application: str, readers: Readers) -> str:
    """Say which applications an application feeds."""
    said = ", ".join(f"{name} (through topic {topic})" for name, topic in readers.items())
    return f"application {application} feeds {said}"
