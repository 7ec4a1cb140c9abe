"""Cycles of one campaign, until there were enough kills."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from tests.faults.subject import Subject

#: Kills of one application.
LENGTH = 8
#: Some points are not met, and some moments come too late.
_MOST_CYCLES = 5 * LENGTH


class Cycles(Protocol):
    """What is repeated.

    Attributes
    ----------
    kills
        How many there were, by point.
    """

    subject: Subject
    kills: Counter[str]

    def cycle(self) -> str:
        """Do one, check, and return what it was."""

    def end(self) -> None:
        """Check everything."""


def campaigns(kills: int) -> range:
    """Return the numbers of campaigns that have so many kills together."""
    return range(-(-kills // LENGTH))


def repeat(cycles: Cycles, seed: int, number: int) -> None:
    """Repeat cycles until there were enough kills; what fails says after which."""
    done: list[str] = []
    try:
        while sum(cycles.kills.values()) < LENGTH:
            assert len(done) < _MOST_CYCLES, f"O8: only {cycles.kills} in {done}"
            done.append(cycles.cycle())
        cycles.end()
    except Exception as error:
        error.add_note(f"after the cycles {done} of campaign {number}, FAULTS_SEED={seed}")
        raise
    finally:
        cycles.subject.delete_topics()
