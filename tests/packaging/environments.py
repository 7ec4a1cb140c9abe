"""Environments into which the wheel is installed, and in which its programs are run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
WAIT_S = 300


class Installed:
    """An environment in which the wheel is installed, and the source tree is not to be found."""

    def __init__(self, directory: Path, wheel: Path, *arguments: str) -> None:
        self._bin = directory / "bin"
        _uv("venv", "--python", sys.executable, str(directory))
        self.site_packages = directory / "lib" / "python3.11" / "site-packages"
        install = ("pip", "install", "--python", str(self._bin / "python"), *arguments, str(wheel))
        # What the environment was made of is in uv's cache, unless somebody has emptied it.
        if _uv("--offline", *install, check=False).returncode != 0:
            _uv(*install)
        self._directory = directory

    def run(self, program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, with none of the settings of this process."""
        foreign = ("AIRFLOW", "PYTHON", "PYSPARK", "SPARK", "STATESTORE", "VIRTUAL_ENV")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        path = f"{self._bin}{os.pathsep}{inherited['PATH']}"
        return subprocess.run(
            [self._bin / program, *arguments],
            cwd=self._directory,
            env={**inherited, "PATH": path, "COLUMNS": "200", **environment},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )


def _uv(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([Path(sys.executable).with_name("uv"), "--quiet", *arguments], timeout=WAIT_S, check=check)
