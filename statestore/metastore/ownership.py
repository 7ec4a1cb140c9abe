"""Whose topics are whose: an internal topic is written by its application alone, and has a name that no other has.

Asked of definitions that are to be applied. Commands that are read again are not: they were accepted by the rules of
their time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InvalidCommandError
from statestore.metastore.evolution import internal_topic_names, topics_read, written_topics

#: Why Kafka refuses to have two topics side by side: names of its metrics have no dots.
ALIKE = "Kafka treats . and _ in topic names as the same"


def twins(wanted: Iterable[str], there: Iterable[str]) -> dict[str, str]:
    """Return those of the topics that Kafka would not make, each with the one that is in its way."""
    names = {_alike(name): name for name in there}
    return {topic: names[_alike(topic)] for topic in wanted if names.get(_alike(topic), topic) != topic}


class OwnedTopics:
    """The internal topics of applications, and those that they write to.

    Parameters
    ----------
    definitions
        The applications that there are.
    """

    def __init__(self, definitions: Iterable[ApplicationDefinition] = ()) -> None:
        self._definitions: dict[str, ApplicationDefinition] = {}
        #: What is alike of a topic -> application -> the topic.
        self._internal: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._written: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for definition in definitions:
            self.put(definition)

    def put(self, definition: ApplicationDefinition) -> None:
        """Add an application, in the place of the one that had its name."""
        name = definition.name
        if (old := self._definitions.get(name)) is not None:
            for topic in internal_topic_names(old):
                self._internal[_alike(topic)].pop(name, None)
            for topic in written_topics(old):
                self._written[_alike(topic)].pop(name, None)
        self._definitions[name] = definition
        for topic in internal_topic_names(definition):
            self._internal[_alike(topic)][name] = topic
        for topic in written_topics(definition):
            self._written[_alike(topic)][name] = topic

    def require_free(self, definition: ApplicationDefinition) -> None:
        """Refuse a definition that cannot be beside the other applications, or that reads its own internal topics.

        Raises
        ------
        InvalidCommandError
            With all that is wrong, and what to do.
        """
        if problems := list(self._problems(definition)):
            raise InvalidCommandError(f"application {definition.name}: {'; '.join(problems)}")

    def _problems(self, definition: ApplicationDefinition) -> Iterator[str]:
        name, own = definition.name, dict[str, str]()
        for topic in internal_topic_names(definition):
            if (twin := own.setdefault(_alike(topic), topic)) != topic:
                yield f"its topics {twin} and {topic} cannot both exist: {ALIKE}; rename one"
            for other, theirs in self._others(self._internal, topic, name):
                if theirs == topic:
                    yield f"it and application {other} would share the internal topic {topic}; rename one, or a store"
                else:
                    yield f"its topic {topic} cannot exist beside {theirs} of application {other}: {ALIKE}; rename one"
            for other, theirs in self._others(self._written, topic, name):
                yield f"only it may write to its internal topic {topic}; application {other} writes to {theirs}"
        if definition.input_topic in (*own.values(), *topics_read(definition)[1:]):
            yield f"input_topic: {definition.input_topic} is its own internal topic: it would read what it writes"
        for topic, role in written_topics(definition).items():
            for other, theirs in self._others(self._internal, topic, name):
                yield f"{role} topic {topic}: only application {other} may write to its internal topic {theirs}"

    @staticmethod
    def _others(found: dict[str, dict[str, str]], topic: str, name: str) -> Iterator[tuple[str, str]]:
        return ((other, theirs) for other, theirs in found.get(_alike(topic), {}).items() if other != name)


def _alike(topic: str) -> str:
    return topic.replace(".", "_")
