"""Loops over the records of a log, compiled by numba.

What is compiled is kept on disk: beside the source (`__pycache__`), or below the user's cache directory where that may
not be written, or where NUMBA_CACHE_DIR says. So a process pays for numba's import, not for the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile a function when it is first called; it runs without the interpreter's lock."""
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # no directory can be written: compile in every process
        return cast(F, numba.njit(nogil=True)(function))
