"""Runs predefined aggregations: batches of records in, and one result for each key and commit into a store.

    aggregation -> FoldedRows                  keyed.py      one result a key, or a key and window
                -> CountedRows, SummedRows     summed.py     the same, in columns
                -> LatestRows                  latest.py     the same
                -> SessionAggregation          sessions.py   one result a session

What comes out depends on the records and their order alone, not on how they were cut into batches and flushes.
"""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from statestore.definitions.aggregation import AggregationDefinition
from statestore.errors import DefinitionError
from statestore.formats.value_format import ValueFormat
from statestore.tasks.aggregates import Aggregate
from statestore.tasks.folding import Poison
from statestore.tasks.keyed_aggregation import FoldedRows
from statestore.tasks.latest_aggregation import LatestRows
from statestore.tasks.results import Forward, Results
from statestore.tasks.sessions import SessionAggregation
from statestore.tasks.summed_aggregation import CountedRows, SummedRows


class Aggregation(Protocol):
    """An aggregation of one task.

    Attributes
    ----------
    pending_bytes
        Memory that the next flush takes, about.
    late_records
        Records flushed that reached no window or session, because each had closed. (Kafka Streams counts closed
        windows.)
    dropped_records
        Records flushed that had no key or no value. They count for stream time. (Kafka Streams hands a null value to
        the aggregator of windows and sessions, against its own documentation.)
    """

    @property
    def pending_bytes(self) -> int: ...

    late_records: int
    dropped_records: int

    def add(self, batch: pa.RecordBatch, stream_time: int) -> None:
        """Take records in.

        Parameters
        ----------
        batch
            `SCHEMA` of `kafka/reader.py`; timestamps are not negative.
        stream_time
            Largest timestamp (ms) of all records before these; -1 if there were none.
        """

    def flush(self) -> None:
        """Fold what was taken in into the store, log and forward the results that changed.

        Poison records are told in the order of their offsets, before anything is written.
        """

    def discard(self) -> None:
        """Forget what was taken in since the last flush."""


def aggregation(
    definition: AggregationDefinition, aggregate: Aggregate, store: Any, forward: Forward | None, poison: Poison
) -> Aggregation:
    """Make the aggregation that a definition describes.

    Parameters
    ----------
    store
        A typed store of the kind that the definition needs, of any types: rows pass it as bytes.
    forward
        Called with keys, values and timestamps (ms) of changed results; None values are deleted ones. Keys are as
        Kafka Streams writes them: with the start of a window, or the end and start of a session.
    poison
        Called with the offset of a record that the user's functions or its serde fail on, and the reason. The record
        is left out, but counts for stream time.

    Raises
    ------
    DefinitionError
        If the aggregate cannot do what the definition asks for.
    """
    results = Results(store, forward)
    require_capable(definition, aggregate, results.layout)
    if aggregate.by_time:
        return LatestRows(definition.windows, aggregate, results, poison)
    if definition.sessions is not None:
        return SessionAggregation(definition.sessions, aggregate, results, poison)
    if aggregate.counts:
        return CountedRows(definition.windows, aggregate, results, poison)
    kind = FoldedRows if aggregate.amount is None else SummedRows
    return kind(definition.windows, aggregate, results, poison)


def require_capable(definition: AggregationDefinition, aggregate: Aggregate, layout: ValueFormat) -> None:
    """Refuse an aggregate that cannot do what the definition asks for, in a store with this layout.

    Raises
    ------
    DefinitionError
        If the aggregation has sessions and its aggregate no merger, or if `latest` has sessions or no timestamps.
    """
    if aggregate.by_time and (definition.sessions is not None or not layout.timestamped):
        raise DefinitionError(
            f"aggregation into {definition.store}: latest compares a record with the timestamp of the stored one; "
            "sessions and stores with `format: plain` keep none. Use a key-value or window store with "
            "`format: timestamped` or `headers`"
        )
    if definition.sessions is not None and aggregate.merger is None:
        raise DefinitionError(
            f"aggregation into {definition.store} has sessions, which may become one, but its aggregate "
            f"{definition.aggregate} has no merger; give it one: aggregate(..., merger=...)"
        )
