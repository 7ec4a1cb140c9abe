"""How many cases each composition of a store has, and each engine in tests of tasks, restores, and crashes.

Compositions are those of tests/compositions.py, engines those of tests/engines.py. A case is counted by its parameters.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

_ENGINES = frozenset({"txn_rocksDB", "rocksDB", "in_memory"})
#: By composition: cases that `make test` runs, and cases that it leaves to `make faults`.
Coverage = dict[str, list[int]]


def coverage(items: Iterable[pytest.Item]) -> Coverage:
    """Count the cases of each composition."""
    found: Coverage = {}
    for item in items:
        is_long = item.get_closest_marker("long") is not None
        for name in _compositions(item):
            found.setdefault(name, [0, 0])[is_long] += 1
    return dict(sorted(found.items()))


def _compositions(item: pytest.Item) -> set[str]:
    found = set()
    for value in getattr(getattr(item, "callspec", None), "params", {}).values():
        if type(value).__name__ == "Composition":
            found.add(f"store {value}")
        elif isinstance(value, str) and value in _ENGINES:
            found.add(f"task {value}")
    return found
