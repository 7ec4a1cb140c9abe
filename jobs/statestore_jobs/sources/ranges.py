"""Which rows of a store are read: bounds that RocksDB seeks, segments that are left out, and what is left to filter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import InputError
from statestore.kinds.kind import StoreKind
from statestore.stores.serdes import load_serde
from statestore_jobs.sources.columns import split_keys
from statestore_jobs.sources.decoding import arrow, flags
from statestore_jobs.sources.options import time_ms

#: Options that say which rows are read (see `range_of`).
RANGE_OPTIONS = ("key", "key_from", "key_to", "time_from", "time_to")
_LARGEST_TIME = (1 << 63) - 1
_EXPECTED = {"bytes": "hexadecimal digits", "int64": "a number of 64 bits", "json": "JSON", "utf8": "text"}


class Range(NamedTuple):
    """Rows with `key_from <= key < key_to`, and with a time in the range; None is an open end.

    Attributes
    ----------
    key
        The only key, if one is asked for.
    time_from, time_to
        In ms, `time_to` exclusive: windows that start in between, sessions that were active in between, versions that
        were valid in between.
    """

    kind: StoreKind
    key: bytes | None = None
    key_from: bytes | None = None
    key_to: bytes | None = None
    time_from: int | None = None
    time_to: int | None = None

    def has_segment(self, start: int, following: int | None) -> bool:
        """Whether a segment may hold such rows.

        Parameters
        ----------
        start, following
            Start (ms) of the segment and of the one behind it, from which on it has no rows. How long segments are is
            not asked: an application may choose it.
        """
        if not self.kind.segmented:
            return True
        if self.time_from is not None and following is not None and following <= self.time_from:
            return False
        return self.time_to is None or self.kind.may_be_in_segment(start, self.time_to)

    def bounds(self) -> tuple[bytes | None, bytes | None]:
        """Row keys `start <= row key < stop` between which all such rows lie."""
        if self.key is None:
            return self.kind.range_bounds(self.key_from, self.key_to)
        latest = _LARGEST_TIME if self.time_to is None else self.time_to - 1
        return self.kind.key_bounds(self.key, self.time_from or 0, latest)

    def keys(self) -> tuple[bytes, bytes | None]:
        """Keys `start <= key < stop` between which those of the range lie."""
        if self.key is not None:
            return self.key, self.key + b"\0"
        return self.key_from or b"", self.key_to

    def has_version(self, valid_from: int, valid_to: int | None) -> bool:
        """Whether a version was valid at a time of the range; `valid_to` is None for one that still is."""
        if self.time_from is not None and valid_to is not None and valid_to <= self.time_from:
            return False
        return self.time_to is None or valid_from < self.time_to

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return those rows of a batch from within the bounds that are in the range: bounds take in other rows, too."""
        if not self.kind.segmented or self == Range(self.kind):
            return batch
        split = split_keys(batch.column(0), self.kind)
        wanted = np.ones(len(batch), np.bool_)
        for bound, compare in (
            (self.key, pc.equal),
            (self.key_from, pc.greater_equal),
            (self.key_to, pc.less),
        ):
            if bound is not None:
                wanted &= flags(compare(split.keys, pa.scalar(bound, pa.binary())))
        if self.time_from is not None:
            wanted &= split.numbers[self.kind.last_time] >= self.time_from
        if self.time_to is not None:
            wanted &= split.numbers[self.kind.first_time] < self.time_to
        return batch if wanted.all() else batch.filter(arrow(wanted))


def range_of(options: Mapping[str, str], kind: StoreKind, key_serde: str) -> Range:
    """Read `RANGE_OPTIONS`.

    Raises
    ------
    InputError
        If one is malformed, of no use in a store of this kind, or if no row can be in the range.
    """
    keys = {name: _key(options[name], name, key_serde) for name in ("key", "key_from", "key_to") if name in options}
    times = {name: time for name in ("time_from", "time_to") if (time := time_ms(options, name)) is not None}
    if times and not kind.numbers and kind.rows_are_records:
        raise InputError(
            f"option {min(times)}: a {kind.name} store has no times in its keys; filter by its column timestamp instead"
        )
    if "key" in keys and len(keys) > 1:
        raise InputError("option key names the only key: leave key_from and key_to out")
    if {"key_from", "key_to"} <= set(keys) and keys["key_from"] >= keys["key_to"]:
        raise InputError(
            f"option key_to: {options['key_to']!r} is not behind key_from {options['key_from']!r}; keys are in the "
            "order of their bytes, key_to is exclusive"
        )
    if len(times) == 2 and times["time_from"] >= times["time_to"]:
        raise InputError(
            f"option time_to: {options['time_to']!r} is not behind time_from {options['time_from']!r}; it is exclusive"
        )
    return Range(kind, **keys, **times)  # type: ignore[arg-type]


def _key(text: str, name: str, serde: str) -> bytes:
    """Bytes of a key, written as on the command line."""
    try:
        value: object = text
        match serde:
            case "bytes":
                value = bytes.fromhex(text)
            case "int64":
                value = int(text)
            case "json":
                value = json.loads(text)
        return load_serde(serde).serialize(value)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"option {name}: {text!r} is not {_EXPECTED[serde]}, as key_serde {serde} wants it: {error}"
        ) from error
