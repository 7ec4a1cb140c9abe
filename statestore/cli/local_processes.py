"""Work on this machine: one piece after another, or several processes that each take the next piece.

Processes are spawned, not forked: threads of Kafka's client and of RocksDB do not survive a fork. They end when the
command ends, however that comes about; what they leave behind is what a killed job leaves, and is cleaned up likewise.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, TypeVar

from statestore.errors import RetryError

if TYPE_CHECKING:
    from statestore.recovery.many import Runner

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
        results = []
        for piece in pieces:
            results.append(work(piece))
            done(results[-1])
        return results
    spawn = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(min(processes, len(pieces)), mp_context=spawn, initializer=_end_with_parent)
    try:
        futures = [pool.submit(work, piece) for piece in pieces]
        for future in as_completed(futures):
            done(future.result())
        return [future.result() for future in futures]
    except BrokenProcessPool as error:
        raise RetryError(
            "a process of this command was killed, perhaps because the machine had no memory left. Run again with a "
            "smaller --parallel"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        ours = [child for child in multiprocessing.active_children() if child not in others]
        for child in ours:
            child.terminate()
        for child in ours:
            child.join()


def runner(processes: int) -> Runner:
    """Return who does the pieces of a restore; one whose process is killed ends the command, which is run again."""
    return lambda pieces, work, *_: run_each(pieces, work, processes)


def _end_with_parent() -> None:
    # Ctrl-C reaches every process of the terminal; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(143)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
