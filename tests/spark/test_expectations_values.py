"""Which values count as what a serde writes, and which keys as in their partition."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from statestore_expectations import partitioner
from statestore_expectations.custom import ExpectStoreKeysToBeInTheirPartition, ExpectStoreValuesToParse
from statestore_expectations.views import with_readable

from statestore.kafka.partitioner import partition_of

_DDL = "partition INT, key BINARY, value BINARY, timestamp LONG"
_SCHEMA = (
    "n INT NOT NULL, name STRING, share DOUBLE, ok BOOLEAN, "
    "at STRUCT<x: BIGINT NOT NULL, `the place`: STRING>, all ARRAY<INT>"
)

Good = Callable[[list[bytes | None], ExpectStoreValuesToParse], list[bytes | None]]


@pytest.fixture
def good(spark: SparkSession) -> Good:
    """Tell which of some values pass."""

    def judge(values: list[bytes | None], expectation: ExpectStoreValuesToParse) -> list[bytes | None]:
        frame = spark.createDataFrame([(0, b"%d" % at, value, 0) for at, value in enumerate(values)], _DDL)
        frame = with_readable(frame, expectation.value_schema).where(expectation.rule().condition)
        passed = {int(bytes(row.key)) for row in frame.collect()}
        return [value for at, value in enumerate(values) if at in passed]

    return judge


@pytest.mark.parametrize(
    ("serde", "passing", "failing"),
    [
        ("utf8", [b"", b"text", "š".encode()], [b"\xff", b"\xc3\x28", None]),
        ("int64", [b"\0" * 8, b"\xff" * 8], [b"", b"\0" * 7, b"\0" * 9, None]),
        (
            "json",
            [b"{}", b"[1, 2]", b'"text"', b"1", b" null "],
            [b"", b"{", b"{} {}", b"1, 2", b"1], [2", b'1, "a": 2', b"1}, {", b"{'a': 1}", b"\xff", None],
        ),
    ],
)
def test_values_parse_as_their_serde_writes_them(
    good: Good, serde: str, passing: list[bytes | None], failing: list[bytes | None]
) -> None:
    assert good([*passing, *failing], ExpectStoreValuesToParse(serde=serde)) == passing


def test_json_has_the_fields_of_the_schema(good: Good) -> None:
    passing = [
        b'{"n": 1}',
        b'{"n": -2147483648, "name": "", "share": 1, "ok": true, "at": {"x": 1, "the place": "here"}, "all": [1, 2]}',
        b'{"n": 1, "name": null, "share": 1.5e3, "ok": null, "at": null, "all": []}',
        b'{"n": 1, "at": {"x": 1}, "unknown": [{}]}',
        b' {"n": 1} ',
    ]
    failing = [
        b"{}",
        b"[]",
        b'[{"n": 1}]',
        b"null",
        b"1",
        b'{"n": null}',
        b'{"n": 2147483648}',
        b'{"n": 1.5}',
        b'{"n": "1"}',
        b'{"n": 1, "name": 1}',
        b'{"n": 1, "name": {"first": "x"}}',
        b'{"n": 1, "share": "much"}',
        b'{"n": 1, "ok": "true"}',
        b'{"n": 1, "at": {}}',
        b'{"n": 1, "at": []}',
        b'{"n": 1, "at": {"x": 1, "the place": 5}}',
        b'{"n": 1, "all": 1}',
        b'{"n": 1, "all": ["1"]}',
        b'{"n": 1} {"n": 1}',
        b'{"n": 1',
        b'{"n": 1, "name": "\xff"}',
        None,
    ]

    assert good([*passing, *failing], ExpectStoreValuesToParse(serde="json", value_schema=_SCHEMA)) == passing


def test_keys_are_placed_as_kafka_s_producers_place_them(spark: SparkSession) -> None:
    partitioner.register(spark)
    keys = [b"%d" % number for number in range(200)] + [b"", b"\xff\x00\x80", b"x" * 1_000]
    rows = [(partition_of(key, 7), key, b"", 0) for key in keys]
    moved = [((partition + 1) % 7, key + b"m", b"", 0) for partition, key, *_ in rows[:3]]
    moved = [(partition_of(key, 7) ^ 1, key, value, time) for _, key, value, time in moved]
    frame = spark.createDataFrame([*rows, *moved, (0, None, b"", 0)], _DDL).repartition(3)

    rule = ExpectStoreKeysToBeInTheirPartition(partitions=7).rule()
    found = frame.where(f"NOT coalesce({rule.condition}, false)").select("key").collect()

    assert {row.key and bytes(row.key) for row in found} == {None, *(key for _, key, *_ in moved)}
