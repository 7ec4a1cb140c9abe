"""Turns of writers: in the order in which they came, past those who are gone or stopped."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from pathlib import Path

from statestore.metastore.writer_turns import Turns
from tests.integration.broker import wait_for


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_writers_are_served_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    served: list[int] = []

    def write(number: int) -> None:
        with Turns(tmp_path).taken():
            served.append(number)

    writers = [threading.Thread(target=write, args=[number]) for number in range(2, 6)]
    with Turns(tmp_path).taken():
        for number, writer in enumerate(writers, start=2):
            writer.start()
            wait_for(lambda number=number: (tmp_path / str(number)).exists(), f"writer {number} to wait")
        served.append(1)
    for writer in writers:
        writer.join(60)
    assert served == [1, 2, 3, 4, 5]
    assert _names(tmp_path) == {"gate"}


def test_who_holds_his_turn_for_too_long_is_passed_over_and_the_others_keep_their_order(tmp_path: Path) -> None:
    served: list[int] = []
    second_may_end = threading.Event()

    def write(number: int, wait: bool) -> None:
        with Turns(tmp_path, longest_s=0.3 if number == 2 else 60).taken():
            served.append(number)
            assert not wait or second_may_end.wait(60)

    with ExitStack() as stopped:
        stopped.enter_context(Turns(tmp_path).taken())
        second = threading.Thread(target=write, args=[2, True])
        second.start()
        wait_for(lambda: served == [2], "the second to be served although the first has not ended")
        third = threading.Thread(target=write, args=[3, False])
        third.start()
        wait_for(lambda: (tmp_path / "3").exists(), "the third to wait")
        assert served == [2]
        second_may_end.set()
        second.join(60)
    third.join(60)
    assert served == [2, 3]


def test_who_was_killed_in_his_turn_holds_nobody_up(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with Turns(tmp_path).taken():
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert "1" in _names(tmp_path)
    with Turns(tmp_path, longest_s=3600).taken():
        assert _names(tmp_path) == {"gate", "2"}
    assert _names(tmp_path) == {"gate"}


def test_where_no_turns_can_be_kept_nobody_waits(tmp_path: Path) -> None:
    directory = tmp_path / "turns"
    directory.touch()
    served = []
    with Turns(directory).taken(), Turns(directory).taken():
        served.append(1)
    assert served == [1]
