"""How given rows become records of a changelog: a strategy for each form of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from statestore.bulk.digest import Digest
from statestore.bulk.routing import routing_of
from statestore.compiled.batches import Int64s
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.kinds.kind import by_form
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


def _as_given(stage: RowStage, stores: Sequence[StorePartitionSpec], run_bytes: int, *, whole: bool) -> RowStage:
    return stage


def _records_of_versions(store: StorePartitionSpec, batch: pa.RecordBatch, unknown_ms: int) -> Records:
    return Records(*version_records(batch), headers=None, unknown_times=0)


def _add_versions(digest: Digest, store: StorePartitionSpec, batch: pa.RecordBatch, records: Records) -> None:
    add_versions(digest, batch)


#: Name of the column by which rows expire, latest time and starts of the segments that a store has, start of the oldest
#: segment that has not expired with further rows and without them, and earliest time that the store keeps (ms).
Expiry = tuple[str, int, Sequence[int], int, int, int]


class RecordForm:
    """A row is a record.

    Attributes
    ----------
    ordered
        Returns rows in the order that their records must have; see `version_rows.as_records`.
    records, add_expected
        See `rows`.
    may_have_deletes
        An overwrite can have rows without a value.
    """

    ordered = staticmethod(_as_given)
    records = staticmethod(records_of)
    add_expected = staticmethod(add_expected)
    may_have_deletes = False

    def digest(self, store: StorePartitionSpec, directory: Path, keys: int, digest: str) -> tuple[int, str]:
        """Return the number of rows of a database and their digest, given those of its row keys."""
        return keys, digest

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Return rows that are put, and keys that are deleted after them."""
        is_put = pc.is_valid(batch.column(1))
        return batch.filter(is_put), batch.column(0).filter(pc.invert(is_put))

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
        return kind.segment_time, now, starts, oldest, routing.oldest_live(now), oldest


class _VersionForm(RecordForm):
    """A row is a version of a key, or a delete between versions."""

    ordered = staticmethod(as_records)
    records = staticmethod(_records_of_versions)
    add_expected = staticmethod(_add_versions)
    may_have_deletes = True

    def digest(self, store: StorePartitionSpec, directory: Path, keys: int, digest: str) -> tuple[int, str]:
        versions = versions_digest(store, directory)  # a row of the database has several
        return versions.rows, versions.hexdigest()

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        return batch, batch.column(0).slice(0, 0)  # puts and deletes are written in the order of their times

    def named(self, key: bytes) -> tuple[str, str]:
        start = int.from_bytes(key[-_TIME_BYTES:], "big")
        return "versions", f"of {key[:-_TIME_BYTES]!r:.120} with valid_from {start}"

    def times(self, store: StorePartitionSpec, batch: pa.RecordBatch) -> Int64s:
        return version_times(batch.column(0))

    def expiry(self, store: StorePartitionSpec, latest: int) -> Expiry:
        now, starts = history_of(store)
        after = max(now, latest)
        oldest, before = first_segment(store.store, after), first_segment(store.store, now)
        return "valid_from", now, starts, oldest, before, after - (store.store.retention_ms or 0)


_FORMS = by_form(RecordForm(), versions=_VersionForm())


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
