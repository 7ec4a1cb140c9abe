"""Work in processes of this machine: results in order, the first error, and no process left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import psutil
import pytest

from statestore.cli.local_processes import forked_runner, run_each
from statestore.cli.selection import _ranges
from statestore.errors import InputError, RetryError


def square(number: int) -> int:
    return number * number


def process(_: int) -> int:
    return os.getpid()


def refuse_odd(number: int) -> int:
    if number % 2:
        raise InputError(f"{number} is odd, expected an even number")
    return number


def die_at_2(number: int) -> int:
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def wait_long(_: int) -> None:
    time.sleep(600)


def fail_or_wait(number: int) -> None:
    if number:
        wait_long(number)
    raise InputError("no")


#: Not what a process has that imports this module.
inherited = []


def inherited_by(number: int) -> list[int]:
    return [*inherited, number]


def left(others):
    """Return new children that are there; one that the pool has waited for is listed a moment longer."""
    children = [child for child in multiprocessing.active_children() if child not in others]
    return [child for child in children if psutil.pid_exists(child.pid)]


@pytest.mark.short_for("2")
@pytest.mark.parametrize("processes", [1, 2, 5])
def test_results_come_in_the_order_of_the_pieces(processes):
    done = []
    assert run_each(range(5), square, processes, done.append) == [0, 1, 4, 9, 16]
    assert sorted(done) == [0, 1, 4, 9, 16]
    assert run_each([], square, processes) == []


@pytest.mark.long
def test_one_process_is_this_one_and_several_are_others():
    assert set(run_each(range(3), process, 1)) == {os.getpid()}
    assert os.getpid() not in run_each(range(3), process, 2)


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_of_a_piece_is_raised_with_its_message(processes):
    with pytest.raises(InputError, match="1 is odd, expected an even number"):
        run_each([0, 1, 2], refuse_odd, processes)


def test_a_process_that_is_killed_is_a_reason_to_try_again():
    others = multiprocessing.active_children()
    with pytest.raises(RetryError, match="smaller --parallel"):
        run_each(range(4), die_at_2, 2)
    assert not left(others)


def test_forked_processes_have_what_was_there_before_them():
    others = multiprocessing.active_children()
    inherited.append(7)
    with forked_runner(2) as run:
        inherited.clear()
        assert run(range(3), inherited_by, int) == [[7, 0], [7, 1], [7, 2]]
        assert os.getpid() not in run(range(3), process, int)
        assert run([3], process, int) == [os.getpid()], "one piece is not worth the way"
        with pytest.raises(InputError, match="1 is odd"):
            run([0, 1, 2], refuse_odd, int)
        with pytest.raises(RetryError, match="smaller --parallel"):
            run(range(4), die_at_2, int)
    assert not left(others)
    with forked_runner(1) as run:
        assert set(run(range(3), process, int)) == {os.getpid()}


@pytest.mark.long
def test_an_error_ends_the_others_at_once():
    before, others = time.monotonic(), multiprocessing.active_children()
    with pytest.raises(InputError):
        run_each(range(3), fail_or_wait, 2)
    assert not left(others)
    assert time.monotonic() - before < 300


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2], "0 to 2"), ([7, 0, 1, 3, 4], "0 to 1, 3 to 4, 7")]
)
def test_partitions_are_told_as_ranges(numbers, text):
    assert _ranges(numbers) == text
