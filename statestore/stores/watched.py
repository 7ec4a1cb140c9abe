"""Reads whose failures are told to somebody else than the caller, too.

User code that catches every exception would go on with a store that could not be read. A task is told of the failure
here, and stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from statestore.errors import StateStoreError, of_os_error

T = TypeVar("T")

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
    """A store of bytes of any kind, to be read.

    Parameters
    ----------
    reader
        The store.
    failed
        Called with each failure of the store.
    """

    def __init__(self, reader: Any, failed: Failed) -> None:
        self._reader = reader
        self._failed = failed

    def get(self, *key: Any) -> Any:
        """See `KeyValueReader`."""
        try:
            return self._reader.get(*key)
        except (StateStoreError, OSError) as error:
            fail(error, self._failed)

    def get_many(self, *keys: Any) -> Any:
        """See `KeyValueReader`."""
        return self._watch(lambda: self._reader.get_many(*keys))

    def scan(self, *bounds: Any, **how: Any) -> Iterator[Any]:
        """See `KeyValueReader`."""
        return self._rows(self._watch(lambda: self._reader.scan(*bounds, **how)))

    @property
    def window_size_ms(self) -> int:
        """See `WindowReader`."""
        size: int = self._reader.window_size_ms
        return size

    def fetch(self, *window: Any) -> Any:
        """See `WindowReader`."""
        return self._watch(lambda: self._reader.fetch(*window))

    def fetch_range(self, *bounds: Any, **how: Any) -> Iterator[Any]:
        """See `WindowReader`."""
        return self._rows(self._watch(lambda: self._reader.fetch_range(*bounds, **how)))

    def fetch_session(self, *session: Any) -> Any:
        """See `SessionReader`."""
        return self._watch(lambda: self._reader.fetch_session(*session))

    def find_sessions(self, *bounds: Any, **how: Any) -> Iterator[Any]:
        """See `SessionReader`."""
        return self._rows(self._watch(lambda: self._reader.find_sessions(*bounds, **how)))

    def _watch(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except (StateStoreError, OSError) as error:
            fail(error, self._failed)

    def _rows(self, rows: Iterator[T]) -> Iterator[T]:
        try:
            yield from rows
        except (StateStoreError, OSError) as error:
            fail(error, self._failed)
