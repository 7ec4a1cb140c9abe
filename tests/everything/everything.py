"""Run all parts whose result is not green for the present tree, one after the other, and keep each result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.everything.part import Part
from tests.everything.results import RESULTS, Result, load_results, save_results
from tests.everything.running import Ended, run
from tests.everything.suites import SUITES
from tests.everything.table import DOCUMENT, Standing, for_terminal, standing, standings, write_document
from tests.everything.tree import ROOT, commit

_LOG_CHARACTERS = 3_000


@dataclass(frozen=True)
class Everything:
    """A run of some parts.

    Attributes
    ----------
    parts
        The parts to run, in this order.
    seed
        The seed of faults.
    work
        A directory for the logs.
    all_parts
        The parts that the document lists.
    """

    parts: Sequence[Part]
    seed: int
    work: Path
    results: Path = RESULTS
    document: Path = DOCUMENT
    all_parts: Sequence[Part] = SUITES
    root: Path = ROOT
    tell: Callable[[str], None] = print

    def states(self) -> list[Standing]:
        """Return the present state of each part."""
        return standings(self.parts, load_results(self.results), self.root)

    def show(self) -> bool:
        """Print the state of each part; return whether all are green."""
        return all(each.state == "green" for each in self._shown())

    def _shown(self) -> list[Standing]:
        found = self.states()
        self.tell(for_terminal(found))
        return found

    def run(self) -> bool:
        """Run the stale parts, then the red ones again; return whether all parts are green afterwards.

        A part that was interrupted has no result, so the next run begins with it.
        """
        found = self._shown()
        for state in ("stale", "red"):
            for each in found:
                if each.state == state:
                    self._run(each.part)
        self.tell("")
        return self.show()

    def _run(self, part: Part) -> None:
        # A part that ran before may have written files of this one.
        if standing(part, load_results(self.results).get(part.name), self.root).state == "green":
            return
        log = self.work / f"{part.name.replace('/', '-')}.log"
        self._say(f"{part.name}: {part.shown(self.seed)}")
        tree, at = part.tree(self.root), commit(part.scope, self.root)
        ended = run(part, self.seed, log, self.work / "processes")
        self._say(f"{part.name}: {f'RED, {ended.why},' if ended.why else 'green'} after {ended.seconds} s")
        if ended.why:
            self.tell(f"{_end_of(log)}\nRepeat it: {part.shown(self.seed)}\nWhole output: {log}")
        if part.tree(self.root) == tree:
            self._keep(part, tree, at, ended)
        else:
            self.tell(f"The files that {part.name} tests changed while it ran. Its result is not kept.")

    def _keep(self, part: Part, tree: str, at: str, ended: Ended) -> None:
        results = load_results(self.results)
        results[part.name] = Result(
            part=part.name,
            result="red" if ended.why else "green",
            tree=tree,
            commit=at,
            seconds=ended.seconds,
            date=datetime.now(UTC).date(),
            command=part.shown(self.seed),
        )
        save_results(results, self.results)
        write_document(self.all_parts, results, self.document)

    def _say(self, line: str) -> None:
        self.tell(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")


def _end_of(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARACTERS:].rstrip()
