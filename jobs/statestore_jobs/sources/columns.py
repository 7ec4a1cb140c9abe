"""The columns in which rows of a store are shown, whether they come from the store or from its changelog.

| kind      | columns                                                                                       |
|-----------|-----------------------------------------------------------------------------------------------|
| key-value | partition, key, value, timestamp                                                              |
| window    | partition, key, window_start, window_end, value, timestamp; `sequence` where duplicates are retained |
| session   | partition, key, session_start, session_end, value, timestamp                                  |

Behind `partition` there may be an `offset`, behind `timestamp` what `undecodable=keep` adds. Keys are split and values
decoded by the column: nothing here walks over rows that are fit to be shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, StoreCorruptedError
from statestore.formats import session_key, window_key
from statestore.formats.timestamped_value import TIMESTAMP_BYTES
from statestore_jobs.sources.decoding import END, Decoded, Decoding, arrow, check_fields, decode, decoding_of, fixed

_LARGEST_TIME = (1 << 63) - 1
_SUFFIX_BYTES = {"key-value": 0, "window": window_key.SUFFIX_BYTES, "session": session_key.SUFFIX_BYTES}
_WINDOW = np.dtype([("start", ">i8"), ("sequence", ">i4")])
_SESSION = np.dtype([("end", ">i8"), ("start", ">i8")])
_KEPT_DDL = "undecodable BOOLEAN, key_bytes BINARY, value_bytes BINARY"
_KEPT = [("undecodable", pa.bool_()), ("key_bytes", pa.binary()), ("value_bytes", pa.binary())]

#: Columns that with partition and key tell rows apart, by kind.
TIME_COLUMNS = {
    "key-value": (),
    "window": ("window_start", "window_end"),
    "session": ("session_start", "session_end"),
}


class RowKeys(NamedTuple):
    """Row keys of a store, split.

    Attributes
    ----------
    keys
        The user's keys.
    starts, ends
        Window start, and nothing; or session start and end (ms); nothing in a key-value store.
    sequences
        Numbers of a window's duplicates.
    """

    keys: pa.Array
    starts: npt.NDArray[np.int64] | None = None
    ends: npt.NDArray[np.int64] | None = None
    sequences: npt.NDArray[np.int32] | None = None


def split_keys(row_keys: pa.Array, kind: str) -> RowKeys:
    """Split the row keys of a store of a kind.

    Raises
    ------
    StoreCorruptedError
        If one is too short to be one of such a store.
    """
    size = _SUFFIX_BYTES[kind]
    if not size:
        return RowKeys(row_keys)
    _require_length(row_keys, size, f"a {kind} store's row key")
    keys = pc.binary_slice(row_keys, 0, -size)
    if kind == "window":
        found = fixed(row_keys, -size, END, _WINDOW)
        return RowKeys(keys, found["start"].astype(np.int64), sequences=found["sequence"].astype(np.int32))
    found = fixed(row_keys, -size, END, _SESSION)
    return RowKeys(keys, found["start"].astype(np.int64), found["end"].astype(np.int64))


def split_timestamps(stored: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Split values as the timestamped format stores them into the application's values and timestamps (ms).

    Raises
    ------
    StoreCorruptedError
        If one is too short for a timestamp.
    """
    _require_length(stored, TIMESTAMP_BYTES, "a timestamped value")
    timestamps = fixed(stored, 0, TIMESTAMP_BYTES, np.dtype(">i8")).astype(np.int64)
    return pc.binary_slice(stored, TIMESTAMP_BYTES, END), arrow(timestamps)


def _require_length(array: pa.Array, size: int, what: str) -> None:
    shortest = pc.min(pc.binary_length(array)).as_py()
    if shortest is not None and shortest < size:
        raise StoreCorruptedError(
            f"{what} has at least {size} bytes, found {shortest}: the store is of another kind or format than it is "
            "read as, or damaged; correct the options kind and format, or restore it"
        )


