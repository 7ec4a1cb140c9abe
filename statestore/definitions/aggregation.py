"""Ready-made aggregations: what is kept in a store for each key, or each window or session of a key."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from statestore.definitions.fields import Definition, Reference
from statestore.model import Name


class TimeWindows(Definition):
    """Windows of a fixed length, aligned to the epoch: tumbling, or hopping where they advance by less than a length.

    Attributes
    ----------
    size_ms
        Length of a window.
    advance_ms
        How far a window starts after the one before; the length if not said.
    grace_ms
        For how long after its end a window takes late records.
    """

    size_ms: int = Field(gt=0, lt=1 << 62)
    advance_ms: int | None = Field(default=None, gt=0)
    grace_ms: int = Field(default=0, ge=0, lt=1 << 62)

    def model_post_init(self, context: Any, /) -> None:
        """Refuse windows that leave gaps."""
        if self.advance_ms is not None and self.advance_ms > self.size_ms:
            raise ValueError(f"advance_ms of {self.advance_ms} is longer than size_ms of {self.size_ms}")

    @property
    def step_ms(self) -> int:
        """How far a window starts after the one before."""
        return self.advance_ms or self.size_ms


class Sessions(Definition):
    """Sessions of activity: records of a key that are at most the gap apart.

    Attributes
    ----------
    gap_ms
        Inactivity that ends a session.
    grace_ms
        For how long after its end and the gap a session takes late records.
    """

    gap_ms: int = Field(ge=0, lt=1 << 62)
    grace_ms: int = Field(default=0, ge=0, lt=1 << 62)


class AggregationDefinition(Definition):
    """A ready-made aggregation: what is kept in a store for each key, or each window or session of a key.

    Attributes
    ----------
    store
        Where the results are kept; made with the kind's defaults if the definition does not list it.
    aggregate
        `count`, or an aggregate made with `statestore.tasks.aggregates`.
    group_by
        A function of the record that gives the key to group by, if that is not the record's own. Records then go
        through an internal repartition topic into a subtopology of their own.
    partitions
        Partitions of the repartition topic; as many as the input's if not said.
    windows, sessions
        What a key's records are divided into; neither: nothing, one result a key.
    output_topic
        Where changed results are sent with each commit; nowhere if not said.
    """

    store: Name
    aggregate: Literal["count"] | Reference = "count"
    group_by: Reference | None = None
    partitions: int | None = Field(default=None, ge=1, le=10_000)
    windows: TimeWindows | None = None
    sessions: Sessions | None = None
    output_topic: Name | None = None

    def model_post_init(self, context: Any, /) -> None:
        """Refuse settings that do not fit together; once, as in `ApplicationDefinition`."""
        if self.windows is not None and self.sessions is not None:
            raise ValueError(f"aggregation into {self.store} has windows and sessions; expected one of them at most")
        if self.partitions is not None and self.group_by is None:
            raise ValueError(
                f"aggregation into {self.store} has partitions but no group_by: only a repartition topic has its own"
            )

    @property
    def kept_ms(self) -> int:
        """How long the store must keep a window or session at least."""
        if self.windows is not None:
            return self.windows.size_ms + self.windows.grace_ms
        return self.sessions.gap_ms + self.sessions.grace_ms if self.sessions is not None else 0

    def default_store(self) -> dict[str, Any]:
        """Return the definition of the store that this needs, as far as it is not a matter of taste."""
        if self.windows is not None:
            return {"kind": "window", "retention_ms": self.kept_ms, "window_size_ms": self.windows.size_ms}
        return {"kind": "session", "retention_ms": self.kept_ms} if self.sessions is not None else {"kind": "key-value"}
