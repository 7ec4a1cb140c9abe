"""Deep verification of a log that changes while it is read: nobody is told of a difference that is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from statestore.formats.timestamped_value import encode
from statestore.kafka.topics import LogRange, Topics
from statestore.model import TopicPartition
from statestore.reports import Action, Status
from statestore.verification import check
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration import broker
from tests.integration.broker import T0, Row, consume
from tests.integration.compaction import EAGER, overtake
from tests.integration.support import Application
from tests.integration.test_verify_deep import change_behind_its_log

INPUT: list[Row] = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]
DELETED = {"cleanup_policy": "compact,delete"}


@pytest.fixture
def compacted(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application that has processed some input, with a log that may be compacted at any time."""
    broker.make_compaction_eager(bootstrap_servers)
    application = Application(bootstrap_servers, tmp_path, changelog_config=EAGER)
    application.process(INPUT)
    return application


def after_each_answer(monkeypatch: pytest.MonkeyPatch, times: int, act: Callable[[], None]) -> list[int]:
    """Act right after each of the first answers where logs begin and end; the list gets a number for each."""
    original, done = Topics.log_ranges, list[int]()

    def log_ranges(topics: Topics, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogRange]:
        found = original(topics, partitions)
        if len(done) < times:
            done.append(len(done))
            act()
        return found

    monkeypatch.setattr(Topics, "log_ranges", log_ranges)
    return done


def before_comparing(monkeypatch: pytest.MonkeyPatch, act: Callable[[LogRange], None]) -> None:
    """Act between the question where the log begins and ends, and reading it."""
    original = check.compare_contents

    def compare(spec: Any, committed: int, log: LogRange, *others: Any) -> Any:
        act(log)
        return original(spec, committed, log, *others)

    monkeypatch.setattr(check, "compare_contents", compare)


def test_a_record_that_is_compacted_away_once_the_end_was_asked_for_is_not_judged(
    compacted: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_comparing(monkeypatch, lambda _: overtake(compacted.servers, compacted.changelog, b"a"))
    row = compacted.verify("deep")
    assert (row.contents.equal, row.contents.not_judged, row.contents.differing) == (2, 1, 0)
    assert (row.status, row.action) == (Status.OK, Action.NONE)


@pytest.mark.long
def test_a_record_that_overtook_another_and_is_compacted_away_itself_leaves_its_key_unjudged(
    compacted: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = after_each_answer(monkeypatch, 4, lambda: overtake(compacted.servers, compacted.changelog, b"a"))
    row = compacted.verify("deep")
    assert len(answers) == 4
    assert (row.status, row.contents.not_judged, row.contents.differing) == (Status.OK, 1, 0)


def test_a_row_that_differs_is_found_while_other_keys_are_compacted_away(
    compacted: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_behind_its_log(compacted, {b"b": encode(b"older", T0)})
    before_comparing(monkeypatch, lambda _: overtake(compacted.servers, compacted.changelog, b"a"))
    row = compacted.verify("deep")
    assert (row.status, [told.key for told in row.contents.first]) == (Status.DIVERGED, [b"b".hex()])


@pytest.mark.long
def test_records_behind_what_an_application_has_processed_of_its_input_may_have_overtaken_others(
    compacted: Application,
) -> None:
    spec = compacted.store_spec()
    assert spec.changelog is not None
    consumer = Consumer({"bootstrap.servers": compacted.servers, "group.id": compacted.name})
    _, processed = consume(compacted.servers, compacted.changelog)
    consumer.commit(offsets=[KafkaTopicPartition(compacted.changelog, 0, processed)], asynchronous=False)
    consumer.close()
    overtake(compacted.servers, compacted.changelog, b"a")
    source = spec.changelog.model_copy(update={"end_group": compacted.name})
    row = verify(spec.model_copy(update={"changelog": source}), VerifyOptions("deep"))
    assert (row.status, row.end, row.contents.not_judged) == (Status.OK, processed, 1)


@pytest.mark.long
def test_a_log_whose_start_moves_each_time_it_was_asked_for_is_compared_in_the_end(
    compacted: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.set_topic_config(compacted.servers, compacted.changelog, **DELETED)

    def delete(log: LogRange) -> None:
        if log.start < 2:
            broker.delete_records(compacted.servers, compacted.changelog, log.start + 1)

    before_comparing(monkeypatch, delete)
    row = compacted.verify("deep")
    assert (row.status, row.contents.equal, row.contents.not_judged) == (Status.OK, 1, 2)


@pytest.mark.long
def test_a_store_whose_log_never_stays_is_for_later(compacted: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.set_topic_config(compacted.servers, compacted.changelog, **DELETED)
    before_comparing(
        monkeypatch, lambda log: broker.delete_records(compacted.servers, compacted.changelog, log.start + 1)
    )
    row = compacted.verify("deep")
    assert (row.status, row.action, row.contents) == (Status.LOCKED, Action.LATER, None)
    assert "the log's start moved during each of 3 attempts" in row.detail


def test_a_store_whose_log_loses_what_it_has_not_seen_meanwhile_is_truncated(
    compacted: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.set_topic_config(compacted.servers, compacted.changelog, **DELETED)
    broker.produce(compacted.servers, compacted.changelog, [(b"d", b"1"), (b"e", b"1")])
    _, end = consume(compacted.servers, compacted.changelog)
    before_comparing(monkeypatch, lambda _: broker.delete_records(compacted.servers, compacted.changelog, end - 1))
    row = compacted.verify("deep")
    assert (row.status, row.action, row.start) == (Status.TRUNCATED, Action.BY_HAND, end - 1)
