"""ksqlDB's protocol on a real broker: its order, what aborts, what is tried again, and what the log decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from statestore.errors import (
    CommitOutcomeUnknownError,
    FencedError,
    InputError,
    InvalidCommandError,
    MetastoreContendedError,
    OpenTransactionError,
    RetryError,
)
from statestore.kafka.client import translate
from statestore.kafka.cluster import Cluster
from statestore.kafka.writer import TransactionalWriter
from statestore.metastore import protocol
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.command_log import CommandLog
from statestore.metastore.commands import Command
from statestore.metastore.metastore import Make, Metastore
from statestore.metastore.protocol import CommandWriter, jittered_pause_s
from tests.faults.own_broker import OwnBroker
from tests.integration import broker
from tests.integration.commands import Service, application, at, drop, drop_store, names, put, put_if_absent, rows

CAUGHT_UP, SENT = "command writer caught up", "command sent, not committed"
UNKNOWN = "outcome of a commit unknown"
STEPS = ("init", "begin", "produce", "flush", "commit", "abort", "close")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What producers of this process are told to do, all the same."""
    taken: list[str] = []

    def noted(step: str) -> Callable[..., object]:
        do = getattr(TransactionalWriter, step)

        def note_and_do(writer: TransactionalWriter, *arguments: object) -> object:
            taken.append(step)
            return do(writer, *arguments)

        return note_and_do

    for step in STEPS:
        monkeypatch.setattr(TransactionalWriter, step, noted(step))
    return taken


