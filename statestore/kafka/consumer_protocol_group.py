"""Reads descriptions of groups of the consumer protocol (`group.protocol=consumer`, KIP-848).

To the request for classic groups, such a group seems to have no members. ConsumerGroupDescribe 0 is asked as
StreamsGroupDescribe is (streams_group.py), and gets:

    i32 throttled (ms) | groups: i16 error | message | group | state | i32 epoch | i32 epoch of assignment | assignor |
                                 members | i32 authorized operations
    member: id | instance | rack | i32 epoch | client | host | topics | regular expression | assignment, now and next
    assignment: topics: 16 bytes id | name | i32 partitions
"""

from __future__ import annotations

from typing import NamedTuple

from statestore.kafka.compression import Bytes
from statestore.kafka.streams_group import INT, SHORT, FlexibleAnswer

API = 69
_TOPIC_ID_BYTES = 16


class ConsumerProtocolGroup(NamedTuple):
    """A group of `group.protocol=consumer`.

    Attributes
    ----------
    members
        Clients and hosts.
    static_members
        Number of members with a `group.instance.id`.
    reads
        Topics of the members' partitions.
    """

    state: str
    assignor: str
    members: tuple[str, ...]
    static_members: int
    reads: frozenset[str]


class _Member(NamedTuple):
    name: str
    is_static: bool
    topics: list[str]


def consumer_protocol_groups(data: Bytes) -> dict[str, ConsumerProtocolGroup | int]:
    """Read the answer about groups: each of them, or its error code."""
    answer = FlexibleAnswer(data)
    answer.tags()
    answer.number(INT)
    return dict(answer.each(_described))


def _described(answer: FlexibleAnswer) -> tuple[str, ConsumerProtocolGroup | int]:
    error = answer.number(SHORT)
    answer.name()  # error message
    name, state = answer.name(), answer.name()
    for _ in ("epoch", "epoch of assignment"):
        answer.number(INT)
    assignor, members = answer.name(), answer.each(_member)
    answer.number(INT)  # authorized operations
    answer.tags()
    if error:
        return name, error
    return name, ConsumerProtocolGroup(
        state,
        assignor,
        tuple(sorted(member.name for member in members)),
        sum(member.is_static for member in members),
        frozenset(topic for member in members for topic in member.topics),
    )


def _member(answer: FlexibleAnswer) -> _Member:
    answer.name()
    is_static = bool(answer.name())
    answer.name()  # rack
    answer.number(INT)
    client, host = answer.name(), answer.name()
    answer.each(FlexibleAnswer.name)  # subscribed topics
    answer.name()  # regular expression
    topics, _ = _assignment(answer), _assignment(answer)
    answer.tags()
    return _Member(f"{client} on {host}", is_static, topics)


def _assignment(answer: FlexibleAnswer) -> list[str]:
    topics = answer.each(_topic)
    answer.tags()
    return topics


def _topic(answer: FlexibleAnswer) -> str:
    answer.skip(_TOPIC_ID_BYTES)
    name = answer.name()
    answer.each(lambda partitions: partitions.number(INT))
    answer.tags()
    return name
