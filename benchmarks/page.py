"""`make bench-page`: what the page of the state stores costs the API server, with many store partitions.

Each round is a process of its own, which reads a directory of reports of some weeks as the API server does: the first
look of all, a look when nothing is new, a search, and a look after a new report. Figures are seconds of a core (one
thread does all, and the files are in the page cache), and the most memory that the process has had (MiB), with Python
and all libraries.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.command import Asked, main
from benchmarks.measure import SMALL, Result, plot
from benchmarks.page_reports import fill
from demo.processes import ServiceError

PARTITIONS = (1_000, 10_000) if SMALL else (10_000, 100_000)
ROUNDS = 1 if SMALL else 5
_CASES = {
    "first look": "CPU s",
    "nothing new": "CPU s",
    "search": "CPU s",
    "new report of process": "CPU s",
    "memory": "MiB",
}


def run(asked: Asked) -> list[Result]:
    """Measure the page with each number of store partitions."""
    results = []
    for partitions in PARTITIONS:
        if asked.part not in f"{partitions:,}":
            continue
        with tempfile.TemporaryDirectory(prefix="bench-page-") as name:
            fill(Path(name), partitions)
            runs = [_run(Path(name)) for _ in range(asked.rounds or ROUNDS)]
        results += [
            Result(f"{partitions:,} store partitions: {case}", "ours", unit, [found[case] for found in runs])
            for case, unit in _CASES.items()
        ]
    return results


def _run(directory: Path) -> dict[str, float]:
    (directory / "process" / "one-more.json").unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.page_program", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServiceError(f"the program that is measured has failed: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _draw(name: str, results: list[Result]) -> None:
    """Draw a panel for each look, with a bar for each number of store partitions."""
    apart = [(result, result.case.partition(" store partitions: ")) for result in results]
    shown = [Result(look, partitions, result.unit, result.runs) for result, (partitions, _, look) in apart]
    plot(name, sorted(shown, key=lambda result: list(_CASES).index(result.case)))


if __name__ == "__main__":
    main("page", run, _draw)
