"""A request for a restore."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from statestore import clock
from statestore.errors import InputError
from statestore.objects.path import Location
from statestore.requests.request import Names, Partitions, Request, called

Mode = Literal["auto", "tail", "snapshot", "full", "as-of"]
#: How a store is checked before it goes live: its files' facts, or every row against what was written.
CheckDepth = Literal["files", "deep"]


class AsOf(NamedTuple):
    """A point of a changelog: the record at an offset, or the last one that is not younger than a time (ms).

    One of them is given; or a snapshot, by name: the store as it was then. Points are inclusive.
    """

    offset: int | None = None
    timestamp_ms: int | None = None
    snapshot: str | None = None

    def __str__(self) -> str:
        if self.snapshot is not None:
            return f"snapshot {self.snapshot}"
        return f"offset {self.offset}" if self.timestamp_ms is None else f"time {self.timestamp_ms} ms"


class RestoreRequest(Request):
    """Which store partitions are restored, and how."""

    applications: Names = ()
    """Name of an application (its application.id)."""
    stores: Names = ()
    """Name of a store. Default: all stores of the application."""
    partitions: Partitions = ()
    """Number of a partition, such as 0. Default: all partitions."""
    mode: Mode = "auto"
    """auto does what verify advises. tail is quick, and needs a healthy store. snapshot starts from the newest snapshot
    that the changelog still continues. full rebuilds from the changelog alone. as-of builds the store as of an earlier
    point, in another directory."""
    verify_report: Location | None = Field(None, title="Report of a verify run")
    """Restore only what this report of verify advises."""
    plan: Location | None = Field(None, title="Approved plan")
    """Carry out this plan, which is the JSON of a dry run with the same options. A store partition for which more would
    now be done, or lost, is not restored."""
    snapshot: str | None = Field(None, title="Snapshot to start from")
    """Modes snapshot and as-of: start from this snapshot; with --accept-loss, even if it would not be chosen
    automatically."""
    dry_run: bool = Field(False, title="Only show the plan")
    """Show what would be done, and what it needs. Change nothing."""
    force: bool = Field(False, title="Rebuild healthy stores too")
    """Also rebuild healthy store partitions."""
    check: CheckDepth = "files"
    """How a new store is checked before it goes live. files checks its files. deep also reads every row."""
    ranges: int | None = Field(None, ge=1)
    """Number of ranges that each log is divided into. Default: depends on its length."""
    as_of_offset: int | None = Field(None, ge=0)
    """Mode as-of: the last changelog offset in the store."""
    as_of_timestamp: str | None = None
    """Mode as-of: a time in ISO 8601 or ms. The store contains no record after this time."""
    target: Path | None = None
    """Mode as-of: an empty directory, which becomes a state directory."""
    best_effort: bool = Field(False, title="Build without records that compaction removed")
    """Mode as-of: if compaction has removed records, build the store without them and report this, instead of
    refusing."""
    accept_loss: bool = Field(False, title="Rebuild even if the changelog has lost something")
    """Rebuild a store from what its changelog still has, even if the store may be the only copy of some data. The
    current store stays in quarantine until you remove it."""

    @property
    def changes_stores(self) -> bool:
        """Whether live stores may be replaced."""
        return not self.dry_run and self.mode != "as-of"

    @property
    def as_of(self) -> AsOf | None:
        """The point of mode as-of."""
        if self.as_of_timestamp is not None:
            return AsOf(timestamp_ms=clock.ms_of(self.as_of_timestamp))
        if self.snapshot is not None:
            return AsOf(snapshot=self.snapshot)
        return None if self.as_of_offset is None else AsOf(offset=self.as_of_offset)

    @field_validator("as_of_timestamp")
    @classmethod
    def _require_time(cls, text: str | None, info: ValidationInfo) -> str | None:
        try:
            if text is not None:
                clock.ms_of(text)
        except ValueError as error:
            raise InputError(
                f"{called(cls, 'as_of_timestamp', info.context)}: expected a number, or a time in ISO 8601 such as "
                f"2026-01-31T12:00:00+00:00, found {text!r}"
            ) from error
        return text

    @model_validator(mode="after")
    def _require_consistent(self, info: ValidationInfo) -> Self:
        def names(*fields: str) -> list[str]:
            return list(dict.fromkeys(called(type(self), field, info.context) for field in fields))

        points = ("as_of_offset", "as_of_timestamp")
        if self.snapshot is not None and self.mode not in ("snapshot", "as-of"):
            raise InputError(f"{names('snapshot')[0]}: expected mode snapshot or as-of, found mode {self.mode}")
        if self.snapshot is not None and (self.as_of_offset is not None or self.as_of_timestamp is not None):
            raise InputError(f"{' and '.join(names('snapshot', *points))}: expected one of them")
        given = self.model_dump(include={*points, "target", "best_effort"}, exclude_defaults=True)
        if all(point in given for point in points):
            raise InputError(f"{' and '.join(names(*points))}: expected one of them, found both")
        if self.plan is not None and (self.dry_run or self.mode == "as-of"):
            found = "a dry run" if self.dry_run else "mode as-of"
            raise InputError(f"{names('plan')[0]}: expected a restore of live stores, found {found}")
        if self.mode != "as-of" and given:
            raise InputError(f"{', '.join(names(*given))}: expected mode as-of, found mode {self.mode}")
        if self.mode == "as-of":
            missing = [] if self.as_of is not None else [" or ".join(names(*points, "snapshot"))]
            missing += [] if self.target is not None else names("target")
            if missing:
                raise InputError(f"mode as-of: expected {', and '.join(missing)}")
        return self
