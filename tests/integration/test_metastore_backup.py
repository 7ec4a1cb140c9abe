"""The backup beside the command topic: written with every command, checked line by line, and restored from."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from statestore import kill_switch
from statestore.changelog.topics import Topics
from statestore.errors import BackupError, InputError, LockedError, MetastoreDegradedError, StoreAccessError
from statestore.metastore import command_log
from statestore.metastore.backup import BackupFile
from statestore.metastore.metastore import Health, Metastore
from tests.integration import broker
from tests.integration.commands import Service, at, drop, names, put, two_applications
from tests.integration.dying import start_process


@pytest.fixture(autouse=True)
def _believed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage is looked at for less long before it is believed."""
    monkeypatch.setattr(command_log, "_BELIEVED_AFTER_S", 0.1)


@pytest.fixture
def service(bootstrap_servers: str, tmp_path: Path) -> Service:
    """A service with two applications."""
    return two_applications(bootstrap_servers, tmp_path)


def _assert_equal(service: Service) -> None:
    """The backup has what the topic has."""
    content = BackupFile(service.backup, service.service_id).read_whole()
    assert [tuple(record) for record in content.records] == [
        (record.offset, record.timestamp, record.key, record.value) for record in service.logged()
    ]


# -- keeping it --------------------------------------------------------------------------------------------------------


def test_every_command_is_in_the_backup_when_it_is_acknowledged(service: Service) -> None:
    _assert_equal(service)
    lines = service.backup.read_bytes()
    service.metastore().submit(drop("flights"))
    _assert_equal(service)
    assert service.backup.read_bytes().startswith(lines)  # lines are only added


def test_a_reader_brings_a_backup_up_to_date_that_is_behind_or_missing(service: Service) -> None:
    behind = service.backup.read_bytes()
    service.metastore().submit(put("airports"))
    whole = service.backup.read_bytes()
    service.backup.write_bytes(behind)
    assert names(service.metastore().view().catalogue) == ["airports", "flights", "weather"]
    assert service.backup.read_bytes() == whole
    service.backup.unlink()
    service.metastore().view()
    assert service.backup.read_bytes() == whole


@pytest.mark.parametrize("when", ["seen before", "new"])
def test_a_line_that_a_crash_has_torn_is_written_anew(service: Service, when: str) -> None:
    metastore = service.metastore()
    metastore.view()
    with service.backup.open("ab") as file:
        file.write(b'{"offset":4,"timest')
    metastore = metastore if when == "seen before" else service.metastore()
    metastore.submit(put("airports"))
    _assert_equal(service)


def test_a_writer_killed_before_the_backup_leaves_it_to_the_next(service: Service) -> None:
    process = start_process(_submit_and_die, service)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert service.ids() == [1, 2, 3]
    assert names(service.metastore().view().catalogue) == ["airports", "flights", "weather"]
    _assert_equal(service)


def _submit_and_die(service: Service) -> None:
    point = "command committed, not in the backup"
    kill_switch.reached = kill_switch._Switch(point, signal.SIGKILL, None, 0).reached
    service.metastore().submit(put("airports"))


def test_two_metastores_write_one_backup(service: Service) -> None:
    first, second = service.metastore(), service.metastore()
    for number in range(3):
        first.submit(put(f"first-{number}"))
        second.submit(put(f"second-{number}"))
    _assert_equal(service)


def test_a_backup_that_cannot_be_written_refuses_commands_before_they_are_sent_and_readers_do_without(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_log, "_LOCK_WAIT_S", 0.1)
    behind = service.backup.read_bytes()
    service.metastore(backup=False).submit(put("airports"))
    assert service.backup.read_bytes() == behind
    with BackupFile(service.backup, service.service_id).held():
        metastore = service.metastore()
        assert names(metastore.view().catalogue) == ["airports", "flights", "weather"]
        with pytest.raises(LockedError):
            metastore.submit(put("more"))
    assert service.ids() == [1, 2, 3]
    assert metastore.submit(put("more")).warnings == ()
    _assert_equal(service)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_without_permission_to_write_the_backup_reads_work_and_writes_say_so(service: Service) -> None:
    service.metastore(backup=False).submit(put("airports"))
    service.backup.parent.chmod(0o500)
    try:
        assert names(service.metastore().view().catalogue) == ["airports", "flights", "weather"]
        with pytest.raises(StoreAccessError):
            service.metastore().submit(put("more"))
    finally:
        service.backup.parent.chmod(0o700)
    assert service.ids() == [1, 2, 3]


def test_a_command_whose_backup_fails_is_acknowledged_with_a_warning(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_log, "_LOCK_WAIT_S", 0.1)
    metastore = service.metastore()
    held = BackupFile(service.backup, service.service_id).held()
    with (
        ExitStack() as stack,
        at(monkeypatch, "command committed, not in the backup", lambda: stack.enter_context(held)),
    ):
        done = metastore.submit(put("airports"))
    (warning,) = done.warnings
    assert "is committed, but not in the backup yet" in warning
    assert service.ids() == [1, 2, 3]
    assert names(metastore.view().catalogue) == ["airports", "flights", "weather"]
    _assert_equal(service)


# -- altered lines -----------------------------------------------------------------------------------------------------


