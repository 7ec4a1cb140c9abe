"""The catalogue's part in a rewrite that gives stores other rows in other changelogs (`rewrite/adoption.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import AdoptChangelogs, Command, NewChangelog
from statestore.metastore.metastore import Metastore
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.adoption import Adopted, AdoptionHooks, Catalogued


def adoption_hooks(
    metastore: Metastore, application: str, judge: Callable[[Sequence[StorePartitionSpec]], None]
) -> AdoptionHooks:
    """Return the hooks of a rewrite of an application's stores.

    Parameters
    ----------
    judge
        Refuses staged stores.
    """

    def catalogued(store: str) -> Catalogued:
        return _catalogued(metastore.require_running().catalogue, application, store)

    def adopt(found: Sequence[Adopted]) -> None:
        def command(catalogue: Catalogue) -> Command | None:
            if all(
                _catalogued(catalogue, application, one.store) == Catalogued(one.topic.name, one.topic.topic_id)
                for one in found
            ):
                return None
            changelogs = {
                one.store: NewChangelog(
                    topic=one.topic.name, topic_id=one.topic.topic_id, before=one.before, format=one.format
                )
                for one in found
            }
            return AdoptChangelogs(application=application, changelogs=changelogs)

        metastore.submit(command)

    return AdoptionHooks(catalogued, judge, adopt)


def _catalogued(catalogue: Catalogue, application: str, store: str) -> Catalogued:
    entry = catalogue.entry(application)
    topic = entry.definition.store(store).changelog_of(application)
    return Catalogued(topic, (entry.topics or {}).get(topic))
