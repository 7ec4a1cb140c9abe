"""Members of groups of the consumer protocol (KIP-848), which the request for classic groups does not show."""

from __future__ import annotations

import pytest

from statestore.errors import InputError
from statestore.kafka.admin_requests import Brokers
from statestore.kafka.cluster import Cluster
from statestore.survey.facts import GroupFacts
from statestore.survey.gathering import gather
from tests.integration.broker import create_topic, member_of, unique


def surveyed(servers: str, group: str) -> GroupFacts:
    with Brokers(Cluster(servers, 60)) as brokers:
        return gather(brokers, servers, lambda *_: {}).groups[group]


@pytest.mark.short_for("dynamic")
@pytest.mark.parametrize("instance", [{}, {"group_instance_id": "one"}], ids=["dynamic", "static"])
def test_a_survey_describes_a_group_and_its_members(bootstrap_servers: str, instance: dict[str, str]) -> None:
    group = unique("shop")
    read = create_topic(bootstrap_servers, f"{group}-in", 2)
    create_topic(bootstrap_servers, f"{group}-totals-changelog", 2, {"cleanup.policy": "compact"})
    with member_of(bootstrap_servers, group, read, group_protocol="consumer", **instance):
        found = surveyed(bootstrap_servers, group)
    assert (found.type, found.state, found.protocol) == ("consumer", "Stable", "uniform")
    assert found.static_members == len(instance)
    assert found.members == ("somebody-else on /127.0.0.1",)
    assert found.reads == {read}


def test_nothing_is_processed_while_a_group_has_members(bootstrap_servers: str) -> None:
    group, topics = unique("shop"), Cluster(bootstrap_servers, 60).topics
    read = create_topic(bootstrap_servers, f"{group}-in")
    with (
        member_of(bootstrap_servers, group, read, group_protocol="consumer"),
        pytest.raises(InputError, match="active members: somebody-else on /127"),
    ):
        topics.require_no_members(group)
    topics.require_no_members(group)
