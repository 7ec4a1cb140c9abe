"""Which mutants nobody noticed, and whether each of these is argued in survivors.toml.

A mutant is named by what it changes and not by where that stands, so that the list outlives changes around it:
`statestore.statedir.seal._number: <line before> => <line after>`, with ` #2` behind it for the second of two that read
the same.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

SURVIVORS_FILE = Path(__file__).with_name("survivors.toml")
LEAST_NOTICED = 0.9


class Mutant(NamedTuple):
    """One change of the source, and whether a test failed because of it."""

    module: str
    name: str
    noticed: bool


class Verdict(NamedTuple):
    """What a run has found.

    Attributes
    ----------
    survivors
        Names of the mutants that no test noticed.
    unargued
        Those of them for which no reason is given.
    stale
        Names with a reason, of mutants that were noticed or are not there.
    """

    mutants: int
    survivors: tuple[str, ...]
    unargued: tuple[str, ...]
    stale: tuple[str, ...]

    @property
    def share(self) -> float:
        """Share of the mutants that were noticed."""
        return 1 - len(self.survivors) / self.mutants if self.mutants else 0.0

    @property
    def passed(self) -> bool:
        """True if enough were noticed, and all others are argued."""
        return self.share >= LEAST_NOTICED and not self.unargued and not self.stale


def load_reasons(path: Path = SURVIVORS_FILE) -> dict[str, str]:
    """Read the reason for each argued survivor.

    Raises
    ------
    ValueError
        If a reason or a mutant is there twice, or one without the other.
    """
    reasons: dict[str, str] = {}
    groups = tomllib.loads(path.read_text(encoding="utf-8")).get("argued", [])
    for group in groups:
        reason, names = group["reason"].strip(), group["mutants"]
        if not reason or "\n" in reason or not names:
            raise ValueError(f"{path}: expected a reason of one line and its mutants, found {group}")
        for name in names:
            if name in reasons:
                raise ValueError(f"{path}: {name} is there twice")
            reasons[name] = reason
    if len({group["reason"] for group in groups}) < len(groups):
        raise ValueError(f"{path}: a reason is there twice: put its mutants together")
    return reasons


def reasons_of(reasons: Mapping[str, str], patterns: Sequence[str]) -> dict[str, str]:
    """Return the reasons for mutants whose names match a pattern; all without patterns."""
    return {
        name: reason
        for name, reason in reasons.items()
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def judge(mutants: Iterable[Mutant], reasons: Mapping[str, str]) -> Verdict:
    """Hold the mutants of a whole run against the reasons."""
    found = list(mutants)
    survivors = [mutant.name for mutant in found if not mutant.noticed]
    return Verdict(
        mutants=len(found),
        survivors=tuple(survivors),
        unargued=tuple(name for name in survivors if name not in reasons),
        stale=tuple(sorted(set(reasons) - set(survivors))),
    )
