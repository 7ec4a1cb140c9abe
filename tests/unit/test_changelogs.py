"""Where the log of a store ends whose changelog is the application's own input, and what a topic's settings tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import store_partition

from statestore.definitions.store import StoreDefinition
from statestore.discovery import changelogs
from statestore.discovery.changelogs import changelog_spec, is_input, log_ranges, processed
from statestore.errors import InputOffsetError
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset
from statestore.kafka.topics import LogRange, Topic
from statestore.model import TaskId, TopicPartition
from statestore.partition.spec import ChangelogSpec

INPUT = TopicPartition("orders", 1)
LOG = LogRange(3, 10, 12)
CHANGELOG = ChangelogSpec(topic="orders", topic_id="id", delete_retention_ms=1, partitions=2, end_group="app")
SPEC = store_partition(task=TaskId(0, 1), store=StoreDefinition(name="by-id"), changelog=CHANGELOG)


class Where:
    cluster = Cluster("nowhere:9092", 1)
    state_dir = Path("/state")


class Logs:
    def log_ranges(self, partitions):
        return dict.fromkeys(partitions, LOG)


@pytest.fixture
def group(monkeypatch):
    """Committed offsets of the application's group, by partition."""
    offsets = {}

    class Group:
        def __init__(self, cluster, name):
            assert (cluster.servers, name) == ("nowhere:9092", "app")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def committed(self, partition):
            return offsets.get(partition)

    monkeypatch.setattr(changelogs, "ConsumerGroup", Group)
    return offsets


def test_an_input_ends_where_the_group_is(group):
    group[INPUT] = GroupOffset(7)
    assert log_ranges(Logs(), [SPEC]) == {INPUT: LogRange(3, 7, 12)}


@pytest.mark.parametrize(("next_offset", "end"), [(0, 3), (3, 3), (7, 7), (10, 10), (11, 10)])
def test_the_end_of_an_input_lies_within_its_log(next_offset, end):
    assert processed(SPEC, INPUT, LOG, next_offset) == LogRange(3, end, 12)


def test_records_that_nobody_knows_to_be_processed_are_no_empty_log(group):
    with pytest.raises(InputOffsetError, match=r"group app has no committed offset .* add --changelog by-id=orders"):
        log_ranges(Logs(), [SPEC])


@pytest.mark.parametrize("log", [LogRange(0, 0, 0), LogRange(5, 5, 5), LogRange(5, 5, 9)])
def test_an_input_without_records_needs_no_offset(log):
    assert processed(SPEC, INPUT, log, None) == log


def test_a_topic_that_the_group_has_an_offset_for_is_an_input(group):
    assert not is_input(Where(), "app", CHANGELOG)
    group[INPUT] = GroupOffset(0)
    assert is_input(Where(), "app", CHANGELOG)


@pytest.mark.parametrize(
    ("config", "compacted"),
    [
        ({"cleanup.policy": "delete"}, False),
        ({"cleanup.policy": "compact"}, True),
        ({"cleanup.policy": "compact,delete"}, True),
        ({}, True),
    ],
)
def test_the_cleanup_policy_tells_whether_deletes_may_be_gone(config, compacted):
    assert changelog_spec(Topic("orders", "id", 2), config).compacted is compacted


@pytest.mark.parametrize(("setting", "found"), [("CreateTime", False), ("LogAppendTime", True)])
def test_a_topics_settings_tell_whose_the_timestamps_are(setting, found):
    assert changelog_spec(Topic("orders", "id", 2), {"message.timestamp.type": setting}).log_append_time is found
