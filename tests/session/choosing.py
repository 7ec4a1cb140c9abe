"""Which cases of a test a marker names: `short_for` for `make test`, `share_for` for `make faults-share`."""

from __future__ import annotations

import pytest


def is_chosen(item: pytest.Item, marker: pytest.Mark, case: int) -> bool:
    """Say whether the marker names this case of its test, the `case`-th: each n-th, those of some names, or all."""
    if "every" in marker.kwargs:
        return case % int(marker.kwargs["every"]) == 0
    if not marker.args:
        return True
    # A case of several parameters is called after all of them.
    case_id = item.callspec.id  # type: ignore[attr-defined]
    return any(f"-{name}-" in f"-{case_id}-" for name in marker.args)
