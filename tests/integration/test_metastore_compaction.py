"""Compaction of the command topic: the snapshot first, then the commands before it; what it leaves gives the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statestore.errors import InputError
from statestore.kafka.cluster import Cluster
from statestore.metastore.backup import BackupFile
from statestore.metastore.command_log import CommandLog, Look
from statestore.metastore.command_topic import CommandTopic
from statestore.metastore.commands import Snapshot
from statestore.metastore.metastore import Health
from statestore.metastore.replay import fold
from tests.integration.broker import delete_records
from tests.integration.commands import Service, at, drop, names, put

DELETION = "snapshot committed, the commands before it still there"


@pytest.fixture
def service(service: Service) -> Service:
    """A service with five commands, which leave two applications."""
    service.submit(
        put("airports"), put("flights"), put("weather"), drop("airports"), put("flights", "counts", "latest")
    )
    return service


@pytest.mark.behaviour("C17")
def test_c17_the_snapshot_is_committed_before_the_commands_before_it_are_deleted(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []
    with at(monkeypatch, DELETION, lambda: seen.append(service.ids())):
        done = service.metastore().compact()
    assert seen == [[1, 2, 3, 4, 5, 6]]
    assert done.deleted
    assert [type(command) for command in service.commands()] == [Snapshot]
    assert service.log.start == done.offset


@pytest.mark.behaviour("C17")
def test_c17_snapshot_and_tail_give_what_the_full_log_gives(service: Service) -> None:
    full = service.logged()
    before = service.metastore().view()
    service.metastore().compact()
    service.submit(put("airports"))
    service.submit(drop("weather"))
    tail = service.logged()
    assert len(tail) == 3
    assert service.ids() == [6, 7, 8]  # C12: they go on
    topic = CommandTopic(Cluster(service.servers), service.service_id)
    records = topic.read(service.log.start, topic.ends().last_stable)
    everything = fold([*(type(records[0])(r.offset, r.timestamp, r.key, r.value) for r in full), *records])
    assert everything.reason == ""
    for view in (service.metastore().view(), service.metastore(backup=False).view()):
        assert (view.health, view.catalogue) == (Health.RUNNING, everything.catalogue)
        assert view.catalogue.digest() == everything.catalogue.digest() != before.catalogue.digest()


@pytest.mark.behaviour("C17")
def test_c17_a_log_that_starts_at_its_snapshot_is_left_alone(service: Service) -> None:
    metastore = service.metastore()
    first = metastore.compact()
    ends = CommandTopic(Cluster(service.servers), service.service_id).ends()
    for again in (metastore, service.metastore()):
        done = again.compact()
        assert (done.offset, done.deleted) == (first.offset, False)
        assert done.view.pin == first.view.pin
    assert CommandTopic(Cluster(service.servers), service.service_id).ends() == ends


@pytest.mark.behaviour("C17")
def test_c17_a_compaction_that_was_cut_off_has_lost_nothing_and_is_completed_by_the_next(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = service.metastore().view()

    def cut_off() -> None:
        raise KeyboardInterrupt

    with at(monkeypatch, DELETION, cut_off), pytest.raises(KeyboardInterrupt):
        service.metastore().compact()
    assert service.metastore().view().catalogue.digest() == before.catalogue.digest()
    done = service.metastore().compact()
    assert done.deleted
    assert service.ids() == [6]
    assert service.log.start == service.logged()[0].offset == done.offset
    assert service.metastore().view().catalogue.digest() == before.catalogue.digest()


@pytest.mark.behaviour("C17")
def test_c17_commands_of_others_between_snapshot_and_deletion_stay(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = service.metastore()
    with at(monkeypatch, DELETION, lambda: other.submit(put("more"))):
        service.metastore().compact()
    assert service.ids() == [6, 7]
    for view in (other.view(), service.metastore().view()):
        assert (view.health, names(view.catalogue)) == (Health.RUNNING, ["flights", "more", "weather"])


@pytest.mark.long
def test_readers_go_on_over_a_compaction(service: Service) -> None:
    reader = service.metastore()
    before, early = reader.view(), reader.view(at=2)
    service.metastore().compact()
    after = reader.view()
    assert (after.health, after.catalogue.digest()) == (Health.RUNNING, before.catalogue.digest())
    assert after.offset > before.offset
    assert reader.pinned(before.pin).pin == before.pin  # its commands are gone, the catalogue is the same
    reader.submit(put("more"))
    pinned = reader.pinned(before.pin)  # the snapshot holds it
    assert (pinned.pin, pinned.catalogue.definitions()) == (before.pin, before.catalogue.definitions())
    with pytest.raises(InputError, match="no longer exists"):
        reader.pinned(early.pin)
    with pytest.raises(InputError, match="were compacted into the snapshot"):
        reader.view(at=2)


@pytest.mark.long
def test_a_compaction_beside_a_reader_has_it_look_again(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands are deleted between a look and the reading of what it was based on."""
    look = CommandLog.look

    def look_then_compact(log: CommandLog) -> Look:
        monkeypatch.setattr(CommandLog, "look", look)
        found = look(log)
        service.submit(put("more"))
        service.metastore().compact()
        return found

    reader = service.metastore()
    monkeypatch.setattr(CommandLog, "look", look_then_compact)
    (entry,) = reader.history()
    assert isinstance(entry.command, Snapshot)
    assert "more" in entry.command.catalogue.applications
    monkeypatch.setattr(CommandLog, "look", look_then_compact)
    with pytest.raises(InputError, match="were compacted"):
        reader.view(at=2)


@pytest.mark.long
def test_a_compaction_beside_a_writer_is_no_reason_to_give_up(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot comes before the writer's init, and the commands before it are deleted while it catches up."""
    other = service.metastore()
    wait = CommandTopic.wait_until_stable

    def delete_the_prefix(topic: CommandTopic, *given: Any) -> None:
        monkeypatch.setattr(CommandTopic, "wait_until_stable", wait)
        delete_records(service.servers, service.topic, service.logged()[-1].offset)
        wait(topic, *given)

    def make_a_snapshot() -> None:
        other.submit(put("another"))
        other.submit(lambda catalogue: catalogue.snapshot())
        monkeypatch.setattr(CommandTopic, "wait_until_stable", delete_the_prefix)

    with at(monkeypatch, "command made, nobody fenced", make_a_snapshot):
        done = service.submit(put("more"))
    assert done.attempts == 2
    assert service.ids() == [7, 8]
    assert names(service.metastore().require_running().catalogue) == ["another", "flights", "more", "weather"]


@pytest.mark.long
def test_the_backup_begins_with_the_snapshot_too_wherever_it_is(service: Service, tmp_path: Path) -> None:
    other_host = Service(service.servers, tmp_path / "other host")
    other_host.service_id, other_host.topic = service.service_id, service.topic
    other_host.metastore().view()
    service.metastore().compact()
    for where in (service, other_host):
        assert where.metastore().view().health is Health.RUNNING
        (record,) = BackupFile(where.backup, service.service_id).read_whole().records
        assert record.key == b"snapshot"


def test_there_is_nothing_to_compact_where_nothing_is(bootstrap_servers: str, tmp_path: Path) -> None:
    service = Service(bootstrap_servers, tmp_path)
    assert service.metastore().compact().offset is None
    assert service.topic not in Cluster(service.servers).topics.names()
