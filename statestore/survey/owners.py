"""Which application owns a changelog topic, by what the brokers tell.

`orders-v2-totals-changelog` can belong to application `orders` or to `orders-v2`. The evidence, the strongest first:

    the topology in a group of an application (`group.protocol=streams`)
    the only consumer group with the name of a possible owner
    the only one of several to which Kafka Streams commits, or of which it is a member
    the transactional id of the topic's producers
    without a group: snapshots in the archive; names that ksqlDB or Kafka Streams generates
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from statestore.discovery.topic_owners import is_of_application
from statestore.formats.commit_metadata import is_metadata
from statestore.survey.facts import GroupFacts, changelog_stem
from statestore.survey.gathering import prefixes

KSQL = re.compile(r"(?P<application>_confluent-ksql-.+query_.+_\d+)-(?P<store>.+)")
#: Names of stores that Kafka Streams generates, such as `KSTREAM-AGGREGATE-STATE-STORE-0000000003`.
_GENERATED = re.compile(r"(?P<application>.+?)-(?P<store>(KSTREAM|KTABLE)-[A-Z-]+-\d{10}(-[a-z-]+)?)")


class Owner(NamedTuple):
    """The owner of a changelog topic.

    Attributes
    ----------
    application
        Empty: unknown.
    others
        Applications that could own it, too, and of which a group exists.
    certain
        False: the evidence does not decide between it and the others.
    """

    application: str
    store: str
    evidence: str
    others: tuple[str, ...] = ()
    certain: bool = True


#: Returns transactional ids of the producers of topics, by topic.
TransactionalIds = Callable[[Collection[str]], Mapping[str, Collection[str]]]


def owners(
    changelogs: Collection[str],
    groups: Mapping[str, GroupFacts],
    archived: Collection[tuple[str, str]],
    transactional_ids: TransactionalIds,
) -> dict[str, Owner]:
    """Return the owner of each changelog topic.

    Parameters
    ----------
    archived
        Applications and stores of which the archive has snapshots.
    transactional_ids
        Asked once, about the topics for which nothing else decides.
    """
    claimed = {topic: name for name, group in groups.items() if group.topology for topic in group.topology.changelogs}
    in_archive = {"-".join(names): names for names in archived}
    found = {
        topic: _owner(topic, groups, claimed.get(topic), in_archive.get(changelog_stem(topic) or topic))
        for topic in changelogs
    }
    asked = [topic for topic, owner in found.items() if not owner.certain]
    ids = transactional_ids(asked) if asked else {}
    for topic in asked:
        owner = found[topic]
        named = (owner.application, *owner.others)
        writers = {name for name in named for each in ids.get(topic, ()) if is_of_application(each, name)}
        if len(writers) == 1:
            (name,) = writers
            said = "the transactional id of its producer"
            found[topic] = Owner(name, _store(topic, name), said, _without(named, name))
    return found


def is_streams(group: GroupFacts) -> bool:
    """Return whether Kafka Streams, or statestore in its way, uses a group."""
    return (
        group.type == "streams"
        or group.protocol == "stream"
        or any(is_metadata(text) for text in (group.committed or {}).values())
    )


def _owner(
    topic: str, groups: Mapping[str, GroupFacts], claimed: str | None, archived: tuple[str, str] | None
) -> Owner:
    named = [name for name in prefixes(topic) if name in groups]
    if claimed is not None:
        return Owner(claimed, _store(topic, claimed), "the topology of its group", _without(named, claimed))
    if archived is not None:
        application, store = archived
        return Owner(application, store, "its snapshots in the archive", _without(named, application))
    if len(named) == 1:
        return Owner(named[0], _store(topic, named[0]), "a group of that name")
    streams = [name for name in named if is_streams(groups[name])]
    if len(streams) == 1:
        return Owner(streams[0], _store(topic, streams[0]), "Kafka Streams uses the group", _without(named, streams[0]))
    if named:
        first = (streams or named)[0]
        return Owner(first, _store(topic, first), "the longest name", _without(named, first), certain=False)
    stem = changelog_stem(topic) or topic
    if (match := KSQL.fullmatch(stem) or _GENERATED.fullmatch(stem)) is not None:
        return Owner(match["application"], match["store"], "the generated name of its store")
    return Owner("", stem, "no group has the name of an owner")


def _store(topic: str, application: str) -> str:
    return (changelog_stem(topic) or topic).removeprefix(f"{application}-")


def _without(names: Iterable[str], name: str) -> tuple[str, ...]:
    return tuple(other for other in names if other != name)
