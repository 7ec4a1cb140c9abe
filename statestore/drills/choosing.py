"""Which store partitions are drilled: those whose proof is oldest, or whose restore is most at risk. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from statestore.definitions.objectives import RestoreObjectives
from statestore.drills.standing import Past, standing_of

_DAY_MS = 86_400_000
#: Without an objective, proofs are compared by their age in weeks.
_WEEK_MS = 7 * _DAY_MS
#: Part of `proven_every` after which a proof is repeated.
_REPEATED_AT = 0.5


class Chosen(NamedTuple):
    """Choice of a run.

    Attributes
    ----------
    drilled
        Indexes of the store partitions to drill, the most urgent first.
    left
        By index: why another one is not drilled.
    """

    drilled: list[int]
    left: dict[int, str]


def urgency(past: Past, objectives: RestoreObjectives, now_ms: int) -> float:
    """Return how urgent a drill is: infinite without a valid proof, otherwise about 1 when an objective breaks."""
    standing, _ = standing_of(past, objectives, now_ms)
    if past.last is None or standing not in ("proven", "proven too long ago"):
        return math.inf
    age = (now_ms - (past.proven_ms or 0)) / (objectives.proven_every or _WEEK_MS)
    within = objectives.restorable_within
    # How slow it was makes it urgent only as its proof gets older.
    risk = 0.0 if within is None else past.last.seconds * 1000 / within
    return age * (1 + risk)


def choose_drills(
    pasts: Sequence[Past],
    objectives: RestoreObjectives,
    now_ms: int,
    bytes_of: Callable[[int], int],
    *,
    spent: int = 0,
    limit: int | None = None,
    named: bool = False,
    evidence: bool = False,
) -> Chosen:
    """Choose store partitions of one application within its budget.

    Parameters
    ----------
    bytes_of
        Bytes that the drill of a store partition reads, by index; asked only if there is a budget.
    spent
        Bytes that the drills of the last 24 hours have read.
    limit
        Most drills of this run; None: no limit.
    named
        They were asked for by name, so a recent proof is repeated, too.
    evidence
        Evidence is kept, so a proof without evidence is repeated.
    """
    order = sorted(range(len(pasts)), key=lambda at: -urgency(pasts[at], objectives, now_ms))
    budget = objectives.budget.bytes_per_day
    chosen = Chosen([], {})
    for at in order:
        if not (named or _is_due(pasts[at], objectives, now_ms, evidence=evidence)):
            continue
        if limit is not None and len(chosen.drilled) >= limit:
            chosen.left[at] = "not drilled: the run has reached its limit"
            continue
        if budget is not None:
            size = bytes_of(at)
            if spent + size > budget:
                chosen.left[at] = (
                    f"not drilled: its {size:,} bytes exceed the {max(budget - spent, 0):,} that are left of the "
                    f"{budget:,} for 24 hours (budget.bytes_per_day)"
                )
                continue
            spent += size
        chosen.drilled.append(at)
    return chosen


def _is_due(past: Past, objectives: RestoreObjectives, now_ms: int, *, evidence: bool) -> bool:
    standing, _ = standing_of(past, objectives, now_ms)
    if evidence and past.last is not None and past.last.evidence is None:
        return True
    if standing != "proven" or objectives.proven_every is None or past.proven_ms is None:
        return True
    return now_ms - past.proven_ms >= objectives.proven_every * _REPEATED_AT
