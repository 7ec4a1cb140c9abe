"""A process for one campaign: it runs it and leaves what came of it in a file. The soak starts it, and may kill it."""

from __future__ import annotations

import traceback
from argparse import ArgumentParser
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from statestore.durable import write_durably
from tests.faults.soak.kinds import Kind, Progress, kinds

#: A whole sequence of steps, with what it was printed with.
_ERROR_CHARACTERS = 40_000


class Outcome(BaseModel):
    """What came of a campaign; `error` is the end of a traceback, or empty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    counts: dict[str, int]
    point: str
    error: str = ""


def outcome_of(directory: Path) -> Path:
    """Where the process leaves its outcome."""
    return directory / "outcome.json"


def run(kind: Kind, seed: int, number: int, servers: str, directory: Path) -> Outcome:
    """Run a campaign to its end, or to what is wrong."""
    progress, error = Progress(), ""
    try:
        kind.run(seed, number, servers, directory, progress)
    except Exception:
        error = traceback.format_exc()[-_ERROR_CHARACTERS:]
    return Outcome(counts=dict(progress.counts), point=progress.point, error=error)


def main() -> None:
    """Run the campaign that the arguments name."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("kind")
    for name in ("seed", "number", "length"):
        parser.add_argument(name, type=int)
    parser.add_argument("servers")
    parser.add_argument("directory", type=Path)
    asked = parser.parse_args()
    outcome = run(kinds(asked.length)[asked.kind], asked.seed, asked.number, asked.servers, asked.directory)
    write_durably(outcome_of(asked.directory), outcome.model_dump_json())


if __name__ == "__main__":
    main()
