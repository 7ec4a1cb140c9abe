"""RUNNING and DEGRADED on a real broker: what is damaged is noticed, reads work, writes are refused with the reason."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from statestore.errors import MetastoreDegradedError
from statestore.kafka.cluster import Cluster
from statestore.metastore.backup import BackupFile
from statestore.metastore.command_topic import CommandRecord
from statestore.metastore.commands import VERSION
from statestore.metastore.metastore import Health, View
from tests.faults.own_broker import OwnBroker, batch_at
from tests.integration import broker
from tests.integration.broker import Row, wait_for
from tests.integration.commands import Service, application, at, names, put, rows

pytestmark = pytest.mark.usefixtures("believed_soon", "two_applications")


def _assert_degraded(service: Service, reason: str, applications: list[str], *, backup: bool = True) -> View:
    """Reads give the catalogue that is known; writes are refused with the reason, and write nothing."""
    metastore = service.metastore(backup=backup)
    view = metastore.view()
    assert (view.health, names(view.catalogue)) == (Health.DEGRADED, applications)
    assert reason in view.reason
    before = service.backup.read_bytes() if service.backup.exists() else None
    for call in (lambda: metastore.submit(put("airports")), metastore.require_running, metastore.compact):
        with pytest.raises(MetastoreDegradedError) as caught:
            call()
        assert reason in str(caught.value)
    assert (service.backup.read_bytes() if service.backup.exists() else None) == before
    assert names(metastore.view(at=view.offset).catalogue) == applications
    assert metastore.pinned(view.pin).catalogue == view.catalogue
    return view


# -- commands that cannot be understood --------------------------------------------------------------------------------


def _newer(row: Row) -> Row:
    key, value = row
    assert value is not None
    return key, json.dumps(json.loads(value) | {"version": VERSION + 1, "unheard_of": True}).encode()


AIRPORTS = rows(application("airports"), next_id=3)[0]
BAD: dict[str, tuple[Row, str]] = {
    "newer": (_newer(AIRPORTS), f"version {VERSION + 1}"),
    "not JSON": ((AIRPORTS[0], b"{"), "not a command"),
    "no value": ((AIRPORTS[0], None), "no value"),
    "unknown field": ((AIRPORTS[0], AIRPORTS[1].replace(b'"kind"', b'"x":1,"kind"')), "not a command"),  # type: ignore[union-attr]
    "another key": ((b"application/others", AIRPORTS[1]), "its key is"),
    "no key": ((None, AIRPORTS[1]), "its key is"),
    "an id that was left out": (rows(application("airports"), next_id=4)[0], "expected 3"),
    "an id that was there": (rows(application("airports"), next_id=2)[0], "expected 3"),
}


@pytest.mark.short_for("True-newer")
@pytest.mark.behaviour("C13")
@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("transactional", [True, False])
def test_c13_the_commands_before_one_that_cannot_be_understood_are_applied_and_none_after_it(
    service: Service, kind: str, transactional: bool
) -> None:
    bad, reason = BAD[kind]
    before = service.metastore().view()
    if transactional:
        broker.transaction(service.servers, service.topic, [bad, AIRPORTS])
    else:
        broker.produce(service.servers, service.topic, [bad, AIRPORTS])
    view = _assert_degraded(service, reason, ["flights", "weather"])
    assert view.pin == before.pin
    history = service.metastore().history()
    assert [bool(entry.problem) for entry in history] == [False, False, True, True]
    assert reason in history[2].problem
    _assert_degraded(service, reason, ["flights", "weather"], backup=False)


@pytest.mark.behaviour("C13")
def test_c13_a_reader_that_has_seen_the_commands_before_stops_there_too(service: Service) -> None:
    metastore = service.metastore()
    assert metastore.view().health is Health.RUNNING
    broker.produce(service.servers, service.topic, [(b"k", b"v"), AIRPORTS])
    for _ in range(2):
        view = metastore.view()
        assert (view.health, names(view.catalogue)) == (Health.DEGRADED, ["flights", "weather"])
    with pytest.raises(MetastoreDegradedError):
        metastore.submit(put("airports"))


@pytest.mark.behaviour("C13")
def test_c13_a_writer_that_meets_one_while_catching_up_aborts(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_past_the_protocol() -> None:
        broker.produce(service.servers, service.topic, [(b"k", b"v")])

    with (
        at(monkeypatch, "command writer initialized", write_past_the_protocol),
        pytest.raises(MetastoreDegradedError, match="not a command"),
    ):
        service.submit(put("airports"))
    assert len(service.logged()) == 3


# -- a topic that is not what it was -----------------------------------------------------------------------------------


def _deleted(service: Service) -> None:
    broker.delete_topic(service.servers, service.topic)


def _recreated(service: Service) -> None:
    _deleted(service)
    broker.create_topic(service.servers, service.topic)


def _recreated_with_the_same_commands(service: Service) -> None:
    records = service.logged()
    _recreated(service)
    for record in records:
        broker.transaction(service.servers, service.topic, [(record.key, record.value)], timestamp=record.timestamp)


def _emptied(service: Service) -> None:
    broker.delete_records(service.servers, service.topic, 4)


def _shortened_at_its_start(service: Service) -> None:
    broker.delete_records(service.servers, service.topic, 2)


DAMAGE: dict[str, tuple[Callable[[Service], None], str]] = {
    "deleted": (_deleted, "is gone"),
    "recreated": (_recreated, "was deleted and created again"),
    "recreated with the same commands": (_recreated_with_the_same_commands, "was deleted and created again"),
    "emptied": (_emptied, "was emptied"),
    "shortened at its start": (_shortened_at_its_start, "is not a snapshot"),
}


@pytest.mark.short_for("seen before-deleted", "new reader-shortened at its start")
@pytest.mark.behaviour("C14")
@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("seen", [True, False], ids=["seen before", "new reader"])
def test_c14_a_topic_that_is_not_what_it_was_degrades_and_reads_have_the_backup(
    service: Service, kind: str, seen: bool
) -> None:
    damage, reason = DAMAGE[kind]
    metastore = service.metastore()
    before = metastore.view()
    damage(service)
    view = _assert_degraded(service, reason, ["flights", "weather"])
    assert view.pin == before.pin
    assert f"The backup is {service.backup}" in view.reason
    assert [entry.problem for entry in service.metastore().history()] == ["", ""]
    if seen:
        assert (metastore.view().health, metastore.view().pin) == (Health.DEGRADED, before.pin)
    there = Cluster(service.servers).topics.describe([service.topic])  # nothing was made anew
    assert [topic.topic_id for topic in there.values()] == ([] if kind == "deleted" else [view.topic_id])


@pytest.mark.short_for("emptied")
@pytest.mark.behaviour("C14")
@pytest.mark.parametrize("kind", ["emptied", "shortened at its start"])
def test_c14_without_a_backup_a_log_that_lost_its_start_degrades_and_nothing_is_guessed(
    service: Service, kind: str
) -> None:
    damage, reason = DAMAGE[kind]
    service.backup.unlink()
    damage(service)
    _assert_degraded(service, reason, [], backup=False)
    _assert_degraded(service, reason, [])
    assert not service.backup.exists()  # what is lost is not taken for what was


LOST = CommandRecord(6, 1_700_000_000_000, *AIRPORTS)
CHANGES: dict[str, tuple[Callable[[list[CommandRecord]], list[CommandRecord]], str, list[str]]] = {
    "a command more": (
        lambda had: [*had, LOST],
        "was shortened: it ends at offset 4",
        ["airports", "flights", "weather"],
    ),
    "another record": (
        lambda had: [had[0], CommandRecord(2, had[1].timestamp, *rows(application("airports"), next_id=2)[0])],
        "at offset 2 is not the one that the backup has",
        ["airports", "flights"],
    ),
    "a record elsewhere": (
        lambda had: [had[0], had[1]._replace(offset=1)],
        "has no record at offset 1",
        ["flights", "weather"],
    ),
}


@pytest.mark.long
@pytest.mark.behaviour("C14")
@pytest.mark.parametrize("kind", CHANGES)
def test_c14_a_log_that_is_not_the_one_in_the_backup_degrades(service: Service, kind: str) -> None:
    change, reason, applications = CHANGES[kind]
    file = BackupFile(service.backup, service.service_id)
    had = file.read_whole()
    with file.held():
        file.write(had.mark.topic_id, change(had.records))
    _assert_degraded(service, reason, applications)


@pytest.mark.long
@pytest.mark.behaviour("C14")
def test_c14_a_log_that_lost_its_end_on_the_brokers_disk_degrades(own_broker: OwnBroker, tmp_path: Path) -> None:
    service = Service(own_broker.servers, tmp_path)
    done = service.submit(put("flights"), put("weather"))
    assert done.offset == 2
    with closing(service.metastore()._open_writer()) as writer:
        writer.init()  # waits until the last transaction is whole: its marker would be written again after the restart
    own_broker.kill()
    own_broker.cut(service.topic, done.offset)
    own_broker.start()
    _assert_degraded(service, "was shortened: it ends at offset 2", ["flights", "weather"])


@pytest.mark.long
@pytest.mark.behaviour("C17")
def test_c17_commands_that_a_killed_broker_has_again_after_a_compaction_are_no_damage(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    service = Service(own_broker.servers, tmp_path)
    service.submit(put("flights"), put("weather"))
    seen = service.metastore()
    start = seen.compact().offset
    assert start == 4
    own_broker.kill()  # it has not noted yet that its log starts there
    own_broker.start()
    assert service.ids() == [1, 2, 3]
    for metastore in (seen, service.metastore(), service.metastore(backup=False)):
        view = metastore.view()
        assert (view.reason, names(view.catalogue)) == ("", ["flights", "weather"])
    assert [entry.offset for entry in service.metastore().history()] == [start]
    assert service.metastore().compact().deleted
    assert service.ids() == [3]


@pytest.mark.long
@pytest.mark.behaviour("C14")
def test_c14_a_damaged_batch_degrades_and_what_is_behind_it_is_in_the_topic_that_is_made_anew(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    service = Service(own_broker.servers, tmp_path)
    service.submit(put("flights"), put("weather"))
    metastore = service.metastore()
    assert metastore.view().health is Health.RUNNING
    service.metastore(backup=False).submit(put("planes"))
    broker.settle(own_broker.servers, service.topic)  # a marker that came while the file is written would be lost
    log = own_broker.segment(service.topic)
    data = bytearray(log.read_bytes())
    data[batch_at(log, 3) - 1] ^= 1  # the last byte of the batch at offset 2
    log.write_bytes(data)
    view = _assert_degraded(service, "the record batch at offset 2 is damaged", ["flights", "weather"])
    assert "restore-backup" in view.reason
    assert [entry.problem for entry in service.metastore().history()] == ["", ""]
    _assert_degraded(service, "there is no backup to recreate it from", [], backup=False)
    restored = metastore.restore_backup(metastore.plan_restore())
    assert (restored.view.health, names(restored.view.catalogue)) == (Health.RUNNING, ["flights", "planes", "weather"])
    assert service.ids() == [1, 2, 3]


@pytest.mark.long
def test_a_healthy_topic_is_never_taken_for_a_damaged_one_while_it_is_written(service: Service) -> None:
    """Readers look while a writer is between the topic and the backup."""
    seen: list[View] = []
    failed: list[BaseException] = []
    enough = threading.Event()

    def look() -> None:
        try:
            while not enough.is_set():
                seen.append(service.metastore().view())
        except BaseException as error:
            failed.append(error)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for number in range(10):
            done = service.submit(put(f"more-{number}"))
        wait_for(lambda: failed or done.view in seen[-4:], "a reader to see all")
    finally:
        enough.set()
        for reader in readers:
            reader.join()
    assert failed == []
    assert {view.reason for view in seen} == {""}
