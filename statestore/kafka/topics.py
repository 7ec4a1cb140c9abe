"""Topics as the library needs them: identity, partitions, settings, log ends; creating and deleting them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from statestore.errors import InputError, KafkaUnavailableError, StateStoreError, TopicMismatchError
from statestore.kafka.leaders import require_leaders
from statestore.kafka.rights import Right, needing, on_group, on_topics
from statestore.kafka.streams_group import streams_group
from statestore.model import TopicPartition

if TYPE_CHECKING:
    from statestore.kafka.cluster import Cluster

#: Whose a topic's timestamps are: the producers' or the brokers'.
TIMESTAMP_TYPE, CREATE_TIME, APPEND_TIME = "message.timestamp.type", "CreateTime", "LogAppendTime"
_PAUSE_S = 0.1
#: A broker mostly shows a new topic within a few of these.
_FIRST_PAUSE_S = 0.01
#: After so long the leader that is asked for an offset is no longer one. A broker answers within milliseconds.
_LISTING_S = 5.0


def has_append_time(config: Mapping[str, str]) -> bool:
    """Tell whether a topic with these settings has the brokers' time in the place of each record's."""
    return config.get(TIMESTAMP_TYPE) == APPEND_TIME


class Topic(NamedTuple):
    """A topic as the brokers describe it."""

    name: str
    topic_id: str
    partitions: int


class LogRange(NamedTuple):
    """Offsets of one partition's log; both ends are exclusive.

    Attributes
    ----------
    epoch
        Leader epoch in which the high watermark was told; the last record may be of an earlier one. None if not told.
    """

    start: int
    last_stable: int
    high_watermark: int
    epoch: int | None = None


class LogStart(NamedTuple):
    """Where a log starts, and with which leader epoch; None if the log does not know that."""

    offset: int
    epoch: int | None


class _Listed(NamedTuple):
    """An offset from a broker, with the leader epoch of its record; at the end of the log, the leader's own epoch.

    Attributes
    ----------
    timestamp
        Timestamp of the record there, in ms, if the request was about timestamps; else -1.
    """

    offset: int
    epoch: int | None
    timestamp: int = -1


#: Answers about a topic that does not exist, or cannot exist.
_NOT_THERE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)


class Topics:
    """Questions about the topics of a cluster, each answered within its deadline; made by `Cluster.topics`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def cluster_id(self) -> str:
        """Return the id of the cluster.

        Raises
        ------
        KafkaUnavailableError
            If no broker answers in time.
        """

        def ask(timeout_s: float) -> str:
            answer = self.cluster.admin(timeout_s).describe_cluster(request_timeout=timeout_s)
            return str(answer.result().cluster_id)

        return self.cluster.answered(ask, f"asking {self.cluster.servers} for the cluster's id")

    def names(self) -> list[str]:
        """Return the names of all topics, in order.

        Raises
        ------
        KafkaUnavailableError
            If no broker answers in time.
        """
        listed = self.cluster.answered(
            lambda timeout_s: self.cluster.admin(timeout_s).list_topics(timeout=timeout_s),
            f"asking {self.cluster.servers} for topics",
        )
        return sorted(listed.topics)

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Describe those of the topics that exist.

        Raises
        ------
        KafkaUnavailableError
            If no broker answers in time, or this user may not see a topic, or whether it exists.
        """
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return {}

        def ask(timeout_s: float) -> dict[str, Topic]:
            futures = self.cluster.admin(timeout_s).describe_topics(TopicCollection(wanted), request_timeout=timeout_s)
            found = {}
            for name, future in futures.items():
                try:
                    topic = future.result()
                except KafkaException as error:
                    if error.args[0].code() not in _NOT_THERE:
                        raise needing(error, *on_topics("DESCRIBE", name)) from None
                else:
                    found[name] = Topic(name, str(topic.topic_id), len(topic.partitions))
            return found

        return self.cluster.answered(ask, f"describing the topics {', '.join(wanted)}")

    def find(self, name: str) -> Topic | None:
        """Describe one topic; None if it does not exist."""
        return self.describe([name]).get(name)

    def require(self, name: str) -> Topic:
        """Describe one topic.

        Raises
        ------
        TopicMismatchError
            If it does not exist.
        """
        topic = self.find(name)
        if topic is None:
            raise TopicMismatchError(
                f"topic {name} does not exist on {self.cluster.servers}; create it, or correct its name"
            )
        return topic

    def ensure(self, name: str, partitions: int, config: dict[str, str]) -> Topic:
        """Return an internal topic, made with these settings if it was not there.

        Raises
        ------
        TopicMismatchError
            If it exists with another number of partitions.
        """
        topic = self.find(name)
        if topic is None:
            topic = self.make(name, partitions, config)
        if topic.partitions != partitions:
            raise TopicMismatchError(
                f"internal topic {name} has {topic.partitions} partitions, expected {partitions} as the topic that its "
                "tasks read: the number of partitions of an application with state cannot change; reset it under a new "
                "name"
            )
        return topic

    def make(self, name: str, partitions: int, config: dict[str, str]) -> Topic:
        """Create a topic as `create`, and return it when the brokers show it."""
        self.create(name, partitions, config)
        return self.appeared(name)

    def create(self, name: str, partitions: int, config: dict[str, str]) -> bool:
        """Create a topic with the brokers' replication factor; one that appeared meanwhile is taken as it is.

        Returns
        -------
        bool
            True: this call has made it. False: somebody else has, or this call has and was not answered.
        """
        new = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=config)

        def ask(timeout_s: float) -> bool:
            try:
                self.cluster.admin(timeout_s).create_topics([new], request_timeout=timeout_s)[name].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        return self.cluster.answered(ask, f"creating topic {name}", *on_topics("CREATE", name))

    def delete(self, name: str) -> None:
        """Delete a topic with all its records, and wait until the brokers no longer show it."""

        def ask(timeout_s: float) -> None:
            try:
                self.cluster.admin(timeout_s).delete_topics([name], request_timeout=timeout_s)[name].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise

        self.cluster.answered(ask, f"deleting topic {name}", *on_topics("DELETE", name))
        deadline = time.monotonic() + self.cluster.timeout_s
        while name in self.names():
            if time.monotonic() > deadline:
                raise KafkaUnavailableError(
                    f"topic {name} was deleted, but still exists after {self.cluster.timeout_s:g} s"
                )
            time.sleep(_PAUSE_S)

    def appeared(self, name: str) -> Topic:
        """Wait until the brokers show a topic that was just created: one learns of it later than another."""
        deadline, pause_s = time.monotonic() + self.cluster.timeout_s, _FIRST_PAUSE_S
        while (topic := self.find(name)) is None:
            if time.monotonic() > deadline:
                raise KafkaUnavailableError(
                    f"topic {name} was created, but does not exist after {self.cluster.timeout_s:g} s"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S)
        return topic

    def log_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Return start, last stable offset and high watermark of each partition.

        The high watermark is read last, so that it is never below the last stable offset.
        """
        asked = list(partitions)
        starts = self._list_offsets(asked, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
        stable = self._list_offsets(asked, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        high = self._list_offsets(asked, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        return {at: LogRange(starts[at].offset, stable[at].offset, high[at].offset, high[at].epoch) for at in asked}

    def log_starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogStart]:
        """Return where each partition's log starts."""
        found = self._list_offsets(list(partitions), OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
        return {partition: LogStart(listed.offset, listed.epoch) for partition, listed in found.items()}

    def first_after(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """Offset of the first record or marker with a larger timestamp; None if there is none."""
        spec = OffsetSpec.for_timestamp(timestamp_ms + 1)
        found = self._list_offsets([partition], spec, IsolationLevel.READ_UNCOMMITTED)[partition].offset
        return found if found >= 0 else None

    def first_from(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Offset of the first record or marker with a timestamp (ms) or a larger one; None if there is none."""
        specs = {partition: OffsetSpec.for_timestamp(time_ms) for partition, time_ms in times.items()}
        found = self._list(specs, IsolationLevel.READ_UNCOMMITTED)
        return {partition: at.offset if at.offset >= 0 else None for partition, at in found.items()}

    def largest_timestamp(self, partition: TopicPartition) -> int:
        """Return the largest timestamp (ms) in a partition; -1 if it has no record."""
        return self._list_offsets([partition], OffsetSpec.max_timestamp(), IsolationLevel.READ_UNCOMMITTED)[
            partition
        ].timestamp

    def wait_until_stable(self, names: Iterable[str]) -> None:
        """Wait until no transaction is open in topics: a commit is answered before its markers are in the log.

        A transaction that hangs longer than one request may take is left behind.
        """
        partitions = [
            TopicPartition(name, number)
            for name, topic in self.describe(names).items()
            for number in range(topic.partitions)
        ]
        deadline = time.monotonic() + self.cluster.timeout_s
        while any(log.last_stable < log.high_watermark for log in self.log_ranges(partitions).values()):
            if time.monotonic() > deadline:
                return
            time.sleep(_PAUSE_S)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the effective settings of topics."""
        found = self._config_entries(names)
        return {name: {key: entry.value for key, entry in entries.items()} for name, entries in found.items()}

    def own_settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings that were made for the topics themselves, and are not the brokers' for all topics."""
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {
            name: {key: entry.value for key, entry in entries.items() if entry.source == own}
            for name, entries in self._config_entries(names).items()
        }

    def _config_entries(self, names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in dict.fromkeys(names)]

        def ask(timeout_s: float) -> dict[str, dict[str, ConfigEntry]]:
            futures = self.cluster.admin(timeout_s).describe_configs(resources, request_timeout=timeout_s)
            return {
                resource.name: _result(future, *on_topics("DESCRIBE_CONFIGS", resource.name))
                for resource, future in futures.items()
            }

        doing = f"reading settings of the topics {', '.join(resource.name for resource in resources)}"
        return self.cluster.answered(ask, doing) if resources else {}

    def set_config(self, name: str, settings: Mapping[str, str]) -> None:
        """Set some settings of a topic; the others stay."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)

        def ask(timeout_s: float) -> None:
            asked = self.cluster.admin(timeout_s).incremental_alter_configs([resource], request_timeout=timeout_s)
            for future in asked.values():
                future.result()

        self.cluster.answered(ask, f"changing settings of topic {name}", *on_topics("ALTER_CONFIGS", name))

    def require_no_members(self, group: str) -> None:
        """Make sure that nobody consumes as this group, such as a running Kafka Streams application of that name.

        Groups of `group.protocol=streams` are asked for as such. Where only librdkafka can speak to the brokers, they
        are not seen (see `streams_group`).

        Raises
        ------
        InputError
            If somebody does.
        """

        def ask(timeout_s: float) -> list[str]:
            asked = self.cluster.admin(timeout_s).describe_consumer_groups([group], request_timeout=timeout_s)
            found = asked[group].result()
            return sorted(f"{member.client_id} on {member.host}" for member in found.members)

        try:
            members = self.cluster.answered(ask, f"asking who consumes as {group}", on_group("DESCRIBE", group))
        except StateStoreError as error:
            cause = error.__cause__
            if not isinstance(cause, KafkaException) or cause.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
            members = []
        if not members and (found := streams_group(self.cluster, group)) is not None:
            members = list(found.members)
        if members:
            raise InputError(
                f"consumer group {group} has active members: {', '.join(members)}. Stop them first: two systems cannot "
                "process the same input as one application. A Kafka Streams application that was stopped remains a "
                "member until its session.timeout.ms has passed (45 s by default)"
            )

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Move the start of logs up to an offset each."""
        asked = [KafkaTopicPartition(*partition, offset) for partition, offset in before.items()]

        def ask(timeout_s: float) -> None:
            admin = self.cluster.admin(timeout_s)
            try:
                require_leaders(self.cluster, before, timeout_s)
                for where, future in admin.delete_records(asked, request_timeout=timeout_s).items():
                    _result(future, *on_topics("DELETE", where.topic))
            except KafkaException as error:
                raise _without_leader(admin, error, before, timeout_s) from error

        if asked:
            self.cluster.answered(ask, f"deleting processed records of {', '.join(map(str, before))}")

    def _list_offsets(
        self, partitions: list[TopicPartition], spec: Any, isolation: IsolationLevel
    ) -> dict[TopicPartition, _Listed]:
        return self._list(dict.fromkeys(partitions, spec), isolation)

    def _list(self, specs: Mapping[TopicPartition, Any], isolation: IsolationLevel) -> dict[TopicPartition, _Listed]:
        if not specs:
            return {}
        asked = {KafkaTopicPartition(*partition): spec for partition, spec in specs.items()}

        def ask(timeout_s: float) -> dict[TopicPartition, _Listed]:
            admin, attempt_s = self.cluster.admin(timeout_s), min(timeout_s, _LISTING_S)
            try:
                require_leaders(self.cluster, specs, attempt_s)
                futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=attempt_s)
                listed = {
                    TopicPartition(at.topic, at.partition): _result(future, *on_topics("DESCRIBE", at.topic))
                    for at, future in futures.items()
                }
            except KafkaException as error:
                if error.args[0].code() == KafkaError.FENCED_LEADER_EPOCH:
                    # The broker was started anew since; librdkafka would go on with the epoch that it remembers.
                    admin.list_topics(timeout=timeout_s)
                if error.args[0].code() == KafkaError._TIMED_OUT and attempt_s < timeout_s:
                    raise self._asked_a_former_leader() from error
                raise _without_leader(admin, error, specs, timeout_s) from error
            if any(found.offset == OFFSET_INVALID for found in listed.values()):
                raise self._asked_a_former_leader()
            return {
                partition: _Listed(found.offset, found.leader_epoch, found.timestamp)
                for partition, found in listed.items()
            }

        return self.cluster.answered(ask, f"asking for the log ends of {', '.join(map(str, specs))}")

    def _asked_a_former_leader(self) -> KafkaException:
        """Forget the client, which remembers a leader that is gone and asks it until the request's time is over.

        It may then say that the offset of the log's end is "invalid", without an error: that is no answer.
        """
        self.cluster.forget_admin()
        return KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))


def _result(future: Any, *rights: Right) -> Any:
    try:
        return future.result()
    except KafkaException as error:
        raise needing(error, *rights) from None


def _without_leader(
    admin: AdminClient, error: KafkaException, partitions: Iterable[TopicPartition], timeout_s: float
) -> KafkaException:
    """Tell partitions that nobody leads for a moment from those that are not there; one answer does not."""
    if error.args[0].code() not in (KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART):
        return error
    try:
        topics = admin.list_topics(timeout=timeout_s).topics
    except KafkaException:  # a connection broke: this tells neither
        return KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    if all(name in topics and number in topics[name].partitions for name, number in partitions):
        return KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    return error
