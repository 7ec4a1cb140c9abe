"""A Kafka cluster: its brokers, the deadline of a request, and the clients and connections that all questions share.

One `Cluster` is made for a process or a Spark task, and passed on in specifications. A worker that receives one has
the addresses and the deadline, and makes its own clients. Passwords do not travel: each process reads them from the
file of STATESTORE_KAFKA_CONFIG whenever it makes a client.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from statestore.kafka.secure_connection import can_fetch

# Kafka's client takes long to import, and a specification must not need it.
if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from statestore.kafka.connection import Connection
    from statestore.kafka.connection_pool import Address, ConnectionPool
    from statestore.kafka.rights import Right
    from statestore.kafka.topics import Topics

T = TypeVar("T")
C = TypeVar("C", bound="Connection")

_making_pool = Lock()


@dataclass(frozen=True)
class Cluster:
    """A Kafka cluster. Two with the same brokers and deadline are equal, whatever clients they have.

    Attributes
    ----------
    servers
        Kafka brokers, host:port[,host:port].
    timeout_s
        Deadline of one request; a reader or writer gives up if it makes no progress for so long.
    """

    servers: str
    timeout_s: float = 30.0
    #: No field: a dumped specification has no clients.
    _pool: ClassVar[ConnectionPool | None] = None

    def __reduce__(self) -> tuple[type[Cluster], tuple[str, float]]:
        return Cluster, (self.servers, self.timeout_s)

    def within(self, timeout_s: float) -> Cluster:
        """Return the cluster with another deadline and the same clients and connections."""
        other = Cluster(self.servers, timeout_s)
        object.__setattr__(other, "_pool", self.pool)
        return other

    @property
    def topics(self) -> Topics:
        """Questions about topics."""
        from statestore.kafka.topics import Topics

        return Topics(self)

    @property
    def can_fetch(self) -> bool:
        """Whether direct connections are possible; if not, librdkafka does everything."""
        return can_fetch(self.config())

    @property
    def pool(self) -> ConnectionPool:
        """The shared clients and connections of this process."""
        from statestore.kafka.connection_pool import ConnectionPool

        with _making_pool:
            pool = self._pool
            if pool is None or pool.process != os.getpid():
                pool = ConnectionPool()
                object.__setattr__(self, "_pool", pool)
        return pool

    def config(self, **overrides: Any) -> dict[str, Any]:
        """Return the configuration of a client; see `client_config`."""
        from statestore.kafka.client import client_config

        return client_config(self.servers, **overrides)

    def client(self, kind: Callable[[dict[str, Any]], T], **config: Any) -> T:
        """Return a new client of confluent-kafka with these settings; see `make_client`."""
        from statestore.kafka.client import make_client

        return make_client(kind, self.config(**config))

    def admin(self, timeout_s: float) -> AdminClient:
        """Return the admin client, which is made and connected when it is first needed.

        A client that has no connection yet when it is asked who leads a partition may ask the brokers only 3 s later.

        Raises
        ------
        KafkaException
            If no broker answers in time, or those that are there refuse us.
        """
        from statestore.kafka.client import connected_admin

        pool = self.pool
        with pool.lock:
            admin = pool.admin = connected_admin(self.config, timeout_s) if pool.admin is None else pool.admin
        admin.poll(0)  # otherwise its reports would never be freed
        return admin

    def forget_admin(self) -> None:
        """Forget leaders and connections, and make a new admin client when one is needed."""
        with self.pool.lock:
            self.pool.admin = None
        self.pool.forget()

    def answered(self, request: Callable[[float], T], doing: str, *rights: Right) -> T:
        """Make a request until it is answered, within the deadline; see `until_answered`."""
        from statestore.kafka.client import until_answered

        return until_answered(request, doing, self.timeout_s, *rights)

    def connect(self, kind: type[C], address: Address, timeout_s: float) -> C:
        """Return an idle direct connection, or a new one; give it back to `pool`, or close it.

        Raises
        ------
        ConnectionLostError
            If the broker cannot be reached.
        """
        return self.pool.take(kind, address) or kind(address, self.config(), timeout_s)
