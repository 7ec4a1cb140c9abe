"""The one fixture that the contract runs over: a store of each composition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_under_test import Home, StoreUnderTest

from tests.compositions import ALL, Composition, gated


@pytest.fixture(params=gated(ALL), ids=str)
def composition(request: pytest.FixtureRequest) -> Composition:
    """Each composition in turn; `@compositions(...)` chooses some."""
    found: Composition = request.param
    return found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Directories of a task that has nothing yet."""
    return Home(tmp_path / "state")


@pytest.fixture
def store(composition: Composition, home: Home) -> Iterator[StoreUnderTest]:
    """A new store, open."""
    opened = StoreUnderTest(composition, home)
    yield opened
    opened.close(clean=False)
