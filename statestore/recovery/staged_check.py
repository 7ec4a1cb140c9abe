"""Checking a new store before it goes live.

`files`: every database opens, which reads its MANIFEST and the footers and properties of its SST files; it is marked
closed, has the offsets that were committed, and by its files' properties as many rows as were written. Blocks of rows
are not read. `deep`: every row is read as well, and the digest of all must be that of the rows written.
After a tail the rows are read in any case: nothing but reading tells how many there are.
"""

from __future__ import annotations

from pathlib import Path

from statestore.bulk.digest import Digest
from statestore.bulk.time_ordered import with_end
from statestore.errors import StoreCorruptedError
from statestore.formats.offsets import STATUS_CLOSED
from statestore.kinds.kind import by_form
from statestore.kinds.segment_directories import segment_start
from statestore.partition.replacement import staged_context
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.full import Built
from statestore.requests.restore import CheckDepth
from statestore.stores.open import opened
from statestore.stores.scan import ScannedDatabase
from statestore.verification.options import nobody_waits
from statestore.verification.row_reading import reading_of
from statestore.verification.supplied import count


def check_staged(store: StorePartitionSpec, built: Built, depth: CheckDepth) -> int:
    """Check the store in the staging directory; return its rows.

    Raises
    ------
    StoreCorruptedError
        If it is not what was built.
    """
    staged = store.paths.staging(store.store.name)
    return _CHECKS[store.store.row_form](store, built, depth, staged)


def _check_databases(store: StorePartitionSpec, built: Built, depth: CheckDepth, staged: Path) -> int:
    digest = Digest(store.store.values) if depth == "deep" and built.digest is not None else None
    read = built.rows is None or depth == "deep"
    keys = sum(
        _check(directory, store, built, digest, read=read) for directory in store.store.store_kind.databases(staged)
    )
    if built.rows is not None and keys != built.rows:
        raise _wrong(staged, f"{keys} rows", f"{built.rows}")
    if digest is not None and digest.hexdigest() != built.digest:
        raise _wrong(staged, f"rows with the digest {digest.hexdigest()}", f"{built.digest}")
    return keys


def _check_supplied(store: StorePartitionSpec, built: Built, depth: CheckDepth, staged: Path) -> int:
    with opened(store.store, staged_context(store, read_only=True)) as found:
        for partition, expected in built.committed.items():
            if (offset := found.committed_offset(partition)) != expected:
                raise _wrong(staged, f"offset {offset} for {partition}", f"{expected}")
        return count(found, store.store, nobody_waits)


def _check(directory: Path, store: StorePartitionSpec, built: Built, digest: Digest | None, *, read: bool) -> int:
    with ScannedDatabase(directory, store.store.values) as database:
        if database.status() != STATUS_CLOSED:
            raise _wrong(directory, f"a store with the status {database.status()}", f"{STATUS_CLOSED}, closed")
        for partition, expected in built.committed.items():
            found = database.committed_offset(partition)
            # Segments that a tail did not touch for long keep offsets of their own, never larger ones.
            if found != expected and not (built.rows is None and found is not None and found <= (expected or 0)):
                raise _wrong(directory, f"offset {found} for {partition}", f"{expected}")
        kind = store.store.store_kind
        if not read:
            return kind.rows_in(database.entries())
        segment, rows = segment_start(directory.name) or 0, 0
        if digest is None:
            return reading_of(store.store).count_keys(database, segment, nobody_waits)
        for batch in reading_of(store.store).rows(database, segment):
            batch = with_end(batch, kind.logged_values_end_with)
            digest.add_stored(batch.column(0), batch.column(1))
            rows += batch.num_rows
        return rows


def _wrong(directory: Path, found: str, expected: str) -> StoreCorruptedError:
    return StoreCorruptedError(
        f"the store built in {directory} has {found}, expected {expected}; the live store is untouched, run the "
        "restore again"
    )


_CHECKS = by_form(_check_databases, supplied=_check_supplied)
