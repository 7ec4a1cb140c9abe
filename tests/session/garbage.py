"""When pytest looks for garbage: not while it collects, and never again in what it has collected.

Tests, fixtures and modules live until the end of a run. Each look at all of them takes a second of a core.
"""

from __future__ import annotations

import gc

import pytest


class Garbage:
    """A plugin that leaves what was collected out of each later look for garbage."""

    def __init__(self) -> None:
        gc.disable()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Set aside all that is there, and look for garbage from now on."""
        gc.freeze()
        gc.enable()
