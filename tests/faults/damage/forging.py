"""Rows that a store has, and should not: all checksums are right, and so is the offset. Only its log can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore.model import StoreFormat
from statestore.stores.open import build_store
from tests.faults.damage.stores import FORMATS, Copy

Change = tuple[bytes, bytes | None, int]


def forgeries_of(store: str) -> dict[str, Callable[[Copy, str], None]]:
    """Ways to forge a store, by name."""
    found: dict[str, Callable[[Copy, str], None]] = {
        "row gone": lambda copy, store: _forge(copy, store, lambda key, value, time: (key, None, time)),
        "value changed": lambda copy, store: _forge(copy, store, lambda key, value, time: (key, value + b"!", time)),
        "row too many": lambda copy, store: _forge(copy, store, lambda key, value, time: (b"+" + key, value, time)),
    }
    if FORMATS[store] is StoreFormat.TIMESTAMPED:
        found["timestamp changed"] = lambda copy, store: _forge(
            copy, store, lambda key, value, time: (key, value, time + 1)
        )
    return found


def move_offset(copy: Copy, store: str, offset: int) -> None:
    """Let a store claim that it is further than it is, or than its log is."""
    _open_and(copy, store, lambda opened: opened.commit({copy.spec(store).partition: offset}))


def _forge(copy: Copy, store: str, change: Callable[[bytes, bytes, int], Change]) -> None:
    """Change the newest row."""
    key = max(copy.original.expected(store), key=lambda key: (key[-12:], key))
    value, time = copy.original.expected(store)[key]
    changed = change(key, value, time or 1)

    def apply(opened: Any) -> None:
        opened.apply_changelog(*([column] for column in changed))
        opened.commit({})

    _open_and(copy, store, apply)


def _open_and(copy: Copy, store: str, work: Callable[[Any], None]) -> None:
    opened = build_store(copy.original.store(store))
    opened.init(copy.spec(store).context())
    work(opened)
    opened.close()
