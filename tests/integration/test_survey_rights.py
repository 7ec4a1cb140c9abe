"""A survey by a user who may not see everything names what it could not read, and why; with the rights it reads all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from demo.processes import Processes
from statestore.formats.commit_metadata import CommitMetadata, encode
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, commit_offsets
from statestore.model import TopicPartition
from statestore.reports import SurveyReport
from statestore.survey.survey import SurveyRequest, survey
from tests.integration.broker import WAIT_S, create_topic, produce, wait_for
from tests.integration.secured_broker import USER, SecuredBroker, configured

CLUSTER = (ResourceType.BROKER, "kafka-cluster")
TOPICS, GROUPS = (ResourceType.TOPIC, "*"), (ResourceType.GROUP, "*")
OFFSETS = (ResourceType.TOPIC, "__consumer_offsets")
LOG = "shop-totals-changelog"


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_each_missing_right_is_named_and_no_risk_follows_from_it(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        secured = SecuredBroker(
            processes,
            tmp_path,
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users="User:ANONYMOUS",
        )
        servers = secured.plain_servers
        create_topic(servers, LOG, 2, {"cleanup.policy": "compact"})
        read = create_topic(servers, "orders", 2)
        produce(servers, LOG, [(b"k", b"v")])
        metadata = encode(CommitMetadata(partition_time=5))
        commit_offsets(Cluster(servers), "shop", {TopicPartition(read, 0): GroupOffset(0, metadata)})
        admin = AdminClient({"bootstrap.servers": servers})

        def allow(place: tuple[ResourceType, str], right: AclOperation) -> None:
            (future,) = admin.create_acls([acl(place, right)]).values()
            future.result(WAIT_S)

        def surveyed() -> SurveyReport:
            with configured(tmp_path / "client.json", secured.configuration()) as addresses:
                return survey(SurveyRequest(Cluster(addresses, WAIT_S)))

        assert surveyed().surveyed == ()
        allow(TOPICS, AclOperation.DESCRIBE)
        wait_for(lambda: surveyed().surveyed, "the topics")
        report = surveyed()
        found = {each.fact: each.why for each in report.unread}
        assert "DESCRIBE_CONFIGS on the topic" in found["settings"] or "on the cluster" in found["settings"]
        assert "DESCRIBE on the cluster" in found["bytes on broker 1"]
        assert "DESCRIBE on the group" in found["whether they exist"]
        assert {risk.advice.situation for risk in report.risks} == {"cluster has one broker"}
        allow(GROUPS, AclOperation.DESCRIBE)
        wait_for(lambda: surveyed().applications == ("shop",), "the group")
        assert "READ on topic __consumer_offsets" in json.dumps([each.why for each in surveyed().unread])
        for place, right in (
            (TOPICS, AclOperation.DESCRIBE_CONFIGS),
            (CLUSTER, AclOperation.DESCRIBE),
            (CLUSTER, AclOperation.DESCRIBE_CONFIGS),
            (OFFSETS, AclOperation.READ),
        ):
            allow(place, right)
        wait_for(lambda: not surveyed().unread, "all rights")


def acl(place: tuple[ResourceType, str], right: AclOperation) -> AclBinding:
    """Return a right of the user of a secured broker."""
    return AclBinding(*place, ResourcePatternType.LITERAL, f"User:{USER}", "*", right, AclPermissionType.ALLOW)
