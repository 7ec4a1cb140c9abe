"""A request for a run of restore drills."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from statestore.requests.request import Names, Partitions, Request


class DrillRequest(Request):
    """Which store partitions are drilled, and from what they are restored."""

    applications: Names = ()
    """Name of an application (its application.id). Default: all in the catalogue."""
    stores: Names = ()
    """Name of a store. Its drill is repeated even if its proof is recent. Default: the most urgent store partitions."""
    partitions: Partitions = ()
    """Number of a partition, such as 0. Default: all partitions."""
    mode: Literal["auto", "snapshot", "full"] = "auto"
    """Restore as a restore would (auto), from a snapshot only, or from the whole changelog only."""
    limit: int | None = Field(None, ge=1)
    """Drill at most this number of store partitions of each application. Default: as many as the budget allows."""
