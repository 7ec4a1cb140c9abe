"""Bytes of stores become columns with exact types and nulls, many at once or one by one with the same result."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any
from unittest.mock import ANY

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema
from statestore_jobs.sources.columns import Layout, layout_of, split_keys, split_values
from statestore_jobs.sources.decoding import check_fields, decode
from statestore_jobs.sources.json_values import read_json, read_json_text
from statestore_jobs.sources.options import described_store, refuse_unknown, time_ms

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, StoreCorruptedError
from statestore.formats import headers_value, session_key, timestamped_value, window_key
from statestore.formats.value_format import SESSION_HEADERS, value_format
from statestore.kinds.known import BUILT_IN
from statestore.model import StoreFormat
from tests.session.examples import examples

_COUNTS = StoreDefinition(name="counts")
_WINDOWS = StoreDefinition(name="windows", kind="window", retention_ms=100, window_size_ms=10, retain_duplicates=True)
_SESSIONS = StoreDefinition(name="sessions", kind="session", retention_ms=100)
_FLIGHT = pa.struct(
    [
        ("number", pa.int32()),
        ("carrier", pa.string()),
        ("delay", pa.float64()),
        ("cancelled", pa.bool_()),
        ("legs", pa.list_(pa.struct([("miles", pa.int64()), ("via", pa.list_(pa.string()))]))),
    ]
)


def _layout(store: StoreDefinition, *, with_offset: bool = False, **options: str) -> Layout:
    return layout_of(options, store, with_offset=with_offset)


def _binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


# -- row keys and stored values ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.binary(max_size=30), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)), max_size=40))
@settings(max_examples=examples(30), deadline=None)
def test_row_keys_are_split_as_their_formats_say(rows: list[tuple[bytes, int, int]]) -> None:
    windows = split_keys(_binary(*(window_key.encode(*row) for row in rows)), BUILT_IN["window"])
    sessions = split_keys(
        _binary(*(session_key.encode(key, end // 2, end) for key, end, _ in rows)), BUILT_IN["session"]
    )

    assert windows.keys.to_pylist() == sessions.keys.to_pylist() == [key for key, _, _ in rows]
    assert windows.numbers["window_start"].tolist() == [start for _, start, _ in rows]
    assert windows.numbers["sequence"].tolist() == [number for _, _, number in rows]
    assert sessions.numbers["session_start"].tolist() == [end // 2 for _, end, _ in rows]
    assert sessions.numbers["session_end"].tolist() == [end for _, end, _ in rows]


@given(st.lists(st.tuples(st.binary(max_size=30), st.integers(-1, 2**63 - 1)), max_size=40))
@settings(max_examples=examples(30), deadline=None)
def test_stored_values_are_split_as_their_format_says(rows: list[tuple[bytes, int]]) -> None:
    stored = _binary(*(timestamped_value.encode(*row) for row in rows))
    values, timestamps, headers = split_values(stored, value_format(StoreFormat.TIMESTAMPED))

    assert (values.to_pylist(), timestamps.to_pylist()) == ([value for value, _ in rows], [time for _, time in rows])
    assert headers is None


def test_values_with_headers_are_split_into_value_timestamp_and_headers() -> None:
    notes = (("a", b"1"), ("a", None))
    stored = _binary(headers_value.encode(b"v", -1, notes), headers_value.encode(b"", 7, ()))
    values, timestamps, headers = split_values(stored, value_format(StoreFormat.HEADERS))
    shown = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], []]
    assert headers is not None
    assert (values.to_pylist(), timestamps.to_pylist(), headers.to_pylist()) == ([b"v", b""], [-1, 7], shown)
    values, timestamps, headers = split_values(_binary(headers_value.encode(b"v", None, notes)), SESSION_HEADERS)
    assert headers is not None
    assert (values.to_pylist(), timestamps.to_pylist(), headers.to_pylist()) == ([b"v"], [None], shown[:1])
    noted = StoreDefinition(name="noted", format=StoreFormat.HEADERS)
    assert _layout(noted).ddl == (
        "partition INT, key BINARY, value BINARY, timestamp LONG, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )


def test_what_is_too_short_for_its_kind_or_format_is_refused() -> None:
    with pytest.raises(StoreCorruptedError, match="a session store's row key has at least 16 bytes, found 12"):
        split_keys(_binary(b"x" * 16, b"x" * 12), BUILT_IN["session"])
    with pytest.raises(StoreCorruptedError, match="a timestamped value has at least 8 bytes, found 0"):
        split_values(_binary(b"x" * 8, b""), value_format(StoreFormat.TIMESTAMPED))


# -- columns ----------------------------------------------------------------------------------------------------------


def test_columns_of_each_kind_are_in_the_promised_order() -> None:
    assert _layout(_COUNTS).ddl == "partition INT, key BINARY, value BINARY, timestamp LONG"
    assert _layout(_COUNTS, with_offset=True, key_serde="utf8", value_serde="int64").ddl == (
        "partition INT, offset LONG, key STRING, value LONG, timestamp LONG"
    )
    assert _layout(_WINDOWS, undecodable="keep").schema.names == [
        *("partition", "key", "window_start", "window_end", "sequence", "value", "timestamp"),
        *("undecodable", "key_bytes", "value_bytes", "reason"),
    ]
    assert _layout(_SESSIONS, value_serde="json", value_schema="a INT").ddl == (
        "partition INT, key BINARY, session_start LONG, session_end LONG, value STRUCT<a INT>, timestamp LONG"
    )


def test_a_batch_has_the_types_and_nulls_of_its_rows() -> None:
    rows = _binary(window_key.encode(b"k", 7, 1), window_key.encode(b"", 2**63 - 2, 0))

    batch = _layout(_WINDOWS, with_offset=True).batch(
        3, rows, _binary(None, b""), pa.array([None, -1], pa.int64()), pa.array([10, 11])
    )

    assert batch.schema == _layout(_WINDOWS, with_offset=True).schema
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        (3, 10, b"k", 7, 17, 1, None, None),
        (3, 11, b"", 2**63 - 2, 2**63 - 1, 0, b"", -1),
    ]


def test_a_batch_of_no_rows_has_the_columns() -> None:
    for store in (_COUNTS, _WINDOWS, _SESSIONS):
        for serde in ("bytes", "utf8", "int32", "int64", "double", "json", "delimited"):
            layout = _layout(store, key_serde=serde, value_serde=serde, undecodable="keep")
            assert layout.batch(None, _binary(), _binary(), pa.array([], pa.int64())).schema == layout.schema


def test_a_schema_that_the_options_do_not_give_is_refused() -> None:
    other = from_arrow_schema(_layout(_SESSIONS).schema)
    with pytest.raises(InputError, match=r"the columns are given by the options: partition INT.*; leave .schema"):
        layout_of({}, _COUNTS, with_offset=False, schema=other)


def test_a_row_that_cannot_be_decoded_is_kept_whole() -> None:
    layout = _layout(_COUNTS, key_serde="utf8", value_serde="int64", undecodable="keep")
    keys = _binary(b"a", b"\xff", b"b", b"c")
    values = _binary((5).to_bytes(8, "big"), (6).to_bytes(8, "big"), b"six", None)

    batch = layout.batch(0, keys, values, pa.array([1, 2, 3, 4]))

    assert [tuple(row.values())[1:] for row in batch.to_pylist()] == [
        ("a", 5, 1, False, None, None, None),
        (None, 6, 2, True, b"\xff", (6).to_bytes(8, "big"), ANY),
        ("b", None, 3, True, b"b", b"six", "value: expected 8 bytes of an int64, found 3"),
        ("c", None, 4, False, None, None, None),
    ]
    assert str(batch.column("reason")[1]).startswith("key: 'utf-8' codec can't decode byte 0xff")


def test_a_row_that_cannot_be_decoded_is_named() -> None:
    layout = _layout(_WINDOWS, value_serde="int64")
    rows = _binary(window_key.encode(b"good", 1), window_key.encode(b"bad", 2))
    with pytest.raises(
        InputError,
        match=r"key 626164 \(hexadecimal\): its value is not int64: expected 8 bytes of "
        r"an int64, found 3; correct option value_serde, or .*'undecodable', 'keep'",
    ):
        layout.batch(4, rows, _binary(bytes(8), b"six"), pa.array([1, 2]))


# -- serdes -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12), st.text(max_size=5).map(str.encode)), max_size=20))
@settings(max_examples=examples(50), deadline=None)
def test_utf8_and_int64_are_decoded_as_python_would(values: list[bytes | None]) -> None:
    array = _binary(b"sliced away", *values).slice(1)
    text, number = decode(array, "utf8", pa.string()), decode(array, "int64", pa.int64())

    for index, value in enumerate(values):
        assert text.values[index].as_py() == _or_none(bytes.decode, value)
        is_number = value is not None and len(value) == 8
        assert number.values[index].as_py() == (int.from_bytes(value or b"", "big", signed=True) if is_number else None)
        bad = value is not None and not is_number
        assert (index in number.reasons) == bad


def _or_none(convert: Any, value: bytes | None) -> Any:
    try:
        return None if value is None else convert(value)
    except ValueError:
        return None


_LEG = st.fixed_dictionaries({}, optional={"miles": st.integers(-(2**63), 2**63 - 1), "via": st.lists(st.text())})
_FLIGHTS = st.fixed_dictionaries(
    {},
    optional={
        "number": st.none() | st.integers(-(2**31), 2**31 - 1),
        "carrier": st.none() | st.text(),
        "delay": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
        "cancelled": st.none() | st.booleans(),
        "legs": st.none() | st.lists(st.none() | _LEG, max_size=3),
        "other": st.recursive(st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner, max_size=3)),
    },
)


@given(st.lists(st.tuples(_FLIGHTS, st.booleans()), min_size=1, max_size=15))
@settings(max_examples=examples(50), deadline=None)
def test_objects_that_fit_their_schema_are_read_at_once_and_as_one_by_one(flights: list[tuple[Any, bool]]) -> None:
    raw = [json.dumps(flight, ensure_ascii=ascii_only).encode() for flight, ascii_only in flights]
    quick, parse = read_json(_FLIGHT)

    found = quick(_binary(*raw))

    if found is None:  # only what may be a number that JSON does not have
        assert any(b"NaN" in value or b"Inf" in value for value in raw)
    else:
        assert found.type == _FLIGHT
        assert found.to_pylist() == pa.array([parse(value) for value in raw], _FLIGHT).to_pylist()


#: Texts that are not, or not obviously, one JSON object that fits the schema.
_ODD = [
    b"", b" ", b"null", b"7", b"[]", b'"x"', b"{", b"}", b"{}{}", b"{}\n{}", b'{"number": 1', b'"carrier": "x"}',
    b'{"number": 1.0}', b'{"number": 1e3}', b'{"number": "1"}', b'{"number": true}', b'{"number": 2147483648}',
    b'{"number": 01}', b'{"number": 1, "number": 2}', b'{"carrier": 1}', b'{"carrier": "\\ud800"}',
    b'{"carrier": "\xff"}', b'{"carrier": "a\nb"}', b'{"carrier": "\\u0000"}', b'{"delay": NaN}', b'{"delay": 1e400}',
    b'{"delay": Infinity}', b'{"delay": "1"}', b'{"delay": 1}', b'{"other": NaN}', b'{"legs": {}}', b'{"legs": [1]}',
    b'{"legs": [{"miles": 9223372036854775808}]}', b'{"legs": [null, {}]}', b' {"number": 1} ', b'{"number":\n1}',
    b'{"a":1},"w":{"b":2}', b'{"other": {"x": [}]}', b"\xef\xbb\xbf{}", b'{"number": 1,}', b"{'number': 1}", b"{}//{}",
]  # fmt: skip


def _one_by_one(value: bytes, kind: pa.DataType) -> tuple[bool, Any]:
    """Whether a value cannot be decoded, and what it is otherwise."""
    _, parse = read_json(kind)
    try:
        return False, pa.array([parse(value)], kind)[0].as_py()
    except ValueError:
        return True, None


@given(st.lists(st.sampled_from([None, b'{"number": 5, "legs": [{"via": ["x"]}]}', *_ODD]), max_size=8))
@settings(max_examples=examples(50), deadline=None)
def test_neighbours_change_nothing_in_how_a_value_is_read(values: list[bytes | None]) -> None:
    decoded = decode(_binary(*values), "json", _FLIGHT)

    for index, value in enumerate(values):
        bad, expected = (False, None) if value is None else _one_by_one(value, _FLIGHT)
        assert (index in decoded.reasons) == bad, value
        assert decoded.values[index].as_py() == expected, value


@pytest.mark.parametrize("value", _ODD)
def test_arrows_reader_takes_nothing_that_python_refuses(value: bytes) -> None:
    found = read_json(_FLIGHT)[0](_binary(value, b"{}"))
    bad, expected = _one_by_one(value, _FLIGHT)
    assert found is None or (not bad and found[0].as_py() == expected)
    text = read_json_text(pa.string())[0](_binary(value, b"{}"))
    try:
        json.loads(value.decode(), parse_constant=lambda constant: int(constant))
    except ValueError:
        assert text is None


def test_json_text_is_checked_and_given_as_it_is() -> None:
    given = _binary(b'{"a": 1,  "b": [1]}', b"[1]", None, b"{]", b"nan")

    found = decode(given, "json", pa.string())

    assert found.values.to_pylist() == ['{"a": 1,  "b": [1]}', "[1]", None, None, None]
    assert [*found.reasons] == [3, 4]


def test_types_that_arrow_reads_otherwise_are_read_one_by_one() -> None:
    kind = pa.struct(
        [
            ("short", pa.float32()),
            ("names", pa.map_(pa.string(), pa.int32())),
            pa.field("must", pa.int32(), nullable=False),
        ]
    )
    given = _binary(b'{"short": 0.1, "names": {"a": 1}, "must": 2}', b'{"short": 1}', b'{"names": [1], "must": 1}')

    found = decode(given, "json", kind)

    assert [*found.reasons] == [1, 2]
    assert found.reasons[1] == "must: found null, which the schema excludes"
    assert found.values[0].as_py() == {"short": pytest.approx(0.1), "names": [("a", 1)], "must": 2}


def test_a_type_that_json_is_not_read_into_is_refused() -> None:
    for kind, expected in (
        (pa.struct([("at", pa.timestamp("us"))]), r"value.at is timestamp\[us\], expected BOOLEAN"),
        (pa.struct([("legs", pa.list_(pa.struct([("raw", pa.binary())])))]), r"value.legs\[\].raw is binary"),
        (pa.struct([("a", pa.int32()), ("a", pa.string())]), "a field of value occurs twice, found a, a"),
    ):
        with pytest.raises(InputError, match=expected):
            check_fields(kind)


# -- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01.999999", 1_999),
        ("1970-01-01T01:00:00+01:00", 0),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_times_are_ms_or_iso_8601_in_utc(text: str, expected: int) -> None:
    assert time_ms({"at": text}, "at") == expected


@pytest.mark.parametrize("text", ["", "-1", "yesterday", "9223372036854775808"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="option at: expected ms since the epoch, or ISO 8601"):
        time_ms({"at": text}, "at")


def test_a_misspelt_option_is_told_with_what_may_be_meant() -> None:
    refuse_unknown({"values": "true"}, ("values", "kind"), "state_store")
    with pytest.raises(InputError, match="state_store has no option value, perhaps values is meant; its options are: "):
        refuse_unknown({"value": "true"}, ("values", "kind"), "state_store")


def test_options_describe_a_store_or_say_what_is_missing() -> None:
    assert described_store({}, "s") is None
    options = {"kind": "window", "retention_ms": "100", "window_size_ms": "10", "retain_duplicates": "true"}
    assert described_store(options, "windows") == _WINDOWS
    for said, expected in (
        ({"kind": "session"}, "store s: Value error, a session store has retention_ms"),
        ({"kind": "tumbling"}, "option kind: expected one of .'key-value', 'window', 'session', .*, found 'tumbling'"),
        ({"retention_ms": "9"}, "option retention_ms describes a store: add option kind, too"),
        ({"kind": "session", "retention_ms": "1 h"}, "option retention_ms: expected a duration such as 90s, 36h"),
    ):
        with pytest.raises(InputError, match=expected):
            described_store(said, "s")


@pytest.mark.long
def test_bytes_and_text_are_shown_without_loading_pandas_or_clients_of_kafka() -> None:
    program = """
import sys
import numpy as np
import pyarrow as pa
import statestore_jobs.sources.state_store
from statestore_jobs.sources.columns import layout_of, split_values
from statestore_jobs.sources.ranges import in_range
from statestore.discovery.row_range import RowRange
from statestore.definitions.store import StoreDefinition

store = StoreDefinition(name="w", kind="window", retention_ms=100, window_size_ms=10)
ends = pa.py_buffer(np.arange(3, dtype=np.int32) * 20)
rows = pa.Array.from_buffers(pa.binary(), 2, [None, ends, pa.py_buffer(bytes(15) + bytes([1]) + bytes(24))])
stored = pa.RecordBatch.from_arrays([rows, rows], ["key", "value"])
keys, values = in_range(stored, RowRange(store.store_kind, time_to=1)).columns
options = {"value_serde": "utf8", "undecodable": "keep"}
found = split_values(values, store.values)
batch = layout_of(options, store, with_offset=False).batch(0, keys, found.values, found.timestamps)
assert batch.num_rows == 1
assert not {"pandas", "confluent_kafka"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
