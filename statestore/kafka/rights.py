"""Names the right (ACL) that a broker refuses.

Brokers say only which kind of resource they refuse: a topic, a group, a transactional id, or the cluster. So each
request states the rights that it needs, and the error names those of that kind.
"""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

#: The kind of resource that a broker refuses, by its error code.
REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}


class Right(NamedTuple):
    """An operation on a resource."""

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.kind} {self.name}"


def on_topics(operation: str, *names: str) -> tuple[Right, ...]:
    """Return the right to an operation on each topic."""
    return tuple(Right(operation, "topic", name) for name in dict.fromkeys(names))


def on_group(operation: str, name: str) -> Right:
    """Return the right to an operation on a consumer group."""
    return Right(operation, "group", name)


def needing(error: KafkaException, *rights: Right) -> KafkaException:
    """Return the error of a part of a request, with the rights that this part needs."""
    error.rights = rights
    return error


def is_about_unused_group(error: KafkaError) -> bool:
    """Return whether a consumer that never uses its group may ignore an error: librdkafka wants to know the group."""
    return bool(error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


def grant(error: KafkaError, rights: tuple[Right, ...]) -> str | None:
    """Return what to grant if the error is a refusal, or None."""
    kind = REFUSED.get(error.code())
    if kind is None:
        return None
    # A producer without transactions is refused by the cluster if the user may not write to any topic.
    needed = [str(right) for right in rights if right.kind == kind] or [*map(str, rights)]
    if len(needed) > 1:
        return f"this user needs {', '.join(needed)}: grant what is missing, then run again"
    return f"grant this user {needed[0] if needed else f'the right to this {kind}'}, then run again"
