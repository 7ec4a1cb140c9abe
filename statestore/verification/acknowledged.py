"""Rows of stores that cannot be judged, and that a user has acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from statestore.discovery.acknowledged import read_acknowledged
from statestore.reports import Action, VerifyRow


def as_acknowledged(row: VerifyRow, why: str) -> VerifyRow:
    """Return the row of a store that a user has acknowledged: no action is needed."""
    detail = "; ".join(filter(None, [why, row.detail]))
    return row.model_copy(update={"acknowledged": why, "action": Action.NONE, "detail": detail, "advice": None})


def with_acknowledged(rows: Iterable[VerifyRow], state_dir: Path) -> list[VerifyRow]:
    """Return the rows, with those acknowledged whose stores could not be judged."""
    read = cache(read_acknowledged)
    return [
        row
        if row.judged or (why := read(state_dir, row.application).get(row.store)) is None
        else as_acknowledged(row, str(why))
        for row in rows
    ]
