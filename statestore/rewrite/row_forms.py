"""How given rows become records of a changelog: a strategy for each form of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from statestore.bulk.digest import Digest
from statestore.bulk.routing import routing_of
from statestore.compiled.batches import Int64s
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.kinds.kind import RowForm
from statestore.kinds.segment_directories import segment_start
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.row_stage import RowStage
from statestore.rewrite.rows import Records, add_expected, records_of, stored_rows
from statestore.rewrite.version_rows import (
    add_versions,
    as_records,
    first_segment,
    history_of,
    version_records,
    version_times,
    versions_digest,
)
from statestore.verification.kernels import numbers_in

_TIME_BYTES = 8


class Expiry(NamedTuple):
    """What a store keeps if it gets further rows; times in ms.

    Attributes
    ----------
    time
        Name of the column by which rows expire.
    now, starts
        The store's latest time, and the starts of its segments.
    oldest, before
        Start of the oldest segment that has not expired, with the further rows and without them.
    takes
        The earliest time of a row that the store would keep.
    """

    time: str
    now: int
    starts: list[int]
    oldest: int
    before: int
    takes: int


class RecordForm:
    """A row is a record."""

    def ordered(
        self, stage: RowStage, stores: Sequence[StorePartitionSpec], run_bytes: int, *, whole: bool
    ) -> RowStage:
        """Return rows in the order that their records must have; see `version_rows.as_records`."""
        return stage

    def records(self, store: StorePartitionSpec, batch: pa.RecordBatch, unknown_ms: int) -> Records:
        """Return the records of rows; see `rows.records_of`."""
        return records_of(store, batch, unknown_ms)

    def add_expected(self, digest: Digest, store: StorePartitionSpec, batch: pa.RecordBatch, records: Records) -> None:
        """Add to a digest the rows of a store that is restored from these records."""
        add_expected(digest, store, batch, records)

    def digest(self, store: StorePartitionSpec, directory: Path, keys: int, digest: str) -> tuple[int, str]:
        """Return the number of rows of a database and their digest, given those of its row keys."""
        return keys, digest

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Return rows that are put, and keys that are deleted after them."""
        is_put = pc.is_valid(batch.column(1))
        return batch.filter(is_put), batch.column(0).filter(pc.invert(is_put))

    def require_values(self, batch: pa.RecordBatch) -> None:
        """Refuse deletes in an overwrite.

        Raises
        ------
        InputError
            If a row has no value.
        """
        if batch.column(1).null_count:
            raise InputError("a row has no value: an overwrite has rows only; leave deleted keys out")

    def named(self, key: bytes) -> tuple[str, str]:
        """Return what rows are identified by, and a row by its row key."""
        return "keys", f"{key!r:.120}"

    def times(self, store: StorePartitionSpec, batch: pa.RecordBatch) -> Int64s:
        """Return the times (ms) by which rows expire."""
        return numbers_in(batch.column(0), back=store.store.store_kind.suffix_bytes)

    def expiry(self, store: StorePartitionSpec, latest: int) -> Expiry:
        """Return what a store keeps if the latest of further rows has this time (ms)."""
        kind, routing = store.store.store_kind, routing_of(store.store)
        starts = [segment_start(path.name) or 0 for path in kind.databases(store.live)]
        stored = (batch for _, batch in stored_rows(store, max(starts))) if starts else ()
        now = max((int(found.max()) for found in map(partial(self.times, store), stored) if len(found)), default=0)
        oldest = routing.oldest_live(max(now, latest))
        return Expiry(kind.segment_time, now, starts, oldest, routing.oldest_live(now), oldest)


class VersionForm(RecordForm):
    """A row is a version of a key, or a delete between versions."""

    def ordered(
        self, stage: RowStage, stores: Sequence[StorePartitionSpec], run_bytes: int, *, whole: bool
    ) -> RowStage:
        """Return the versions in the order of their times, with the deletes between them."""
        return as_records(stage, stores, run_bytes, whole=whole)

    def records(self, store: StorePartitionSpec, batch: pa.RecordBatch, unknown_ms: int) -> Records:
        """Return the records of versions."""
        return Records(*version_records(batch), headers=None, unknown_times=0)

    def add_expected(self, digest: Digest, store: StorePartitionSpec, batch: pa.RecordBatch, records: Records) -> None:
        """Add versions to a digest."""
        add_versions(digest, batch)

    def digest(self, store: StorePartitionSpec, directory: Path, keys: int, digest: str) -> tuple[int, str]:
        """Return the number of versions and their digest: a row of the database has several."""
        versions = versions_digest(store, directory)
        return versions.rows, versions.hexdigest()

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Return all: puts and deletes are written in the order of their times."""
        return batch, batch.column(0).slice(0, 0)

    def require_values(self, batch: pa.RecordBatch) -> None:
        """Accept deletes: they end versions."""

    def named(self, key: bytes) -> tuple[str, str]:
        """Return the key and the start of a version."""
        start = int.from_bytes(key[-_TIME_BYTES:], "big")
        return "versions", f"of {key[:-_TIME_BYTES]!r:.120} with valid_from {start}"

    def times(self, store: StorePartitionSpec, batch: pa.RecordBatch) -> Int64s:
        """Return the starts (ms) of versions."""
        return version_times(batch.column(0))

    def expiry(self, store: StorePartitionSpec, latest: int) -> Expiry:
        """Return what a store keeps of its history."""
        now, starts = history_of(store)
        after = max(now, latest)
        oldest, before = first_segment(store.store, after), first_segment(store.store, now)
        return Expiry("valid_from", now, starts, oldest, before, after - (store.store.retention_ms or 0))


def form_of(store: StoreDefinition) -> RecordForm:
    """Return the strategy for the rows of a store."""
    return _FORMS[store.store_kind.row_form]


def require_single_keys(stage: RowStage, store: StorePartitionSpec) -> None:
    """Refuse rows of a store partition that have the same key.

    Raises
    ------
    InputError
        Naming one of them.
    """
    if (twice := stage.duplicate(store.task.partition)) is not None:
        keys, key = twice
        what, such = form_of(store.store).named(key)
        raise InputError(
            f"{store.store_partition}: the DataFrame has {keys} {what} more than once, such as {such}. Expected "
            "each once: keep one row of each. Nothing was changed"
        )


_FORMS: Mapping[RowForm, RecordForm] = {
    RowForm.RECORDS: RecordForm(),
    RowForm.TIME_ORDERED: RecordForm(),
    RowForm.VERSIONS: VersionForm(),
}
