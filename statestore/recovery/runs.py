"""The bulk path: a range of the log becomes sorted runs, SST files with the last record per key.

A run is bounded in bytes, so memory is, whatever the log's size. Runs are ingested in the order of their offsets;
of two runs with one key the later one wins, deletes included.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from statestore.model import StoreFormat
from statestore.stores.codec import stored_value
from statestore.stores.sst import write_sst

#: Memory that one row of a run takes besides its key and value: two bytes objects and a dict slot.
_ROW_OVERHEAD_BYTES = 170


class Runs(NamedTuple):
    """Sorted runs in offset order, and what went into them.

    `last_offset` is that of the last record read, also if it had no key; None if there was none. `rows` is the sum of
    the runs' rows, so the number of live keys only if there is one run.
    """

    files: list[Path]
    records: int
    skipped: int
    rows: int
    last_offset: int | None


def build_runs(batches: Iterable[pa.RecordBatch], store_format: StoreFormat, directory: Path, run_bytes: int) -> Runs:
    """Sort the records of a log into runs.

    Parameters
    ----------
    batches
        Batches of `changelog.reader.SCHEMA` in offset order.
    directory
        Where the SST files go; it exists and is empty.
    run_bytes
        Bound of a run in memory.
    """
    files: list[Path] = []
    latest: dict[bytes, bytes | None] = {}
    records = skipped = rows = size = 0
    last_offset: int | None = None

    def finish() -> None:
        nonlocal rows, size
        # In the first run nothing lies beneath a delete, so it needs no row.
        keep = {key: value for key, value in latest.items() if value is not None or files}
        if keep:
            path = directory / f"run-{len(files):06d}.sst"
            write_sst(sorted(keep.items()), path)
            files.append(path)
            rows += len(keep)
        latest.clear()
        size = 0

    for batch in batches:
        keys, values, timestamps, offsets = (column.to_pylist() for column in batch.columns)
        for key, value, timestamp in zip(keys, values, timestamps, strict=True):
            if key is None:
                skipped += 1
                continue
            stored = None if value is None else stored_value(store_format, value, timestamp)
            if key not in latest:
                size += len(key) + _ROW_OVERHEAD_BYTES
            size += 0 if stored is None else len(stored)  # a replaced value is still counted: the bound holds
            latest[key] = stored
            if size >= run_bytes:
                finish()
        records += len(keys)
        last_offset = offsets[-1]
    finish()
    return Runs(files, records - skipped, skipped, rows, last_offset)