@pytest.mark.behaviour("C2")
def test_c2_the_steps_come_in_ksqldbs_order(
    service: Service, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service.submit(put("flights"))
    steps.clear()
    catch_up = CommandLog.catch_up
    monkeypatch.setattr(CommandLog, "catch_up", lambda *given: (steps.append("catch up"), catch_up(*given))[1])

    def make(_: Catalogue) -> Command:
        steps.append("validate")
        return application("weather")

    service.submit(make)
    expected = "validate, init, begin, catch up, validate, produce, flush, commit, close"
    assert steps == expected.split(", ")


@pytest.mark.behaviour("C4")
def test_c4_catching_up_for_too_long_aborts_and_writes_nothing(service: Service, steps: list[str]) -> None:
    service.submit(put("flights"))
    hanging = broker.transaction(service.servers, service.topic, [(b"k", b"v")], end="open")
    before = service.log
    steps.clear()
    with pytest.raises(OpenTransactionError, match="a transaction has been open"):
        service.metastore(timeout_s=6).submit(put("weather"))
    assert steps == ["init", "begin", "abort", "close"]
    assert service.log == before
    hanging.abort_transaction(10)
    assert service.ids() == [1]
    assert service.submit(put("weather")).attempts == 1


@pytest.mark.behaviour("C5")
@pytest.mark.parametrize(
    ("make", "meanwhile"),
    [
        pytest.param(drop_store("flights", "latest"), drop("flights"), id="its application is dropped"),
        pytest.param(put("a-b", "c"), put("a", "b-c"), id="its changelog topic is taken"),
    ],
)
def test_c5_a_command_that_is_invalid_after_catching_up_aborts_and_nothing_is_visible(
    service: Service, steps: list[str], monkeypatch: pytest.MonkeyPatch, make: Make, meanwhile: Make
) -> None:
    service.submit(put("flights", "counts", "latest"))
    other = service.metastore()
    with (
        at(monkeypatch, "command made, nobody fenced", lambda: (other.submit(meanwhile), steps.clear())),
        pytest.raises(InvalidCommandError),
    ):
        service.submit(make)
    assert steps == ["init", "begin", "abort", "close"]
    assert service.ids() == [1, 2]
    assert service.log.last_stable == service.log.high_watermark == 4  # two records and their markers


@pytest.mark.behaviour("C5")
def test_c5_a_maker_that_fails_after_catching_up_aborts_too(service: Service, steps: list[str]) -> None:
    def make(_: Catalogue) -> Command:
        if "begin" in steps:
            raise ZeroDivisionError
        return application("flights")

    with pytest.raises(ZeroDivisionError):
        service.submit(make)
    assert steps == ["init", "begin", "abort", "close"]
    assert service.logged() == []


@pytest.mark.behaviour("C7")
@pytest.mark.parametrize("point", [CAUGHT_UP, SENT])
def test_c7_a_writer_that_is_fenced_closes_without_abort_and_tries_again(
    service: Service, steps: list[str], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    service.submit(put("flights"))
    other = service.metastore(turns=False)

    def come_between() -> None:
        before = len(steps)
        other.submit(put("weather"))
        del steps[before:]

    steps.clear()
    with at(monkeypatch, point, come_between):
        done = service.submit(put("airports"))
    assert done.attempts == 2
    assert done.command.id == 3
    assert "abort" not in steps
    assert steps.count("close") >= steps.count("init") >= 2
    assert [names(done.view.catalogue), service.ids()] == [["airports", "flights", "weather"], [1, 2, 3]]


@pytest.mark.long
@pytest.mark.behaviour("C7")
def test_c7_a_writer_that_is_always_fenced_gives_up_at_a_bound(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.submit(put("flights"))
    monkeypatch.setattr(protocol, "_MOST_ATTEMPTS", 4)
    pauses: list[int] = []

    def no_pause(attempt: int) -> float:
        pauses.append(attempt)
        return 0.0

    log = CommandLog(Cluster(service.servers, 20), service.service_id, None)
    writer = CommandWriter(log, lambda: _writer(service), 20, no_pause)
    with (
        at(monkeypatch, SENT, lambda: _writer(service).init(), times=4),
        pytest.raises(MetastoreContendedError, match="wrote first 4 times"),
    ):
        writer.submit(put("weather"))
    assert pauses == [1, 2, 3]
    assert service.ids() == [1]


@pytest.mark.behaviour("C7")
def test_c7_no_attempt_is_begun_after_the_deadline(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CommandLog(Cluster(service.servers, 20), service.service_id, None)
    writer = CommandWriter(log, lambda: _writer(service), 0)
    with at(monkeypatch, SENT, lambda: _writer(service).init()), pytest.raises(MetastoreContendedError):
        writer.submit(put("weather"))
    assert service.ids() == []


@pytest.mark.behaviour("C7")
def test_c7_pauses_grow_and_are_never_the_same() -> None:
    drawn = {attempt: [jittered_pause_s(attempt) for _ in range(200)] for attempt in (1, 3, 20)}
    assert max(drawn[1]) <= 0.05 < max(drawn[3]) <= 0.2 < max(drawn[20]) <= 2.0
    assert all(len(set(pauses)) > 190 and min(pauses) >= 0 for pauses in drawn.values())


@pytest.mark.short_for("45-init", "29-flush", "53-commit")
@pytest.mark.behaviour("C7")
@pytest.mark.parametrize("step", ["init", "flush", "commit"])
@pytest.mark.parametrize(
    "code",
    [
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ],
)
def test_c7_out_of_order_and_missing_permissions_are_tried_again_without_abort(
    service: Service, steps: list[str], monkeypatch: pytest.MonkeyPatch, step: str, code: int
) -> None:
    service.submit(put("flights"))
    steps.clear()
    do = getattr(TransactionalWriter, step)
    errors = [translate(KafkaError(code), "in a test")]  # what librdkafka reports of a broker that says so

    def refuse_once(writer: TransactionalWriter) -> object:
        if errors:
            steps.append(step)
            raise errors.pop()
        return do(writer)

    monkeypatch.setattr(TransactionalWriter, step, refuse_once)
    done = service.submit(put("weather"))
    assert done.attempts == 2
    assert "abort" not in steps
    assert steps.count("close") >= steps.count("init") >= 2
    assert service.ids() == [1, 2]


def _writer(service: Service) -> TransactionalWriter:
    return TransactionalWriter(Cluster(service.servers, 20), f"statestore-metastore-{service.service_id}")


# -- commits without an answer -----------------------------------------------------------------------------------------


@pytest.mark.behaviour("C8")
def test_c8_a_commit_that_was_not_answered_is_found_in_the_log(
    own_broker: OwnBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(own_broker.servers, tmp_path)
    service.submit(put("flights"))
    metastore = service.metastore(timeout_s=5)
    try:
        with at(monkeypatch, SENT, own_broker.pause), at(monkeypatch, UNKNOWN, own_broker.resume):
            done = metastore.submit(put("weather"))
    finally:
        own_broker.resume()
    assert (done.attempts, names(done.view.catalogue)) == (1, ["flights", "weather"])
    assert service.ids() == [1, 2]
    assert service.logged()[-1].offset == done.offset


@pytest.mark.long
@pytest.mark.behaviour("C8")
def test_c8_a_commit_that_never_arrived_is_settled_as_not_in_the_log(
    own_broker: OwnBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(own_broker.servers, tmp_path)
    service.submit(put("flights"))
    metastore = service.metastore(timeout_s=15)

    def kill_and_start() -> None:
        own_broker.kill()  # with what it had not read
        own_broker.start()

    try:
        with (
            at(monkeypatch, SENT, own_broker.pause),
            at(monkeypatch, UNKNOWN, kill_and_start),
            pytest.raises(RetryError, match="is not in the log") as caught,
        ):
            metastore.submit(put("weather"))
    finally:
        own_broker.resume()
    assert not isinstance(caught.value, CommitOutcomeUnknownError)
    assert service.ids() == [1]
    assert names(service.metastore().require_running().catalogue) == ["flights"]


@pytest.mark.behaviour("C8")
def test_c8_what_is_not_in_the_log_is_tried_again_while_there_is_time(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.submit(put("flights"))
    commit = TransactionalWriter.commit

    def lose_it(_: TransactionalWriter) -> None:
        monkeypatch.setattr(TransactionalWriter, "commit", commit)
        raise CommitOutcomeUnknownError("the connection broke before the request was sent")

    monkeypatch.setattr(TransactionalWriter, "commit", lose_it)
    assert service.submit(put("weather")).attempts == 2
    assert service.ids() == [1, 2]


@pytest.mark.behaviour("C8")
def test_c8_a_fence_that_answers_a_commit_which_did_happen_is_no_failure(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.submit(put("flights"))
    commit = TransactionalWriter.commit

    def answer_lost_and_fenced(writer: TransactionalWriter) -> None:
        monkeypatch.setattr(TransactionalWriter, "commit", commit)
        commit(writer)
        _writer(service).init()
        raise FencedError("librdkafka asked again, after another writer's init")

    monkeypatch.setattr(TransactionalWriter, "commit", answer_lost_and_fenced)
    assert service.submit(put("weather")).attempts == 1
    assert service.ids() == [1, 2]


@pytest.mark.behaviour("C8")
def test_c8_while_nobody_can_be_asked_the_outcome_is_unknown_and_not_a_failure(
    own_broker: OwnBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(own_broker.servers, tmp_path)
    service.submit(put("flights"))
    metastore = service.metastore(timeout_s=3)
    try:
        with (
            at(monkeypatch, SENT, own_broker.pause),
            pytest.raises(CommitOutcomeUnknownError, match="`statestore history`"),
        ):
            metastore.submit(put("weather"))
    finally:
        own_broker.resume()
    # It had arrived; who comes next sees it and goes on from there.
    assert service.submit(put_if_absent("weather")).command is None
    assert service.ids() == [1, 2]


# -- several writers ---------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("C9")
def test_c9_of_writers_at_once_one_commits_for_each_prefix_and_none_is_lost(service: Service) -> None:
    service.submit(put("flights"))
    acknowledged: list[tuple[int, int]] = []
    failed: list[BaseException] = []

    def write(number: int) -> None:
        metastore = service.metastore(timeout_s=60, turns=False)
        try:
            for at_ in range(6):
                done = metastore.submit(put(f"writer-{number}-{at_}"))
                assert done.offset is not None
                acknowledged.append((done.command.id, done.offset))
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=[number]) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failed == []
    logged = service.logged()
    ids = service.ids()
    assert ids == list(range(1, 20))  # one for each prefix
    assert sorted(acknowledged) == list(zip(ids, (record.offset for record in logged), strict=True))[1:]


@pytest.mark.behaviour("C10")
@pytest.mark.parametrize("point", ["command made, nobody fenced", "command writer initialized"])
def test_c10_if_not_exists_is_asked_again_after_catching_up(
    service: Service, steps: list[str], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    service.submit(put("flights"))
    other = service.metastore(turns=False)
    with at(monkeypatch, point, lambda: (other.submit(put("weather")), steps.clear())):
        done = service.submit(put_if_absent("weather"))
    assert (done.command, done.offset) == (None, None)
    assert names(done.view.catalogue) == ["flights", "weather"]
    assert "produce" not in steps
    assert service.ids() == [1, 2]
    assert service.log.last_stable == service.log.high_watermark == 4  # two records and their markers


@pytest.mark.behaviour("C16")
def test_c16_requests_that_are_invalid_never_fence_a_healthy_writer(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.submit(put("flights"))
    refused: list[InputError] = []

    def ask_for_nonsense() -> None:
        only_store = drop_store("flights", "counts")
        for make in (drop("no-such-application"), drop_store("flights", "no-such-store"), only_store):
            with pytest.raises(InputError) as caught:
                service.submit(make)
            refused.append(caught.value)
        assert service.submit(put_if_absent("flights")).command is None
        service.metastore().view()
        service.metastore().history()

    with at(monkeypatch, SENT, ask_for_nonsense):
        done = service.submit(put("weather"))
    assert len(refused) == 3
    assert done.attempts == 1  # nobody has fenced it
    assert service.ids() == [1, 2]


@pytest.mark.long
def test_a_writer_that_was_killed_in_a_transaction_holds_nobody_up(service: Service) -> None:
    service.submit(put("flights"))
    left = _writer(service)
    left.init()
    left.begin()
    key, value = rows(application("left"), next_id=2)[0]
    left.produce(service.topic, key, value, 1_700_000_000_000, 0)
    left.flush()
    began = time.monotonic()
    assert names(service.metastore().view().catalogue) == ["flights"]
    assert service.submit(put("weather")).attempts == 1
    assert time.monotonic() - began < 60  # the transaction would be open for longer
    assert names(service.metastore().view().catalogue) == ["flights", "weather"]


@pytest.mark.long
def test_a_command_that_is_too_large_for_the_topic_is_refused_and_named(service: Service) -> None:
    metastore: Metastore = service.metastore()
    metastore.submit(put("flights"))
    broker.set_topic_config(service.servers, service.topic, max_message_bytes="1000")
    with pytest.raises(InputError, match=r"max\.message\.bytes"):
        metastore.submit(put("weather", *(f"store-{number:04}" for number in range(400))))
    assert service.ids() == [1]
    assert metastore.submit(put("weather")).attempts == 1
