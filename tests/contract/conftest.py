"""The one fixture that the contract runs over: a store of each composition."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from compositions import ALL, Composition
from store_under_test import Home, StoreUnderTest

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 1 << 30


@pytest.fixture(params=ALL, ids=str)
def composition(request: pytest.FixtureRequest) -> Composition:
    """Each composition in turn; `@compositions(...)` chooses some."""
    found: Composition = request.param
    return found


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, if there is room: thousands of databases are made here, and each waits for the disk.

    Nothing of the contract needs a real one: what a process has written outlives the process in either.
    """
    if not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="contract-", dir=_MEMORY) as directory:
        yield Path(directory)


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
