"""Clients, leaders and connections that a piece of work keeps between requests to Kafka clusters.

To connect takes longer than most answers, and who leads a partition seldom changes. So within `keep_connections`
questions share one admin client for each cluster, what was last said of leaders, and connections of our own that
nobody uses at the moment. When the block ends, all of it goes. Outside of such a block each question begins anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from confluent_kafka.admin import AdminClient

from statestore.kafka.connection import Connection
from statestore.model import TopicPartition

C = TypeVar("C", bound=Connection)
#: Host and port.
Address = tuple[str, int]
#: The admin client, which also has to know them, forgets what it was told after 15 minutes.
_LEADERS_KEPT_S = 300.0


class _Led(NamedTuple):
    """Who leads a partition, and when (s, monotonic) that was told."""

    by: Address
    told_s: float


class _Idle(NamedTuple):
    """Which connections may take each other's place."""

    kind: type[Connection]
    servers: str
    address: Address


class Kept:
    """The kept objects. Threads can share them.

    Attributes
    ----------
    admins
        Clients by the brokers' addresses.
    lock
        To be held while one is made.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.admins: dict[str, AdminClient] = {}
        self.lock = Lock()
        self._leaders: dict[str, dict[TopicPartition, _Led]] = {}
        self._idle: dict[_Idle, list[Connection]] = {}

    def leaders(self, servers: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Address]:
        """Return those leaders of partitions that were told lately."""
        since = time.monotonic() - _LEADERS_KEPT_S
        with self.lock:
            known = self._leaders.get(servers, {})
            told = [(partition, known[partition]) for partition in partitions if partition in known]
        return {partition: led.by for partition, led in told if led.told_s > since}

    def keep_leaders(self, servers: str, found: Mapping[TopicPartition, Address]) -> None:
        """Remember who leads."""
        told_s = time.monotonic()
        with self.lock:
            known = self._leaders.setdefault(servers, {})
            known.update({partition: _Led(leader, told_s) for partition, leader in found.items()})

    def forget(self, servers: str) -> None:
        """Ask again who leads, whatever was said, and connect anew: the cluster is not as it was."""
        with self.lock:
            self._leaders.pop(servers, None)
            for idle in [found for found in self._idle if found.servers == servers]:
                for connection in self._idle.pop(idle):
                    connection.close()

    def take(self, kind: type[C], servers: str, address: Address) -> C | None:
        """Return a connection that nobody uses, and that is the caller's from then on."""
        with self.lock:
            found = self._idle.get(_Idle(kind, servers, address))
            return found.pop() if found else None  # type: ignore[return-value]  # of its kind, as kept below

    def keep(self, servers: str, address: Address, connection: Connection) -> None:
        """Keep a connection that no answer is on its way to."""
        connection.rest()
        with self.lock:
            self._idle.setdefault(_Idle(type(connection), servers, address), []).append(connection)

    def close(self) -> None:
        """Close what nobody uses."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()


_kept: ContextVar[Kept | None] = ContextVar("kept connections", default=None)


@contextmanager
def keep_connections() -> Iterator[None]:
    """Keep clients, leaders and connections while this block runs; within another such block, that one's.

    Threads that are to share them run in a copy of the caller's context (`contextvars.copy_context`).
    """
    if kept() is not None:
        yield
        return
    made = Kept()
    token = _kept.set(made)
    try:
        yield
    finally:
        _kept.reset(token)
        made.close()


def kept() -> Kept | None:
    """Return what is kept now; None if nothing is: a fork does not have the threads of its parent's clients."""
    found = _kept.get()
    return found if found is not None and found.process == os.getpid() else None


def connected(kind: type[C], servers: str, address: Address, settings: Mapping[str, Any], timeout_s: float) -> C:
    """Return a connection that was kept, or a new one.

    Parameters
    ----------
    settings, timeout_s
        As of `Connection`.

    Raises
    ------
    ConnectionLostError
        If the broker cannot be reached.
    """
    found = kept()
    free = found.take(kind, servers, address) if found else None
    return free if free is not None else kind(address, settings, timeout_s)


def released(servers: str, address: Address, connection: Connection) -> None:
    """Keep a connection that no answer is on its way to for others; close it where nothing is kept."""
    if (found := kept()) is not None:
        found.keep(servers, address, connection)
    else:
        connection.close()
