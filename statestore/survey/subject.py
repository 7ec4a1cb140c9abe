"""An application with its changelogs and group, as the survey judges it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from statestore.formats.commit_metadata import decode, is_metadata
from statestore.survey.facts import REPARTITION, ClusterFacts, GroupFacts, TopicFacts
from statestore.survey.owners import KSQL, Owner, is_streams
from statestore.survey.rates import Rate


class OwnedChangelog(NamedTuple):
    """A changelog topic with its owner."""

    topic: TopicFacts
    owner: Owner


class Subject(NamedTuple):
    """An application with state.

    Attributes
    ----------
    name
        Empty: the changelogs of no known application.
    group
        None: there is none that we see.
    """

    name: str
    group: GroupFacts | None
    changelogs: tuple[OwnedChangelog, ...]
    repartition: tuple[TopicFacts, ...]

    @property
    def kind(self) -> str:
        """Return what runs it, as the report has it."""
        if KSQL.fullmatch(f"{self.name}-x"):
            return "ksqlDB"
        if self.group is None:
            return "unknown"
        metadata = [text for text in (self.group.committed or {}).values() if is_metadata(text)]
        if any(decode(text).stamp is not None for text in metadata):
            return "statestore"
        return "Kafka Streams" if is_streams(self.group) else "unknown"

    def seconds(self, rate: Rate) -> float | None:
        """Return how long a restore of all its stores takes; None if a log was not read."""
        sizes = [(changelog.topic.offsets, changelog.topic.bytes) for changelog in self.changelogs]
        known = [(offsets, size) for offsets, size in sizes if offsets is not None and size is not None]
        if len(known) < len(sizes):
            return None
        return rate.seconds(sum(offsets for offsets, _ in known), sum(size for _, size in known))


def subjects(facts: ClusterFacts, owners: Mapping[str, Owner]) -> list[Subject]:
    """Return the applications of a cluster by name; changelogs of no known application last."""
    owned: dict[str, list[OwnedChangelog]] = defaultdict(list)
    for topic in facts.changelogs:
        owner = owners[topic.name]
        owned[owner.application].append(OwnedChangelog(topic, owner))
    repartition = [topic for name, topic in facts.topics.items() if name.endswith(REPARTITION)]
    read = {topic: name for name in owned if (group := facts.groups.get(name)) is not None for topic in group.reads}
    by_application: dict[str, list[TopicFacts]] = defaultdict(list)
    for topic in repartition:
        named = [name for name in owned if name and topic.name.startswith(f"{name}-")]
        application = read.get(topic.name) or max(named, key=len, default=None)
        if application is not None:
            by_application[application].append(topic)
    return [
        Subject(name, facts.groups.get(name), tuple(changelogs), tuple(by_application[name]))
        for name, changelogs in sorted(owned.items(), key=lambda item: (not item[0], item[0]))
    ]
