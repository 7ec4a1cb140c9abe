"""Ordered sequences of rows laid over one another, the upper one winning."""

from __future__ import annotations

from collections.abc import Iterator

from statestore.stores.table import Row

#: A row in which None stands for a delete.
Change = tuple[bytes, bytes | None]


def overlay(upper: Iterator[Change], lower: Iterator[Change], *, reverse: bool = False) -> Iterator[Change]:
    """Merge two sequences in key order (or both in reverse); of equal keys only the upper row is passed on."""
    over = next(upper, None)
    under = next(lower, None)
    while over is not None and under is not None:
        if over[0] == under[0]:
            under = next(lower, None)
        elif (over[0] < under[0]) != reverse:
            yield over
            over = next(upper, None)
        else:
            yield under
            under = next(lower, None)
    if over is not None:
        yield over
        yield from upper
    elif under is not None:
        yield under
        yield from lower


def live(changes: Iterator[Change]) -> Iterator[Row]:
    """Leave the deletes out."""
    for key, value in changes:
        if value is not None:
            yield key, value
