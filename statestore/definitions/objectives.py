"""Objectives of an application: how its stores must be restorable, and how often this must be proven."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from statestore import clock
from statestore.definitions.fields import Definition

#: Whole milliseconds, or a duration such as `15m` or `7d`.
DurationMs = Annotated[
    int,
    BeforeValidator(lambda value: clock.whole_ms(value) if isinstance(value, str) else value),
    Field(gt=0, lt=1 << 53, strict=True),
]


class DrillBudget(Definition):
    """Limits of the cost of drills.

    Attributes
    ----------
    bytes_per_day
        Bytes of snapshots and changelogs that the drills of 24 hours may read. None: no limit.
    parallelism
        Store partitions that are drilled at the same time.
    """

    bytes_per_day: int | None = Field(default=None, gt=0, lt=1 << 53)
    parallelism: int = Field(default=1, ge=1, le=1_000)


class RestoreObjectives(Definition):
    """Objectives of the restore of each store partition of an application.

    Attributes
    ----------
    restorable_within
        How long a restore may take, from the first request until the store is checked.
    not_older_than
        How old the snapshot that a restore starts from may be. A restore from the changelog alone has no such age.
    proven_every
        How old the last proof may be. A drill repeats a proof once half of this time has passed.
    suites
        A drill also runs the suite of the store on the restored rows, which must pass.
    budget
        Limits of the cost of drills.
    nodes
        Number of machines that the application runs on, for the estimate of a lost one. None: no estimate.
    """

    restorable_within: DurationMs | None = None
    not_older_than: DurationMs | None = None
    proven_every: DurationMs | None = None
    suites: bool = Field(default=False, strict=True)
    budget: DrillBudget = DrillBudget()
    nodes: int | None = Field(default=None, ge=1, le=10_000)
