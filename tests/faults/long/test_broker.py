"""A broker that pauses, restarts or is gone in every phase of a task, and transactions that end without it or hang."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from statestore import kill_switch
from statestore.kafka.cluster import Cluster
from statestore.kafka.writer import TransactionalWriter
from statestore.model import TopicPartition, changelog_topic
from statestore.tasks.spec import TaskSpec
from tests.faults import oracle
from tests.faults.children import Child, Hook, Kill
from tests.faults.made import aggregation_subject, processor_subject
from tests.faults.own_broker import OwnBroker
from tests.faults.subject import Subject
from tests.integration.broker import WAIT_S, settle, transaction, wait_for

PHASES = {
    "recover": Kill("transactions initialized"),
    "produce": Kill("during produce", 11),
    "input offsets": Kill("flushed, input offsets not sent"),
    "commit": Kill("flushed, not committed"),
    "between commit and stores": Kill("Kafka committed, stores not"),
}
#: As long as brokers allow: what hangs does so until the test ends it.
_HUNG_MS = 900_000
_PHASE = pytest.mark.parametrize("phase", PHASES)


def _impatient_once_woken(specs: Sequence[TaskSpec], directory: Path) -> None:
    """In a child: wait 10 s for Kafka after the pause; before it as long as a busy machine takes."""
    init, reached = TransactionalWriter.__init__, kill_switch.reached
    writers: list[TransactionalWriter] = []

    def remembered(self: TransactionalWriter, *arguments: Any) -> None:
        init(self, *arguments)
        writers.append(self)

    def then_impatient(point: str) -> None:
        reached(point)
        if (directory / "mark").exists():
            for writer in writers:
                writer._cluster = writer._cluster.within(10)
            for spec in specs:
                spec.__dict__["cluster"] = spec.cluster.within(10)

    TransactionalWriter.__init__ = remembered  # type: ignore[method-assign]
    kill_switch.reached = then_impatient


def _paused(broker: OwnBroker, directory: Path, phase: str, *hooks: Hook) -> tuple[Subject, Child]:
    """A task that has stopped itself in a phase of its second run, with several commits still to come."""
    subject = processor_subject(broker.servers, directory, uncommitted_max_bytes=1_024)
    subject.begin(waiting=40)
    child = subject.child(pause=PHASES[phase], hooks=hooks)
    child.paused()
    return subject, child


def _settled(subject: Subject, phase: str) -> None:
    """Wait until a commit that was answered is written in all partitions.

    A broker that is killed before may skip them when it starts: with part of its metadata read it takes topics that are
    seconds old for deleted, and the transaction hangs.
    """
    if phase == "between commit and stores":
        settle(subject.servers, *subject.written)


@pytest.mark.share_for("commit", why="one phase; the commit is the one whose answer counts most")
@_PHASE
def test_a_broker_that_pauses_for_less_than_the_deadline_is_waited_for(
    paused_broker: OwnBroker, tmp_path: Path, phase: str
) -> None:
    subject, child = _paused(paused_broker, tmp_path, phase)
    try:
        paused_broker.pause()
        unread = paused_broker.unread_bytes()
        child.wake()
        paused_broker.wait_for_a_request(unread)
        paused_broker.resume()
        (row,) = child.rows()
    finally:
        paused_broker.resume()
        child.end()
    assert row.failure is None
    subject.run()
    oracle.check(subject)


@pytest.mark.share_for("produce", why="one phase, another one")
@_PHASE
def test_a_broker_that_pauses_for_longer_ends_the_run_and_the_next_one_completes_it(
    paused_broker: OwnBroker, tmp_path: Path, phase: str
) -> None:
    subject, child = _paused(paused_broker, tmp_path, phase, _impatient_once_woken)
    try:
        paused_broker.pause()
        child.wake()
        (row,) = child.rows()
    finally:
        paused_broker.resume()
        child.end()
    assert row.failure.retriable, row.failure
    subject.run()
    oracle.check(subject)


@pytest.mark.share_for("killed-commit", why="one phase, and the harder end")
@_PHASE
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_a_broker_that_is_restarted_loses_nothing(own_broker: OwnBroker, tmp_path: Path, phase: str, end: str) -> None:
    subject, child = _paused(own_broker, tmp_path, phase)
    try:
        _settled(subject, phase)
        (own_broker.stop if end == "stopped" else own_broker.kill)()
        own_broker.start()
        child.wake()
        (row,) = child.rows()
    finally:
        child.end()
    assert row.failure is None or row.failure.retriable, row.failure
    subject.run()
    oracle.check(subject)


@_PHASE
def test_a_broker_that_is_gone_for_longer_than_the_deadline_ends_the_run(
    own_broker: OwnBroker, tmp_path: Path, phase: str
) -> None:
    subject, child = _paused(own_broker, tmp_path, phase, _impatient_once_woken)
    try:
        _settled(subject, phase)
        own_broker.kill()
        child.wake()
        (row,) = child.rows()
    finally:
        child.end()
        own_broker.start()
    assert row.failure.retriable, row.failure
    subject.run()
    oracle.check(subject)


# -- transactions that end, or do not, without us ---------------------------------------------------------------------


def _impatient(specs: Sequence[TaskSpec], directory: Path) -> None:
    """In a child: have the broker abort transactions after a minute, in which one is flushed on a busy machine, too."""
    init = TransactionalWriter.__init__

    def with_timeout(self: TransactionalWriter, *arguments: object) -> None:
        cluster, name, _, max_batch_bytes = arguments
        init(self, cluster, name, 60_000, max_batch_bytes)  # type: ignore[arg-type]

    TransactionalWriter.__init__ = with_timeout  # type: ignore[method-assign]


@pytest.mark.share_for("processor", why="one kind of application")
@pytest.mark.parametrize("kind", ["processor", "aggregations"])
def test_a_transaction_that_the_broker_aborts_for_its_age_leaves_nothing(
    own_broker: OwnBroker, tmp_path: Path, kind: str
) -> None:
    make = processor_subject if kind == "processor" else aggregation_subject
    subject = make(own_broker.servers, tmp_path)
    subject.begin()
    changelog = TopicPartition(changelog_topic(subject.name, "counts"), 0)
    topics = Cluster(own_broker.servers, WAIT_S).topics
    before = topics.log_ranges([changelog])[changelog]
    child = subject.child(pause=Kill("flushed, not committed"), hooks=[_impatient])
    try:
        child.paused()

        def aborted() -> bool:
            log = topics.log_ranges([changelog])[changelog]
            return log.high_watermark > before.high_watermark and log.last_stable == log.high_watermark

        wait_for(aborted, "the broker to abort the transaction", 60 + WAIT_S)
        child.wake()
        (row,) = child.rows()
    finally:
        child.end()
    assert (row.failure.kind, row.failure.retriable) == ("TransactionTimedOutError", True)
    assert (row.commits, row.records_in) == (0, 0)
    subject.run()
    oracle.check(subject)


def test_a_transaction_that_hangs_on_a_changelog_is_reported_and_not_waited_for_forever(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    subject = processor_subject(own_broker.servers, tmp_path)
    subject.produce(20)
    subject.run()
    hung = transaction(
        own_broker.servers,
        changelog_topic(subject.name, "counts"),
        [(b"foreign", b"1")],
        end="open",
        timeout_ms=_HUNG_MS,
    )
    subject.produce(20)
    child = subject.child(pause=Kill("transactions initialized"), hooks=[_impatient_once_woken])
    try:
        child.paused()
        child.wake()
        (row,) = child.rows()
    finally:
        child.end()
    assert (row.failure.kind, row.failure.retriable) == ("OpenTransactionError", True)
    assert "producer id" in row.failure.message
    hung.abort_transaction(WAIT_S)
    subject.run()
    oracle.check(subject)


def test_a_transaction_that_hangs_on_the_input_holds_back_what_comes_after_it(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    subject = processor_subject(own_broker.servers, tmp_path)
    subject.produce(20)
    hung = transaction(
        own_broker.servers, subject.definition.input_topic, [(b"foreign", b"1")], end="open", timeout_ms=_HUNG_MS
    )
    rows = subject.run()
    processed = sum(row.records_in for row in rows)
    assert processed > 0
    hung.abort_transaction(WAIT_S)
    subject.produce(20)
    subject.run()
    oracle.check(subject)
