"""A request for a run that publishes snapshots from the changelogs."""

from __future__ import annotations

from typing import Self

from pydantic import Field, ValidationInfo, model_validator

from statestore.errors import InputError
from statestore.requests.request import Names, Partitions, Request, called


class SnapshotRequest(Request):
    """The store partitions to make snapshots of."""

    applications: Names = ()
    """Name of an application (its application.id). Default: the applications with at-least-once processing, because
    process publishes no snapshots of these."""
    stores: Names = ()
    """Name of a store. Default: all stores of the application."""
    partitions: Partitions = ()
    """Number of a partition, such as 0. Default: all partitions."""
    accept_loss: bool = Field(False, title="Build even if the changelog has lost something")
    """Build from the changelogs alone, even from one that was recreated or has lost records. The snapshot then begins a
    new generation."""

    @model_validator(mode="after")
    def _require_application(self, info: ValidationInfo) -> Self:
        given = [called(type(self), name, info.context) for name in ("stores", "partitions") if getattr(self, name)]
        if given and not self.applications:
            application = called(type(self), "applications", info.context)
            raise InputError(f"{', '.join(given)}: expected {application}, too: name the application that they are of")
        return self
