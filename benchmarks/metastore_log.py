"""A command topic for `make bench-metastore`, as years of changes leave it: a transaction for each command."""

from __future__ import annotations

import random
import string
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import cycle

from statestore.definitions.application import ApplicationDefinition
from statestore.kafka.cluster import Cluster
from statestore.kafka.writer import TransactionalWriter
from statestore.metastore.catalogue import Catalogue, Rebuild
from statestore.metastore.command_topic import CommandTopic
from statestore.metastore.commands import (
    Command,
    DropApplication,
    DropStore,
    PutApplication,
    RecordTopics,
    encode,
    key_of,
    stamped,
)
from statestore.metastore.evolution import internal_topic_names, partitions_of

APPLICATIONS = 200
_BEGAN_MS = 1_700_000_000_000
#: A producer may begin its next transaction only when the marker of its last one is written; so they take turns.
_WRITERS = 20
_PASSING = "passing"


class Commands:
    """Commands that define, change and drop applications, drawn with a seed of their own: each run has the same.

    Attributes
    ----------
    catalogue
        What the commands taken so far come to.
    """

    def __init__(self, catalogue: Catalogue | None = None, seed: int = 7) -> None:
        self._rebuild = Rebuild(catalogue)
        self._defined = {} if catalogue is None else catalogue.definitions()
        self._next_id = 1 if catalogue is None else catalogue.next_id
        self._source = random.Random(seed)

    @property
    def catalogue(self) -> Catalogue:
        return self._rebuild.catalogue()

    def take(self, number: int) -> Iterator[Command]:
        """Give so many."""
        for _ in range(number):
            command = stamped(self._next(), self._next_id, _BEGAN_MS + 60_000 * self._next_id, "bench@host")
            self._rebuild.apply(command)
            self._next_id += 1
            yield command

    def _next(self) -> Command:
        name = f"app-{self._source.randrange(APPLICATIONS):03}"
        old, drawn = self._defined.get(name), self._source.random()
        if old is not None and drawn < 0.1:
            topics = {
                topic: "".join(self._source.choices(string.ascii_letters, k=22)) for topic in internal_topic_names(old)
            }
            return RecordTopics(application=name, topics=topics)
        if old is not None and drawn < 0.12:
            del self._defined[name]
            return DropApplication(name=name)
        if old is not None and drawn < 0.2 and _PASSING in {store.name for store in old.stores}:
            stores = tuple(store for store in old.stores if store.name != _PASSING)
            self._defined[name] = old.model_copy(update={"stores": stores})
            return DropStore(application=name, store=_PASSING)
        definition = self._defined[name] = _definition(name, self._source)
        return PutApplication(definition=definition, partitions=partitions_of(definition, 12))


def fill(servers: str, service_id: str, commands: Iterable[Command]) -> None:
    """Write commands that are known to fit into the service's topic, without the protocol's rereading."""
    partition = CommandTopic(Cluster(servers), service_id).partition
    with ExitStack() as stack:
        writers = [
            stack.enter_context(closing(TransactionalWriter(Cluster(servers), f"fill-{service_id}-{number}")))
            for number in range(_WRITERS)
        ]
        for writer in writers:
            writer.init()
        for command, writer in zip(commands, cycle(writers), strict=False):
            writer.begin()
            writer.produce(partition.topic, key_of(command), encode(command), command.written_ms, partition.partition)
            writer.commit()


def _definition(name: str, source: random.Random) -> ApplicationDefinition:
    """Return an application with two stores of its own, now and then a third, and a regrouped aggregation."""
    stores = [
        {"name": "latest", "owner": f"team {source.randrange(50)}", "value_serde": "json"},
        {"name": "seen", "kind": "window", "retention_ms": 86_400_000, "window_size_ms": 3_600_000},
    ]
    if source.random() < 0.3:
        stores.append({"name": _PASSING})
    return ApplicationDefinition.model_validate(
        {
            "name": name,
            "input_topic": f"{name}-events",
            "output_topics": [f"{name}-results"],
            "processor": "business.rules:process",
            "aggregations": [
                {"store": "by-customer", "group_by": "business.rules:customer", "sessions": {"gap_ms": 1_800_000}}
            ],
            "stores": stores,
            "commit_interval_ms": source.randrange(100, 10_000),
        }
    )
