"""Work on this machine: one piece after another, or several processes that each take the next piece.

Processes are spawned, not forked: threads of Kafka's client and of RocksDB do not survive a fork. A command that is
short can have them forked before there are any. They end when the command ends, however that comes about; what they
leave behind is what a killed job leaves, and is cleaned up likewise.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from statestore.errors import RetryError
from statestore.garbage import keep_all

if TYPE_CHECKING:
    from statestore.recovery.runner import Runner

S = TypeVar("S")
R = TypeVar("R")


def run_each(
    pieces: Sequence[S], work: Callable[[S], R], processes: int, done: Callable[[R], None] = lambda _: None
) -> list[R]:
    """Do the work on every piece and return the results in the order of the pieces.

    Parameters
    ----------
    work
        A function of a module; pieces and results can be pickled.
    processes
        How many at a time.
    done
        Called with each result as it comes.

    Raises
    ------
    StateStoreError
        The first that a piece raised; the others are given up.
    RetryError
        If a process was killed.
    """
    if processes <= 1 or len(pieces) <= 1:
        return _one_by_one(pieces, work, done)
    with _pool(min(processes, len(pieces)), "spawn") as pool:
        return _each_in(pool, pieces, work, done)


def runner(processes: int) -> Runner:
    """Return who does the pieces of a restore; one whose process is killed ends the command, which is run again."""
    return lambda pieces, work, *_: run_each(pieces, work, processes)


@contextmanager
def forked_runner(processes: int) -> Iterator[Runner]:
    """Have processes for the pieces of a restore that need not import anything: all is there that is imported now.

    To import what a restore needs takes each process a second, and more than what it then does if that is little.
    Begin before this process has a thread, or has opened a client or a database.
    """
    if processes <= 1:
        yield runner(1)
        return
    from statestore.compiled.loops import load_kept

    load_kept()
    keep_all()
    with _pool(processes, "fork") as pool:
        pool.submit(_nothing).result()  # the first piece has all of them forked

        def run(pieces: Sequence[S], work: Callable[[S], R], *_: object) -> list[R]:
            return _one_by_one(pieces, work) if len(pieces) <= 1 else _each_in(pool, pieces, work)

        yield run


def _nothing() -> None:
    """Do nothing."""


def _one_by_one(pieces: Sequence[S], work: Callable[[S], R], done: Callable[[R], None] = lambda _: None) -> list[R]:
    results = []
    for piece in pieces:
        results.append(work(piece))
        done(results[-1])
    return results


def _each_in(
    pool: ProcessPoolExecutor,
    pieces: Sequence[S],
    work: Callable[[S], R],
    done: Callable[[R], None] = lambda _: None,
) -> list[R]:
    try:
        futures = [pool.submit(work, piece) for piece in pieces]
        for future in as_completed(futures):
            done(future.result())
        return [future.result() for future in futures]
    except BrokenProcessPool as error:
        raise RetryError(
            "a process of this command was killed, perhaps because the machine ran out of memory. Run the command "
            "again with a smaller --parallel"
        ) from error


@contextmanager
def _pool(processes: int, method: str) -> Iterator[ProcessPoolExecutor]:
    """Have processes; at the end, whatever they do is ended."""
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context(method), _end_with_parent)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        ours = [child for child in multiprocessing.active_children() if child not in others]
        for child in ours:
            child.terminate()
        for child in ours:
            child.join()


def _end_with_parent() -> None:
    # Ctrl-C reaches every process of the terminal; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(143)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
