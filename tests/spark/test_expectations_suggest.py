"""A proposed suite holds for the rows that it came from, and fails where they are broken in the way that it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from statestore_expectations.runner import Verdict, validate_store
from statestore_expectations.suggest import suggest
from statestore_expectations.suites import load_suite

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.kafka.partitioner import partition_of
from tests.spark.suite_examples import HOUR, NOON, PARTITIONS

Row = tuple[Any, ...]

_NOW = 1_700_000_000_000

_KEY_VALUE = "partition INT, key BINARY, value BINARY, timestamp LONG"
_WINDOW = "partition INT, key BINARY, window_start LONG, window_end LONG, value BINARY, timestamp LONG"
_SESSION = "partition INT, key BINARY, session_start LONG, session_end LONG, value BINARY, timestamp LONG"


class Suggested:
    """A store's rows and the suite that was proposed for them."""

    def __init__(self, spark: SparkSession, directory: Path, store: StoreDefinition, ddl: str, rows: list[Row]) -> None:
        self._spark, self._directory, self._ddl, self._rows = spark, directory, ddl, rows
        self.suite = suggest(spark.createDataFrame(rows, ddl), store)
        (directory / "own.json").write_text(json.dumps(self.suite))

    @property
    def descriptions(self) -> list[str]:
        return [one["description"] for one in self.suite["expectations"]]

    def verdict(self, *more: Row, rows: list[Row] | None = None) -> Verdict:
        frame = self._spark.createDataFrame([*(self._rows if rows is None else rows), *more], self._ddl)
        suite = load_suite("app.own", [str(self._directory / "own.json")])
        docs, parameters = self._directory / "docs", {"partitions": PARTITIONS}
        return validate_store(self._spark, frame, frame, suite, run_id="run", data_docs_dir=docs, parameters=parameters)


def _placed(key: bytes, *rest: Any) -> Row:
    return (partition_of(key, PARTITIONS), key, *rest)


def _totals(number: int, **changed: Any) -> bytes:
    fields = {
        **{"flights": number, "miles": 100.5 * number, "late": -number, "city": "JFK", "active": True},
        **{"last": {"airport": "JFK", "gate": 4}, "legs": [1, 2], "mixed": 1 if number % 2 else "one", "nothing": None},
        "note": None if number % 8 == 0 else f"note {number}",
    }
    return json.dumps({name: value for name, value in (fields | changed).items() if value != "absent"}).encode()


@pytest.mark.long
def test_rules_for_json_values(spark: SparkSession, tmp_path: Path) -> None:
    rows = [_placed(b"N%03d" % number, _totals(number), _NOW + number) for number in range(1, 41)]
    found = Suggested(spark, tmp_path, StoreDefinition(name="totals"), _KEY_VALUE, rows)

    passed = found.verdict()
    assert (passed.verdict, passed.detail, passed.failed) == ("passed", "", ())
    assert found.descriptions == [
        "the store has a row; seen: 40",
        "a key is capital letters and digits; seen: all, 4 bytes",
        "a key has 4 bytes; seen: all",
        "a key is in the partition of Kafka's default partitioner; seen: all, of 2",
        f"a timestamp is not a year before the first; seen: {_NOW + 1} to {_NOW + 40}",
        f"a timestamp is not a day in the future; seen: {_NOW + 1} to {_NOW + 40}",
        "a value is a JSON object; seen in all, with the same types: active, city, flights, last, late, legs, miles, "
        "note (or null)",
        "city is three capital letters; seen: all",
        "flights is between 0 and 400; seen: 1 to 40",
        "late is between -400 and 0; seen: -40 to -1",
        "miles is between 0 and 40200.0; seen: 100.5 to 4020.0",
        "note is seldom null or absent; seen: 5 of 40",
        "note is printable text; seen: all",
    ]

    def broken(
        key: bytes = b"N999", value: bytes = _totals(1), time: int = _NOW + 1, *, elsewhere: bool = False
    ) -> Row:
        partition, *_ = _placed(key)
        return (1 - partition if elsewhere else partition, key, value, time)

    breaking = {
        "a key is capital": broken(b"n999"),
        "a key has 4": broken(b"N9999"),
        "a key is in the partition": broken(elsewhere=True),
        "a timestamp is not a year": broken(time=1),
        "a timestamp is not a day": broken(time=1 << 60),
        "a value is a JSON object": broken(value=_totals(1, last="JFK")),
        "flights is between": broken(value=_totals(1, flights=401)),
        "late is between": broken(value=_totals(1, late=1)),
        "miles is between": broken(value=_totals(1, miles=-0.5)),
        "city is three": broken(value=_totals(1, city="New York")),
        "note is printable": broken(value=_totals(1, note="a\nb")),
    }
    verdict = found.verdict(*breaking.values(), *(broken(b"N%d" % at, _totals(1, note=None)) for at in range(500, 514)))
    named = {failed.expectation: failed.rows for failed in verdict.failed_rows}
    assert set(verdict.failed) == {*found.descriptions[1:]}
    for beginning, row in breaking.items():
        (rows_of,) = (rows for title, rows in named.items() if title.startswith(beginning))
        assert [(one["partition"], one["key"], one["value"]) for one in rows_of] == [
            (row[0], row[1].hex(), row[2].hex())
        ]
    assert found.verdict(rows=[]).failed == ("the store has a row; seen: 40",)


