"""Applications of all kinds on a cluster, some of them with a risk that was planted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from struct import pack
from typing import NamedTuple

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from statestore.advice import Situation
from statestore.clock import now_ms
from statestore.formats.commit_metadata import CommitMetadata, encode
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, commit_offsets
from statestore.model import TopicPartition
from statestore.survey.idle_groups import OFFSETS_TOPIC, partition_of
from tests.integration.broker import (
    WAIT_S,
    add_partitions,
    delete_records,
    member_of,
    produce,
    set_topic_config,
    wait_for,
)
from tests.integration.streams_member import join_streams_group

STREAMS = encode(CommitMetadata(partition_time=5))
#: `offsets.retention.minutes` of the tests' brokers, and half a day less.
_LONG_AGO_MS = 5_256_000 * 60_000 - 43_200_000
_WINDOW = {"cleanup.policy": "compact,delete", "retention.ms": "172800000"}
_NEVER = str(2**63 - 1)


class Risk(NamedTuple):
    """A risk as the survey is to name it."""

    application: str
    subject: str
    situation: Situation


class Planted:
    """Creates applications, and keeps what the survey is to find.

    Attributes
    ----------
    applications
        Names of all.
    risks
        What was planted.
    """

    def __init__(self, servers: str, replicas: int, stack: ExitStack) -> None:
        self.servers = servers
        self.replicas = replicas
        self.applications: list[str] = []
        self.risks: set[Risk] = set()
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._stack = stack

    def topic(self, name: str, partitions: int = 2, settings: Mapping[str, str] | None = None, **how: int) -> str:
        """Create a topic that is replicated as it should be, and wait until the brokers show its leaders."""
        safe = {"min.insync.replicas": str(min(self.replicas, 2))}
        new = NewTopic(name, partitions, how.get("replicas", self.replicas), config={**safe, **(settings or {})})
        self._admin.create_topics([new])[name].result(WAIT_S)
        wait_for(lambda: self._is_led(name, partitions), f"topic {name}")
        return name

    def _is_led(self, name: str, partitions: int) -> bool:
        topic = self._admin.list_topics(name, timeout=WAIT_S).topics[name]
        led = [
            found for found in topic.partitions.values() if found.leader > 0 and len(found.isrs) == len(found.replicas)
        ]
        return topic.error is None and len(led) == partitions

    def application(
        self,
        name: str,
        store: str = "totals",
        *,
        settings: Mapping[str, str] | None = None,
        risk: Situation | None = None,
        metadata: str = STREAMS,
        group: bool = True,
        rows: int = 20,
        topic: str = "",
        inputs: int = 2,
        **how: int,
    ) -> str:
        """Create an application with one changelog; return the changelog's name."""
        log = topic or f"{name}-{store}-changelog"
        self.applications.append(name)
        self.topic(log, 2, {"cleanup.policy": "compact", **(settings or {})}, **how)
        read = self.topic(f"{name}.input", inputs)
        for partition in range(2):
            produce(self.servers, log, [(b"%d" % at, b"value") for at in range(rows)], partition)
        if group:
            commit_offsets(Cluster(self.servers), name, {TopicPartition(read, 0): GroupOffset(0, metadata)})
        if risk is not None:
            self.plant(name, log, risk)
        return log

    def plant(self, application: str, subject: str, situation: Situation) -> None:
        """Note what the survey is to find."""
        self.risks.add(Risk(application, subject, situation))

    def intact(self) -> None:
        """Create applications without a risk."""
        self.application("kv")
        self.application("windows", settings=_WINDOW)
        self.application("_confluent-ksql-default_query_CTAS_T_5", "Aggregate-Aggregate-Materialize")
        self.application("suppressing", "KTABLE-SUPPRESS-STATE-STORE-0000000004")
        self.application("versions", settings={"min.compaction.lag.ms": "90000000"})
        self.application("rewritten", topic="rewritten-totals-changelog-2")
        self.application("plain", metadata="")
        self.application("empty", rows=0)
        self.application("repartitioning")
        self.topic("repartitioning-by-shop-repartition", settings={"cleanup.policy": "delete", "retention.ms": "-1"})
        self.application("static", group=False)
        self._stack.enter_context(_static_member(self.servers, "static", "static.input"))
        self.application("running", group=False)
        self._stack.enter_context(member_of(self.servers, "running", "running.input"))
        log = self.application("streams")
        join_streams_group(self.servers, "streams", "streams.input", {log: 0})

    def with_settings(self) -> None:
        """Plant settings of topics."""
        add = self.application
        if self.replicas > 1:
            add("one-replica", risk=Situation.ONE_REPLICA, settings={"min.insync.replicas": "1"}, replicas=1)
            add("acks-one", risk=Situation.ONE_ACKNOWLEDGES, settings={"min.insync.replicas": "1"})
            add("unclean", risk=Situation.UNCLEAN_ELECTION, settings={"unclean.leader.election.enable": "true"})
            refused = add("refused", risk=Situation.WRITES_REFUSED)
            set_topic_config(self.servers, refused, min_insync_replicas=str(self.replicas + 1))
            name = "unreplicated-by-shop-repartition"
            add("unreplicated")
            one = {"cleanup.policy": "delete", "retention.ms": "-1", "min.insync.replicas": "1"}
            self.plant("unreplicated", self.topic(name, settings=one, replicas=1), Situation.ONE_REPLICA)
        add("by-age", risk=Situation.DELETED_BY_AGE, settings={"cleanup.policy": "delete", "retention.ms": "604800000"})
        add("by-size", risk=Situation.DELETED_BY_SIZE, settings={**_WINDOW, "retention.bytes": "1000000"})
        add("inherits", risk=Situation.BROKERS_RETENTION, settings={"cleanup.policy": "compact,delete"})
        add("waiting")
        for name, limit in (("age", {"retention.ms": "86400000"}), ("size", {"retention.bytes": "1000"})):
            settings = {"cleanup.policy": "delete", "retention.ms": "-1", **limit}
            topic = self.topic(f"waiting-{name}-repartition", settings=settings)
            self.plant("waiting", topic, Situation.UNPROCESSED_DELETED)
        never = Situation.NEVER_COMPACTED
        add("ratio", risk=never, settings={"min.cleanable.dirty.ratio": "1"})
        add("lag", risk=never, settings={"min.compaction.lag.ms": _NEVER})
        add("segment", risk=never, settings={"segment.ms": _NEVER})
        add("tombstones", risk=Situation.TOMBSTONES_BEFORE_RESTORE, settings={"delete.retention.ms": "0"})

    def with_logs_and_groups(self) -> None:
        """Plant what is in logs, groups, and names."""
        add = self.application
        log = add("starts-late", risk=Situation.LOG_STARTS_LATE, settings={"cleanup.policy": "delete"})
        delete_records(self.servers, log, 5, partition=1)
        set_topic_config(self.servers, log, cleanup_policy="compact")
        log = add("stopped", risk=Situation.TOMBSTONES_WHILE_STOPPED)
        self.plant("stopped", "group stopped", Situation.OFFSETS_EXPIRE)
        self._commit_long_ago("stopped", "stopped.input")
        add("gone", "KSTREAM-AGGREGATE-STATE-STORE-0000000003", group=False)
        self.plant("gone", "group gone", Situation.OFFSETS_GONE)
        add("forgot", group=False)
        with _static_member(self.servers, "forgot", "forgot.input", static=False):
            pass
        self.plant("forgot", "group forgot", Situation.OFFSETS_GONE)
        orphan = add("orphan", group=False)
        self.plant("", orphan, Situation.NO_APPLICATION)
        add("grown", risk=Situation.PARTITIONS_DISAGREE)
        add_partitions(self.servers, "grown.input", 4)
        log = add("topology", risk=Situation.PARTITIONS_DISAGREE, inputs=3)
        join_streams_group(self.servers, "topology", "topology.input", {log: 0})
        add("orders")
        log = add("orders-v2")
        self.plant("orders-v2", log, Situation.OWNER_UNDECIDED)
        self.plant("orders-v2", "orders-v2", Situation.NAME_IS_PREFIX)
        add("sales")
        log = add("sales-eu")
        self.plant("sales-eu", "sales-eu", Situation.NAME_IS_PREFIX)
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": "sales-eu-0_0"})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce(log, b"v", b"k", partition=0)
        producer.commit_transaction(WAIT_S)

    def _commit_long_ago(self, group: str, topic: str) -> None:
        """Write the group's offset anew into the brokers' log, with the time of a commit long ago."""
        count = len(self._admin.list_topics(OFFSETS_TOPIC, timeout=WAIT_S).topics[OFFSETS_TOPIC].partitions)
        # Only this client may write there.
        producer = Producer({"bootstrap.servers": self.servers, "client.id": "__admin_client"})
        key = pack(">h", 1) + _text(group) + _text(topic) + pack(">i", 0)
        value = pack(">hqi", 3, 0, -1) + _text(STREAMS) + pack(">q", 0)
        where = partition_of(group, count)
        producer.produce(OFFSETS_TOPIC, value, key, partition=where, timestamp=now_ms() - _LONG_AGO_MS)
        assert producer.flush(WAIT_S) == 0
        end = Cluster(self.servers, WAIT_S).topics.log_ranges([TopicPartition(OFFSETS_TOPIC, where)])
        assert all(found.high_watermark for found in end.values())


@contextmanager
def _static_member(servers: str, group: str, topic: str, *, static: bool = True) -> Iterator[None]:
    instance = {"group.instance.id": f"{group}-1"} if static else {}
    config = {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False, **instance}
    member = Consumer(config)
    try:
        member.subscribe([topic])
        wait_for(lambda: member.poll(0.1) or member.assignment(), f"the member of {group}")
        yield
    finally:
        member.close()


def _text(value: str) -> bytes:
    return pack(">h", len(value.encode())) + value.encode()
