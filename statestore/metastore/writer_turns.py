"""Writers of a command topic take turns, so that none is fenced by the next and each is served in the order it came.

    <backup>.turns/gate     locked for the moment in which a number is drawn
    <backup>.turns/<n>      locked by the writer with number n, until it has ended; the lowest one's turn it is

All writers that share a backup share its turns. They are about waiting alone: that only one writer commits is Kafka's
fence. So writers on machines that share no directory are merely slower together. A turn that lasts too long, because
its process was stopped, is passed over. A writer that was killed holds no lock, and its file is removed by the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from statestore.errors import LockedError
from statestore.statedir.lock import locked_file

#: A command takes 0.1 s, and one that waits for Kafka as long as its deadline.
LONGEST_TURN_S = 10.0
_GATE_S = 10.0
#: Of the one who is next; those behind need not look as often.
_POLL_S = 0.01
_LONGEST_POLL_S = 0.1


class Turns:
    """The turns of one service's writers.

    Parameters
    ----------
    directory
        Of their files.
    longest_s
        A writer that is first in the row for longer (s) is passed over.
    """

    def __init__(self, directory: Path, longest_s: float = LONGEST_TURN_S) -> None:
        self._directory = directory
        self._longest_s = longest_s

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for those who came before, then have the turn; where files cannot be locked, there are no turns."""
        with ExitStack() as held:
            with suppress(OSError, LockedError):
                self._wait(held.enter_context(self._numbered()))
            yield

    @contextmanager
    def _numbered(self) -> Iterator[int]:
        """Draw a number, and hold it."""
        with ExitStack() as held:
            with locked_file(self._directory / "gate", _GATE_S):
                own = max(self._numbers(), default=0) + 1
                held.enter_context(locked_file(self._directory / str(own), 0))
            try:
                yield own
            finally:
                (self._directory / str(own)).unlink(missing_ok=True)

    def _wait(self, own: int) -> None:
        passed_over: set[int] = set()
        first, since = None, time.monotonic()
        while before := [number for number in self._numbers() if number < own and number not in passed_over]:
            if before[0] != first:
                first, since = before[0], time.monotonic()
            if self._has_ended(before[0]):
                continue
            if time.monotonic() - since > self._longest_s:
                passed_over.add(before[0])
            time.sleep(min(_POLL_S * len(before), _LONGEST_POLL_S))

    def _has_ended(self, number: int) -> bool:
        """Tell whether a writer is gone. Its number is drawn by nobody else while a higher one is there."""
        path = self._directory / str(number)
        with suppress(LockedError), locked_file(path, 0):
            path.unlink(missing_ok=True)
            return True
        return False

    def _numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self._directory.iterdir() if path.name.isdigit())
