"""The rows of a store of any kind, as `read` prints them. The caller holds the lock of the store's task."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.cli.values import json_value
from statestore.definitions.fields import SerdeName
from statestore.definitions.store import StoreDefinition
from statestore.discovery.opening import Opened, Wanted, close_all, open_databases
from statestore.discovery.row_range import RowRange, shown_segments
from statestore.discovery.store_directory import LiveStore
from statestore.errors import DefinitionError, InputError, StoreCorruptedError, UnknownFormatError
from statestore.formats.timestamped_value import UNKNOWN_TIMESTAMP
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY
from statestore.kinds.kind import by_form
from statestore.partition.spec import StorePartitionSpec
from statestore.schemas.serdes import KEY_HEADER, REGISTRY_SERDES, VALUE_HEADER, with_schema_id
from statestore.stores.abilities import NO_STREAM_TIME
from statestore.stores.open import opened
from statestore.stores.serdes import load_serde
from statestore.stores.versioned import newest_time_in
from statestore.verification import supplied

_VALID_FROM, _VALID_TO = "valid_from", "valid_to"


class Row(NamedTuple):
    """A row of a store partition, or a version of a key.

    Attributes
    ----------
    key, value
        As JSON values. If the serde cannot decode them, they are None, and `key_bytes` and `value_bytes` have their
        bytes in hexadecimal.
    timestamp
        In ms; -1 if it is not known, None if the store keeps none.
    headers
        Names and values, these in hexadecimal; None if the store keeps none.
    numbers
        What tells rows of a key apart, by name, such as `window_start` (ms). Of a version: from when until before when
        it is valid; `valid_to` is None if it still is.
    reason
        Why the key or the value cannot be decoded; None if both are.
    """

    application: str
    store: str
    task: str
    key: Any
    key_bytes: str | None
    value: Any
    value_bytes: str | None
    timestamp: int | None
    headers: tuple[tuple[str, str | None], ...] | None
    numbers: dict[str, int | None]
    reason: str | None = None

    @property
    def label(self) -> str:
        """The store partition."""
        return f"{self.application}/{self.store}/{self.task}"

    def content(self) -> dict[str, Any]:
        """Return what programs get of it."""
        fields = self._asdict()
        numbers = fields.pop("numbers")
        return {**fields, _VALID_FROM: None, _VALID_TO: None, **numbers}


class Serdes(NamedTuple):
    """Serdes of keys and values."""

    key: SerdeName
    value: SerdeName

    @property
    def advice(self) -> str:
        """What to do about bytes that a serde has not decoded."""
        for name in self:
            try:
                load_serde(name)
            except DefinitionError as error:
                return str(error)
        return "Correct --key-serde or --value-serde"


def read_rows(
    spec: StorePartitionSpec, wanted: RowRange, serdes: Serdes, *, latest: bool = False, expired: bool = False
) -> Generator[Row, None, None]:
    """Yield the rows of a range: by segment, in each by key; of a versioned store by key, then time.

    Nothing if the store does not exist.

    Parameters
    ----------
    latest
        Of a versioned store, the latest version of each key only.
    expired
        Rows of expired and left-over segments, too; see `shown_segments`.

    Raises
    ------
    StoreCorruptedError, UnknownFormatError
        If the store cannot be read.
    """
    try:
        yield from _READERS[spec.store.row_form](spec, wanted, serdes, latest, expired)
    except (StoreCorruptedError, UnknownFormatError) as error:
        raise type(error)(f"{spec.store_partition}: {error}") from error


def history_from(spec: StorePartitionSpec) -> int:
    """Return the oldest time (ms) whose values a versioned store still has.

    All latest values are read for that: nothing else tells how far the store's time is.

    Raises
    ------
    StoreCorruptedError, UnknownFormatError
        If the store cannot be read.
    """
    newest = NO_STREAM_TIME
    with _opened(spec, RowRange(spec.store.store_kind)) as parts:
        for part in parts:
            newest = max(newest, newest_time_in(part.database.stored(DEFAULT_COLUMN_FAMILY)))
    return newest - (spec.store.retention_ms or 0)


def number_names(store: StoreDefinition) -> list[str]:
    """Return the names of the numbers of a store's rows. How long windows are, no directory tells."""
    names = [number.name for number in store.store_kind.columns(store)]
    return [name for name in names if name != "window_end" or store.window_size_ms]


