"""What the survey claims, and does not claim, from the facts of a cluster. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from statestore.advice import Situation
from statestore.formats.commit_metadata import CommitMetadata, encode
from statestore.kafka.cluster import Cluster
from statestore.model import TopicPartition
from statestore.reports import SurveyReport
from statestore.survey.copies import Copies, Snapshot
from statestore.survey.facts import BrokerFacts, ClusterFacts, GroupFacts, PartitionFacts, Setting, TopicFacts, Unread
from statestore.survey.gathering import prefixes
from statestore.survey.idle_groups import partition_of
from statestore.survey.owners import owners
from statestore.survey.page import page
from statestore.survey.rates import DEFAULT, with_own
from statestore.survey.survey import SurveyRequest, report_of

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
STREAMS = encode(CommitMetadata(partition_time=5))
SAFE = {
    "cleanup.policy": "compact",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "delete.retention.ms": str(DAY_MS),
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": str(2**63 - 1),
    "segment.ms": "604800000",
    "segment.bytes": str(2**30),
}
PARTITION = PartitionFacts(1, (1, 2, 3), (1, 2, 3), 0, 1_000, 50_000)
ALONE = PARTITION._replace(replicas=(1,), in_sync=(1,))
GROUP = GroupFacts(
    "shop",
    "classic",
    "Empty",
    members=(),
    committed={TopicPartition("orders", 0): STREAMS},
    reads=frozenset({"orders"}),
    idle_since_ms=NOW_MS - 1_000,
)


@dataclass
class World:
    """One application `shop` with store `totals`, and no risk until something is changed."""

    settings: dict[str, str] = field(default_factory=dict)
    inherited: tuple[str, ...] = ("retention.ms",)
    partition: PartitionFacts = PARTITION
    group: GroupFacts | None = GROUP
    brokers: int = 3
    broker_settings: dict[str, str] = field(default_factory=dict)
    copies: Copies = field(default_factory=Copies)
    unread: tuple[Unread, ...] = ()
    topic: str = "shop-totals-changelog"
    hidden: frozenset[str] = frozenset()

    def report(self) -> SurveyReport:
        settings = {
            name: Setting(value, name not in self.inherited) for name, value in {**SAFE, **self.settings}.items()
        }
        topics = {self.topic: TopicFacts(self.topic, "id", (self.partition,) * 2, settings)}
        kept = {"offsets.retention.minutes": "10080", "log.cleaner.enable": "true", **self.broker_settings}
        facts = ClusterFacts(
            "cluster",
            "kafka:9092",
            tuple(BrokerFacts(node, f"kafka{node}:9092", kept) for node in range(1, self.brokers + 1)),
            topics,
            {self.topic: 2, "orders": 2},
            {} if self.group is None else {self.group.name: self.group},
            self.unread,
            7,
            self.hidden,
        )
        return report_of(facts, self.copies, SurveyRequest(Cluster("kafka:9092")), NOW_MS, lambda _: {})

    def found(self) -> list[Situation]:
        return [Situation(risk.advice.situation) for risk in self.report().risks]


def test_an_intact_application_has_no_risk() -> None:
    assert World().found() == []


@pytest.mark.parametrize(
    ("world", "found"),
    [
        (World(partition=ALONE), [Situation.ONE_REPLICA, Situation.WRITES_REFUSED]),
        (
            World(partition=ALONE, brokers=1, settings={"min.insync.replicas": "1"}),
            [Situation.ONE_BROKER],
        ),
        (World(partition=PARTITION._replace(in_sync=(1, 3))), [Situation.REPLICA_OUT_OF_SYNC]),
        (World(broker_settings={"log.cleaner.enable": "false"}, brokers=1), [Situation.CLEANER_OFF]),
        (World(settings={"min.cleanable.dirty.ratio": "1.0", "max.compaction.lag.ms": str(DAY_MS)}), []),
        (World(settings={"cleanup.policy": "compact,delete"}, inherited=()), []),
        (World(settings={"cleanup.policy": "compact,delete"}, inherited=(), partition=PARTITION._replace(start=5)), []),
        (World(settings={"cleanup.policy": "delete", "retention.ms": "-1"}), []),
        (World(settings={"min.compaction.lag.ms": str(400 * DAY_MS)}), []),
        (World(settings={"segment.ms": str(2**63 - 1), "segment.bytes": "40000"}), []),
        (
            World(group=GROUP._replace(idle_since_ms=NOW_MS - 6 * DAY_MS)),
            [Situation.TOMBSTONES_WHILE_STOPPED, Situation.OFFSETS_EXPIRE],
        ),
        (World(group=GROUP._replace(idle_since_ms=None)), []),
        (World(group=GROUP._replace(committed={})), [Situation.OFFSETS_GONE]),
        (World(group=GROUP._replace(committed=None, reads=frozenset())), []),
        (World(group=None), [Situation.NO_APPLICATION]),
        (World(group=None, hidden=frozenset({"shop"})), []),
        (World(copies=Copies(snapshots={("shop", "totals"): {0: Snapshot(NOW_MS, 9)}})), [Situation.NO_SNAPSHOT]),
        (World(copies=Copies(verified={("shop", "totals"): frozenset({0, 1})})), []),
        (World(copies=Copies(verified={})), [Situation.NEVER_VERIFIED]),
    ],
)  # fmt: skip
def test_a_risk_follows_from_the_facts_alone(world: World, found: list[Situation]) -> None:
    assert world.found() == found


@pytest.mark.parametrize(("seen", "found"), [(5, []), (4, [Situation.LOG_STARTS_LATE])])
def test_a_late_start_is_no_risk_if_snapshots_have_what_is_gone(seen: int, found: list[Situation]) -> None:
    snapshots = {("shop", "totals"): dict.fromkeys((0, 1), Snapshot(NOW_MS, seen))}
    assert World(partition=PARTITION._replace(start=5), copies=Copies(snapshots)).found() == found


def test_an_old_snapshot_is_compared_with_the_time_that_tombstones_stay() -> None:
    snapshots = {("shop", "totals"): dict.fromkeys((0, 1), Snapshot(NOW_MS - 2 * DAY_MS, 9))}
    assert World(copies=Copies(snapshots)).found() == [Situation.SNAPSHOT_TOO_OLD]


def test_a_fact_that_was_not_read_gives_no_risk_and_no_figure() -> None:
    world = World(
        partition=PARTITION._replace(start=None, end=None, bytes=None), unread=(Unread("x", "bytes", "refused"),)
    )
    report = world.report()
    assert report.risks == ()
    (found,) = report.surveyed
    assert (found.bytes, found.records, found.kafka_streams_s) == (None, None, None)
    assert not report.complete
    assert "refused" in page(report)
    assert page(report).count("not read") >= 4


def test_a_reassignment_keeps_the_replicas_and_adds_others_in_turn() -> None:
    world = World(partition=PARTITION._replace(replicas=(2,), in_sync=(2,)), settings={"min.insync.replicas": "1"})
    (risk,) = world.report().risks
    text = risk.advice.command.partition("'")[2].partition("'")[0]
    replicas = [found["replicas"] for found in json.loads(text)["partitions"]]
    assert replicas == [[2, 1, 3], [2, 3, 1]]


def test_names_are_shown_as_text_on_the_page() -> None:
    report = World(topic="<b>-totals-changelog").report()
    assert "<b>-totals" not in page(report)
    assert "&lt;b&gt;-totals" in page(report)


@pytest.mark.parametrize(
    ("ids", "owner", "certain"),
    [
        ((), "orders-v2", False),
        (("orders-0_1",), "orders", True),
        (("orders-v2-0_1",), "orders-v2", True),
        (("orders-0_1", "orders-v2-0_1"), "orders-v2", False),
    ],
)
def test_a_transactional_id_decides_between_two_owners(ids: tuple[str, ...], owner: str, certain: bool) -> None:
    topic = "orders-v2-totals-changelog"
    groups = {name: GROUP._replace(name=name) for name in ("orders", "orders-v2")}
    found = owners([topic], groups, [], lambda _: {topic: ids})[topic]
    assert (found.application, found.certain) == (owner, certain)


def test_the_longest_name_comes_first_and_a_store_has_a_name() -> None:
    assert list(prefixes("a-b-c-changelog")) == ["a-b", "a"]
    assert list(prefixes("a-changelog")) == []
    assert list(prefixes("a-b-changelog-2")) == ["a"]


def test_a_group_is_in_the_partition_that_kafka_computes() -> None:
    # Java: Utils.abs("orders-v2".hashCode()) % 50
    assert partition_of("a", 50) == 97 % 50
    assert partition_of("polygenelubricants", 50) == 0  # its hash is the smallest number of 32 bits


def test_own_rates_replace_those_of_the_benchmark() -> None:
    own = with_own(DEFAULT, 100, None)
    assert own.kafka_streams.seconds(1_000, 0) == 10
    assert own.statestore == DEFAULT.statestore
    assert "Kafka Streams" in own.measured
    assert with_own(DEFAULT, None, None) is DEFAULT
