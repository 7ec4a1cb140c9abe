"""The command line that the benchmarks share: all is measured and reported, or a choice is measured and shown."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from benchmarks.measure import SMALL, Result, report
from statestore.errors import InputError, StateStoreError

T = TypeVar("T")


class Asked(NamedTuple):
    """What a call of a benchmark measures.

    Attributes
    ----------
    part
        Only cases that have this in their names.
    only
        Only these systems; all if empty.
    rounds
        So many rounds instead of the case's own number.
    """

    part: str = ""
    only: tuple[str, ...] = ()
    rounds: int | None = None

    @property
    def whole(self) -> bool:
        """Whether everything is measured, in however many rounds."""
        return not self.part and not self.only

    def require_some(self, cases: Iterable[str]) -> None:
        """Make sure that there are cases of that name."""
        names = list(cases)
        if not any(self.part in name for name in names):
            raise InputError(f"no case has {self.part!r} in its name; the cases are: {'; '.join(names)}")

    def systems(self, there: Mapping[str, T], not_small: Collection[str] = ()) -> dict[str, T]:
        """Return those asked for; if none is named all, but for a look not those of `not_small`."""
        if unknown := set(self.only).difference(there):
            raise InputError(f"no system is called {', '.join(unknown)}; the systems are: {'; '.join(there)}")
        default = [name for name in there if not (SMALL and name in not_small)]
        return {name: system for name, system in there.items() if name in (self.only or default)}


def main(
    name: str, run: Callable[[Asked], list[Result]], draw: Callable[[str, list[Result]], None] | None = None
) -> None:
    """Measure everything and report it; a choice is only shown."""
    parser = ArgumentParser(prog=f"bench-{name}")
    parser.add_argument("--case", default="", help="measure only cases that have this in their names")
    parser.add_argument("--system", action="append", default=[], help="measure only this system; may be repeated")
    parser.add_argument("--rounds", type=int, help="measure so many rounds")
    arguments = parser.parse_args()
    asked = Asked(arguments.case, tuple(arguments.system), arguments.rounds)
    try:
        results = run(asked)
    except StateStoreError as error:
        sys.exit(f"bench-{name}: {error}")
    if asked.whole:
        report(name, results, draw)
        return
    for result in results:
        digits = 1 if result.median >= 100 else 3
        runs = " ".join(f"{figure:,.{digits}f}" for figure in result.runs)
        print(f"{result.case}: {result.system}: {result.median:,.{digits}f} {result.unit} ({runs})")