@contextmanager
def _opened(spec: StorePartitionSpec, wanted: RowRange, *, expired: bool = False) -> Iterator[Sequence[Opened]]:
    if not spec.live.exists():
        yield []
        return
    store = LiveStore(spec.store.name, spec.store.segmented, spec.live, spec.application, spec.task, spec.state_dir)
    shown: Wanted = wanted.has_segment
    if store.segmented:
        starts = store.databases()
        shown = shown_segments(starts, wanted, spec.store.retention_ms, spec.left_over(starts), expired=expired)
    databases = open_databases(store, spec.store.values, shown)
    try:
        yield databases
    finally:
        close_all(databases)


def _rows(
    spec: StorePartitionSpec, batches: Iterator[pa.RecordBatch], wanted: RowRange, serdes: Serdes
) -> Iterator[Row]:
    kind, names = spec.store.store_kind, number_names(spec.store)
    for batch in batches:
        found = []
        for raw_key, stored in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            key, numbers = kind.split(kind.logged_key(raw_key))
            if wanted.has_key(key) and wanted.has_times(numbers):
                found.append((key, stored, numbers))
        arrays = {number.name: np.array([row[2][number.name] for row in found], np.int64) for number in kind.numbers}
        shown = kind.shown(arrays, spec.store)
        for at, (key, stored, _) in enumerate(found):
            value, timestamp, *headers = spec.store.values.logged(stored)
            if timestamp is None and spec.store.values.timestamped:
                timestamp = UNKNOWN_TIMESTAMP
            numbers = {name: int(shown[name][at]) for name in names}
            yield _row(spec, serdes, key, value or b"", timestamp, headers[0] if headers else None, numbers)


def _records(spec: StorePartitionSpec, wanted: RowRange, serdes: Serdes, latest: bool, expired: bool) -> Iterator[Row]:
    with _opened(spec, wanted, expired=expired) as parts:
        for part in parts:
            yield from _rows(spec, part.rows(*spec.store.store_kind.bounds_on_disk(wanted.bounds())), wanted, serdes)


def _versions(spec: StorePartitionSpec, wanted: RowRange, serdes: Serdes, latest: bool, expired: bool) -> Iterator[Row]:
    with _opened(spec, wanted, expired=expired) as parts:
        for key, versions in (found for part in parts for found in part.versions(*wanted.keys())):
            for value, valid_from, valid_to in versions:
                if value is None or (latest and valid_to is not None) or not wanted.has_version(valid_from, valid_to):
                    continue
                yield _row(spec, serdes, key, value, valid_from, None, {_VALID_FROM: valid_from, _VALID_TO: valid_to})


def _supplied(spec: StorePartitionSpec, wanted: RowRange, serdes: Serdes, latest: bool, expired: bool) -> Iterator[Row]:
    with opened(spec.store, spec.context(read_only=True)) as store:
        batches = supplied.batches(store, spec.store, lambda: None)
        yield from _rows(spec, map(supplied.as_stored, batches), wanted, serdes)


#: Functions that yield the rows of a range: only the latest versions if `latest`, and also expired rows if `expired`.
_READERS = by_form(_records, versions=_versions, supplied=_supplied)


def _row(
    spec: StorePartitionSpec,
    serdes: Serdes,
    key: bytes,
    value: bytes,
    timestamp: int | None,
    headers: Sequence[tuple[str, bytes | None]] | None,
    numbers: dict[str, int | None] | dict[str, int],
) -> Row:
    shown = None if headers is None else tuple((name, None if raw is None else raw.hex()) for name, raw in headers)
    where = (spec.application, spec.store.name, str(spec.task))
    of_key, key_reason = _decoded(key, serdes.key, headers, KEY_HEADER)
    of_value, value_reason = _decoded(value, serdes.value, headers, VALUE_HEADER)
    reasons = [f"{what}: {why}" for what, why in (("key", key_reason), ("value", value_reason)) if why is not None]
    return Row(*where, *of_key, *of_value, timestamp, shown, {**numbers}, "; ".join(reasons) or None)


def _decoded(
    raw: bytes, serde: SerdeName, headers: Sequence[tuple[str, bytes | None]] | None, id_header: str
) -> tuple[tuple[Any, str | None], str | None]:
    """Return a key or value; or None and its bytes in hexadecimal, and the reason, if it is not of its serde."""
    try:
        data = with_schema_id(raw, headers or (), id_header) if serde in REGISTRY_SERDES else raw
        return (json_value(data, serde), None), None
    except (TypeError, ValueError, InputError) as error:
        return (None, raw.hex()), str(error)
