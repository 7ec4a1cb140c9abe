"""What a verdict says of expectations that fail or cannot be evaluated, and what they cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from statestore_expectations.runner import Verdict, validate_store
from statestore_expectations.suites import load_suite
from statestore_expectations.views import compared, with_readable

from tests.spark.suite_examples import key_value

Row = tuple[Any, ...]

_DDL = "partition INT, key BINARY, value BINARY, timestamp LONG"
_WINDOWS = "partition INT, key BINARY, window_start LONG, window_end LONG, sequence INT, value BINARY, timestamp LONG"
_ROWS: list[Row] = [(0, b"a", b"1", 10), (0, b"b", b"2", 20), (1, b"c", b"x", 30), (1, b"d", b"\xff", 40)]


_NONE = "SELECT key FROM {batch} WHERE timestamp = 10"


def _judge(
    spark: SparkSession, directory: Path, expectations: list[dict[str, Any]], rows: list[Row] = _ROWS, **more: Any
) -> Verdict:
    own = directory / "own.json"
    own.write_text(json.dumps({"name": "own", "expectations": expectations}))
    frame = spark.createDataFrame(rows, _DDL)
    suite = load_suite("app.own", [str(own)])
    return validate_store(spark, frame, frame, suite, run_id="run", data_docs_dir=directory / "docs", **more)


def _rule(condition: str, **kwargs: Any) -> dict[str, Any]:
    kwargs = {"condition": condition, **kwargs}
    return {"type": "expect_store_rows_to_satisfy", "kwargs": kwargs, "description": condition}


def _query(query: str) -> dict[str, Any]:
    return {"type": "expect_query_to_return_no_rows", "kwargs": {"query": query}, "description": query}


@pytest.mark.long
def test_a_suite_of_one_s_own_may_use_all_that_there_is(spark: SparkSession, tmp_path: Path) -> None:
    own = [
        _rule("key_text < 'c'"),
        _rule("key_text < 'c'", mostly=0.5),
        _rule("value_text RLIKE '^[0-9]{{1}}$'", where="partition = 0"),
        _rule("log_timestamp <= 30", view="comparison"),
        _rule("timestamp BETWEEN 10 AND {partitions} * {timestamp_max}", view="changelog"),
        _query("SELECT key FROM {batch} JOIN changelog USING (partition, key) WHERE changelog.timestamp > 30"),
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "timestamp", "max_value": 35}},
        {
            "type": "unexpected_rows_expectation",
            "kwargs": {"unexpected_rows_query": "SELECT hex(key) AS key FROM {batch} WHERE timestamp < 20"},
        },
        {"type": "expect_table_row_count_to_equal", "kwargs": {"value": {"$PARAMETER": "live_keys + 1"}}},
        {"type": "expect_store_values_to_parse", "kwargs": {"serde": "utf8"}},
    ]

    verdict = _judge(spark, tmp_path, own, parameters={"partitions": 2, "retention_ms": None})

    assert verdict.verdict == "failed"
    one = {"partition": 1, "key": "63", "value": "78", "timestamp": 30, "key_text": "c", "value_text": "x"}
    other = {"partition": 1, "key": "64", "value": "ff", "timestamp": 40, "key_text": "d"}
    assert [(failed.expectation, failed.count, failed.rows) for failed in verdict.failed_rows] == [
        ("key_text < 'c'", 2, (one, other)),
        (
            "log_timestamp <= 30",
            1,
            (
                {
                    **{"partition": 1, "key": "64", "store_value": "ff", "log_value": "ff"},
                    **{"store_timestamp": 40, "log_timestamp": 40, "in_store": True, "in_log": True},
                },
            ),
        ),
        (own[5]["description"], 1, ({"key": "64"},)),
        ("expect_column_values_to_be_between", 1, ({"timestamp": 40},)),
        ("unexpected_rows_expectation", 1, ({"key": "61"},)),
        ("expect_table_row_count_to_equal", None, ({"observed_value": 4},)),
        ("expect_store_values_to_parse", 1, (other,)),
    ]
    page = (verdict.data_docs or Path()).read_text()
    assert "&quot;key&quot;: &quot;64&quot;" in page or '"key": "64"' in page
    json.dumps(verdict.failed_rows[0].rows)


@pytest.mark.short_for("no such column")
@pytest.mark.parametrize(
    ("expectation", "because"),
    [
        pytest.param(_rule("absent > 1"), "absent", id="no such column"),
        pytest.param(_rule("key_text >"), "PARSE_SYNTAX_ERROR|Syntax error", id="no SQL"),
        pytest.param(_query("SELEKT * FROM {batch}"), "SELEKT", id="no query"),
        pytest.param(_rule("value_json.flights > 1"), "value_json", id="fields of no schema"),
    ],
)
def test_what_cannot_be_evaluated_is_an_error_and_named(
    spark: SparkSession, tmp_path: Path, expectation: dict[str, Any], because: str
) -> None:
    verdict = _judge(spark, tmp_path, [expectation, _rule("key IS NOT NULL"), _rule("timestamp > 10")])

    assert (verdict.verdict, verdict.failed) == ("error", ("timestamp > 10",))
    assert verdict.detail.startswith(f"{expectation['description']}: ")
    assert any(part in verdict.detail for part in because.split("|"))
    assert "timestamp > 10:" not in verdict.detail


@pytest.mark.long
def test_a_rule_that_fails_while_rows_are_read_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    verdict = _judge(spark, tmp_path, [_rule("CAST(value_text AS INT) > 0"), _rule("timestamp > 10"), _query(_NONE)])

    # What is counted in the same pass is then counted by itself.
    assert (verdict.verdict, verdict.failed) == ("error", ("timestamp > 10", _NONE))
    assert verdict.detail.startswith("CAST(value_text AS INT) > 0: ")
    assert "CAST_INVALID_INPUT" in verdict.detail


@pytest.mark.short_for("flights WHOLE-WHOLE")
@pytest.mark.parametrize(
    ("schema", "because"),
    [("flights WHOLE", "WHOLE"), ("`a'b` INT", 'a field "a\'b" cannot'), ("INT", "the names and types of an object's")],
)
def test_a_schema_that_is_none_is_an_error(spark: SparkSession, tmp_path: Path, schema: str, because: str) -> None:
    kwargs = {"serde": "json", "value_schema": schema}
    own = {"type": "expect_store_values_to_parse", "kwargs": kwargs, "description": "values are so"}

    verdict = _judge(spark, tmp_path, [own])

    assert (verdict.verdict, verdict.failed) == ("error", ())
    assert verdict.detail.startswith(f"values are so: value_schema {schema!r}: ")
    assert because in verdict.detail


def test_a_parameter_that_the_store_does_not_have_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    own = [
        _rule("timestamp > {retention_ms}"),
        {"type": "expect_table_row_count_to_equal", "kwargs": {"value": {"$PARAMETER": "partitions"}}},
    ]

    verdict = _judge(spark, tmp_path, own, parameters={"retention_ms": None})

    assert (verdict.verdict, verdict.expectations, verdict.data_docs) == ("error", 2, None)
    assert verdict.detail == (
        "timestamp > {retention_ms}: needs retention_ms, which this store does not have; "
        "expect_table_row_count_to_equal: needs partitions, which this store does not have"
    )


def _jobs(spark: SparkSession) -> int:
    """Count the jobs so far; Spark's own listener, which knows them, hears of them later."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    return len(context.statusTracker().getJobIdsForGroup(None))