def _flip(number: int) -> Callable[[list[bytes]], list[bytes]]:
    def change(lines: list[bytes]) -> list[bytes]:
        line = bytearray(lines[number - 1])
        line[len(line) // 2] ^= 1
        return [*lines[: number - 1], bytes(line), *lines[number:]]

    return change


ALTERED: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {
    "header": (_flip(1), 1),
    "first command": (_flip(2), 2),
    "last command": (_flip(3), 3),
    "left out": (lambda lines: [lines[0], lines[2]], 2),
    "twice": (lambda lines: [*lines, lines[2]], 4),
    "moved": (lambda lines: [lines[0], lines[2], lines[1]], 2),
    "empty line": (lambda lines: [*lines[:2], b"\n", lines[2]], 3),
    "empty": (lambda _: [], 1),
}


@pytest.mark.behaviour("C15")
@pytest.mark.parametrize("kind", ALTERED)
def test_c15_a_line_that_was_altered_is_an_error_with_its_number(service: Service, kind: str) -> None:
    change, number = ALTERED[kind]
    service.backup.write_bytes(b"".join(change(service.backup.read_bytes().splitlines(keepends=True))))
    altered = service.backup.read_bytes()
    with pytest.raises(BackupError, match=f"line {number}: "):
        service.metastore().restore_backup()
    metastore = service.metastore()
    view = metastore.view()  # the topic is still whole
    assert (view.health, names(view.catalogue)) == (Health.DEGRADED, ["flights", "weather"])
    assert f"line {number}: " in view.reason
    with pytest.raises(MetastoreDegradedError, match=f"line {number}: "):
        metastore.submit(put("airports"))
    assert service.backup.read_bytes() == altered
    assert service.ids() == [1, 2]
    service.backup.unlink()
    assert metastore.submit(put("airports")).view.health is Health.RUNNING
    _assert_equal(service)


@pytest.mark.behaviour("C15")
def test_c15_every_flipped_bit_of_a_backup_is_found(service: Service) -> None:
    whole = service.backup.read_bytes()
    file = BackupFile(service.backup, service.service_id)
    for position in range(len(whole)):
        altered = bytearray(whole)
        altered[position] ^= 1 << position % 8
        service.backup.write_bytes(altered)
        with pytest.raises(BackupError, match=r"line [123]: "):
            file.read_whole()


@pytest.mark.behaviour("C15")
def test_c15_a_torn_line_is_an_error_and_the_lines_before_it_can_be_restored(service: Service) -> None:
    whole = service.backup.read_bytes()
    service.backup.write_bytes(whole[:-20])
    broker.delete_topic(service.servers, service.topic)
    with pytest.raises(BackupError, match=r"line 3: it is torn.*delete the line"):
        service.metastore().restore_backup()
    assert service.topic not in Topics(service.servers).names()
    view = service.metastore().view()
    assert (view.health, names(view.catalogue)) == (Health.DEGRADED, ["flights"])
    service.backup.write_bytes(whole[: whole[:-1].rindex(b"\n") + 1])
    assert names(service.metastore().restore_backup().view.catalogue) == ["flights"]


def test_the_backup_of_another_service_is_refused(service: Service, tmp_path: Path) -> None:
    other = Metastore(service.servers, f"{service.service_id}-other", service.backup, 10)
    assert "it is of service" in other.view().reason
    with pytest.raises(MetastoreDegradedError, match="it is of service"):
        other.submit(put("airports"))


# -- restoring ---------------------------------------------------------------------------------------------------------


def _delete(service: Service) -> None:
    broker.delete_topic(service.servers, service.topic)


def _recreate(service: Service) -> None:
    _delete(service)
    broker.create_topic(service.servers, service.topic, 2)


def _empty(service: Service) -> None:
    broker.delete_records(service.servers, service.topic, 4)


def _write_garbage(service: Service) -> None:
    broker.produce(service.servers, service.topic, [(b"k", b"v")])


@pytest.mark.behaviour("C15")
@pytest.mark.parametrize("damage", [_delete, _recreate, _empty, _write_garbage])
def test_c15_the_topic_is_made_anew_from_the_backup(service: Service, damage: Callable[[Service], None]) -> None:
    before = service.metastore().view()
    damage(service)
    metastore = service.metastore()
    assert metastore.view().health is Health.DEGRADED
    restored = metastore.restore_backup()
    assert (restored.commands, restored.topic.partitions) == (2, 1)
    assert restored.view.health is Health.RUNNING
    assert restored.view.catalogue == before.catalogue
    assert restored.view.topic_id == restored.topic.topic_id != before.topic_id
    assert service.ids() == [1, 2]
    _assert_equal(service)
    assert service.metastore().pinned(before.pin).catalogue == before.catalogue
    assert metastore.submit(put("airports")).attempts == 1
    _assert_equal(service)


@pytest.mark.behaviour("C15")
@pytest.mark.parametrize(
    "point",
    ["command topic recreated, empty", "during produce", "commands replayed, the backup still of the old topic"],
)
def test_c15_a_restore_that_was_cut_off_is_run_again(
    service: Service, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    _delete(service)

    def cut_off() -> None:
        raise KeyboardInterrupt

    before = service.backup.read_bytes()
    with at(monkeypatch, point, cut_off), pytest.raises(KeyboardInterrupt):
        service.metastore().restore_backup()
    assert service.backup.read_bytes() == before
    with pytest.raises(MetastoreDegradedError):
        service.metastore().submit(put("airports"))
    assert names(service.metastore().restore_backup().view.catalogue) == ["flights", "weather"]
    assert service.ids() == [1, 2]


@pytest.mark.behaviour("C15")
def test_c15_a_topic_that_is_whole_is_not_deleted(service: Service) -> None:
    before = service.metastore().view()
    with pytest.raises(InputError, match="nothing to restore"):
        service.metastore().restore_backup()
    assert service.metastore().view() == before


def test_without_a_backup_nothing_is_deleted(service: Service) -> None:
    _write_garbage(service)
    with pytest.raises(BackupError, match="STATESTORE_METASTORE_BACKUP"):
        service.metastore(backup=False).restore_backup()
    service.backup.unlink()
    with pytest.raises(BackupError, match="there is no backup"):
        service.metastore().restore_backup()
    assert len(service.logged()) == 3
