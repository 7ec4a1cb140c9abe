"""An answer that is given again for some seconds where it comes from object storage: to ask costs requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from statestore.objects.path import Location, ObjectPath

_FOR_S = 5.0
T = TypeVar("T")


class Recent(Generic[T]):
    """The last answer about one place; used by one thread at a time."""

    def __init__(self) -> None:
        self._last: tuple[Location, float, T] | None = None

    def get(self, place: Location, ask: Callable[[], T]) -> T:
        """Return the last answer if it is young and the place is in object storage; else ask."""
        if not isinstance(place, ObjectPath):
            return ask()
        if self._last is None or self._last[0] != place or time.monotonic() - self._last[1] > _FOR_S:
            self._last = place, time.monotonic(), ask()
        return self._last[2]
