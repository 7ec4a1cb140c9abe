"""The wheel, and environments into which it is installed: with its base dependencies, and with those of all extras."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.packaging.environments import REPOSITORY, WAIT_S, Installed


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the tree."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=WAIT_S, check=True)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with its base dependencies."""
    lock = REPOSITORY / "requirements" / "demo.txt"
    return Installed(tmp_path_factory.mktemp("alone"), wheel, "--constraints", str(lock))


@pytest.fixture(scope="session")
def complete(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with all packages of this environment, but its editable install."""
    installed = Installed(tmp_path_factory.mktemp("complete"), wheel, "--no-deps")
    packages = tmp_path_factory.mktemp("packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("statestore-", "_statestore")):
            (packages / entry.name).symlink_to(entry)
    (installed.site_packages / "packages.pth").write_text(f"{packages}\n")
    return installed
