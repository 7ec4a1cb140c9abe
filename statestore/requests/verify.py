"""A request for a verification."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import Field, ValidationInfo, model_validator

from statestore.errors import InputError
from statestore.requests.request import Names, Partitions, Request, called

#: `offsets` opens no store whose seal is intact; `scan` reads every row; `deep` compares every row with the log.
Depth = Literal["offsets", "scan", "deep"]
DEPTHS: tuple[Depth, ...] = get_args(Depth)


class VerifyRequest(Request):
    """Which store partitions are verified, and how thoroughly."""

    applications: Names = ()
    """Name of an application (its application.id). Default: all."""
    stores: Names = ()
    """Name of a store. Default: all stores of the application."""
    partitions: Partitions = ()
    """Number of a partition, such as 0. Default: all partitions."""
    depth: Depth = "scan"
    """offsets takes milliseconds for each store partition, and does not open stores whose seal is intact. scan reads
    every row. deep compares every row with the changelog, and finds differences that no checksum can find."""
    sample: float | None = Field(None, gt=0, le=1)
    """With depth deep: fraction of the key ranges to compare, such as 0.1. Default: all keys."""
    seed: int | None = None
    """Seed that chooses the key ranges of a sample. Default: different ranges in each run."""
    hide_keys: bool = False
    """Report digests of differing keys instead of the keys."""

    live: bool = False
    """Verify stores while their application runs. Nothing is locked, written, or stopped. Without it, only stores that
    another program uses are verified in this way."""
    confirm_within_s: float = Field(300.0, ge=0)
    """If a store in use differs from its changelog, look again for at most this time, until the difference is confirmed
    or gone. Default: 5m."""
    rate: float | None = Field(None, gt=0)
    """Read at most this many MB of rows and changelog records per second in each process. Default: no limit."""
    alert_at: float = Field(0.8, gt=0, le=1)
    """Warn if a kill of the running application would lose data or cost a full restore: at this fraction of the way to
    the start of the changelog, or to its delete.retention.ms. Default: 0.8."""

    @model_validator(mode="after")
    def _require_deep_for_a_sample(self, info: ValidationInfo) -> Self:
        if self.sample is not None and self.depth != "deep":
            name = called(type(self), "sample", info.context)
            raise InputError(f"{name}: only depth deep compares a sample, found depth {self.depth}")
        if self.live and self.sample is not None:
            name = called(type(self), "sample", info.context)
            raise InputError(f"{name}: all rows of stores in use are compared; leave it out with live")
        return self
