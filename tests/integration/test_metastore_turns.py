"""Turns of the writers of a command topic: by arrival, whatever they share, and never held up by one that is gone."""

from __future__ import annotations

import importlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from statestore import kill_switch
from statestore.kafka.cluster import Cluster
from statestore.metastore.command_topic import turns_topic_name
from statestore.metastore.writer_turns import LONGEST_TURN_S, SILENT_S, Turns
from tests.integration import broker
from tests.integration.commands import Service, at, put
from tests.integration.dying import start_process

pytestmark = pytest.mark.behaviour("C20")

HAS_TURN, SENT = "command writer has its turn", "command sent, not committed"


def _numbers(service: Service) -> list[bytes | None]:
    return [record.value for record in broker.consume(service.servers, turns_topic_name(service.service_id))[0]]


def _arrived(service: Service, count: int) -> None:
    broker.wait_for(lambda: _numbers(service).count(b"") == count, f"writer {count} to wait")


@pytest.fixture
def turns(service: Service) -> Callable[..., Turns]:
    """Makes the turns of the service, as each writer has them."""
    return lambda **limits: Turns(Cluster(service.servers), service.service_id, **limits)


def test_c20_writers_are_served_in_the_order_in_which_they_came(service: Service, turns: Callable[..., Turns]) -> None:
    served: list[int] = []

    def write(number: int) -> None:
        with turns().taken():
            served.append(number)

    writers = [threading.Thread(target=write, args=[number]) for number in range(2, 6)]
    with turns().taken():
        for number, writer in enumerate(writers, start=2):
            writer.start()
            _arrived(service, number)
        served.append(1)
    for writer in writers:
        writer.join(60)
    assert served == [1, 2, 3, 4, 5]


@pytest.mark.long
def test_c20_a_turn_that_lasts_too_long_is_passed_over_and_the_others_keep_their_order(
    service: Service, turns: Callable[..., Turns]
) -> None:
    served: list[int] = []
    second_may_end, first_may_end = threading.Event(), threading.Event()

    def write(number: int, until: threading.Event | None, longest_s: float) -> None:
        with turns(longest_s=longest_s).taken():
            served.append(number)
            assert until is None or until.wait(60)

    writers = []
    for number, until, longest_s in ((1, first_may_end, 60), (2, second_may_end, 0.5), (3, None, 60)):
        writers.append(threading.Thread(target=write, args=[number, until, longest_s]))
        writers[-1].start()
        _arrived(service, number)
    broker.wait_for(lambda: len(served) == 2, "the second to be served although the first has not ended")
    assert served == [1, 2]
    second_may_end.set()
    broker.wait_for(lambda: len(served) == 3, "the third to be served")
    first_may_end.set()
    for writer in writers:
        writer.join(60)
    assert served == [1, 2, 3]


def test_c20_where_no_turns_can_be_kept_nobody_waits(service: Service, turns: Callable[..., Turns]) -> None:
    broker.create_topic(service.servers, turns_topic_name(service.service_id), 2)
    served = []
    with turns().taken(), turns().taken():
        served.append(1)
    assert served == [1]
    assert service.submit(put("flights")).attempts == 1


