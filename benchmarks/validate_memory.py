"""How much memory a process takes with all that it has started, Spark's JVM and Python workers among them."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from types import TracebackType
from typing import Self

import psutil

_POLL_S = 0.1
#: Names of the two parts.
JVM, PYTHON = "JVM", "Python"


class PeakMemory:
    """Watches this process and all below it while the context lasts.

    Attributes
    ----------
    peak
        Resident bytes of the JVM and of Python at the moment at which they took most together. Pages that forked
        workers share count for each of them.
    """

    def __init__(self) -> None:
        self.peak: Counter[str] = Counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        this = psutil.Process()
        while not self._ended.wait(_POLL_S):
            found: Counter[str] = Counter()
            for process in (this, *this.children(recursive=True)):
                with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                    found[JVM if process.name() == "java" else PYTHON] += process.memory_info().rss
            self.peak = max(self.peak, found, key=Counter.total)
