"""SST files of segments whose rows have their times in front, with their index.

Runs have the keys of the changelog, in whose order index rows are. Rows are in another order, that of their times: they
are sorted once more, in memory or by runs of their own on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statestore.bulk.digest import Digest
from statestore.bulk.routing import Routing
from statestore.bulk.runs import RunWriter, SegmentRows, merged
from statestore.bulk.time_ordered import index_of, with_times_in_front
from statestore.definitions.store import StoreDefinition
from statestore.durable import remove_tree
from statestore.errors import of_os_error
from statestore.kafka.record_columns import SCHEMA
from statestore.sst.writer import SstFiles

#: Bound of what is sorted once more in memory.
_SORTED_BYTES = 64 << 20


class SegmentFiles(NamedTuple):
    """SST files with rows of one segment (its start in ms; 0 in a key-value store), in key order."""

    segment: int
    files: tuple[Path, ...]
    bytes: int


def counted(found: Iterable[SegmentRows], digest: Digest) -> Iterator[SegmentRows]:
    """Add rows that pass to a digest."""
    for rows in found:
        digest.add(rows.batch)
        yield rows


def write_time_ordered(found: Iterable[SegmentRows], store: StoreDefinition, directory: Path) -> Iterator[SegmentFiles]:
    """Write rows with the keys of the changelog as rows of such a store, one segment after the other.

    Parameters
    ----------
    found
        In (segment, key) order, with deletes or without.
    directory
        Where the files go, not there or empty, and what is sorted meanwhile.

    Raises
    ------
    DiskSpaceError, StoreAccessError
        If a file cannot be written.
    """
    timestamped, layout = store.values.timestamp_in_front, store.store_kind.layout
    assert layout is not None, "time-ordered rows have a layout"
    try:
        for segment, group in groupby(found, key=lambda rows: rows.segment):
            # A segment at a time: what is sorted has the size of one.
            writer = RunWriter(directory / "sorted", Routing(), _SORTED_BYTES, start=0)
            rows = 0
            index_dir, rows_dir = directory / "index", directory / "rows"
            index_dir.mkdir(parents=True)
            rows_dir.mkdir()
            with SstFiles(index_dir, timestamped=False) as index, SstFiles(rows_dir, timestamped=timestamped) as files:
                for _, batch in group:
                    if layout.indexed:
                        index.add(index_of(batch))
                    writer.add(_numbered(with_times_in_front(batch, layout.key), rows))
                    rows += batch.num_rows
                index.finish()
                for _, batch in merged([writer.finish(rows)], Routing(), with_deletes=True):
                    files.add(batch)
                files.finish()
            into = directory / str(segment)
            into.mkdir()
            made = tuple(
                path.rename(into / f"{at:06d}.sst") for at, path in enumerate([*files.files, *index.files], start=1)
            )
            for done in (index_dir, rows_dir, directory / "sorted"):
                remove_tree(done)
            yield SegmentFiles(segment, made, files.bytes + index.bytes)
    except OSError as error:
        raise of_os_error(error) from error


def _numbered(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Give records offsets in the order that they come in: runs need them to ascend."""
    offsets = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
    return batch.set_column(3, SCHEMA.field(3), offsets)
