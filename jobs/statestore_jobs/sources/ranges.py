"""Which rows of a store are read, as the options of a data source say it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.discovery.row_range import RowRange
from statestore.errors import InputError
from statestore.kinds.kind import StoreKind
from statestore.stores.serdes import key_of_text
from statestore_jobs.sources.columns import split_keys
from statestore_jobs.sources.decoding import arrow, flags
from statestore_jobs.sources.options import time_ms

#: Options that say which rows are read (see `range_of`).
RANGE_OPTIONS = ("key", "key_from", "key_to", "time_from", "time_to")


def in_range(batch: pa.RecordBatch, wanted: RowRange) -> pa.RecordBatch:
    """Return those rows of a batch from within the bounds that are in the range: bounds take in other rows, too."""
    kind = wanted.kind
    if not kind.segmented or wanted == RowRange(kind):
        return batch
    split = split_keys(batch.column(0), kind)
    found = np.ones(len(batch), np.bool_)
    for bound, compare in (
        (wanted.key, pc.equal),
        (wanted.key_from, pc.greater_equal),
        (wanted.key_to, pc.less),
    ):
        if bound is not None:
            found &= flags(compare(split.keys, pa.scalar(bound, pa.binary())))
    if wanted.time_from is not None:
        found &= split.numbers[kind.last_time] >= wanted.time_from
    if wanted.time_to is not None:
        found &= split.numbers[kind.first_time] < wanted.time_to
    return batch if found.all() else batch.filter(arrow(found))


def range_of(options: Mapping[str, str], kind: StoreKind, key_serde: str) -> RowRange:
    """Read `RANGE_OPTIONS`.

    Raises
    ------
    InputError
        If one is malformed, of no use in a store of this kind, or if no row can be in the range.
    """
    keys = {name: _key(options[name], name, key_serde) for name in ("key", "key_from", "key_to") if name in options}
    times = {name: time for name in ("time_from", "time_to") if (time := time_ms(options, name)) is not None}
    if times and not kind.has_times:
        raise InputError(
            f"option {min(times)}: a {kind.name} store has no times in its keys; filter by its column timestamp instead"
        )
    if "key" in keys and len(keys) > 1:
        raise InputError("option key names the only key: leave key_from and key_to out")
    if {"key_from", "key_to"} <= set(keys) and keys["key_from"] >= keys["key_to"]:
        raise InputError(
            f"option key_to: {options['key_to']!r} is not after key_from {options['key_from']!r}; keys are in the "
            "order of their bytes, key_to is exclusive"
        )
    if len(times) == 2 and times["time_from"] >= times["time_to"]:
        raise InputError(
            f"option time_to: {options['time_to']!r} is not after time_from {options['time_from']!r}; it is exclusive"
        )
    return RowRange(kind, **keys, **times)  # type: ignore[arg-type]


def _key(text: str, name: str, serde: str) -> bytes:
    """Return a key, written as on the command line."""
    try:
        return key_of_text(text, serde, "key_serde")
    except ValueError as error:
        raise InputError(f"option {name}: {error}") from error
