"""Headers in the changelog of a store that no definition names: a restore refuses to lose them, wherever they are.

Stores of Kafka Streams that keep headers log them. Whoever traces an application may have added them, too: to records
that the store has taken in, and still it has no column family for headers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.selection import PartitionSelection, Where, choose
from statestore.cli.verification import rows_without_work
from statestore.errors import UnknownFormatError
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, commit_offsets
from statestore.model import TopicPartition, changelog_topic
from statestore.partition.spec import ChangelogSpec
from statestore.recovery import tail
from statestore.reports import RestoreRow, Status
from statestore.statedir.seal import break_seal
from statestore.stores.open import open_key_value_store
from statestore.tasks import ValueAndTimestamp
from tests.integration.broker import T0, WAIT_S, create_topic, produce, unique
from tests.integration.restored import restored_here
from tests.integration.support import STORE, Application

KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}
TRACE = [("traceparent", b"00-4bf9-01")]
DESCRIBED = f"{STORE}:kind=key-value,format=timestamped,subtopology=0"


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application that has processed some input in both of its tasks."""
    made = Application(bootstrap_servers, tmp_path, partitions=2, changelog_config=KEPT)
    for partition in range(2):
        made.send([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], partition)
        assert made.run(partition).failure is None
    return made


def log(servers: str, topic: str, headers: Iterable[tuple[str, bytes]], partition: int = 0) -> int:
    """Log one record, and return its offset."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(
        topic,
        b"traced",
        b"a",
        partition=partition,
        timestamp=T0,
        headers=list(headers),
        on_delivery=lambda error, message: offsets.append(-1 if error else message.offset()),
    )
    assert producer.flush(WAIT_S) == 0
    return offsets[0]


def restored(servers: str, state_dir: Path, name: str, *stores: str, mode: str = "auto") -> Sequence[RestoreRow]:
    """Restore what there is of an application by its directory and topics alone."""
    topics = Cluster(servers, WAIT_S).topics
    chosen = choose(
        PartitionSelection(Where(Cluster(servers, WAIT_S), state_dir), applications=[name], stores=stores), topics
    )
    return restored_here(stores_to_restore(chosen, topics, kafka_streams="4.3.1"), unique("test"), mode=mode)


def failures(rows: Iterable[RestoreRow]) -> dict[str, str | None]:
    return {row.task: row.failure and row.failure.kind for row in rows}


def take_in(application: Application, partition: int, offset: int) -> None:
    """Have the store apply a record of its changelog, as Kafka Streams does for one that keeps no headers."""
    spec = application.store_spec(partition)
    break_seal(spec.paths, STORE)
    store = open_key_value_store(spec.store, spec.live)
    store.put(b"a", ValueAndTimestamp(b"traced", T0))
    store.commit({spec.partition: offset})
    store.close()


@pytest.mark.parametrize("least", [1 << 60, pytest.param(1, marks=pytest.mark.long)], ids=["replayed", "sorted"])
def test_headers_behind_what_a_store_has_are_not_lost_in_a_tail(
    application: Application, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(tail, "LEAST_SORTED", least)
    before = application.contents()
    log(application.servers, application.changelog, [("v", b"\0"), ("c", b"\0")])
    log(application.servers, application.changelog, TRACE)
    rows = restored(application.servers, application.state_dir, application.name)
    assert failures(rows) == {"0_0": UnknownFormatError.__name__, "0_1": None}
    [message] = [row.failure.message for row in rows if row.failure]
    assert f"{application.changelog}-0 has records with the header 'traceparent'" in message
    assert f"add --store {STORE}:format=headers; otherwise leave it to Kafka Streams" in message
    assert application.contents() == before


@pytest.mark.long
def test_positions_in_headers_are_no_sign(application: Application) -> None:
    log(application.servers, application.changelog, [("v", b"\0"), ("c", b"\0")])
    rows = restored(application.servers, application.state_dir, application.name)
    assert failures(rows) == {"0_0": None, "0_1": None}
    assert application.contents()[b"a"].value == b"traced"


@pytest.mark.short_for("full")
@pytest.mark.parametrize("mode", ["auto", "full"])
def test_headers_that_a_store_has_taken_in_and_not_kept_are_somebody_elses(application: Application, mode: str) -> None:
    for partition in range(2):
        take_in(application, partition, log(application.servers, application.changelog, TRACE, partition))
        log(application.servers, application.changelog, TRACE, partition)
    shutil.rmtree(application.store_spec(1).live)
    rows = restored(application.servers, application.state_dir, application.name, mode=mode)
    assert failures(rows) == {"0_0": None, "0_1": None}
    for partition in range(2):
        assert application.contents(partition)[b"a"].value == b"traced"


def test_a_definition_says_that_headers_are_not_kept(application: Application) -> None:
    log(application.servers, application.changelog, TRACE)
    assert application.restore().mode == "tail"


@pytest.mark.parametrize("header", [TRACE, [("v", b"\3")]], ids=["with headers", "suppressed"])
def test_a_header_anywhere_in_the_log_of_a_described_store_stops_its_restore(
    bootstrap_servers: str, tmp_path: Path, header: list[tuple[str, bytes]]
) -> None:
    name = unique("app")
    topic = create_topic(bootstrap_servers, changelog_topic(name, STORE), 1, KEPT)
    many = [(b"%d" % number, b"v") for number in range(500)]
    produce(bootstrap_servers, topic, many)
    assert log(bootstrap_servers, topic, header) == 500
    produce(bootstrap_servers, topic, many)
    for mode in ("auto", "full"):
        rows = restored(bootstrap_servers, tmp_path, name, DESCRIBED, mode=mode)
        assert failures(rows) == {"0_0": UnknownFormatError.__name__}
        assert "It was described as kind=key-value, format=timestamped." in rows[0].failure.message
    assert not list((tmp_path / name).glob("0_0/**/CURRENT"))


@pytest.mark.parametrize("at", ["start", "end"])
def test_a_header_at_an_end_of_the_log_of_a_described_store_is_seen_by_verification(
    bootstrap_servers: str, tmp_path: Path, at: str
) -> None:
    name = unique("app")
    topic = create_topic(bootstrap_servers, changelog_topic(name, STORE), 6, KEPT)
    many = [(b"%d" % number, b"v") for number in range(500)]
    for partition in range(6):
        produce(bootstrap_servers, topic, many[:1] if partition else [], partition)
    if at == "start":
        log(bootstrap_servers, topic, TRACE, 3)
    produce(bootstrap_servers, topic, many, 3)
    if at == "end":
        log(bootstrap_servers, topic, TRACE, 3)
    topics = Cluster(bootstrap_servers, WAIT_S).topics
    asked = PartitionSelection(
        Where(Cluster(bootstrap_servers, WAIT_S), tmp_path), applications=[name], stores=[DESCRIBED]
    )
    rows = rows_without_work(choose(asked, topics), topics)
    assert [(row.task, row.status) for row in rows] == [(f"0_{number}", Status.UNKNOWN_FORMAT) for number in range(6)]
    assert f"Topic {topic} has records with the header 'traceparent'" in rows[0].detail


@pytest.mark.long
def test_headers_of_an_input_say_nothing_of_the_store_that_it_fills(application: Application) -> None:
    found = application.store_spec(owned=False)
    assert found.logs_no_headers
    changelogs: list[ChangelogSpec | None] = [None, found.changelog.model_copy(update={"end_group": application.name})]
    for changelog in changelogs:
        assert not found.model_copy(update={"changelog": changelog}).logs_no_headers
    assert not application.store_spec().logs_no_headers


def test_headers_of_an_input_go_before_what_is_said_of_a_store_that_has_no_directory(application: Application) -> None:
    servers = application.servers
    topic = create_topic(servers, unique("input"), 2, {"cleanup.policy": "compact"})
    log(servers, topic, TRACE)
    commit_offsets(Cluster(servers), application.name, {TopicPartition(topic, 0): GroupOffset(1)})
    topics = Cluster(servers, WAIT_S).topics
    asked = PartitionSelection(
        Where(Cluster(servers, WAIT_S), application.state_dir),
        applications=[application.name],
        stores=["table:kind=key-value,format=timestamped,subtopology=0"],
        changelogs=[f"table={topic}"],
    )
    chosen = choose(asked, topics)
    rows = rows_without_work(chosen, topics)
    assert {row.status for row in rows} == {Status.UNKNOWN_FORMAT}
    assert "records with the header 'traceparent'" in rows[0].detail
    with pytest.raises(UnknownFormatError, match="traceparent"):
        stores_to_restore(chosen, topics, kafka_streams="4.3.1")
