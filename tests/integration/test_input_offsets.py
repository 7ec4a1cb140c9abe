"""An application rests for longer than Kafka keeps its group's offsets, and continues where it was.

Here the group is deleted, which loses what an expiry loses. `tests/faults/long/test_months_of_silence.py` lets offsets
expire on a broker that keeps them for a minute.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statestore import clock
from statestore.changelog import brokers_clock
from statestore.changelog.input_offsets import input_offsets
from statestore.changelog.topic_settings import OFFSETS_CONFIG
from statestore.formats import commit_metadata
from statestore.formats.commit_metadata import CommitMetadata
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import ConsumerGroup, GroupOffset, commit_offsets, committed_offsets
from statestore.model import TopicPartition, input_offsets_topic
from statestore.tasks.offset_refresh import REFRESH_MS, refresh_offsets
from tests.integration import broker, dying
from tests.integration.broker import T0, Row, consume, group_offset
from tests.integration.silence import GUARANTEES, SILENCES, Silence
from tests.integration.support import Application

INPUT: list[Row] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")]
LATER: list[Row] = [(b"b", b"2"), (b"c", b"1")]


def _committed(application: Application) -> tuple[int, CommitMetadata]:
    with ConsumerGroup(Cluster(application.servers), application.name) as group:
        found = group.committed(TopicPartition(application.input, 0))
    assert found is not None
    return found.next_offset, commit_metadata.decode(found.metadata)


def _refresh(application: Application) -> int:
    return refresh_offsets(Cluster(application.servers, 60).topics, application.definition)


# -- silence ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("kind", SILENCES)
@pytest.mark.behaviour("R17")
def test_r17_after_months_of_silence_nothing_is_sent_or_counted_twice_and_no_closed_window_opens(
    bootstrap_servers: str, tmp_path: Path, kind: type[Silence], guarantee: str
) -> None:
    silence = kind(bootstrap_servers, tmp_path, guarantee)
    silence.before()
    silence.application.forget_group()
    silence.after()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_was_committed_before_a_crash_is_not_processed_again_when_the_groups_offset_is_gone(
    bootstrap_servers: str, tmp_path: Path, guarantee: str
) -> None:
    application = Application(bootstrap_servers, tmp_path, processing_guarantee=guarantee)
    application.process(INPUT)
    application.send(LATER, timestamp=T0 + 100)
    dying.die_in(application.task_spec(), "Kafka committed, stores not")
    application.forget_group()
    assert application.process().records_in == 0
    application.process(INPUT, T0 + 200)
    application.assert_oracle()


def test_at_least_once_an_offset_that_only_its_topic_has_counts(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    application.process(INPUT)
    application.send(LATER, timestamp=T0 + 100)
    dying.die_in(application.task_spec(), "input offset kept, not committed")
    assert group_offset(application.servers, application.name, application.input) == len(INPUT)
    assert application.process().records_in == 0
    application.assert_oracle()


def test_an_application_from_before_there_was_a_topic_of_offsets_continues_and_records_its_offset(
    application: Application,
) -> None:
    application.process(INPUT)
    old, metadata = _committed(application)
    topic = input_offsets_topic(application.name)
    broker.delete_topic(application.servers, topic)
    broker.create_topic(application.servers, topic, 1, OFFSETS_CONFIG)
    where = TopicPartition(application.input, 0)
    text = commit_metadata.encode(metadata._replace(stamp=None))
    commit_offsets(Cluster(application.servers), application.name, {where: GroupOffset(old, text)})
    assert application.process().commits == 1
    application.forget_group()
    application.process(LATER, T0 + 100)
    application.assert_oracle()


# -- decisions of people ------------------------------------------------------------------------------------------


def test_an_offset_that_was_set_with_kafkas_tools_wins_and_is_reported_once(application: Application) -> None:
    application.process(INPUT)
    application.set_group_offset(2)
    row = application.process()
    assert (row.records_in, row.moved_from) == (1, 3)
    assert "would have been 3" in row.remarks
    row = application.process(LATER, T0 + 100)
    assert (row.records_in, row.moved_from) == (2, None)


def test_an_offset_that_was_set_to_the_end_of_the_input_lasts_when_it_has_expired(application: Application) -> None:
    application.process(INPUT)
    application.send(LATER, timestamp=T0 + 100)
    application.set_group_offset(5)
    row = application.run()
    assert (row.failure, row.records_in, row.moved_from) == (None, 0, 3)
    application.forget_group()
    assert application.process([(b"d", b"1")], T0 + 200).records_in == 1
    assert set(application.contents()) == {b"a", b"b", b"d"}


def test_time_does_not_go_back_when_an_offset_is_set(bootstrap_servers: str, tmp_path: Path) -> None:
    (kind,) = (kind for kind in SILENCES if kind.__name__ == "ClosedWindow")
    silence = kind(bootstrap_servers, tmp_path, "exactly_once_v2")
    silence.before()
    application = silence.application
    application.set_group_offset(group_offset(bootstrap_servers, application.name, application.input))
    silence.after()


def test_an_input_that_was_made_anew_is_for_a_person_to_continue(application: Application) -> None:
    topics = Cluster(application.servers, 60).topics
    application.send(INPUT)
    before = topics.require(application.input).topic_id
    assert application.run(input_id=before).failure is None
    broker.delete_topic(application.servers, application.input)
    broker.create_topic(application.servers, application.input)
    application.send([*INPUT, *LATER])
    assert input_offsets(topics, application.name, [application.input]) == {}
    after = topics.require(application.input).topic_id
    failure = application.failure("InputOffsetError", input_id=after)
    assert f"expected the topic id {before}, found {after}" in failure.evidence
    application.set_group_offset(3)
    row = application.run(input_id=after)
    assert (row.failure, row.records_in, row.moved_from) == (None, 2, None)


def _recreate(application: Application, rows: list[Row]) -> str:
    """Delete the input topic, create it again with other records, and return its id."""
    broker.delete_topic(application.servers, application.input)
    broker.create_topic(application.servers, application.input)
    application.send(rows)
    return Cluster(application.servers, 60).topics.require(application.input).topic_id


@pytest.mark.short_for("the record and the group's offset-not run")
@pytest.mark.parametrize("between", ["not run", "refused", "set by a person"])
@pytest.mark.parametrize("left", ["the record", "the record and the group's offset", "the stores' positions"])
def test_no_offset_of_a_former_input_is_used_after_it_was_recreated_twice(
    application: Application, between: str, left: str
) -> None:
    topics, where = Cluster(application.servers, 60).topics, TopicPartition(application.input, 0)
    application.send(INPUT)
    assert application.run(input_id=topics.require(application.input).topic_id).failure is None
    committed = committed_offsets(Cluster(application.servers, 60), application.name)
    second = _recreate(application, [*INPUT, *LATER])
    if between == "refused":
        application.fails("InputOffsetError", input_id=second)
    if between == "set by a person":
        application.set_group_offset(5)
        assert application.run(input_id=second).records_in == 0
        committed = committed_offsets(Cluster(application.servers, 60), application.name)
    third = _recreate(application, [*INPUT, *INPUT, *LATER])
    if left == "the record and the group's offset":  # a coordinator that was not there may not notice a deletion
        commit_offsets(Cluster(application.servers, 60), application.name, committed)
    if left == "the stores' positions":
        offsets = input_offsets_topic(application.name)
        broker.delete_topic(application.servers, offsets)
        broker.create_topic(application.servers, offsets, 1, OFFSETS_CONFIG)
    assert input_offsets(topics, application.name, [application.input]) == {}
    assert _refresh(application) == 0
    for resume in (False, True):
        said = application.fails("InputOffsetError", input_id=third, resume_from_position=resume)
        assert "The input topic was recreated" in said
    application.set_group_offset(6)
    row = application.run(input_id=third)
    assert (row.failure, row.records_in) == (None, 2)
    assert input_offsets(topics, application.name, [application.input])[where].next_offset == 8


@pytest.mark.short_for("1")
@pytest.mark.parametrize("records", [0, 1])
def test_positions_of_stores_in_a_former_input_are_not_resumed_from(application: Application, records: int) -> None:
    application.send(INPUT)
    assert (
        application.run(input_id=Cluster(application.servers, 60).topics.require(application.input).topic_id).failure
        is None
    )
    second = _recreate(application, [(b"a", b"1")][:records])
    application.set_group_offset(0)
    assert application.run(input_id=second).records_in == records
    application.send([*INPUT, *LATER])
    application.forget_group()
    if not records:
        said = application.fails("InputOffsetError", input_id=second, resume_from_position=True)
        assert "the stores do not show it" in said
        return
    row = application.run(input_id=second, resume_from_position=True)
    assert (row.failure, row.records_in) == (None, 5)


def test_a_record_that_cannot_be_read_stops_a_task_that_needs_it(application: Application) -> None:
    application.process(INPUT)
    topic = input_offsets_topic(application.name)
    broker.produce(application.servers, topic, [(f"{application.input}-0".encode(), b'{"version": 2}')])
    assert application.process(LATER, T0 + 100).records_in == 2  # the group has it
    broker.produce(application.servers, topic, [(f"{application.input}-0".encode(), b'{"version": 2}')])
    application.forget_group()
    assert topic in application.fails("LogCorruptedError")


# -- the group's offsets ------------------------------------------------------------------------------------------


def test_offsets_are_refreshed_when_they_are_a_day_old_and_restored_when_they_are_gone(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.process(INPUT)
    offset, metadata = _committed(application)
    assert _refresh(application) == 0
    now_ms = clock.now_ms()
    monkeypatch.setattr(brokers_clock, "now_ms", lambda _: now_ms + REFRESH_MS)
    assert _refresh(application) == 1
    assert _refresh(application) == 0
    assert _committed(application)[1]._replace(stamp=None) == metadata._replace(stamp=None)
    application.forget_group()
    assert _refresh(application) == 1
    assert _committed(application)[0] == offset
    assert _committed(application)[1].partition_time == metadata.partition_time


def test_a_task_whose_offset_was_refreshed_stays_idle(application: Application) -> None:
    application.process(INPUT)
    application.forget_group()
    _refresh(application)
    before = {path: path.stat().st_mtime_ns for path in application.state_dir.rglob("*")}
    assert application.run().input_offset == len(INPUT)
    assert {path: path.stat().st_mtime_ns for path in application.state_dir.rglob("*")} == before


def test_offsets_that_a_person_has_set_are_not_refreshed(application: Application) -> None:
    application.process(INPUT)
    application.set_group_offset(1)
    assert _refresh(application) == 0
    assert application.process().moved_from == 3


def test_a_refresh_that_a_commit_has_overtaken_does_not_take_a_task_back(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.process(INPUT)
    real, now_ms = commit_offsets, clock.now_ms()

    def late(*arguments: Any) -> None:
        application.process(LATER, T0 + 100)
        real(*arguments)

    monkeypatch.setattr("statestore.tasks.offset_refresh.commit_offsets", late)
    monkeypatch.setattr(brokers_clock, "now_ms", lambda _: now_ms + REFRESH_MS)
    assert _refresh(application) == 1
    monkeypatch.undo()
    assert group_offset(application.servers, application.name, application.input) == len(INPUT)
    application.process([(b"d", b"1")], T0 + 200)
    application.assert_oracle()


# -- the topic ----------------------------------------------------------------------------------------------------


def test_the_topic_has_what_a_consumer_needs_to_find_a_tasks_offset(application: Application) -> None:
    application.process(INPUT)
    topic = input_offsets_topic(application.name)
    broker.settle(application.servers, topic)
    (record,) = consume(application.servers, topic)[0]
    assert record.key == f"{application.input}-0".encode()
    assert record.value is not None
    assert b'"offset":3' in record.value


def test_a_record_that_lies_far_before_the_end_is_found(application: Application) -> None:
    application.process(INPUT)
    broker.produce(application.servers, input_offsets_topic(application.name), [(b"other", b"{}")] * 100)
    application.forget_group()
    assert application.process(LATER, T0 + 100).records_in == len(LATER)
    application.assert_oracle()
