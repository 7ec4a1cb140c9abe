"""Admin requests to every broker, many topics or groups in one request, on direct connections.

confluent-kafka has no request for the size of logs, asks for groups one by one, and returns all settings of a topic.
kafka-python has the layouts of these requests, and they go over connections of our own (connection.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, Self

from confluent_kafka import KafkaError

from statestore.errors import InputError, KafkaUnavailableError, StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.kafka.compression import Bytes
from statestore.kafka.connection import Connection, ConnectionLostError
from statestore.kafka.connection_pool import Address
from statestore.kafka.consumer_protocol_group import API as CONSUMER_GROUP_DESCRIBE
from statestore.kafka.consumer_protocol_group import ConsumerProtocolGroup, consumer_protocol_groups
from statestore.kafka.secure_connection import can_fetch
from statestore.kafka.streams_group import API as STREAMS_GROUP_DESCRIBE
from statestore.kafka.streams_group import DescribedGroup, describe_request, described_groups

#: A group of one of the newer protocols, or the error code of its coordinator.
NewerGroup = ConsumerProtocolGroup | DescribedGroup

_API_VERSIONS = 18
_TAGS = b"\0"
_AT_ONCE = 16
#: By type of group: the request that describes it in full, and the reader of its answer.
_NEWER_GROUPS: Mapping[str, tuple[int, Callable[[Bytes], Mapping[str, NewerGroup]]]] = {
    "consumer": (CONSUMER_GROUP_DESCRIBE, consumer_protocol_groups),
    "streams": (STREAMS_GROUP_DESCRIBE, described_groups),
}


class Versions(NamedTuple):
    """Versions of a request that the caller understands."""

    least: int
    most: int


class NotSupportedError(Exception):
    """The broker does not have the request in a version that the caller understands."""


class _AdminConnection(Connection):
    """A connection for requests in kafka-python's form.

    Attributes
    ----------
    requests
        Number of requests that were sent, the one for the broker's versions included.
    """

    def __init__(self, address: Address, settings: Mapping[str, Any], timeout_s: float) -> None:
        super().__init__(address, settings, timeout_s)
        self._supported: dict[int, tuple[int, int]] | None = None

    @property
    def requests(self) -> int:
        return self._sent

    def ask(self, request: Any, versions: Versions, timeout_s: float) -> Any:
        """Send a request in the newest version that both sides have, and return the answer."""
        version = self._version(request, versions, timeout_s)
        flexible = request.flexible_version_q(version)
        self._send(request.API_KEY, version, (_TAGS if flexible else b"") + request.encode(version=version))
        return self._answered(timeout_s, lambda data: _decoded(request.API_KEY, version, data, flexible=flexible))

    def newer_groups(self, kind: str, names: list[str], timeout_s: float) -> Mapping[str, NewerGroup]:
        """Describe groups of a newer protocol; nothing if the broker does not know the protocol."""
        api, read = _NEWER_GROUPS[kind]
        if api not in self._versions(timeout_s):
            return {}
        self._send(api, 0, describe_request(names))
        return self._answered(timeout_s, read)

    def _version(self, request: Any, versions: Versions, timeout_s: float) -> int:
        first, last = self._versions(timeout_s).get(request.API_KEY, (0, -1))
        version = min(last, versions.most, request.max_version)
        if version < max(first, versions.least):
            raise NotSupportedError(f"it has no {request.name} of version {versions.least} or later")
        return int(version)

    def _versions(self, timeout_s: float) -> Mapping[int, tuple[int, int]]:
        if self._supported is None:
            self._send(_API_VERSIONS, 0, b"")
            answer = self._answered(timeout_s, lambda data: _decoded(_API_VERSIONS, 0, data, flexible=False))
            self._supported = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        return self._supported


class Brokers:
    """Connections to the brokers of a cluster, which count their requests.

    Attributes
    ----------
    addresses
        Host and port, by broker id.
    requests
        Requests that were sent, without those of librdkafka that find the brokers.

    Raises
    ------
    InputError
        If the clients' configuration has a setting that only librdkafka understands.
    KafkaUnavailableError
        If no broker answers in time, or access is refused.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._settings = cluster.config()
        if not can_fetch(self._settings):
            raise InputError(
                "the configuration of Kafka's clients has a setting that only librdkafka understands, and librdkafka "
                "has no request for the size of logs: use PLAINTEXT, TLS with ssl.ca.location, PLAIN, SCRAM, or "
                "OAUTHBEARER"
            )
        self._timeout_s = cluster.timeout_s
        self._connections: dict[int, _AdminConnection] = {}
        self._closed_requests = 0
        found = cluster.answered(
            lambda left_s: cluster.admin(left_s).describe_cluster(request_timeout=left_s).result(),
            f"asking {cluster.servers} for its brokers",
        )
        self.cluster_id = str(found.cluster_id)
        self.addresses: dict[int, Address] = {node.id: (node.host, node.port) for node in found.nodes}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    @property
    def requests(self) -> int:
        return self._closed_requests + sum(connection.requests for connection in self._connections.values())

    def ask_any(self, request: Any, versions: Versions) -> Any:
        """Return the answer of the first broker that gives one.

        Raises
        ------
        StateStoreError
            The last broker's failure, if none does.
        """
        failed: StateStoreError = KafkaUnavailableError("the cluster has no broker")
        for node in sorted(self.addresses):
            answer = self.ask(node, request, versions)
            if not isinstance(answer, StateStoreError):
                return answer
            failed = answer
        raise failed

    def ask_each(self, requests: Mapping[int, Any], versions: Versions) -> dict[int, Any]:
        """Send a request to each of several brokers at once; return the answers, or errors, by broker."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = pool.map(lambda item: self.ask(item[0], item[1], versions), requests.items())
            return dict(zip(requests, answers, strict=True))

    def ask(self, node: int, request: Any, versions: Versions) -> Any:
        """Return a broker's answer, or the error in the library's terms."""
        return self._on(node, lambda connection: connection.ask(request, versions, self._timeout_s))

    def newer_groups(self, kind: str, names: Mapping[int, list[str]]) -> dict[int, Any]:
        """Describe groups of the type `consumer` or `streams`; return them, or errors, by coordinator."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = pool.map(
                lambda item: self._on(item[0], lambda found: found.newer_groups(kind, item[1], self._timeout_s)),
                names.items(),
            )
            return dict(zip(names, answers, strict=True))

    def _on(self, node: int, ask: Any) -> Any:
        address = self.addresses.get(node)
        if address is None:
            return KafkaUnavailableError(f"broker {node} is down")
        name = f"broker {node} ({address[0]}:{address[1]})"
        for attempt in (1, 2):  # a connection that was idle may have been closed
            try:
                if (connection := self._connections.get(node)) is None:
                    connection = self._connections[node] = _AdminConnection(address, self._settings, self._timeout_s)
                return ask(connection)
            except NotSupportedError as error:
                return InputError(f"{name}: {error}; the survey needs brokers of Kafka 3.0 or later")
            except ConnectionLostError as error:
                self._forget(node)
                if attempt == 2:
                    return KafkaUnavailableError(f"{name} does not answer: {error}")
        raise AssertionError

    def _forget(self, node: int) -> None:
        if (connection := self._connections.pop(node, None)) is not None:
            self._closed_requests += connection.requests
            with suppress(OSError):
                connection.close()


def error_text(code: int) -> str:
    """Return what a broker's error code means, for reports."""
    error = KafkaError(code)
    return f"{error.str()} ({error.name()})"


def _decoded(api: int, version: int, data: Bytes, *, flexible: bool) -> Any:
    from kafka.protocol import admin, consumer, metadata  # noqa: F401  registers the answers; takes half a second
    from kafka.protocol.api_header import ResponseClassRegistry

    answer = ResponseClassRegistry._response_class_registry[api]
    view = memoryview(data.tobytes())
    at = 1 if flexible else 0  # no broker sends tags in the head of an answer
    if flexible and view[0]:
        raise ConnectionLostError("an answer with tags in its head")
    return answer.decode(view[at:], version=version)
