"""Python's search for cyclic garbage, kept from looking again and again at what stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_waiting() -> Iterator[None]:
    """Leave cyclic garbage until the end, where much is made that stays."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def keep_all() -> None:
    """Take all that is there now for what stays: it is never looked at again.

    Before a process forks, this keeps its memory shared: looking at an object writes to it.
    """
    gc.collect()
    gc.freeze()
