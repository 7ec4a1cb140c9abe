"""The command topic made anew from its backup: nothing that can be read is lost, and who asks is told what is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from statestore.errors import BackupError, InputError, MetastoreDegradedError, NewerCommandError, RetryError
from statestore.kafka.cluster import Cluster
from statestore.metastore.commands import VERSION
from statestore.metastore.metastore import Health, Restored, RestorePlan
from tests.integration import broker
from tests.integration.broker import Row
from tests.integration.command_line import Command, settings_of
from tests.integration.commands import Service, application, assert_backed_up, at, names, put, rows

pytestmark = pytest.mark.usefixtures("believed_soon", "two_applications")


def _planned(service: Service) -> RestorePlan:
    return service.metastore().plan_restore()


def _restored(service: Service) -> Restored:
    return service.metastore().restore_backup(_planned(service))


def _delete(service: Service) -> None:
    broker.delete_topic(service.servers, service.topic)


def _recreate(service: Service) -> None:
    _delete(service)
    broker.create_topic(service.servers, service.topic, 2)


def _delete_before(service: Service, offset: int) -> None:
    broker.delete_records(service.servers, service.topic, offset)


def _empty(service: Service) -> None:
    _delete_before(service, 4)


def _write_garbage(service: Service) -> None:
    broker.produce(service.servers, service.topic, [(b"k", b"v")])


@pytest.mark.short_for("_recreate")
@pytest.mark.behaviour("C15")
@pytest.mark.parametrize("damage", [_delete, _recreate, _empty, _write_garbage])
def test_c15_the_topic_is_made_anew_from_the_backup(service: Service, damage: Callable[[Service], None]) -> None:
    before = service.metastore().view()
    damage(service)
    metastore = service.metastore()
    assert metastore.view().health is Health.DEGRADED
    plan = metastore.plan_restore()
    assert (len(plan.saved), plan.kept, len(plan.lost)) == (2, (), 1 if damage is _write_garbage else 0)
    restored = metastore.restore_backup(plan)
    assert restored.topic.partitions == 1
    assert restored.view.health is Health.RUNNING
    assert restored.view.catalogue == before.catalogue
    assert restored.view.topic_id == restored.topic.topic_id != before.topic_id
    assert service.ids() == [1, 2]
    assert_backed_up(service)
    assert service.metastore().pinned(before.pin).catalogue == before.catalogue
    assert metastore.submit(put("airports")).attempts == 1
    assert_backed_up(service)


@pytest.mark.short_for("command topic recreated, empty", "commands replayed, the backup still of the old topic")
@pytest.mark.behaviour("C15")
@pytest.mark.parametrize(
    "point",
    ["command topic recreated, empty", "during produce", "commands replayed, the backup still of the old topic"],
)
def test_c15_a_restore_that_was_cut_off_is_run_again(
    service: Service, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    _delete(service)
    before = service.backup.read_bytes()
    with at(monkeypatch, point, _cut_off), pytest.raises(KeyboardInterrupt):
        _restored(service)
    assert service.backup.read_bytes() == before
    with pytest.raises(MetastoreDegradedError):
        service.submit(put("airports"))
    assert names(_restored(service).view.catalogue) == ["flights", "weather"]
    assert service.ids() == [1, 2]


def _cut_off() -> None:
    raise KeyboardInterrupt


@pytest.mark.behaviour("C15")
def test_c15_a_topic_that_is_whole_is_not_deleted(service: Service) -> None:
    before = service.metastore().view()
    with pytest.raises(InputError, match="nothing to restore"):
        _planned(service)
    assert service.metastore().view() == before


def test_without_a_backup_nobody_is_asked_and_nothing_is_deleted(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _write_garbage(service)
    settings = settings_of(service.servers, tmp_path) | {"SERVICE_ID": service.service_id}
    del settings["REPORTS_DIR"]
    ran = Command(monkeypatch, capfd, settings).answered("n", "metastore", "restore-backup")
    assert (ran.code, "STATESTORE_METASTORE_BACKUP" in ran.err, "[y/N]" in ran.err) == (2, True, False)
    service.backup.unlink()
    with pytest.raises(BackupError, match="does not exist, so nothing can be restored"):
        _planned(service)
    assert len(service.logged()) == 3


# -- what only the topic has -------------------------------------------------------------------------------------------


def _submit_without_backup(service: Service, *names: str) -> list[int]:
    """Submit on a host that keeps no backup; return the offsets."""
    metastore = service.metastore(backup=False)
    return [metastore.submit(put(name)).view.offset - 1 for name in names]


@pytest.mark.short_for(every=3)
@pytest.mark.behaviour("C15")
@pytest.mark.parametrize("point", ["", "all commands in the backup, the topic still there", "during produce"])
def test_c15_commands_that_only_the_topic_has_are_replayed_behind_the_backup(
    service: Service, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    third, _ = _submit_without_backup(service, "airports", "planes")
    whole = service.metastore(backup=False).view().catalogue
    _delete_before(service, third)
    assert names(service.metastore().view().catalogue) == ["flights", "weather"]
    plan = _planned(service)
    assert (len(plan.saved), len(plan.kept), plan.lost) == (2, 2, ())
    if point:
        with at(monkeypatch, point, _cut_off), pytest.raises(KeyboardInterrupt):
            _restored(service)
        if point == "during produce":
            assert service.logged() == []
    assert _restored(service).view.catalogue == whole
    assert service.ids() == [1, 2, 3, 4]
    assert_backed_up(service)


@pytest.mark.long
def test_commands_behind_a_record_that_is_none_are_kept(service: Service) -> None:
    """A writer that caught up before somebody wrote past it was told that its command is in the log."""
    _write_garbage(service)
    broker.transaction(service.servers, service.topic, rows(application("airports"), next_id=3))
    plan = _planned(service)
    assert (len(plan.kept), len(plan.lost)) == (1, 1)
    assert plan.lost[0].startswith("offset 4: ")
    assert names(_restored(service).view.catalogue) == ["airports", "flights", "weather"]


@pytest.mark.long
def test_a_topic_that_was_made_by_a_restore_and_written_since_keeps_what_was_written(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    _delete(service)
    last = "commands replayed, the backup still of the old topic"
    with at(monkeypatch, last, _cut_off), pytest.raises(KeyboardInterrupt):
        _restored(service)
    _submit_without_backup(service, "airports")
    assert names(_restored(service).view.catalogue) == ["airports", "flights", "weather"]
    assert service.ids() == [1, 2, 3]
    assert_backed_up(service)


def _newer(row: Row) -> Row:
    key, value = row
    assert value is not None
    return key, json.dumps(json.loads(value) | {"version": VERSION + 1}).encode()


def _lose_one_in_between(service: Service) -> None:
    _delete_before(service, _submit_without_backup(service, "airports", "planes")[1])


def _make_another_catalogue(service: Service) -> None:
    _delete(service)
    _submit_without_backup(service, "airports")


def _upgrade(service: Service) -> None:
    newer = _newer(rows(application("airports"), next_id=3)[0])
    broker.transaction(service.servers, service.topic, [newer])


STRAYS: dict[str, tuple[Callable[[Service], None], type[InputError], str]] = {
    "one between them is lost": (_lose_one_in_between, InputError, "offset 6: the command has id 4; expected 3"),
    "of another catalogue": (_make_another_catalogue, InputError, "offset 0: the command has id 1; expected 3"),
    "of a newer version": (
        _upgrade,
        NewerCommandError,
        f"offset 4 of .* would be lost.*version {VERSION + 1}.*Upgrade",
    ),
}


@pytest.mark.short_for("one between them is lost")
@pytest.mark.behaviour("C15")
@pytest.mark.parametrize("kind", STRAYS)
def test_c15_commands_that_cannot_follow_on_the_backup_are_not_deleted(service: Service, kind: str) -> None:
    do, error, reason = STRAYS[kind]
    do(service)
    before = service.logged()
    assert service.metastore().view().health is Health.DEGRADED
    with pytest.raises(error, match=reason):
        _planned(service)
    assert service.logged() == before


def test_a_topic_that_changed_since_it_was_asked_about_is_not_deleted(service: Service) -> None:
    _write_garbage(service)
    plan = _planned(service)
    _write_garbage(service)
    with pytest.raises(RetryError, match="has changed since"):
        service.metastore().restore_backup(plan)
    assert len(service.logged()) == 4


@pytest.mark.long
def test_the_question_names_what_is_kept_and_what_is_not(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _write_garbage(service)
    broker.transaction(service.servers, service.topic, rows(application("airports"), next_id=3))
    settings = settings_of(service.servers, tmp_path) | {
        "SERVICE_ID": service.service_id,
        "METASTORE_BACKUP": str(service.backup),
    }
    command = Command(monkeypatch, capfd, settings)
    ran = command.answered("n", "metastore", "restore-backup")
    assert ran.code == 2
    assert "no command, offset 4: " in ran.err
    assert "and 1 that only the topic had, without what is listed above? [y/N]" in ran.err
    assert len(service.logged()) == 4
    ran = command("metastore", "restore-backup", "--yes")
    assert (ran.code, "and 1 that only the topic had: catalogue " in ran.out) == (0, True), ran.err
    assert service.ids() == [1, 2, 3]
    assert Cluster(service.servers).topics.require(service.topic).partitions == 1
