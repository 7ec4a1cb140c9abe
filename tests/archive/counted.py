"""An object store that tells what it was asked."""

from __future__ import annotations

from collections import Counter
from urllib.parse import parse_qs, unquote, urlsplit

from tests.archive.faulty import Fault, FaultyStore


class CountedStore(FaultyStore):
    """Forwards requests, and counts them."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.asked: Counter[str] = Counter()

    def fault_for(self, method: str, path: str) -> Fault | None:
        """Count a request: `LIST`, or its method and the last part of the object's name."""
        parts = urlsplit(path)
        listed = "list-type" in parse_qs(parts.query)
        self.asked["LIST" if listed else f"{method} {unquote(parts.path).rpartition('/')[2]}"] += 1
        return super().fault_for(method, path)