@pytest.mark.long
def test_rules_about_rows_are_counted_in_one_pass(spark: SparkSession, tmp_path: Path) -> None:
    example = key_value()
    frame = spark.createDataFrame(example.good, example.ddl).persist()
    comparison = compared(frame, frame).persist()
    for cached in (frame, comparison):
        cached.count()
    suite = load_suite("app.store", example.suites)
    before = _jobs(spark)

    verdict = validate_store(
        spark, frame, frame, suite, run_id="run", data_docs_dir=tmp_path, comparison=comparison,
        parameters=example.parameters,
    )  # fmt: skip

    jobs = _jobs(spark) - before
    frame.unpersist()
    comparison.unpersist()
    # The log's numbers, rules about rows of the store, of the comparison, unique keys, checksums.
    assert (verdict.verdict, verdict.expectations, jobs) == ("passed", 20, 5)


@pytest.mark.long
def test_stores_and_runs_are_in_one_index(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(_ROWS, _DDL)
    (tmp_path / "own.json").write_text(json.dumps({"expectations": [_rule("key IS NOT NULL")]}))
    for store, run in (("app.first", "run-1"), ("app.second", "run-2")):
        suite = load_suite(store, ["own"], tmp_path)
        verdict = validate_store(spark, frame, frame, suite, run_id=run, data_docs_dir=tmp_path / "docs")
        assert run in (verdict.data_docs or Path()).read_text()

    index = (tmp_path / "docs" / "index.html").read_text()

    assert [part for part in ("app.first", "run-1", "app.second", "run-2") if part not in index] == []


# -- the views --------------------------------------------------------------------------------------------------------


def _sides(frame: DataFrame) -> list[tuple[Any, ...]]:
    rows = frame.select("store_value", "log_value", "store_timestamp", "log_timestamp", "in_store", "in_log").collect()
    plain = [tuple(bytes(one) if isinstance(one, bytearray) else one for one in row) for row in rows]
    return sorted(plain, key=repr)


@pytest.mark.long
def test_retained_duplicates_are_compared_by_value(spark: SparkSession) -> None:
    def windows(*values: tuple[int, bytes, int]) -> DataFrame:
        rows = [(0, b"k", 100, 200, sequence, value, time) for sequence, value, time in values]
        return spark.createDataFrame(rows, _WINDOWS)

    store = windows((0, b"x", 1), (1, b"y", 2), (2, b"y", 3))
    log = windows((5, b"y", 3), (3, b"x", 1), (4, b"y", 2), (6, b"y", 4))

    assert _sides(compared(store, log)) == [
        (None, b"y", None, 4, False, True),
        (b"x", b"x", 1, 1, True, True),
        (b"y", b"y", 2, 2, True, True),
        (b"y", b"y", 3, 3, True, True),
    ]


def test_keys_and_values_can_be_read_in_rules(spark: SparkSession) -> None:
    rows = [
        (0, b"\xff\xff\xff\xff\xff\xff\xff\xfe", b'{"n": 1, "more": [2]}', 1),
        (0, b"12345678", b'{"n": "1"}', 1),
        (0, b"k", b"\xff", 1),
        (0, b"", None, 1),
    ]
    frame = with_readable(spark.createDataFrame(rows, _DDL), "n BIGINT")

    found = frame.selectExpr(
        "key_text",
        "key_int64",
        "value_text",
        "value_int64",
        "value_json.n",
        "variant_get(value_variant, '$.more[0]', 'int')",
    ).collect()

    assert [tuple(row) for row in found] == [
        (None, -2, '{"n": 1, "more": [2]}', None, 1, 2),
        ("12345678", 0x3132333435363738, '{"n": "1"}', None, None, None),
        ("k", None, None, None, None, None),
        ("", None, None, None, None, None),
    ]
