"""The results file: for each part of a suite, its last result, on one line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, TypeAdapter, ValidationError

from statestore.durable import write_durably
from statestore.errors import StateStoreError

RESULTS = Path(__file__).with_name("results.json")
Outcome = Literal["green", "red"]


class ResultsError(StateStoreError):
    """The results file, or the document that shows it, cannot be used."""


class Result(BaseModel):
    """The last result of a part.

    Attributes
    ----------
    tree
        The hash of the files that were tested, and of the command.
    commit
        The commit at that time; it ends in `+changes` if these files were not as committed.
    command
        The command that repeats the run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    part: str
    result: Outcome
    tree: str
    commit: str
    seconds: NonNegativeInt
    date: date
    command: str


_RESULTS = TypeAdapter(tuple[Result, ...])


def load_results(path: Path = RESULTS) -> dict[str, Result]:
    """Read the results by part; none if there is no file.

    Raises
    ------
    ResultsError
        If the file cannot be read, or names a part twice.
    """
    try:
        found = _RESULTS.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        raise ResultsError(f"{path} cannot be read: {error}. Restore it with git, or delete it.") from error
    results = {result.part: result for result in found}
    if len(results) < len(found):
        raise ResultsError(f"{path} names a part twice. Delete one of the lines.")
    return results


def save_results(results: Mapping[str, Result], path: Path = RESULTS) -> None:
    """Replace the file durably: one line for each part, in the order of the names."""
    lines = ",\n".join(results[part].model_dump_json() for part in sorted(results))
    write_durably(path, f"[\n{lines}\n]\n")
