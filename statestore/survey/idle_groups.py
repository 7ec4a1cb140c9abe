"""Since when groups without members are idle, from the log in which the brokers keep groups and their offsets.

A broker deletes the offsets of a group `offsets.retention.minutes` after its last member left (KIP-211), and those of a
group that never had members so long after each commit. No request tells these times. Both are timestamps of records of
`__consumer_offsets`, whose keys begin like this:

    i16 0 or 1  an offset:    i16 length, group | i16 length, topic | i32 partition
    i16 2       a group:      i16 length, group
    i16 others  parts of groups of the newer protocols, whose offsets expire by the time of their commits
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from struct import Struct
from struct import error as StructError

from statestore.errors import StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.kafka.reader import LogReader
from statestore.model import TopicPartition
from statestore.survey.facts import TopicFacts, Unread

OFFSETS_TOPIC = "__consumer_offsets"
#: Reading this much takes a few seconds. A larger log is not read.
MOST_BYTES = 256 * 1024 * 1024
_SHORT = Struct(">h")
_OFFSET_KINDS = (0, 1)
_GROUP_KIND = 2


def read_idle_since(
    cluster: Cluster, groups: Collection[str], topic: TopicFacts | None, unread: list[Unread]
) -> dict[str, int]:
    """Return since when groups are idle (ms), by name.

    Parameters
    ----------
    topic
        `__consumer_offsets`; None if it is hidden from us.
    unread
        What could not be read is added.
    """
    if topic is None:
        unread.append(_unread(groups, f"no right: the survey needs DESCRIBE and READ on topic {OFFSETS_TOPIC}"))
        return {}
    by_partition: dict[int, set[str]] = defaultdict(set)
    for group in groups:
        by_partition[partition_of(group, len(topic.partitions))].add(group)
    size = sum(topic.partitions[number].bytes or 0 for number in by_partition)
    if size > MOST_BYTES:
        unread.append(
            _unread(groups, f"their part of {OFFSETS_TOPIC} has {size} bytes, more than {MOST_BYTES} are not read")
        )
        return {}
    found: dict[str, int] = {}
    for number, named in by_partition.items():
        log = topic.partitions[number]
        if log.start is None or log.end is None:
            unread.append(_unread(named, f"the offsets of {OFFSETS_TOPIC}-{number} were not read"))
            continue
        try:
            found.update(_read(cluster, number, (log.start, log.end), named))
        except StateStoreError as error:
            unread.append(_unread(named, f"{error}; the survey needs READ on topic {OFFSETS_TOPIC}"))
    return found


def partition_of(group: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that has a group: Java's hash of its name."""
    hashed = 0
    units = group.encode("utf-16-be")
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return (hashed & 0x7FFFFFFF) % partitions


def _read(cluster: Cluster, number: int, offsets: tuple[int, int], groups: Collection[str]) -> Mapping[str, int]:
    """Return the time of each group's own record; of a group that never had members, of its oldest last commit."""
    commits: dict[str, dict[bytes, int]] = defaultdict(dict)
    since: dict[str, int] = {}
    with LogReader(cluster, TopicPartition(OFFSETS_TOPIC, number)) as reader:
        for messages in reader.read_messages(*offsets):
            for message in messages:
                key = message.key() or b""
                kind, group = _group_of(key)
                if group not in groups:
                    continue
                if message.value() is None:
                    commits[group].pop(key, None)
                elif kind in _OFFSET_KINDS:
                    commits[group][key] = message.timestamp()[1]
                elif kind == _GROUP_KIND:
                    since[group] = message.timestamp()[1]
    return {**{group: min(times.values()) for group, times in commits.items() if times}, **since}


def _group_of(key: bytes) -> tuple[int, str]:
    try:
        kind, size = _SHORT.unpack_from(key)[0], _SHORT.unpack_from(key, _SHORT.size)[0]
        return kind, key[2 * _SHORT.size : 2 * _SHORT.size + size].decode()
    except (StructError, UnicodeDecodeError):
        return -1, ""


def _unread(groups: Collection[str], why: str) -> Unread:
    names = sorted(groups)
    subject = f"group {names[0]}" if len(names) == 1 else f"{len(names)} groups, such as {names[0]}"
    return Unread(subject, "since when it has no members", why)
