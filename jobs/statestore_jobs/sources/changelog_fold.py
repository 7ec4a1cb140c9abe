"""The last record of each key of a part of a log, in bounded memory: the rows of a store that is restored from it.

Imported when a fold begins: numba comes with it, which planning and plain reading do without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from statestore.bulk.routing import Routing, routing_of
from statestore.bulk.runs import Runs, RunWriter, merged, sorted_records
from statestore.definitions.store import StoreDefinition
from statestore.errors import InvalidStateError, StoreCorruptedError, TopicMismatchError
from statestore.model import TopicPartition
from statestore.verification.kernels import numbers_in


def routing_for(store: StoreDefinition | None) -> Routing:
    """Return how the rows of a store are ordered; None: by their keys, whatever these are."""
    return Routing() if store is None else routing_of(store)


def folded(
    records: Iterable[pa.RecordBatch],
    log: TopicPartition,
    start: int,
    end: int,
    routing: Routing,
    run_bytes: int,
    *,
    deletes: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield the last record of each key in (segment, key) order, as batches with `changelog.reader.SCHEMA`.

    Rows of segments that have expired at the end of these records are left out. What does not fit into memory lies in
    a temporary directory until this ends.

    Parameters
    ----------
    records
        Those of the offsets from `start` to `end`, in their order.
    log
        Where they are from, for errors.
    run_bytes
        Bound of what is held in memory.
    deletes
        Whether last records without a value, which delete their keys, are given, too.

    Raises
    ------
    TopicMismatchError
        If a key cannot be one of a store with this routing.
    """
    with TemporaryDirectory(prefix="changelog-") as scratch:
        writer = RunWriter(Path(scratch), routing, run_bytes, start=start)
        try:
            for batch in records:
                writer.add(batch)
        except StoreCorruptedError as error:  # by the writer: no store is damaged
            raise TopicMismatchError(f"{log}: {error}") from error
        runs = writer.finish(end)
        try:
            if deletes:
                yield from _with_deletes(runs, routing)
            else:
                yield from (rows.batch for rows in merged([runs], routing))
        except StoreCorruptedError as error:  # our own files
            raise InvalidStateError(f"sorted runs of {log} cannot be read: {error}") from error


def _with_deletes(runs: Runs, routing: Routing) -> Iterator[pa.RecordBatch]:
    batches = sorted_records(runs, routing)
    if routing.interval_ms is None:
        yield from batches
        return
    oldest = routing.oldest_live(runs.stream_time)
    for batch in batches:
        yield batch.filter(pa.array(numbers_in(batch.column("key"), back=routing.suffix_bytes) >= oldest))
