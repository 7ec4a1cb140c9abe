"""Reading the catalogue: as it is, as it was, as it was pinned; cheap, the same for all, and fencing nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.config import Settings
from statestore.errors import InputError
from statestore.kafka.cluster import Cluster
from statestore.kafka.writer import TransactionalWriter
from statestore.metastore.command_log import CommandLog
from statestore.metastore.command_topic import CommandTopic
from statestore.metastore.metastore import Health, Metastore, Pin
from tests.integration import broker
from tests.integration.commands import Service, application, drop, names, put, rows


@pytest.fixture
def service(service: Service) -> Service:
    """A service with three commands."""
    service.submit(put("flights"), put("weather"), drop("flights"))
    return service


def test_the_catalogue_is_read_as_it_was_before_any_offset(service: Service) -> None:
    logged = service.logged()
    expected = [[], ["flights"], ["flights", "weather"], ["weather"]]
    metastore = service.metastore()
    end = metastore.view().offset
    for at in range(end + 1):
        before = sum(record.offset < at for record in logged)
        view = metastore.view(at)
        assert names(view.catalogue) == expected[before]
        assert view.offset == (logged[before - 1].offset + 1 if before else 0)
        assert metastore.pinned(Pin(at, view.catalogue.digest())).pin == (at, view.catalogue.digest())
    for nonsense in (-1, end + 10):
        with pytest.raises(InputError, match="there is no offset"):
            metastore.view(nonsense)


@pytest.mark.long
def test_a_pin_is_text_and_names_the_same_catalogue_later(service: Service) -> None:
    pinned = service.metastore().view()
    pin = Pin.parse(str(pinned.pin))
    assert pin == pinned.pin
    service.submit(put("airports"))
    view = service.metastore().pinned(pin)
    assert (view.catalogue, view.pin) == (pinned.catalogue, pin)


@pytest.mark.parametrize(
    "text", ["", "5", "5:abc", f"-1:{'0' * 64}", f"5:{'g' * 64}", f" 5:{'0' * 64}", f"5:{'0' * 64}\n"]
)
def test_what_is_no_pin_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not the pin of a catalogue"):
        Pin.parse(text)


def test_a_pin_of_another_catalogue_is_refused(service: Service) -> None:
    pin = service.metastore().view().pin
    with pytest.raises(InputError, match="expected 0000"):
        service.metastore().pinned(pin._replace(digest="0" * 64))
    with pytest.raises(InputError, match="no longer exists"):
        service.metastore().pinned(Pin(1_000, "0" * 64))


@pytest.mark.long
def test_every_reader_has_the_same_catalogue_pin_and_history(service: Service, tmp_path: Path) -> None:
    settings = Settings(
        bootstrap_servers=service.servers,
        state_dir=tmp_path,
        reports_dir=tmp_path / "reports",
        data_docs_dir=tmp_path,
        service_id=service.service_id,
    )
    metastores = [service.metastore(), service.metastore(backup=False), Metastore.of(settings)]
    views = [metastore.view() for metastore in metastores]
    assert len({(view.pin, view.health, view.topic_id) for view in views}) == 1
    assert (tmp_path / "reports" / "metastore" / f"{service.service_id}.backup").exists()
    histories = [metastore.history() for metastore in metastores]
    assert histories[0] == histories[1] == histories[2]
    assert [entry.command for entry in histories[0]] == service.commands()
    assert [entry.problem for entry in histories[0]] == ["", "", ""]
    assert [entry.offset for entry in histories[0]] == [record.offset for record in service.logged()]


def test_a_submitted_command_is_seen_by_whoever_looks_next(service: Service) -> None:
    reader = service.metastore()
    for number in range(10):
        done = service.submit(put(f"more-{number}"))
        assert reader.view().pin == done.view.pin


def test_readers_fence_nobody(service: Service) -> None:
    writer = TransactionalWriter(Cluster(service.servers, 60), f"statestore-metastore-{service.service_id}")
    writer.init()
    writer.begin()
    key, value = rows(application("airports"), next_id=4)[0]
    writer.produce(service.topic, key, value, 1_700_000_000_000, 0)
    writer.flush()
    reader = service.metastore()
    before = reader.view()
    reader.view(at=2)
    reader.history()
    reader.pinned(before.pin)
    reader.require_running()
    assert names(before.catalogue) == ["weather"]  # nothing of what is not committed
    writer.commit()
    broker.settle(service.servers, service.topic)
    assert names(reader.view().catalogue) == ["airports", "weather"]


def test_a_second_look_reads_only_what_came_since(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    metastore = service.metastore()
    metastore.view()
    ranges: list[tuple[int, int]] = []
    read = CommandTopic.read

    def note(topic: CommandTopic, start: int, target: int) -> object:
        ranges.append((start, target))
        return read(topic, start, target)

    monkeypatch.setattr(CommandTopic, "read", note)
    service.metastore(backup=False).submit(put("airports"))
    ranges.clear()
    view = metastore.view()
    assert names(view.catalogue) == ["airports", "weather"]
    assert [start for start, _ in ranges] == [view.offset - 3]  # from the last command that was known


@pytest.mark.long
def test_a_second_look_at_a_log_that_was_written_anew_begins_at_its_start(service: Service) -> None:
    """Same topic, same offsets, other commands: nobody may go on from what was there."""
    metastore = service.metastore(backup=False)
    known = metastore.view()
    log: CommandLog = metastore._log
    log._known = log._known._replace(
        last=log._known.last._replace(timestamp=1), catalogue=metastore.view(at=1).catalogue
    )
    assert metastore.view().catalogue == known.catalogue
    assert metastore.view().health is Health.RUNNING