class Layout(NamedTuple):
    """The columns of a store's rows, and how batches of them are made.

    Attributes
    ----------
    ddl
        Columns and types, for Spark.
    schema
        The same for Arrow. Spark takes batches as they are: names, order and types are those of the DDL.
    """

    store: StoreDefinition
    decoding: Decoding
    ddl: str
    schema: pa.Schema

    def batch(
        self,
        partition: int | None,
        keys: pa.Array,
        values: pa.Array | None,
        timestamps: pa.Array,
        offsets: pa.Array | None = None,
    ) -> pa.RecordBatch:
        """Show rows.

        Parameters
        ----------
        keys
            Row keys as the store has them, binary.
        values
            What the application put, binary; null where there is none, None if values are not shown.
        timestamps
            In ms; null in a plain store, -1 where it is not known.
        offsets
            Offsets of the records in the changelog, if they are shown.

        Raises
        ------
        InputError
            If a key or a value cannot be decoded, and such rows are not to be kept.
        StoreCorruptedError
            If a row key is not one of the store's kind.
        """
        rows = len(keys)
        split = split_keys(keys, self.store.kind)
        nowhere = pa.nulls(rows, pa.int32())
        where = nowhere if partition is None else arrow(np.full(rows, partition, np.int32))
        shown: dict[str, Any] = {"partition": where, "offset": offsets}
        key = decode(split.keys, self.decoding.key_serde, self.schema.field("key").type)
        value_type = self.schema.field("value").type
        value = Decoded(pa.nulls(rows, value_type))
        if self.decoding.values and values is not None:
            value = decode(values, self.decoding.value_serde, value_type)
        shown |= {"key": key.values, **self._times(split), "value": value.values, "timestamp": timestamps}
        bad = _either(key.bad, value.bad)
        if self.decoding.keep:
            shown |= _kept(rows, bad, split.keys, values)
        elif bad is not None:
            raise self._undecodable(split.keys, key, value, bad)
        return pa.RecordBatch.from_arrays([shown[name] for name in self.schema.names], schema=self.schema)

    def _times(self, split: RowKeys) -> dict[str, pa.Array]:
        match self.store.kind:
            case "window":
                assert split.starts is not None
                ends = split.starts + (self.store.window_size_ms or 0)
                ends[ends < split.starts] = _LARGEST_TIME  # as Kafka Streams: a window ends at the largest time at most
                assert split.sequences is not None
                return {
                    "window_start": arrow(split.starts),
                    "window_end": arrow(ends),
                    "sequence": arrow(split.sequences),
                }
            case "session":
                assert split.starts is not None
                assert split.ends is not None
                return {"session_start": arrow(split.starts), "session_end": arrow(split.ends)}
        return {}

    def _undecodable(self, keys: pa.Array, key: Decoded, value: Decoded, bad: npt.NDArray[np.bool_]) -> InputError:
        at = int(bad.argmax())
        part = "key" if key.bad is not None and key.bad[at] else "value"
        serde, reason = (
            (self.decoding.key_serde, key.reason) if part == "key" else (self.decoding.value_serde, value.reason)
        )
        return InputError(
            f"key {keys[at].as_py().hex()} (hexadecimal): its {part} is not {serde}: {reason}; correct option "
            f"{part}_serde, or keep such rows as bytes with .option('undecodable', 'keep')"
        )


def layout_of(
    options: Mapping[str, str], store: StoreDefinition, *, with_offset: bool, schema: StructType | None = None
) -> Layout:
    """Return the columns of a store's rows, decoded as the options say (`DECODING_OPTIONS`).

    Parameters
    ----------
    schema
        What Spark made of the layout's DDL. Without it the type of a struct is not known: such a layout is for its DDL.

    Raises
    ------
    InputError
        If an option is malformed, or the schema is another one.
    """
    decoding = decoding_of(options)
    value_type = decoding.value_type or pa.struct([])
    if schema is not None and decoding.value_type is None and "value" in schema.names:
        value_type = to_arrow_schema(schema).field("value").type
        check_fields(value_type)
    times = list(TIME_COLUMNS[store.kind])
    columns = [
        ("partition", "INT", pa.int32()),
        *([("offset", "LONG", pa.int64())] if with_offset else []),
        ("key", decoding.key_ddl, decoding.key_type),
        *((name, "LONG", pa.int64()) for name in times),
        *([("sequence", "INT", pa.int32())] if store.retain_duplicates else []),
        ("value", decoding.value_ddl, value_type),
        ("timestamp", "LONG", pa.int64()),
    ]
    ddl = ", ".join(f"{name} {ddl}" for name, ddl, _ in columns)
    fields = [(name, kind) for name, _, kind in columns]
    if decoding.keep:
        ddl, fields = f"{ddl}, {_KEPT_DDL}", fields + _KEPT
    result = Layout(store, decoding, ddl, pa.schema(fields))
    if schema is not None and to_arrow_schema(schema) != result.schema:
        raise InputError(f"the columns are given by the options: {ddl}; leave .schema(...) out")
    return result


def _either(one: npt.NDArray[np.bool_] | None, other: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _kept(rows: int, bad: npt.NDArray[np.bool_] | None, keys: pa.Array, values: pa.Array | None) -> dict[str, pa.Array]:
    nothing = pa.nulls(rows, pa.binary())
    if bad is None:
        return {"undecodable": arrow(np.zeros(rows, np.bool_)), "key_bytes": nothing, "value_bytes": nothing}
    marks = arrow(bad)
    return {
        "undecodable": marks,
        "key_bytes": pc.if_else(marks, keys, nothing),
        "value_bytes": nothing if values is None else pc.if_else(marks, values, nothing),
    }
