"""How many examples a property draws that needs another number of them than the profile has."""

from __future__ import annotations

from hypothesis import settings

#: Of the profile for which tests name their numbers.
WHOLE = 50


def examples(number: int) -> int:
    """Return as large a part of a number of examples as the profile has of `WHOLE`."""
    return max(number * settings.default.max_examples // WHOLE, 1)
