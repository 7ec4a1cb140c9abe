"""Predefined aggregations, which keep a result in a store for each key, or each window or session of a key."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from statestore.definitions.fields import Definition, Reference
from statestore.model import Name


class TimeWindows(Definition):
    """Windows of a fixed length, aligned to the epoch: tumbling, or hopping if they advance by less than their length.

    Attributes
    ----------
    size_ms
        Length of a window.
    advance_ms
        Distance between the starts of two windows. The default is the length.
    grace_ms
        How long a window accepts late records after its end.
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
        """Distance between the starts of two windows."""
        return self.advance_ms or self.size_ms


class Sessions(Definition):
    """Sessions of activity: records of a key that are not further apart than the gap.

    Attributes
    ----------
    gap_ms
        Period of inactivity that ends a session.
    grace_ms
        How long a session accepts late records after its end and the gap.
    """

    gap_ms: int = Field(ge=0, lt=1 << 62)
    grace_ms: int = Field(default=0, ge=0, lt=1 << 62)


class AggregationDefinition(Definition):
    """A predefined aggregation, which keeps a result in a store for each key, or each window or session of a key.

    Attributes
    ----------
    store
        Store of the results. It is created with the kind's defaults if the definition does not list it.
    aggregate
        `count`, `latest`, or an aggregate created with `statestore.tasks.aggregates`.
    group_by
        Function of the record that returns the key to group by, if it is not the record's own key. Records then go
        through an internal repartition topic to a separate subtopology.
    partitions
        Number of partitions of the repartition topic. The default is the number of the input.
    windows, sessions
        How a key's records are divided. Without either, there is one result for each key.
    output_topic
        Topic that receives the changed results with each commit. By default, they are not sent.
    """

    store: Name
    aggregate: Literal["count", "latest"] | Reference = "count"
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
        """Minimum time for which the store must keep a window or session."""
        if self.windows is not None:
            return self.windows.size_ms + self.windows.grace_ms
        return self.sessions.gap_ms + self.sessions.grace_ms if self.sessions is not None else 0

    def default_store(self) -> dict[str, Any]:
        """Return the definition of the store with the properties that this aggregation requires."""
        if self.windows is not None:
            return {"kind": "window", "retention_ms": self.kept_ms, "window_size_ms": self.windows.size_ms}
        return {"kind": "session", "retention_ms": self.kept_ms} if self.sessions is not None else {"kind": "key-value"}
