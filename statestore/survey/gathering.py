"""Reads the facts of a survey: a few requests to each broker, however many topics and partitions there are."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple, Protocol

from statestore.errors import StateStoreError
from statestore.kafka.admin_requests import Brokers, Versions, error_text
from statestore.kafka.cluster import Cluster
from statestore.kafka.consumer_protocol_group import ConsumerProtocolGroup
from statestore.kafka.rights import REFUSED
from statestore.kafka.streams_group import StreamsGroup
from statestore.model import TopicPartition
from statestore.survey.facts import (
    REPARTITION,
    BrokerFacts,
    ClusterFacts,
    GroupFacts,
    PartitionFacts,
    Setting,
    TopicFacts,
    Unread,
    changelog_stem,
)
from statestore.survey.idle_groups import OFFSETS_TOPIC

_METADATA, _CONFIGS, _LOG_DIRS = Versions(1, 12), Versions(1, 4), Versions(1, 4)
_OFFSETS, _LIST_GROUPS, _DESCRIBE_GROUPS = Versions(1, 7), Versions(0, 5), Versions(0, 5)
#: From these versions on, one request is about many groups.
_COORDINATORS, _COMMITTED = Versions(4, 6), Versions(8, 9)
_TOPIC, _BROKER = 2, 4
_EARLIEST, _LATEST = -2, -1
_TOPIC_SETTINGS = (
    *("cleanup.policy", "retention.ms", "retention.bytes", "delete.retention.ms", "min.insync.replicas"),
    *("unclean.leader.election.enable", "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "max.compaction.lag.ms"),
    *("segment.ms", "segment.bytes", "message.timestamp.type"),
)
_BROKER_SETTINGS = ("log.cleaner.enable", "offsets.retention.minutes")
#: `ConfigSource.DYNAMIC_TOPIC_CONFIG`
_OWN = 1
_SIZE, _COUNT = Struct(">h"), Struct(">i")
_NO_RIGHT = "no right"
#: Facts that a description of a group of a newer protocol has.
_DESCRIBED = {"consumer": "members", "streams": "members and topology"}
_ATTEMPTS = 5
_PAUSE_S = 0.3


class Asked(Protocol):
    """What the survey asks: the brokers, or a recording of their answers (`Brokers`)."""

    cluster_id: str
    addresses: dict[int, tuple[str, int]]

    @property
    def requests(self) -> int:
        """Requests that were sent."""

    def ask_any(self, request: Any, versions: Versions) -> Any:
        """Return an answer from any broker."""

    def ask_each(self, requests: Mapping[int, Any], versions: Versions) -> dict[int, Any]:
        """Return answers, or errors, by broker."""

    def newer_groups(self, kind: str, names: Mapping[int, list[str]]) -> dict[int, Any]:
        """Return groups of the type `consumer` or `streams`, or errors, by coordinator."""


#: Finds since when groups are idle, by name; adds what it could not read to the list.
IdleSince = Callable[[Collection[str], TopicFacts | None, list[Unread]], Mapping[str, int]]


def read_cluster(cluster: Cluster, idle_since: IdleSince) -> ClusterFacts:
    """Read the facts of a cluster.

    Raises
    ------
    KafkaUnavailableError
        If no broker answers in time.
    InputError
        If only librdkafka can speak to the brokers.
    """
    with Brokers(cluster) as brokers:
        return gather(brokers, cluster.servers, idle_since)


def gather(asked: Asked, bootstrap_servers: str, idle_since: IdleSince) -> ClusterFacts:
    """Ask for the facts of a cluster."""
    return _Gathering(asked, idle_since).all(bootstrap_servers)


class _Log(NamedTuple):
    start: int | None = None
    end: int | None = None


class _Gathering:
    def __init__(self, asked: Asked, idle_since: IdleSince) -> None:
        self._asked = asked
        self._idle_since = idle_since
        self._unread: list[Unread] = []
        self._hidden: set[str] = set()
        self._listed_all = True

    def all(self, bootstrap_servers: str) -> ClusterFacts:
        """Ask for everything, in an order in which each answer tells what to ask next."""
        every = self._metadata()
        counts = {name: len(topic.partitions) for name, topic in every.items()}
        kept = {name: topic for name, topic in every.items() if _is_kept(name)}
        settings = self._topic_settings(list(kept))
        offsets_topic = every.get(OFFSETS_TOPIC)
        sized = kept if offsets_topic is None else {**kept, OFFSETS_TOPIC: offsets_topic}
        sizes = self._sizes(sized)
        logs = self._logs(sized)
        complete = {
            name: topic._replace(
                settings=settings.get(name),
                partitions=tuple(
                    found._replace(
                        bytes=sizes.get(at := TopicPartition(name, number)),
                        start=logs.get(at, _Log()).start,
                        end=logs.get(at, _Log()).end,
                    )
                    for number, found in enumerate(topic.partitions)
                ),
            )
            for name, topic in sized.items()
        }
        offsets_topic = complete.pop(OFFSETS_TOPIC, None)
        groups = self._groups([name for name in kept if changelog_stem(name) is not None], offsets_topic)
        brokers = self._brokers()
        return ClusterFacts(
            cluster_id=self._asked.cluster_id,
            bootstrap_servers=bootstrap_servers,
            brokers=brokers,
            topics=complete,
            partition_counts=counts,
            groups=groups,
            unread=tuple(self._unread),
            requests=self._asked.requests,
            hidden_groups=frozenset(self._hidden),
        )

    def _note(self, subject: str, fact: str, why: object) -> None:
        self._unread.append(Unread(subject, fact, str(why)))

    def _metadata(self) -> dict[str, TopicFacts]:
        from kafka.protocol.metadata import MetadataRequest

        request = MetadataRequest(
            topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        answer = self._asked.ask_any(request, _METADATA)
        for broker in answer.brokers:
            self._asked.addresses.setdefault(broker.node_id, (broker.host, broker.port))
        found = {}
        for topic in answer.topics:
            if topic.error_code:
                if _is_kept(topic.name):
                    self._note(topic.name, "partitions", error_text(topic.error_code))
                continue
            partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
            found[topic.name] = TopicFacts(
                topic.name,
                str(topic.topic_id or ""),
                tuple(
                    PartitionFacts(
                        each.leader_id if each.leader_id >= 0 else None,
                        tuple(each.replica_nodes),
                        tuple(each.isr_nodes),
                    )
                    for each in partitions
                ),
            )
        return dict(sorted(found.items()))

    def _topic_settings(self, names: Collection[str]) -> dict[str, dict[str, Setting]]:
        if not names:
            return {}
        try:
            answer = self._asked.ask_any(_configs_request(_TOPIC, names, _TOPIC_SETTINGS), _CONFIGS)
        except StateStoreError as error:
            self._note(_counted(names, "topic"), "settings", error)
            return {}
        found = {}
        for result in answer.results:
            if result.error_code:
                self._note(result.resource_name, "settings", _needs(result.error_code, "DESCRIBE_CONFIGS on the topic"))
            else:
                found[result.resource_name] = {
                    each.name: Setting(each.value or "", each.config_source == _OWN) for each in result.configs
                }
        return found

    def _brokers(self) -> tuple[BrokerFacts, ...]:
        asked = {node: _configs_request(_BROKER, [str(node)], _BROKER_SETTINGS) for node in self._asked.addresses}
        found = []
        for node, answer in self._asked.ask_each(asked, _CONFIGS).items():
            settings: dict[str, str] = {}
            if isinstance(answer, StateStoreError):
                self._note(f"broker {node}", "settings", answer)
            elif (result := answer.results[0]).error_code:
                why = _needs(result.error_code, "DESCRIBE_CONFIGS on the cluster")
                self._note(f"broker {node}", "settings", why)
            else:
                settings = {each.name: each.value or "" for each in result.configs}
            host, port = self._asked.addresses[node]
            found.append(BrokerFacts(node, f"{host}:{port}", settings))
        return tuple(found)

    def _sizes(self, topics: Mapping[str, TopicFacts]) -> dict[TopicPartition, int]:
        """Ask each broker for the size of the logs that it leads."""
        from kafka.protocol.admin import DescribeLogDirsRequest as Request

        topic_form = Request.DescribableLogDirTopic
        led = _by_leader(topics)
        asked = {
            node: Request(topics=[topic_form(topic=name, partitions=numbers) for name, numbers in of_node.items()])
            for node, of_node in led.items()
        }
        sizes: dict[TopicPartition, int] = {}
        for node, answer in self._asked.ask_each(asked, _LOG_DIRS).items():
            why: object = "the broker does not name these logs; it may need the right DESCRIBE on the cluster"
            if isinstance(answer, StateStoreError):
                why = answer
            else:
                if code := answer.error_code or next(
                    (each.error_code for each in answer.results if each.error_code), 0
                ):
                    why = _needs(code, "DESCRIBE on the cluster")
                for directory in answer.results:
                    for topic in directory.topics:
                        for each in topic.partitions:
                            if not each.is_future_key:
                                sizes[TopicPartition(topic.name, each.partition_index)] = each.partition_size
            missing = [
                name
                for name, numbers in led[node].items()
                if any(TopicPartition(name, number) not in sizes for number in numbers)
            ]
            if missing:
                self._note(_counted(missing, "topic"), f"bytes on broker {node}", why)
        return sizes

    def _logs(self, topics: Mapping[str, TopicFacts]) -> dict[TopicPartition, _Log]:
        """Ask the leaders where logs begin and end."""
        starts, ends = self._listed(topics, _EARLIEST), self._listed(topics, _LATEST)
        found = {at: _Log(starts.get(at), ends.get(at)) for at in {*starts, *ends}}
        leaderless = [name for name, topic in topics.items() if any(one.leader is None for one in topic.partitions)]
        if leaderless:
            self._note(
                _counted(leaderless, "topic"), "bytes and offsets", "a partition has no leader: start its brokers"
            )
        return found

    def _listed(self, topics: Mapping[str, TopicFacts], timestamp: int) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        left, failed = _by_leader(topics), dict[TopicPartition, object]()
        for attempt in range(_ATTEMPTS):
            if attempt:  # leaders may have moved, or a new topic is not there yet
                time.sleep(attempt * _PAUSE_S)
                left = _only(_by_leader(self._metadata_of(topics)), failed)
            failed.clear()
            asked = {node: _offsets_request(of_node, timestamp) for node, of_node in left.items()}
            for node, answer in self._asked.ask_each(asked, _OFFSETS).items():
                if isinstance(answer, StateStoreError):
                    failed.update(dict.fromkeys(_partitions(left[node]), answer))
                    continue
                for topic in answer.topics:
                    for each in topic.partitions:
                        at = TopicPartition(topic.name, each.partition_index)
                        if each.error_code:
                            failed[at] = _needs(each.error_code, "DESCRIBE on the topic")
                        else:
                            found[at] = each.offset
            if not failed:
                return found
        by_reason: dict[str, set[str]] = defaultdict(set)
        for at, why in failed.items():
            by_reason[str(why)].add(at.topic)
        fact = "start of the log" if timestamp == _EARLIEST else "end of the log"
        for reason, names in by_reason.items():
            self._note(_counted(sorted(names), "topic"), fact, reason)
        return found

    def _metadata_of(self, topics: Mapping[str, TopicFacts]) -> dict[str, TopicFacts]:
        unread = list(self._unread)
        try:
            return {name: topic for name, topic in self._metadata().items() if name in topics}
        except StateStoreError:
            return {}
        finally:
            self._unread = unread

    def _groups(self, changelogs: Collection[str], offsets_topic: TopicFacts | None) -> dict[str, GroupFacts]:
        listed = self._listed_groups()
        owners = {name for topic in changelogs for name in prefixes(topic) if name in listed}
        owned = {topic for topic in changelogs if any(name in owners for name in prefixes(topic))}
        hidden = {name for topic in changelogs if topic not in owned for name in prefixes(topic)}
        coordinators = self._coordinators(owners, hidden)
        if not self._listed_all:
            self._hidden |= hidden
        groups = {name: listed[name] for name in sorted(owners)}
        for describe in (self._with_members, self._with_newer_protocols, self._with_commits):
            groups.update(
                describe({name: group for name, group in groups.items() if name in coordinators}, coordinators)
            )
        idle = [name for name, group in groups.items() if group.state == "Empty" and group.committed]
        since = self._idle_since(idle, offsets_topic, self._unread) if idle else {}
        return {name: group._replace(idle_since_ms=since.get(name)) for name, group in groups.items()}

    def _listed_groups(self) -> dict[str, GroupFacts]:
        from kafka.protocol.admin import ListGroupsRequest

        request = ListGroupsRequest(states_filter=[], types_filter=[])
        found = {}
        for node, answer in self._asked.ask_each(dict.fromkeys(self._asked.addresses, request), _LIST_GROUPS).items():
            if isinstance(answer, StateStoreError):
                self._note(f"broker {node}", "its groups", answer)
                self._listed_all = False
                continue
            if answer.error_code:
                self._listed_all = False
                self._note(f"broker {node}", "its groups", _needs(answer.error_code, "DESCRIBE on the groups"))
            for each in answer.groups:
                found[each.group_id] = GroupFacts(
                    each.group_id, (each.group_type or "").lower(), each.group_state or ""
                )
        return found

    def _coordinators(self, owners: Collection[str], hidden: Collection[str]) -> dict[str, int]:
        """Find the coordinators of groups; groups that may be hidden from us for want of a right are named."""
        from kafka.protocol.metadata import FindCoordinatorRequest

        names = sorted({*owners, *hidden})
        if not names:
            return {}
        found: dict[str, int] = {}
        left, why = set(names), dict[str, object]()
        for attempt in range(_ATTEMPTS):
            time.sleep(attempt * _PAUSE_S)
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=sorted(left))
            try:
                answer = self._asked.ask_any(request, _COORDINATORS)
            except StateStoreError as error:
                self._note(_counted(sorted(owners), "group"), "members and offsets", error)
                self._hidden |= set(hidden)
                return {}
            for each in answer.coordinators:
                if not each.error_code:
                    found[each.key] = each.node_id
                    left.discard(each.key)
                else:
                    why[each.key] = _needs(each.error_code, "DESCRIBE on the group")
            if all(str(why[name]).startswith(_NO_RIGHT) for name in left):
                break
        for name in sorted(left & set(owners)):
            self._note(f"group {name}", "members and offsets", why[name])
        refused = sorted(left - set(owners))
        self._hidden |= set(refused)
        if refused:
            self._note(_counted(refused, "group"), "whether they exist", why[refused[0]])
        return {name: node for name, node in found.items() if name in owners}

    def _with_members(self, groups: Mapping[str, GroupFacts], nodes: Mapping[str, int]) -> dict[str, GroupFacts]:
        from kafka.protocol.admin import DescribeGroupsRequest

        classic = {name: group for name, group in groups.items() if group.type in ("classic", "")}
        asked = {
            node: DescribeGroupsRequest(groups=names, include_authorized_operations=False)
            for node, names in _by_node(classic, nodes).items()
        }
        found = {}
        for node, answer in self._asked.ask_each(asked, _DESCRIBE_GROUPS).items():
            if isinstance(answer, StateStoreError):
                self._note(_counted(asked[node].groups, "group"), "members", answer)
                continue
            for each in answer.groups:
                if each.error_code:
                    self._note(f"group {each.group_id}", "members", _needs(each.error_code, "DESCRIBE on the group"))
                    continue
                found[each.group_id] = groups[each.group_id]._replace(
                    state=each.group_state,
                    protocol=each.protocol_data,
                    members=tuple(sorted(f"{member.client_id} on {member.client_host}" for member in each.members)),
                    static_members=sum(member.group_instance_id is not None for member in each.members),
                    reads=frozenset(
                        topic for member in each.members for topic in _assigned(bytes(member.member_assignment))
                    ),
                )
        return found

    def _with_newer_protocols(
        self, groups: Mapping[str, GroupFacts], nodes: Mapping[str, int]
    ) -> dict[str, GroupFacts]:
        found = {}
        for kind in ("consumer", "streams"):
            asked = _by_node((name for name, group in groups.items() if group.type == kind), nodes)
            for node, answer in self._asked.newer_groups(kind, asked).items() if asked else ():
                if isinstance(answer, StateStoreError):
                    self._note(_counted(asked[node], "group"), _DESCRIBED[kind], answer)
                    continue
                for name in asked[node]:
                    described = answer.get(name)
                    if described is None or isinstance(described, int):
                        right = "DESCRIBE on the group and on its topics"
                        why = "the broker did not describe it" if described is None else _needs(described, right)
                        self._note(f"group {name}", _DESCRIBED[kind], why)
                        continue
                    found[name] = _as_described(groups[name], described)
        return found

    def _with_commits(self, groups: Mapping[str, GroupFacts], nodes: Mapping[str, int]) -> dict[str, GroupFacts]:
        from kafka.protocol.consumer import OffsetFetchRequest as Request

        asked = {
            node: Request(groups=[Request.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])
            for node, names in _by_node(groups, nodes).items()
        }
        found = {}
        for node, answer in self._asked.ask_each(asked, _COMMITTED).items():
            if isinstance(answer, StateStoreError):
                names = [each.group_id for each in asked[node].groups]
                self._note(_counted(names, "group"), "committed offsets", answer)
                continue
            for each in answer.groups:
                name = each.group_id
                if each.error_code:
                    why = _needs(each.error_code, "DESCRIBE on the group and on its topics")
                    self._note(f"group {name}", "committed offsets", why)
                    continue
                committed = {
                    TopicPartition(topic.name, one.partition_index): one.metadata or ""
                    for topic in each.topics
                    for one in topic.partitions
                    if not one.error_code and one.committed_offset >= 0
                }
                if any(one.error_code for topic in each.topics for one in topic.partitions):
                    self._note(f"group {name}", "some committed offsets", "no right DESCRIBE on a topic that it reads")
                reads = groups[name].reads | {at.topic for at in committed}
                found[name] = groups[name]._replace(committed=committed, reads=reads)
        return found


def prefixes(changelog: str) -> Iterable[str]:
    """Return the applications that could own a topic with the name of a changelog, the longest name first."""
    stem = changelog_stem(changelog) or ""
    return (stem[:at] for at in reversed(range(1, len(stem) - 1)) if stem[at] == "-")


def _is_kept(topic: str) -> bool:
    return topic.endswith(REPARTITION) or changelog_stem(topic) is not None


def _configs_request(kind: int, names: Collection[str], keys: Collection[str]) -> Any:
    from kafka.protocol.admin import DescribeConfigsRequest as Request

    form = Request.DescribeConfigsResource
    return Request(
        resources=[form(resource_type=kind, resource_name=name, configuration_keys=list(keys)) for name in names],
        include_synonyms=False,
        include_documentation=False,
    )


def _offsets_request(topics: Mapping[str, list[int]], timestamp: int) -> Any:
    from kafka.protocol.consumer.offsets import ListOffsetsRequest as Request

    form = Request.ListOffsetsTopic
    return Request(
        replica_id=-1,
        isolation_level=0,
        topics=[
            form(
                name=name,
                partitions=[
                    form.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=timestamp)
                    for number in numbers
                ],
            )
            for name, numbers in topics.items()
        ],
    )


def _by_leader(topics: Mapping[str, TopicFacts]) -> dict[int, dict[str, list[int]]]:
    led: dict[int, dict[str, list[int]]] = defaultdict(dict)
    for name, topic in topics.items():
        for number, partition in enumerate(topic.partitions):
            if partition.leader is not None:
                led[partition.leader].setdefault(name, []).append(number)
    return led


def _only(
    led: Mapping[int, dict[str, list[int]]], wanted: Collection[TopicPartition]
) -> dict[int, dict[str, list[int]]]:
    found: dict[int, dict[str, list[int]]] = {}
    for node, topics in led.items():
        for name, numbers in topics.items():
            if some := [number for number in numbers if TopicPartition(name, number) in wanted]:
                found.setdefault(node, {})[name] = some
    return found


def _partitions(topics: Mapping[str, list[int]]) -> Iterable[TopicPartition]:
    return (TopicPartition(name, number) for name, numbers in topics.items() for number in numbers)


def _as_described(group: GroupFacts, described: ConsumerProtocolGroup | StreamsGroup) -> GroupFacts:
    group = group._replace(state=described.state or group.state, members=described.members)
    if isinstance(described, StreamsGroup):
        reads = frozenset(topic for topics in described.sources.values() for topic in topics)
        return group._replace(reads=reads, topology=described)
    return group._replace(protocol=described.assignor, static_members=described.static_members, reads=described.reads)


def _by_node(names: Iterable[str], nodes: Mapping[str, int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    for name in names:
        found[nodes[name]].append(name)
    return found


def _assigned(assignment: bytes) -> list[str]:
    """Return the topics of a member's assignment: i16 version | i32 count: name, i32 count, i32 partitions | ..."""
    topics = []
    try:
        (count,) = _COUNT.unpack_from(assignment, _SIZE.size)
        at = _SIZE.size + _COUNT.size
        for _ in range(count):
            (size,) = _SIZE.unpack_from(assignment, at)
            at += _SIZE.size
            topics.append(assignment[at : at + size].decode())
            (partitions,) = _COUNT.unpack_from(assignment, at + size)
            at += size + _COUNT.size * (1 + partitions)
    except (StructError, UnicodeDecodeError):  # none, or of another protocol
        return []
    return topics


def _needs(code: int, right: str) -> str:
    return f"{_NO_RIGHT}: the survey needs {right}" if code in REFUSED else error_text(code)


def _counted(names: Collection[str], noun: str) -> str:
    first = next(iter(names), "")
    return f"{noun} {first}" if len(names) == 1 else f"{len(names)} {noun}s, such as {first}"