@pytest.mark.long
def test_rules_for_windows_of_numbers(spark: SparkSession, tmp_path: Path) -> None:
    starts = [NOON + number * HOUR // 2 for number in range(30)]
    rows = [_placed(b"JFK", start, start + HOUR, (5).to_bytes(8, "big"), start + 5) for start in starts]
    store = StoreDefinition(name="w", kind="window", window_size_ms=HOUR, retention_ms=10 * HOUR)
    found = Suggested(spark, tmp_path, store, _WINDOW, rows)

    assert found.verdict().verdict == "passed"
    assert "a window starts at a multiple of 1800000 ms; seen: all, and none of a longer time" in found.descriptions
    verdict = found.verdict(
        _placed(b"JFK", NOON + 1, NOON + 1 + HOUR, (51).to_bytes(8, "big"), NOON),
        _placed(b"EWR", NOON, NOON + HOUR, b"12", NOON),
    )
    assert [title.split(";")[0] for title in verdict.failed] == [
        "a timestamp is within its window",
        "a window starts at a multiple of 1800000 ms",
        "a value is int64",
        "the value is between 0 and 50",
    ]


@pytest.mark.long
def test_rules_for_sessions_of_text(spark: SparkSession, tmp_path: Path) -> None:
    rows = [_placed(b"user-%d" % number, NOON, NOON + number, b"text %d" % number, None) for number in range(12)]
    store = StoreDefinition(name="s", kind="session", retention_ms=10 * HOUR)
    found = Suggested(spark, tmp_path, store, _SESSION, rows)

    assert found.verdict().verdict == "passed"
    assert [title.split(";")[0] for title in found.descriptions] == [
        "the store has a row",
        "a key is letters, digits and _ . : / @ -",
        "a session is not 10 times as long as the longest",
        "a value is utf8",
    ]
    verdict = found.verdict(_placed(b"user 1", NOON, NOON + 111, b"\xff", None))
    assert verdict.failed == tuple(found.descriptions[1:])


@pytest.mark.short_for("values3-json")
@pytest.mark.parametrize(
    ("values", "serde", "expected"),
    [
        ([b"12345678", b"ABCDEFGH"], "bytes", "utf8"),
        ([b"\0" * 8, b"ABCDEFGH"], "bytes", "int64"),
        ([b"1", b"2"], "bytes", "utf8"),
        ([b"1", b"[2]"], "json", "json"),
        ([b"{}", b'{"a b": {"c": [1.5]}, "d`e": 1}'], "bytes", "json"),
        ([b"\xff", b"1"], "bytes", None),
    ],
)
def test_values_are_taken_for_what_all_of_them_are(
    spark: SparkSession, tmp_path: Path, values: list[bytes], serde: str, expected: str | None
) -> None:
    rows = [_placed(b"k%d" % at, value, -1) for at, value in enumerate(values)]
    found = Suggested(spark, tmp_path, StoreDefinition(name="v", value_serde=serde), _KEY_VALUE, rows)

    serdes = [one["kwargs"]["serde"] for one in found.suite["expectations"] if "serde" in one["kwargs"]]

    assert serdes == ([] if expected is None else [expected])
    assert found.verdict().verdict == "passed"


def test_a_store_without_a_row_teaches_nothing(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="store empty has no row: nothing can be learned"):
        suggest(spark.createDataFrame([], _KEY_VALUE), StoreDefinition(name="empty"))
