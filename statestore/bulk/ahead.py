"""Prepares the next batch in a thread while one is used: the loops run without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def one_ahead(source: Generator[T, None, None]) -> Generator[T, None, None]:
    """Yield what a generator yields, which runs in a thread of its own, by one item ahead.

    When this is closed, it waits for the item that is being made, and closes the source. What the source raises is
    raised where its item was to be yielded.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        try:
            coming = thread.submit(next, source, None)
            while (item := coming.result()) is not None:
                coming = thread.submit(next, source, None)
                yield item
        finally:
            thread.submit(source.close).result()
