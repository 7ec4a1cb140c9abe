"""Reads whose failures are also reported to an observer.

User code that catches every exception would go on with a store that could not be read. A task is told of the failure
here, and stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn, ParamSpec, TypeVar

from statestore.errors import StateStoreError, of_os_error

T = TypeVar("T")
P = ParamSpec("P")

#: Called with a failure before it is raised.
Failed = Callable[[StateStoreError], None]


def fail(error: StateStoreError | OSError, failed: Failed | None) -> NoReturn:
    """Tell a failure of a store, and raise it. An error of the operating system is raised as one of the library."""
    known = of_os_error(error) if isinstance(error, OSError) else error
    if failed is not None:
        failed(known)
    if known is error:
        raise error
    raise known from error


class Watched:
    """A store whose failures are told."""

    _failed: Failed | None = None

    def tell_failures_to(self, failed: Failed) -> None:
        """Report every later failure to read or to write, before it is raised: the caller may swallow it."""
        self._failed = failed

    def fail(self, error: StateStoreError | OSError) -> NoReturn:
        """Tell a failure, and raise it."""
        fail(error, self._failed)

    def _watch(self, read: Callable[P, Iterator[T]], *bounds: P.args, **how: P.kwargs) -> Iterator[T]:
        """Read a range of rows."""
        if self._failed is None:
            return read(*bounds, **how)
        try:
            rows = read(*bounds, **how)
        except (StateStoreError, OSError) as error:
            self.fail(error)
        return _watched(rows, self._failed)


def _watched(rows: Iterator[T], failed: Failed) -> Iterator[T]:
    try:
        yield from rows
    except (StateStoreError, OSError) as error:
        fail(error, failed)
