"""The results as tables: with the present states for the terminal, and without them for docs/testing.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tests.documents import DOCS, with_generated
from tests.everything.part import Part
from tests.everything.results import Result, ResultsError
from tests.everything.tree import ROOT

BEGIN = "<!-- suites: written by `make everything` -->"
END = "<!-- end of the suites -->"
DOCUMENT = DOCS / "testing.md"

State = Literal["green", "red", "stale"]


class Standing(NamedTuple):
    """A part, its last result, and its state with the present files."""

    part: Part
    state: State
    last: Result | None


def standings(parts: Sequence[Part], results: Mapping[str, Result], root: Path = ROOT) -> list[Standing]:
    """Return the present state of each part. It is stale if there is no result for the present hash of its files."""
    return [standing(part, results.get(part.name), root) for part in parts]


def standing(part: Part, last: Result | None, root: Path = ROOT) -> Standing:
    """Return the present state of a part, from its last result."""
    return Standing(part, last.result if last and last.tree == part.tree(root) else "stale", last)


def for_terminal(found: Sequence[Standing]) -> str:
    """Return a line for each part, and the number of parts in each state."""
    width = max(len(each.part.name) for each in found)
    lines = [f"{each.part.name:{width}}  {each.state:5}  {_last(each.last)}".rstrip() for each in found]
    counts = Counter(each.state for each in found)
    return "\n".join([*lines, ", ".join(f"{counts[state]} {state}" for state in ("green", "red", "stale"))])


def _last(last: Result | None) -> str:
    return f"{last.result} after {last.seconds} s on {last.date}, {last.commit}" if last else "no result"


def for_document(parts: Sequence[Part], results: Mapping[str, Result]) -> str:
    """Return the last result of each part as a table in Markdown."""
    return "\n".join(
        [
            "| suite | result | seconds | date | commit | hash |",
            "|---|---|---:|---|---|---|",
            *(_row(part.name, results.get(part.name)) for part in parts),
        ]
    )


def _row(name: str, last: Result | None) -> str:
    if last is None:
        return f"| {name} | not run | | | | |"
    return f"| {name} | {last.result} | {last.seconds:,} | {last.date} | `{last.commit}` | `{last.tree}` |"


def write_document(parts: Sequence[Part], results: Mapping[str, Result], document: Path = DOCUMENT) -> None:
    """Write the table between its marks.

    Raises
    ------
    ResultsError
        If the document does not have each mark once, in this order.
    """
    text = document.read_text(encoding="utf-8")
    try:
        document.write_text(with_generated(text, BEGIN, END, for_document(parts, results)), encoding="utf-8")
    except ValueError as error:
        raise ResultsError(f"{document}: {error}") from error
