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

    @model_validator(mode="after")
    def _require_deep_for_a_sample(self, info: ValidationInfo) -> Self:
        if self.sample is not None and self.depth != "deep":
            name = called(type(self), "sample", info.context)
            raise InputError(f"{name}: only depth deep compares a sample, found depth {self.depth}")
        return self
