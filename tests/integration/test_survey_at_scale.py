"""What a survey costs: requests, seconds, and memory, as the cluster grows."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from statestore.clock import now_ms
from statestore.formats.commit_metadata import CommitMetadata, encode
from statestore.kafka.admin_requests import Brokers, Versions
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, commit_offsets
from statestore.model import TopicPartition
from statestore.survey.copies import Copies
from statestore.survey.gathering import gather, read_cluster
from statestore.survey.idle_groups import read_idle_since
from statestore.survey.page import page
from statestore.survey.survey import SurveyRequest, report_of, survey
from tests.integration.broker import WAIT_S, produce, unique, wait_for

STREAMS = encode(CommitMetadata(partition_time=5))
COMPACT = {"cleanup.policy": "compact"}


def create(servers: str, application: str, stores: int, partitions: int) -> None:
    """Create an application that has committed, with empty changelogs and one with a record."""
    admin = AdminClient({"bootstrap.servers": servers})
    names = [f"{application}-store{number}-changelog" for number in range(stores)]
    topics = [NewTopic(name, partitions, 1, config=COMPACT) for name in names]
    for created in admin.create_topics([*topics, NewTopic(f"{application}.input", partitions, 1)]).values():
        created.result(WAIT_S)

    def led() -> bool:
        found = admin.list_topics(timeout=WAIT_S).topics
        partitions_of = [found[name].partitions if name in found else {} for name in names]
        return all(len(one) == partitions and all(each.leader > 0 for each in one.values()) for one in partitions_of)

    wait_for(led, f"the topics of {application}")
    logs = [TopicPartition(name, number) for name in names for number in range(partitions)]
    assert len(Cluster(servers, WAIT_S).topics.log_ranges(logs)) == len(logs)
    produce(servers, names[0], [(b"k", b"v")])
    commit_offsets(Cluster(servers), application, {TopicPartition(f"{application}.input", 0): GroupOffset(0, STREAMS)})


def test_the_number_of_requests_does_not_depend_on_topics_and_partitions(bootstrap_servers: str) -> None:
    create(bootstrap_servers, unique("small"), 1, 1)
    before = survey(SurveyRequest(Cluster(bootstrap_servers, 60)))
    name = unique("large")
    create(bootstrap_servers, name, 3, 7)
    after = survey(SurveyRequest(Cluster(bootstrap_servers, 60)))
    # Twelve kinds of requests, and one that asks for the versions of the broker.
    assert before.requests == after.requests <= 13 * after.brokers
    (found,) = (each for each in after.surveyed if each.name == name)
    assert (len(found.stores), found.partitions, found.records) == (3, 21, 1)
    assert found.bytes > 0


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_5000_real_partitions_take_less_than_15_s(bootstrap_servers: str) -> None:
    for _ in range(10):
        create(bootstrap_servers, unique("real"), 10, 50)
    before = time.monotonic()
    report = survey(SurveyRequest(Cluster(bootstrap_servers, 60)))
    took = time.monotonic() - before
    assert sum(found.partitions for found in report.surveyed) >= 5_000
    assert report.unread == ()
    assert took < 15


class ManyAnswers:
    """Answers as three brokers give them about many applications, through the bytes of each answer.

    Each has the fields that brokers set; the other tests of the survey have real brokers.
    """

    cluster_id = "many"
    addresses: ClassVar[dict[int, tuple[str, int]]] = {1: ("a", 1), 2: ("b", 1), 3: ("c", 1)}

    def __init__(self, applications: int, stores: int, partitions: int) -> None:
        self.requests = 0
        self.partitions = partitions
        self.groups = [f"application{number:03}" for number in range(applications)]
        self.topics = [f"{name}-store{number}-changelog" for name in self.groups for number in range(stores)]

    def ask_any(self, request: Any, versions: Versions) -> Any:
        return self._answer(1, request, versions)

    def ask_each(self, requests: Mapping[int, Any], versions: Versions) -> dict[int, Any]:
        return {node: self._answer(node, request, versions) for node, request in requests.items()}

    def newer_groups(self, kind: str, names: Mapping[int, list[str]]) -> dict[int, Any]:
        assert not names
        return {}

    def _answer(self, node: int, request: Any, versions: Versions) -> Any:
        self.requests += 1
        answer = getattr(self, type(request).__name__)(node, request)
        return type(answer).decode(answer.encode(version=versions.most), version=versions.most)

    def MetadataRequest(self, _: int, __: Any) -> Any:
        from kafka.protocol.metadata import MetadataResponse as Answer

        topic, broker = Answer.MetadataResponseTopic, Answer.MetadataResponseBroker
        partition = topic.MetadataResponsePartition
        brokers = [broker(node_id=node, host=at[0], port=at[1], rack=None) for node, at in self.addresses.items()]

        def described(name: str) -> Any:
            found = [
                partition(error_code=0, partition_index=number, leader_id=1 + number % 3, leader_epoch=0,
                          replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3], offline_replicas=[])
                for number in range(self.partitions)
            ]  # fmt: skip
            return topic(error_code=0, name=name, topic_id=uuid4(), is_internal=False, partitions=found)

        return Answer(brokers=brokers, cluster_id="many", controller_id=1, topics=[*map(described, self.topics)])

    def DescribeConfigsRequest(self, _: int, request: Any) -> Any:
        from kafka.protocol.admin import DescribeConfigsResponse as Answer

        form = Answer.DescribeConfigsResult
        config = form.DescribeConfigsResourceResult
        values = {"cleanup.policy": "compact", "min.insync.replicas": "2", "delete.retention.ms": "86400000"}

        def result(asked: Any) -> Any:
            found = [
                config(name=key, value=values.get(key, "0"), read_only=False, config_source=1, is_sensitive=False,
                       synonyms=[], config_type=2, documentation=None)
                for key in asked.configuration_keys
            ]  # fmt: skip
            name, kind = asked.resource_name, asked.resource_type
            return form(error_code=0, error_message="", resource_type=kind, resource_name=name, configs=found)

        return Answer(results=[result(asked) for asked in request.resources])

    def DescribeLogDirsRequest(self, _: int, request: Any) -> Any:
        from kafka.protocol.admin import DescribeLogDirsResponse as Answer

        form = Answer.DescribeLogDirsResult
        topic = form.DescribeLogDirsTopic
        one = topic.DescribeLogDirsPartition
        found = [
            topic(
                name=asked.topic,
                partitions=[
                    one(partition_index=number, partition_size=10**9, offset_lag=0, is_future_key=False)
                    for number in asked.partitions
                ],
            )
            for asked in request.topics
        ]
        return Answer(error_code=0, results=[form(error_code=0, log_dir="/d", topics=found)])

    def ListOffsetsRequest(self, _: int, request: Any) -> Any:
        from kafka.protocol.consumer.offsets import ListOffsetsResponse as Answer

        form = Answer.ListOffsetsTopicResponse
        one = form.ListOffsetsPartitionResponse
        found = [
            form(
                name=asked.name,
                partitions=[
                    one(partition_index=each.partition_index, error_code=0, timestamp=-1,
                        offset=0 if each.timestamp == -2 else 1_000_000, leader_epoch=0)
                    for each in asked.partitions
                ],
            )
            for asked in request.topics
        ]  # fmt: skip
        return Answer(topics=found)

    def ListGroupsRequest(self, node: int, _: Any) -> Any:
        from kafka.protocol.admin import ListGroupsResponse as Answer

        form = Answer.ListedGroup
        of_node = self.groups[node - 1 :: 3]
        return Answer(
            error_code=0,
            groups=[form(group_id=name, protocol_type="consumer", group_state="Stable", group_type="classic")
                    for name in of_node],
        )  # fmt: skip

    def FindCoordinatorRequest(self, _: int, request: Any) -> Any:
        from kafka.protocol.metadata import FindCoordinatorResponse as Answer

        form = Answer.Coordinator
        return Answer(
            coordinators=[
                form(key=key, node_id=1, host="a", port=1, error_code=0, error_message=None)
                for key in request.coordinator_keys
            ]
        )

    def DescribeGroupsRequest(self, _: int, request: Any) -> Any:
        from kafka.protocol.admin import DescribeGroupsResponse as Answer

        form = Answer.DescribedGroup
        member = form.DescribedGroupMember
        members = [
            member(member_id="m", group_instance_id=None, client_id="c", client_host="/h", member_metadata=b"",
                   member_assignment=b"")
            for _ in range(4)
        ]  # fmt: skip
        return Answer(
            groups=[
                form(error_code=0, group_id=name, group_state="Stable", protocol_type="consumer",
                     protocol_data="stream", members=members)
                for name in request.groups
            ]
        )  # fmt: skip

    def OffsetFetchRequest(self, _: int, request: Any) -> Any:
        from kafka.protocol.consumer import OffsetFetchResponse as Answer

        form = Answer.OffsetFetchResponseGroup
        topic = form.OffsetFetchResponseTopics
        one = topic.OffsetFetchResponsePartitions
        return Answer(
            groups=[
                form(
                    group_id=asked.group_id,
                    error_code=0,
                    topics=[
                        topic(
                            name=f"{asked.group_id}.input",
                            partitions=[
                                one(partition_index=number, committed_offset=5, committed_leader_epoch=0,
                                    metadata=STREAMS, error_code=0)
                                for number in range(self.partitions)
                            ],
                        )
                    ],
                )
                for asked in request.groups
            ]
        )  # fmt: skip


def survey_many() -> tuple[int, int, float, int]:
    """Return applications, partitions, seconds, and the peak of memory in bytes of a survey, its page included."""
    before = time.monotonic()
    answers = ManyAnswers(500, 10, 10)
    facts = gather(answers, "a:1", lambda *_: {})
    report = report_of(facts, Copies(snapshots={}, verified={}), SurveyRequest(Cluster("a:1")), now_ms(), lambda _: {})
    assert len(report.risks) == 2 * 5_000  # no snapshot, never verified
    assert report.unread == ()
    assert len(report.model_dump_json()) < len(page(report)) * 10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return len(report.surveyed), sum(found.partitions for found in report.surveyed), time.monotonic() - before, peak


@pytest.mark.long
def test_50000_partitions_of_500_applications_take_a_minute_and_500_mb() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        applications, partitions, seconds, peak = pool.submit(survey_many).result()
    assert (applications, partitions) == (500, 50_000)
    assert seconds < 60
    assert peak < 500 * 1024 * 1024


def test_a_broker_that_does_not_answer_is_named_and_its_facts_are_not_read(bootstrap_servers: str) -> None:
    name = unique("half")
    create(bootstrap_servers, name, 1, 2)
    with Brokers(Cluster(bootstrap_servers, 60)) as brokers:
        brokers.addresses[99] = ("127.0.0.1", 1)
        facts = gather(brokers, bootstrap_servers, partial(read_idle_since, Cluster(bootstrap_servers, 60)))
    assert {(each.subject, each.fact) for each in facts.unread} == {
        ("broker 99", "settings"),
        ("broker 99", "its groups"),
    }
    assert facts.topics[f"{name}-store0-changelog"].offsets == 1
    cluster = Cluster(bootstrap_servers, 60)
    assert read_cluster(cluster, partial(read_idle_since, cluster)).unread == ()
