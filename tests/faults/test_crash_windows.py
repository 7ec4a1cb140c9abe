"""The crash windows W1 to W7 of KIP-844 under exactly once, with transactional and other stores of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.definitions.fields import Engine
from statestore.reports import ProcessRow
from tests.engines import ENGINES, each_engine, each_engine_on_disk
from tests.faults import oracle
from tests.faults.children import Kill
from tests.faults.hooks import to_disk
from tests.faults.made import STORES, processor_subject, rebuilt
from tests.faults.own_broker import OwnBroker
from tests.faults.subject import Subject

#: Of two points in one window, the second is left to `make faults`; so are all engines but one.
LONG = pytest.mark.long
_FIRST, _SECOND = 30, 20


def _killed(subject: Subject, kill: Kill, *, big: bool = False) -> ProcessRow:
    """Run once in full, kill the second run, and return what the third did."""
    subject.begin(processed=_FIRST, waiting=_SECOND, big=big)
    subject.child(kill=kill, hooks=[to_disk]).killed()
    (row,) = subject.run()
    return row


def _assert_processed_anew(subject: Subject, row: ProcessRow, engine: Engine) -> None:
    assert row.records_in > 0
    kept = ENGINES[engine]
    assert rebuilt(row) == (set(STORES) if kept.on_disk and not kept.transactional else set())
    if kept.transactional:
        assert row.restored == 0  # staged writes are lost, committed rows are intact
    oracle.check(subject)


@LONG
@pytest.mark.behaviour("W1", "T11")
@each_engine
@pytest.mark.parametrize("point", ["during produce", pytest.param("before produce", marks=LONG)])
def test_w1_killed_while_processing(bootstrap_servers: str, tmp_path: Path, engine: Engine, point: str) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path, engine)
    _assert_processed_anew(subject, _killed(subject, Kill(point, 11)), engine)


@pytest.mark.short_for("kill0")
@pytest.mark.behaviour("W1")
@pytest.mark.parametrize(
    "kill", [Kill("before produce", 2), Kill("transactions initialized"), pytest.param(Kill("recovered"), marks=LONG)]
)
def test_w1_killed_before_anything_was_ever_logged(bootstrap_servers: str, tmp_path: Path, kill: Kill) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path, "rocksDB")
    subject.produce(_FIRST)
    subject.child(kill=kill, hooks=[to_disk]).killed()
    (row,) = subject.run()
    assert rebuilt(row)
    oracle.check(subject)


@pytest.mark.behaviour("W2", "T11")
@each_engine
@pytest.mark.parametrize(
    "point", ["flushed, not committed", pytest.param("flushed, input offsets not sent", marks=LONG)]
)
def test_w2_killed_after_the_flush(bootstrap_servers: str, tmp_path: Path, engine: Engine, point: str) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path, engine)
    _assert_processed_anew(subject, _killed(subject, Kill(point)), engine)


@pytest.mark.long  # a broker is started twice
@pytest.mark.share
@pytest.mark.behaviour("W3")
def test_w3_killed_with_the_commit_sent_and_aborted(own_broker: OwnBroker, tmp_path: Path) -> None:
    others: dict[str, Engine] = {"latest": "rocksDB", "visits": "rocksDB"}
    subject = processor_subject(own_broker.servers, tmp_path, others=others)
    subject.begin(processed=_FIRST, waiting=_SECOND)
    child = subject.child(pause=Kill("flushed, not committed"))
    try:
        child.paused()
        own_broker.pause()
        unread = own_broker.unread_bytes()
        child.wake()
        own_broker.wait_for_a_request(unread)
    finally:
        child.end()
    own_broker.kill()  # with the request unread; the next producer aborts the transaction
    own_broker.start()
    (row,) = subject.run()
    assert row.records_in > 0
    assert rebuilt(row) == set(others)
    assert {figures.store for figures in row.stores if figures.restored} == set(others)
    oracle.check(subject)


@pytest.mark.behaviour("W4", "T11")
@each_engine
def test_w4_killed_with_kafka_committed_and_the_stores_not(
    bootstrap_servers: str, tmp_path: Path, engine: Engine
) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path, engine)
    row = _killed(subject, Kill("Kafka committed, stores not"))
    assert row.records_in == 0
    assert row.restored > 0
    kept = ENGINES[engine]
    assert rebuilt(row) == (set(STORES) if kept.on_disk and not kept.transactional else set())
    oracle.check(subject)


@pytest.mark.behaviour("W5")
@each_engine_on_disk
@pytest.mark.parametrize("point", ["store committed", pytest.param("segment committed", marks=LONG)])
def test_w5_killed_while_the_stores_commit(bootstrap_servers: str, tmp_path: Path, engine: Engine, point: str) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path, engine)
    row = _killed(subject, Kill(point))
    assert row.records_in == 0
    assert row.restored > 0
    oracle.check(subject)


@pytest.mark.long
@pytest.mark.behaviour("W5")
def test_w5_killed_between_the_chunks_of_a_spilled_commit(bootstrap_servers: str, tmp_path: Path) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path, uncommitted_max_bytes=1_024)
    row = _killed(subject, Kill("chunk of a spilled commit written"), big=True)
    assert row.restored > 0
    oracle.check(subject)


@pytest.mark.behaviour("W6")
@each_engine_on_disk
@pytest.mark.parametrize(
    "point", ["store recorded, not sealed", pytest.param("stores closed, nothing recorded", marks=LONG)]
)
def test_w6_killed_before_anything_is_recorded_of_stores(
    bootstrap_servers: str, tmp_path: Path, engine: Engine, point: str
) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path, engine)
    row = _killed(subject, Kill(point))
    assert (row.records_in, row.restored, rebuilt(row)) == (0, 0, set())
    oracle.check(subject)


@pytest.mark.behaviour("W7")
@each_engine_on_disk
def test_w7_killed_after_all(bootstrap_servers: str, tmp_path: Path, engine: Engine) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path, engine)
    row = _killed(subject, Kill("store recorded, not sealed", len(STORES)))
    assert (row.records_in, row.restored, rebuilt(row)) == (0, 0, set())
    oracle.check(subject)
