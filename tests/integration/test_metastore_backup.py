"""The backup beside the command topic: written with every command, and checked line by line."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from statestore import kill_switch
from statestore.errors import BackupError, LockedError, MetastoreDegradedError, StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.metastore import command_log
from statestore.metastore.backup import BackupFile
from statestore.metastore.metastore import Health, Metastore
from tests.integration import broker
from tests.integration.commands import Service, assert_backed_up, at, drop, names, put
from tests.integration.dying import give_up_capabilities, start_process

pytestmark = pytest.mark.usefixtures("believed_soon", "two_applications")


# -- keeping it --------------------------------------------------------------------------------------------------------


def test_every_command_is_in_the_backup_when_it_is_acknowledged(service: Service) -> None:
    assert_backed_up(service)
    lines = service.backup.read_bytes()
    service.submit(drop("flights"))
    assert_backed_up(service)
    assert service.backup.read_bytes().startswith(lines)  # lines are only added


def test_a_reader_brings_a_backup_up_to_date_that_is_behind_or_missing(service: Service) -> None:
    behind = service.backup.read_bytes()
    service.submit(put("airports"))
    whole = service.backup.read_bytes()
    service.backup.write_bytes(behind)
    assert names(service.metastore().view().catalogue) == ["airports", "flights", "weather"]
    assert service.backup.read_bytes() == whole
    service.backup.unlink()
    service.metastore().view()
    assert service.backup.read_bytes() == whole


@pytest.mark.short_for("new")
@pytest.mark.parametrize("when", ["seen before", "new"])
def test_a_line_that_a_crash_has_torn_is_written_anew(service: Service, when: str) -> None:
    metastore = service.metastore()
    metastore.view()
    with service.backup.open("ab") as file:
        file.write(b'{"offset":4,"timest')
    metastore = metastore if when == "seen before" else service.metastore()
    metastore.submit(put("airports"))
    assert_backed_up(service)


def test_a_writer_killed_before_the_backup_leaves_it_to_the_next(service: Service) -> None:
    process = start_process(_submit_and_die, service)
    process.join(broker.WAIT_S)
    assert process.exitcode == -signal.SIGKILL
    assert service.ids() == [1, 2, 3]
    assert names(service.metastore().view().catalogue) == ["airports", "flights", "weather"]
    assert_backed_up(service)


def _submit_and_die(service: Service) -> None:
    point = "command committed, not in the backup"
    kill_switch.reached = kill_switch._Switch(point, signal.SIGKILL, None, 0).reached
    service.submit(put("airports"))


@pytest.mark.long
def test_two_metastores_write_one_backup(service: Service) -> None:
    first, second = service.metastore(), service.metastore()
    for number in range(3):
        first.submit(put(f"first-{number}"))
        second.submit(put(f"second-{number}"))
    assert_backed_up(service)


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
    assert_backed_up(service)


@pytest.mark.long
def test_without_permission_to_write_the_backup_reads_work_and_writes_say_so(service: Service, tmp_path: Path) -> None:
    service.metastore(backup=False).submit(put("airports"))
    service.backup.chmod(0o400)
    try:
        process = start_process(_read_and_write_as_anybody, service, tmp_path / "said")
        process.join(broker.WAIT_S)
    finally:
        service.backup.chmod(0o600)
    assert (tmp_path / "said").read_text() == "airports, flights, weather; StoreAccessError"
    assert service.ids() == [1, 2, 3]


def _read_and_write_as_anybody(service: Service, said: Path) -> None:
    give_up_capabilities()
    read = ", ".join(names(service.metastore().view().catalogue))
    try:
        service.submit(put("more"))
        written = "written"
    except StateStoreError as error:
        written = type(error).__name__
    said.write_text(f"{read}; {written}")


@pytest.mark.long
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
    assert "is committed, but not yet in the backup" in warning
    assert service.ids() == [1, 2, 3]
    assert names(metastore.view().catalogue) == ["airports", "flights", "weather"]
    assert_backed_up(service)


@pytest.mark.short_for("between commands")
@pytest.mark.parametrize("when", ["between commands", "while a command is written"])
def test_an_older_copy_that_is_put_back_gets_all_that_it_has_not(
    service: Service, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    older = service.backup.read_bytes()
    metastore = service.metastore()
    metastore.submit(put("airports"))
    if when == "between commands":
        service.backup.write_bytes(older)
        metastore.submit(put("planes"))
    else:
        with at(monkeypatch, "command sent, not committed", lambda: service.backup.write_bytes(older)):
            metastore.submit(put("planes"))
    assert_backed_up(service)
    assert metastore.view().reason == service.metastore().view().reason == ""


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


@pytest.mark.short_for("moved")
@pytest.mark.behaviour("C15")
@pytest.mark.parametrize("kind", ALTERED)
def test_c15_a_line_that_was_altered_is_an_error_with_its_number(service: Service, kind: str) -> None:
    change, number = ALTERED[kind]
    service.backup.write_bytes(b"".join(change(service.backup.read_bytes().splitlines(keepends=True))))
    altered = service.backup.read_bytes()
    with pytest.raises(BackupError, match=f"line {number}: "):
        service.metastore().plan_restore()
    metastore = service.metastore()
    view = metastore.view()  # the topic is still whole
    assert (view.health, names(view.catalogue)) == (Health.DEGRADED, ["flights", "weather"])
    assert f"line {number}: " in view.reason
    assert "If the topic is right, delete the backup" in view.reason
    with pytest.raises(MetastoreDegradedError, match=f"line {number}: "):
        metastore.submit(put("airports"))
    assert service.backup.read_bytes() == altered
    assert service.ids() == [1, 2]
    service.backup.unlink()
    assert metastore.submit(put("airports")).view.health is Health.RUNNING
    assert_backed_up(service)


@pytest.mark.long
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
        service.metastore().plan_restore()
    assert service.topic not in Cluster(service.servers).topics.names()
    view = service.metastore().view()
    assert (view.health, names(view.catalogue)) == (Health.DEGRADED, ["flights"])
    service.backup.write_bytes(whole[: whole[:-1].rindex(b"\n") + 1])
    metastore = service.metastore()
    assert names(metastore.restore_backup(metastore.plan_restore()).view.catalogue) == ["flights"]


def _delete(service: Service) -> None:
    broker.delete_topic(service.servers, service.topic)


def _write_garbage(service: Service) -> None:
    broker.produce(service.servers, service.topic, [(b"k", b"v")])


BOTH: dict[str, tuple[Callable[[Service], None], str]] = {
    "the topic is gone": (_delete, "is gone"),
    "its start was deleted": (lambda service: broker.delete_records(service.servers, service.topic, 2), "a snapshot"),
    "it has a record that is no command": (_write_garbage, "is not a command"),
}


@pytest.mark.short_for("its start was deleted")
@pytest.mark.parametrize("kind", BOTH)
def test_where_topic_and_backup_are_damaged_both_are_named_and_neither_is_to_be_deleted(
    service: Service, kind: str
) -> None:
    damage, reason = BOTH[kind]
    damage(service)
    service.backup.write_bytes(service.backup.read_bytes().replace(b"weather", b"waether"))
    text = service.metastore().view().reason
    assert reason in text
    assert "line 3: it was altered" in text
    assert "intact copy of the backup" in text
    assert "delete the backup" not in text
    assert "no backup" not in text


def test_the_backup_of_another_service_is_refused(service: Service, tmp_path: Path) -> None:
    other = Metastore(Cluster(service.servers, 10), f"{service.service_id}-other", service.backup)
    assert "it belongs to service" in other.view().reason
    with pytest.raises(MetastoreDegradedError, match="it belongs to service"):
        other.submit(put("airports"))
