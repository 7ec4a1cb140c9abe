"""Sorted runs of the end of a log, taken over by a store that has the log up to there.

Each database of the store gets SST files in which every key of the runs is a row or a delete. RocksDB counts what it
takes over as written after all that is there. Segments, their stream time and what has expired are the store's own
matter, as when rows are written one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.bulk.routing import routing_of
from statestore.bulk.runs import Runs, SegmentRows, merged, stream_time
from statestore.bulk.segment_files import write_time_ordered
from statestore.bulk.time_ordered import without_end
from statestore.definitions.store import StoreDefinition
from statestore.durable import remove_tree
from statestore.errors import of_os_error
from statestore.kafka.record_columns import SCHEMA
from statestore.kinds.kind import by_form
from statestore.sst.writer import SstFiles
from statestore.stores.built_in import BuiltInBytes


def ingest(runs: Sequence[Runs], store: StoreDefinition, opened: BuiltInBytes[Any], directory: Path) -> None:
    """Put what runs have into an open store, which is then to be committed.

    Parameters
    ----------
    runs
        In offset order.
    opened
        The store, with nothing staged. If this or its commit does not succeed, it may have a part of the runs.
    directory
        Where the files are written, on the store's file system, not there or empty; removed.

    Raises
    ------
    DiskSpaceError, StoreAccessError
        If a file cannot be written.
    """
    opened.advance_stream_time(stream_time(runs))
    found = merged(runs, routing_of(store), with_deletes=True)
    try:
        _INGESTIONS[store.store_kind.row_form](found, store, opened, directory)
    except OSError as error:
        raise of_os_error(error) from error
    finally:
        remove_tree(directory)


def _ingest_rows(
    found: Iterable[SegmentRows], store: StoreDefinition, opened: BuiltInBytes[Any], directory: Path
) -> None:
    rows, older = directory / "rows", directory / "older"
    timestamped, pending = store.values.timestamp_in_front, opened.upgrade_pending
    for segment, group in groupby(found, key=lambda row: row.segment):
        for into in (rows, older):
            into.mkdir(parents=True)
        with SstFiles(rows, timestamped=timestamped) as files, SstFiles(older, timestamped=False) as deletes:
            for _, batch in group:
                files.add(without_end(batch, store.store_kind.logged_values_end_with))
                if pending:
                    deletes.add(_deleted(batch))
            files.finish()
            deletes.finish()
        database = opened.database_at(segment, files.bytes)
        if database is not None:
            database.ingest(files.files, deletes.files)
        remove_tree(directory)


def _ingest_time_ordered(
    found: Iterable[SegmentRows], store: StoreDefinition, opened: BuiltInBytes[Any], directory: Path
) -> None:
    """Ingest rows of a kind that has no older format."""
    for made in write_time_ordered(found, store, directory):
        if (database := opened.database_at(made.segment, made.bytes)) is not None:
            database.ingest(made.files, ())


def _deleted(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, SCHEMA.field(1), pa.nulls(batch.num_rows, SCHEMA.field(1).type))


_INGESTIONS = by_form(_ingest_rows, time_ordered=_ingest_time_ordered)
