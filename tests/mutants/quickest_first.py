"""A pytest plugin for runs under mutmut: the quickest test first, as the first that fails ends the run of a mutant.

mutmut writes down how long each test took on the unchanged code, and starts pytest in the directory of that file.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

_STATS = Path("mutmut-stats.json")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in the order of how long they took."""
    if _STATS.exists():
        seconds = json.loads(_STATS.read_text(encoding="utf-8"))["duration_by_test"]
        items.sort(key=lambda item: seconds.get(item.nodeid, 0))
