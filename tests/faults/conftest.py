"""A directory in memory, and a broker of one's own."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from demo.processes import Processes
from tests.faults.memory import in_memory
from tests.faults.own_broker import OwnBroker

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember what has failed."""
    report = yield
    item.stash[_FAILED] = report.failed or item.stash.get(_FAILED, False)
    return report


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory in memory; if the test fails, pytest's own gets a copy of it."""
    with in_memory(tmp_path) as directory:
        yield directory
        if directory != tmp_path and request.node.stash.get(_FAILED, False):
            shutil.copytree(directory, tmp_path, dirs_exist_ok=True, ignore_dangling_symlinks=True)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[OwnBroker]:
    """A broker that the test may stop and kill."""
    with Processes(tmp_path / "broker") as processes:
        yield OwnBroker(processes, tmp_path / "broker" / "kafka")
