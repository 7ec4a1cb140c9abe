"""Quix Streams 3.28.1, counting by key exactly once, in an environment of its own.

Everything is at its defaults but what the comparison fixes: two processes, the guarantee and the commit interval.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.counting import Command, CountingRun, CountingSystem
from benchmarks.measure import RESULTS
from statestore.errors import RetryError

PROCESSES = 2
_LOCK = Path(__file__).parent / "quix.txt"
_PROGRAM = Path(__file__).parent / "quix_count.py"


def quix_streams() -> dict[str, CountingSystem]:
    """Make the environment where it is not there; return the system."""
    python = environment()

    def command(run: CountingRun) -> Command:
        work = {
            "servers": run.input.servers,
            "group": run.application,
            "topic": run.input.topic,
            "ends": run.input.ends,
            "commit_interval_s": run.commit_interval_ms / 1000,
            "processes": PROCESSES,
            "state_dir": str(run.directory / "state"),
            "started": str(run.started),
        }
        return Command([str(python), str(_PROGRAM), json.dumps(work)])

    return {
        "Quix Streams": CountingSystem(
            command, lambda run: f"changelog__{run.application}--{run.input.topic}--default", counts_are="json"
        )
    }


def environment() -> Path:
    """Return the Python of a virtual environment that has exactly what the lock names.

    Raises
    ------
    RetryError
        If the packages cannot be installed.
    """
    directory = (RESULTS / "quix").absolute()
    python, installed = directory / "bin" / "python", directory / "installed"
    digest = hashlib.sha256(_LOCK.read_bytes()).hexdigest()
    if installed.exists() and installed.read_text(encoding="utf-8") == digest:
        return python
    shutil.rmtree(directory, ignore_errors=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        subprocess.run([python, "-m", "pip", "install", *options, "-r", _LOCK], check=True)
    except subprocess.CalledProcessError as error:
        raise RetryError(
            f"Quix Streams could not be installed into {directory} ({error}): check the network (pip's settings for "
            "index, proxy and certificate are used) and run this again"
        ) from error
    installed.write_text(digest, encoding="utf-8")
    return python
