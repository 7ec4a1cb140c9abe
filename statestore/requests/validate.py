"""A request for a validation."""

from __future__ import annotations

from typing import Self

from pydantic import Field, ValidationInfo, model_validator

from statestore.errors import InputError
from statestore.objects.path import Location
from statestore.requests.request import Names, Request, called


class ValidateRequest(Request):
    """Which stores are validated: those of applications, or those that one report names."""

    applications: Names = ()
    """Name of an application (its application.id)."""
    stores: Names = ()
    """Name of a store. Default: all stores of the application."""
    verify_report: Location | None = Field(None, title="Report of a verify run")
    """Instead of an application, validate the stores that this report of verify lists. Do not name stores with it."""
    restore_report: Location | None = Field(None, title="Report of a restore run")
    """Instead of an application, validate the stores that this report of restore lists as restored. Do not name stores
    with it."""

    @model_validator(mode="after")
    def _require_one_source(self, info: ValidationInfo) -> Self:
        sources = ("applications", "verify_report", "restore_report")
        given = [name for name in sources if getattr(self, name)]
        if len(given) != 1 or (self.stores and not self.applications):
            application, verified, restored = (called(type(self), name, info.context) for name in sources)
            stores = called(type(self), "stores", info.context)
            raise InputError(f"expected one of {application} (with or without {stores}), {restored}, or {verified}")
        return self