def test_c20_a_writer_that_comes_while_another_writes_waits_for_its_turn_and_fences_nobody(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.submit(put("flights"))
    done: dict[str, int] = {}

    def write(name: str) -> None:
        # Without a backup, as if it were on another machine: they share nothing but Kafka.
        done[name] = service.metastore(backup=name == "airports").submit(put(name)).attempts

    second = threading.Thread(target=write, args=["weather"])

    def come_between() -> None:
        second.start()
        _arrived(service, 3)

    with at(monkeypatch, SENT, come_between):
        write("airports")
    second.join()
    assert done == {"airports": 1, "weather": 1}
    assert [record.definition.name for record in service.commands()] == ["flights", "airports", "weather"]


# -- hosts that share nothing but Kafka --------------------------------------------------------------------------------


class Host:
    """A writer with its own directories, which logs commands in a separate process."""

    def __init__(self, service: Service, directory: Path, name: str, commands: int, **environment: str) -> None:
        self.name = name
        self.journal = directory / f"{name}.jsonl"
        own = Service(service.servers, directory / name)
        own.service_id, own.topic = service.service_id, service.topic
        own.backup = own.backup.with_name(f"{service.service_id}.backup")
        self.process = start_process(_write, own, name, commands, self.journal, environment)

    def entries(self) -> list[dict[str, Any]]:
        """The commands that were logged so far, with the seconds and attempts of each."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [json.loads(line) for line in lines]

    def ended(self) -> int:
        self.process.join(broker.WAIT_S)
        code: int = self.process.exitcode
        return code


def _write(service: Service, name: str, commands: int, journal: Path, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    importlib.reload(kill_switch)
    metastore = service.metastore()
    metastore.view()
    with journal.open("a", buffering=1) as file:
        for number in range(commands):
            began = time.monotonic()
            done = metastore.submit(put(f"{name}-{number}"))
            took_s = time.monotonic() - began
            file.write(json.dumps({"offset": done.offset, "attempts": done.attempts, "took_s": took_s}) + "\n")


@pytest.fixture
def host(service: Service, tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """Starts hosts, and ends what is left of them."""
    hosts: list[Host] = []

    def start(name: str, commands: int = 1, **environment: str) -> Host:
        hosts.append(Host(service, tmp_path, name, commands, **environment))
        return hosts[-1]

    yield start
    for found in hosts:
        found.process.kill()
        found.process.join()


@pytest.mark.long
def test_c20_two_hosts_that_share_no_disk_write_alternately(service: Service, host: Callable[..., Host]) -> None:
    service.submit(put("flights"))
    count = 25
    hosts = [host(name, count) for name in ("a", "b")]
    assert [found.ended() for found in hosts] == [0, 0]
    owners = {entry["offset"]: found.name for found in hosts for entry in found.entries()}
    assert len(owners) == 2 * count
    order = [owners[offset] for offset in sorted(owners)]
    both = order[order.index("b" if order[0] == "a" else "a") :]
    both = both[: min(len(both) - both[::-1].index(name) for name in "ab")]  # while both had commands to write
    runs = [len(list(run)) for _, run in groupby(both)]
    print(f"{len(both)} of {len(order)} commands while both wrote, in runs of {runs}")
    assert len(both) > count, order
    # A writer that has ended its turn comes after the one that waits. In a run of two, the other one arrived late.
    assert max(runs) <= 3, order
    assert sum(runs) / len(runs) < 1.5, order
    assert [entry["attempts"] for found in hosts for entry in found.entries()] == [1] * 2 * count
    assert len(service.ids()) == 2 * count + 1


@pytest.mark.long
@pytest.mark.parametrize("point", [HAS_TURN, SENT])
def test_c20_the_turn_of_a_killed_writer_ends(service: Service, host: Callable[..., Host], point: str) -> None:
    service.submit(put("flights"))
    killed = host("killed", STATESTORE_KILL_AT=point)
    assert killed.ended() == -signal.SIGKILL
    began = time.monotonic()
    assert service.metastore(backup=False).submit(put("weather")).attempts == 1
    waited_s = time.monotonic() - began
    assert SILENT_S / 2 < waited_s < LONGEST_TURN_S, waited_s
    began = time.monotonic()
    service.metastore(backup=False).submit(put("airports"))
    assert time.monotonic() - began < SILENT_S, "who passes a turn over tells all others"
    assert len(service.ids()) == 3


@pytest.mark.long
def test_c20_a_writer_that_was_killed_while_it_waited_holds_nobody_up(
    service: Service, host: Callable[..., Host], turns: Callable[..., Turns]
) -> None:
    service.submit(put("flights"))
    with turns().taken():
        waiting = host("killed")
        _arrived(service, 3)
        waiting.process.kill()
        assert waiting.ended() == -signal.SIGKILL
        broker.wait_for(lambda: waiting.process.exitcode is not None, "it to be gone")
    began = time.monotonic()
    assert service.submit(put("weather")).attempts == 1
    assert time.monotonic() - began < LONGEST_TURN_S
    assert len(service.ids()) == 2


@pytest.mark.long
def test_c20_a_writer_that_was_passed_over_while_it_waited_draws_another_number(
    service: Service, turns: Callable[..., Turns]
) -> None:
    served: list[str] = []
    writer = threading.Thread(target=lambda: served.append(service.submit(put("waiting")).command.kind))
    with turns().taken():
        writer.start()
        _arrived(service, 2)
        topic = turns_topic_name(service.service_id)
        waiting = [record.key for record in broker.consume(service.servers, topic)[0] if record.value == b""][-1]
        broker.produce(service.servers, topic, [(waiting, None)])
        _arrived(service, 3)
        assert served == []
    writer.join(60)
    assert served == ["put-application"]


@pytest.mark.long
def test_c20_a_writer_that_wakes_up_after_its_turn_was_passed_over_is_fenced_and_tries_again(
    service: Service, host: Callable[..., Host], tmp_path: Path
) -> None:
    service.submit(put("flights"))
    mark = tmp_path / "mark"
    asleep = host("asleep", STATESTORE_PAUSE_AT=SENT, STATESTORE_KILL_MARK=str(mark))
    broker.wait_for(mark.exists, "the writer to be stopped in its transaction")
    assert service.metastore(backup=False).submit(put("weather")).attempts == 1
    os.kill(asleep.process.pid, signal.SIGCONT)
    assert asleep.ended() == 0
    (entry,) = asleep.entries()
    assert entry["attempts"] == 2
    assert [command.definition.name for command in service.commands()] == ["flights", "weather", "asleep-0"]
