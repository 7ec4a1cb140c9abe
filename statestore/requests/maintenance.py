"""A request for maintenance."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from statestore import clock
from statestore.requests.request import Request


class MaintenanceRequest(Request):
    """Ages of old files, and whether they are removed."""

    reports_days: float = Field(30.0, ge=0, allow_inf_nan=False)
    """Days after which reports, history, and verdicts are removed."""
    as_of_dir: Path | None = None
    """Directory of the state directories of mode as-of, which are removed at the same age."""
    dry_run: bool = Field(False, title="Only list")
    """List what would be removed. Remove nothing."""

    @field_validator("reports_days", mode="before")
    @classmethod
    def _read_duration(cls, value: object) -> object:
        return float(clock.duration(value, "d")) if isinstance(value, str) else value
