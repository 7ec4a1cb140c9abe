"""The clients, leaders, and idle connections that all questions to one Kafka cluster share.

To connect takes longer than most answers, and who leads a partition seldom changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from confluent_kafka.admin import AdminClient

from statestore.kafka.connection import Connection
from statestore.model import TopicPartition

if TYPE_CHECKING:
    from statestore.kafka.shared_fetch import FetchGroup

C = TypeVar("C", bound=Connection)
#: Host and port.
Address = tuple[str, int]
#: The admin client, which also has to know them, forgets the leaders after 15 minutes.
_LEADERS_KEPT_S = 300.0
_of_parents: list[AdminClient | None] = []


class _Leader(NamedTuple):
    """The leader of a partition, and when (s, monotonic) a broker named it."""

    address: Address
    told_s: float


class ConnectionPool:
    """What `Cluster` shares. Threads can use it together; a fork cannot, as it lacks the threads of the clients.

    Attributes
    ----------
    process
        Id of the process that made it.
    admin
        The admin client, once it is connected.
    lock
        Held while the admin client is made.
    fetched
        Logs whose beginnings are fetched together; see `shared_fetch.py`.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.admin: AdminClient | None = None
        self.lock = Lock()
        self.fetched: Mapping[TopicPartition, FetchGroup] = {}
        self._leaders: dict[TopicPartition, _Leader] = {}
        self._idle: dict[tuple[type[Connection], Address], list[Connection]] = {}

    def __del__(self) -> None:
        if self.process == os.getpid():
            self.forget()
        else:  # to destroy a client in a fork would wait for threads that only its parent has
            _of_parents.append(self.admin)

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Address]:
        """Return those leaders of partitions that were found lately."""
        since = time.monotonic() - _LEADERS_KEPT_S
        with self.lock:
            known = [(partition, self._leaders[partition]) for partition in partitions if partition in self._leaders]
        return {partition: leader.address for partition, leader in known if leader.told_s > since}

    def remember_leaders(self, found: Mapping[TopicPartition, Address]) -> None:
        """Remember the leaders of partitions."""
        told_s = time.monotonic()
        with self.lock:
            self._leaders.update({partition: _Leader(address, told_s) for partition, address in found.items()})

    def forget(self) -> None:
        """Ask for leaders again and connect again: an answer showed that what is remembered may be wrong."""
        with self.lock:
            self._leaders.clear()
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()

    def take(self, kind: type[C], address: Address) -> C | None:
        """Return an idle connection, which then belongs to the caller, or None."""
        with self.lock:
            found = self._idle.get((kind, address))
            return found.pop() if found else None  # type: ignore[return-value]  # of its kind, as kept below

    def release(self, address: Address, connection: Connection) -> None:
        """Keep a connection for others; no answer may be on its way to it."""
        connection.rest()
        with self.lock:
            self._idle.setdefault((type(connection), address), []).append(connection)
