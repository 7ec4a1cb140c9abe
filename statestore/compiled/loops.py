"""Loops over records and rows, compiled by numba.

What is compiled is kept on disk: beside the source (`__pycache__`), or below the user's cache directory where that may
not be written, or where NUMBA_CACHE_DIR says. So a process pays for numba's import, not for the compiler. It is used
only as long as all that the compiler has put together is the same: numba itself looks at the file of the function that
is called, and would go on with what an older version of this package had in the other files.
"""

from __future__ import annotations

import fcntl
import linecache
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from inspect import unwrap
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.registry import cpu_target

F = TypeVar("F", bound=Callable[..., object])

# The half of numba's import that it leaves to the first call: a process has it done before its work begins.
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()

_CONSTANTS = (int, float, bytes, str, tuple, np.generic)
#: Of files, by name, from when the first function of each was met: what is imported is what was there then.
_digests: dict[str, bytes] = {}
_loops: list[Any] = []
#: How long a process waits for another one that compiles, and how often it looks.
_LONGEST_WAIT_S, _WAIT_S = 60.0, 0.05


def compiled(function: F) -> F:
    """Compile a function when it is first called; it runs without the interpreter's lock."""
    return _compiled(function, inline=False)


def inlined(function: F) -> F:
    """Compile a function into those that call it: for the small ones that run for each record."""
    return _compiled(function, inline=True)


def _compiled(function: F, *, inline: bool) -> F:
    loop: Any = numba.njit(nogil=True, forceinline=inline)(function)
    for known in (compiled, function):
        _file_digest(known)
    with suppress(RuntimeError):  # no directory can be written: compile in every process
        loop._cache = _Cache(function)
        _loops.append(loop)
    return cast(F, loop)


def load_kept() -> int:
    """Load all that is kept on disk of functions that were imported; return how many compiled versions.

    Loading takes tenths of a second. Processes that are forked from this one need not do it.
    """
    loaded = 0
    for loop in _loops:
        for signature in loop._cache.kept():
            loop.compile(signature)
            loaded += 1
    return loaded


class _Compiler:
    """The turn to compile: of the processes of a machine one at a time, so that the others load what it has kept.

    Within a process numba lets one thread compile at a time. What fails to compile keeps the turn until the process
    ends; nobody waits longer than `_LONGEST_WAIT_S`.
    """

    def __init__(self) -> None:
        self._turn: int | None = None
        self._owner: object | None = None

    def wait_for(self, owner: object) -> bool:
        """Take the turn, and tell whether it was not there already: functions that another one calls have its turn."""
        if self._owner is not None:
            return False
        with suppress(OSError):  # this package may be in an archive, or where files cannot be locked
            self._turn = os.open(__file__, os.O_RDONLY | os.O_CLOEXEC)
            deadline = time.monotonic() + _LONGEST_WAIT_S
            while not _locked(self._turn) and time.monotonic() < deadline:
                time.sleep(_WAIT_S)
        self._owner = owner
        return True

    def release(self, owner: object) -> None:
        """Give the turn back, if it is that of this function."""
        if self._owner is owner:
            self._owner = None
            if self._turn is not None:
                os.close(self._turn)
                self._turn = None


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_compiler = _Compiler()


class _Cache(FunctionCache):
    """What is kept of one function; its stamp is made when it is first used, as by then all that it calls is there."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._stamped = False

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        self._stamp()
        kept = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        if kept is None and _compiler.wait_for(self):  # another process may have compiled it meanwhile
            kept = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
            if kept is not None:
                _compiler.release(self)
        return kept

    def save_overload(self, sig: Any, data: Any) -> None:
        self._stamp()
        super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        _compiler.release(self)

    def kept(self) -> list[Any]:
        """Return the signatures that a version is kept of which can be used here."""
        self._stamp()
        codegen = cpu_target.target_context.codegen()
        index = self._cache_file._load_index()  # type: ignore[no-untyped-call]
        return [key[0] for key in index if key == self._index_key(key[0], codegen)]  # type: ignore[no-untyped-call]

    def _stamp(self) -> None:
        if not self._stamped:
            ingredients = {_file_digest(compiled), *_ingredients(self._py_func, set())}
            stamp = sha256(b"".join(sorted(ingredients))).hexdigest()
            # numba compares the version first, and unpickles nothing of another one: that may name what is gone by now.
            self._cache_file._version = f"{self._cache_file._version} {stamp}"
            self._cache_file._source_stamp = stamp
            self._stamped = True


def _ingredients(function: FunctionType, seen: set[FunctionType]) -> Iterator[bytes]:
    """Yield what a compiled function is made of: digests of files, constants, and the fields of named tuples."""
    seen.add(function)
    yield _file_digest(function)
    for name in _names(function):
        value = unwrap(function.__globals__.get(name))  # type: ignore[arg-type]
        if isinstance(value, FunctionType):
            if value not in seen and not value.__module__.startswith("numba."):  # its version is looked at by itself
                yield from _ingredients(value, seen)
        elif isinstance(value, type):
            yield repr((name, getattr(value, "_fields", ()))).encode()
        elif isinstance(value, np.ndarray):  # its text leaves out what is in the middle
            yield repr((name, str(value.dtype), value.shape, value.tobytes())).encode()
        elif isinstance(value, _CONSTANTS):
            yield repr((name, value)).encode()


def _names(function: FunctionType) -> Iterator[str]:
    """Names that may be globals in a function, in functions inside of it and in its annotations."""
    codes = [function.__code__]
    for code in codes:
        yield from code.co_names
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    for annotation in function.__annotations__.values():
        yield from re.findall(r"\w+", str(annotation))


def _file_digest(function: Any) -> bytes:
    """Digest of the source file of a function, which may be in an archive; of its own code if there is none."""
    name = function.__code__.co_filename
    if name not in _digests:
        lines = linecache.getlines(name, function.__globals__)
        if not lines:
            return sha256(function.__code__.co_code).digest()
        _digests[name] = sha256("".join(lines).encode()).digest()
    return _digests[name]
