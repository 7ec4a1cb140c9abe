"""Commands on a broker: what tests submit, what others do meanwhile, and how the command topic is read without us."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statestore import kill_switch
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange
from statestore.metastore.backup import BackupFile
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.command_topic import topic_name
from statestore.metastore.commands import (
    Command,
    DropApplication,
    DropStore,
    PutApplication,
    decode,
    encode,
    key_of,
    stamped,
)
from statestore.metastore.metastore import Make, Metastore, Submitted
from statestore.model import TopicPartition
from tests.integration.broker import Logged, Row, consume, settle, unique

TIMEOUT_S = 60.0


class Service:
    """A service of its own: nothing of it is there yet.

    Parameters
    ----------
    directory
        Where its backup is.
    """

    def __init__(self, servers: str, directory: Path) -> None:
        self.servers = servers
        self.service_id = unique("service")
        self.topic = topic_name(self.service_id)
        self.backup = directory / "metastore" / f"{self.service_id}.backup"

    def metastore(self, timeout_s: float = TIMEOUT_S, *, backup: bool = True, turns: bool = True) -> Metastore:
        """Return a metastore that has seen nothing yet."""
        return Metastore(
            Cluster(self.servers, timeout_s), self.service_id, self.backup if backup else None, turns=turns
        )

    def submit(self, *makes: Make) -> Submitted:
        """Submit commands one after the other; return what became of the last."""
        metastore = self.metastore()
        return [metastore.submit(make) for make in makes][-1]

    @property
    def log(self) -> LogRange:
        """Start and ends of the topic."""
        partition = TopicPartition(self.topic, 0)
        return Cluster(self.servers).topics.log_ranges([partition])[partition]

    def logged(self) -> list[Logged]:
        """Read the topic under read_committed, by a plain consumer."""
        settle(self.servers, self.topic)
        return consume(self.servers, self.topic)[0]

    def commands(self) -> list[Command]:
        """Return the commands in the topic."""
        return [decode(record.value) for record in self.logged()]

    def ids(self) -> list[int]:
        """Return the ids of the commands in the topic."""
        return [command.id for command in self.commands()]


def application(name: str, *stores: str, owner: str | None = None) -> PutApplication:
    """Define an application on an input of one partition."""
    made = tuple(StoreDefinition(name=store, owner=owner) for store in stores or ("counts",))
    definition = ApplicationDefinition(name=name, input_topic="input", processor="a:b", stores=made)
    return PutApplication(definition=definition, partitions={"input": 1})


def put(name: str, *stores: str, owner: str | None = None) -> Make:
    """Put an application, whatever there is."""
    return lambda _: application(name, *stores, owner=owner)


def put_if_absent(name: str) -> Make:
    """Put an application, unless there is one of that name."""
    return lambda catalogue: None if name in catalogue.applications else application(name)


def drop(name: str) -> Make:
    """Drop an application."""
    return lambda _: DropApplication(name=name)


def drop_store(name: str, store: str) -> Make:
    """Drop a store."""
    return lambda _: DropStore(application=name, store=store)


def rows(*commands: Command, next_id: int = 1) -> list[Row]:
    """Return records of commands, as if a writer had written them one after the other."""
    numbered = [stamped(command, next_id + at, 1_700_000_000_000, "a test") for at, command in enumerate(commands)]
    return [(key_of(command), encode(command)) for command in numbered]


def names(catalogue: Catalogue) -> list[str]:
    """Return the names of the applications."""
    return list(catalogue.applications)


@contextmanager
def at(monkeypatch: pytest.MonkeyPatch, point: str, act: Callable[[], object], times: int = 1) -> Iterator[list[str]]:
    """Act when this process reaches a point, the first few times; what happens in there reaches none.

    Yields
    ------
    list
        Of the points that were reached.
    """
    before = kill_switch.reached
    reached: list[str] = []
    left = [times]
    acting = [False]

    def note(name: str) -> None:
        if acting[0]:
            return
        before(name)
        reached.append(name)
        if name == point and left[0] > 0:
            left[0] -= 1
            acting[0] = True
            try:
                act()
            finally:
                acting[0] = False

    with monkeypatch.context() as patched:
        patched.setattr(kill_switch, "reached", note)
        yield reached
    assert left[0] == 0, f"{point!r} was reached {times - left[0]} of {times} times: {reached}"


def assert_backed_up(service: Service) -> None:
    """The backup has what the topic has."""
    content = BackupFile(service.backup, service.service_id).read_whole()
    assert [tuple(record) for record in content.records] == [
        (record.offset, record.timestamp, record.key, record.value) for record in service.logged()
    ]
