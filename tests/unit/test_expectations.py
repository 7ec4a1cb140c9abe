"""Suites are read so that nothing in them is lost, and results so that an error is not taken for a failure."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from great_expectations import get_context
from great_expectations.core.expectation_suite import ExpectationSuite
from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from great_expectations.expectations import ExpectColumnValuesToNotBeNull
from pydantic import ValidationError
from statestore_expectations.custom.samples import jsonable
from statestore_expectations.outcomes import why_not_evaluated
from statestore_expectations.parameters import PARAMETERS
from statestore_expectations.partitioner import partitions_of
from statestore_expectations.suites import SUITES, bound, load_suite, title
from statestore_expectations.views import CHANGELOG_VIEW, COMPARISON_VIEW, READABLE, STORE_VIEW
from statestore_jobs.frames import log_end

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.kafka.partitioner import partition_of
from statestore.kafka.topics import LogRange
from tests.documents import text_of

_RULE = "expect_store_rows_to_satisfy"
_NOT_NULL = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "key"}}


def _write(directory: Path, content: Any) -> None:
    (directory / "own.json").write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.json")), ids=lambda path: path.stem)
def test_every_shipped_suite_loads_whole_and_is_described(path: Path) -> None:
    content = json.loads(path.read_text())

    suite = load_suite("any", [path.stem])

    assert content["name"] == path.stem
    described = [title(expectation) for expectation in suite.expectations]
    assert described == [raw["description"] for raw in content["expectations"]]
    assert len(set(described)) == len(described)


def test_suites_are_put_together_in_order(tmp_path: Path) -> None:
    _write(tmp_path, {"name": "own", "expectations": [_NOT_NULL]})
    (tmp_path / "more.json").write_text(json.dumps({"expectations": [{**_NOT_NULL, "description": "no key is null"}]}))

    suite = load_suite("app.store", ["own", "more"], tmp_path)

    assert suite.name == "app.store"
    assert [title(one) for one in suite.expectations] == ["expect_column_values_to_not_be_null", "no key is null"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"expectations": [_NOT_NULL, {"type": "expect_magic", "kwargs": {}}]}, "expect_magic: expect_magic not found"),
        (
            {"expectations": [{**_NOT_NULL, "kwargs": {"colum": "key"}}]},
            "values_to_not_be_null: .*field required",
        ),
        ({"expectations": [{"kwargs": {}}]}, 'expected the field "type"'),
        ({"expectations": [{"expectation_type": "expect_magic", "kwargs": {}}]}, "expect_magic: .* Expectations 0.18"),
        ({"expectations": [{**_NOT_NULL, "typ": 1}]}, "unexpected keyword argument 'typ'"),
        ({"expectations": [{"type": _RULE, "kwargs": {}}]}, f"{_RULE}: condition: field required"),
        ({"expectations": [{"type": _RULE, "kwargs": {"condition": "a", "whre": "b"}}]}, f"{_RULE}: .*whre"),
        ({"expectations": [{"type": _RULE, "kwargs": {"condition": "a", "view": "log"}}]}, f"{_RULE}: .*view"),
        ({"expectations": [{"type": _RULE, "kwargs": {"condition": "a", "mostly": 2}}]}, f"{_RULE}: .*mostly"),
        (
            {"expectations": [{"type": _RULE, "kwargs": {"condition": "a < {retention}"}}]},
            rf"{_RULE}: unknown parameters \['retention'\] in 'a < {{retention}}'; there are .*retention_ms",
        ),
        (
            {"expectations": [{"type": _RULE, "kwargs": {"condition": "key_text RLIKE '^.{3$'"}}]},
            rf"{_RULE}: .* in .*; a brace of the text's own is doubled",
        ),
        (
            {"expectations": [{"type": _RULE, "kwargs": {"condition": "key_text RLIKE '^.{3}$'"}}]},
            rf"{_RULE}: unknown parameters \['3'\] .*doubled",
        ),
        (
            {
                "expectations": [
                    {"type": "expect_table_row_count_to_equal", "kwargs": {"value": {"$PARAMETER": "live_key"}}}
                ]
            },
            r"expect_table_row_count_to_equal: unknown parameters \['live_key'\]; there are .*live_keys",
        ),
        (
            {"expectations": [{"type": "expect_query_to_return_no_rows", "kwargs": {"query": "SELECT {batches}"}}]},
            r"expect_query_to_return_no_rows: unknown parameters \['batches'\]",
        ),
        (
            {"expectations": [{"type": "expect_store_values_to_parse", "kwargs": {"serde": "xml"}}]},
            "expect_store_values_to_parse: .*serde",
        ),
        (
            {
                "expectations": [
                    {"type": "expect_store_values_to_parse", "kwargs": {"serde": "utf8", "value_schema": "a INT"}}
                ]
            },
            "value_schema is for serde json, avro, protobuf, json-schema; found serde utf8",
        ),
        (
            {
                "expectations": [
                    {"type": "expect_store_values_to_parse", "kwargs": {"serde": "json", "value_schema": f"{name} INT"}}
                    for name in ("a", "b")
                ]
            },
            "one value_schema, found a INT and b INT",
        ),
        (
            {"expectations": [{"type": "expect_store_keys_to_be_in_their_partition", "kwargs": {"partitions": 0}}]},
            "expect_store_keys_to_be_in_their_partition: .*partitions",
        ),
        ({"expectations": []}, "own.json: expected .*expectations"),
        ([], "own.json: expected .*expectations"),
        ("{", "own.json is not JSON"),
    ],
)
def test_a_suite_that_would_lose_an_expectation_is_refused(tmp_path: Path, content: Any, expected: str) -> None:
    _write(tmp_path, content)

    with pytest.raises(InputError, match=f"(?s){expected}"):
        load_suite("any", ["own"], tmp_path)


def test_a_suite_that_great_expectations_saved_is_read(tmp_path: Path) -> None:
    context = get_context(mode="ephemeral")
    saved = context.suites.add(ExpectationSuite(name="own"))
    saved.add_expectation(ExpectColumnValuesToNotBeNull(column="value"))
    content = saved.to_json_dict()
    assert content["expectations"][0]["id"]
    _write(tmp_path, content)

    suite = load_suite("any", ["own"], tmp_path)

    assert [one.expectation_type for one in suite.expectations] == ["expect_column_values_to_not_be_null"]


def test_a_suite_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    _write(tmp_path, {"expectations": [_NOT_NULL]})

    with pytest.raises(InputError, match=r"no suite 'other' at .*other\.json; there are: own\. A suite of your own"):
        load_suite("any", ["other"], tmp_path)


def test_a_suite_of_one_s_own_is_read_by_its_path(tmp_path: Path) -> None:
    _write(tmp_path, {"expectations": [_NOT_NULL]})

    suite = load_suite("app.store", ["key_value", str(tmp_path / "own.json")])

    assert [one.expectation_type for one in suite.expectations][-1] == "expect_column_values_to_not_be_null"
    with pytest.raises(InputError, match=r"no suite 'absent' at .*absent\.json; there are: flight_delays_aircraft"):
        load_suite("any", [str(tmp_path / "absent.json")])
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(InputError, match=r"suite .*folder\.json cannot be read"):
        load_suite("any", [str(tmp_path / "folder.json")])


@pytest.mark.parametrize("named", ["order_totals", "/etc/suites/totals.json", "/a b/š.json"])
def test_a_definition_names_a_suite_or_the_path_of_one(named: str) -> None:
    assert StoreDefinition(name="s", expectations=named).expectations == named


@pytest.mark.parametrize(
    "named", ["totals.json", "../totals.json", "/a\n.json", "/a\0.json", "/totals", "a/b", ".json"]
)
def test_a_definition_does_not_name_what_no_job_would_find(named: str) -> None:
    with pytest.raises(ValidationError):
        StoreDefinition(name="s", expectations=named)


def test_parameters_are_filled_into_sql_and_braces_of_its_own_kept(tmp_path: Path) -> None:
    rule = {"condition": "key_text RLIKE '^.{{3}}$'", "where": "timestamp > {retention_ms}"}
    query = {"query": "SELECT * FROM {batch} WHERE window_start % {window_advance_ms} > 0"}
    own = [{"type": _RULE, "kwargs": rule}, {"type": "expect_query_to_return_no_rows", "kwargs": query}]
    _write(tmp_path, {"expectations": own})

    suite, unknown = bound(load_suite("any", ["own"], tmp_path), {"retention_ms": 5, "window_advance_ms": 7})

    assert unknown == ""
    assert [one.configuration.kwargs for one in suite.expectations] == [
        {"condition": "key_text RLIKE '^.{3}$'", "where": "timestamp > 5"},
        {"query": "SELECT * FROM store WHERE window_start % 7 > 0"},
    ]
    assert bound(load_suite("any", ["own"], tmp_path), {"retention_ms": 5})[1] == (
        "expect_query_to_return_no_rows: needs window_advance_ms, which this store does not have"
    )


def test_columns_of_keys_are_placed_as_single_keys_are() -> None:
    keys = [b"", b"a", b"ab", b"abc", b"abcd", b"abcde", None, b"\xff" * 9, *(b"%d" % number for number in range(50))]
    whole = pa.array(keys, pa.binary())

    for column in (whole, whole.slice(3, 20), whole.cast(pa.large_binary()), whole.slice(0, 0)):
        found = partitions_of(column, pa.array([7] * len(column), pa.int32()))
        expected = [None if key is None else partition_of(key, 7) for key in column.to_pylist()]
        assert found.to_pylist() == expected


def test_samples_are_what_json_has() -> None:
    shown = jsonable({"b": b"\xff\0", "long": b"a" * 300, "rows": [(1, None)], "text": "x" * 600, "yes": True})

    assert json.loads(json.dumps(shown)) == shown
    assert shown["b"] == "ff00"
    assert shown["long"] == "61" * 256 + "… (44 more bytes)"
    assert shown["rows"] == [[1, None]]
    assert shown["text"].endswith("… (88 more characters)")


@pytest.mark.documents
def test_the_suite_in_the_document_is_one_and_names_all_that_there_is(tmp_path: Path) -> None:
    text = text_of("docs/validation.md")
    [example] = re.findall(r"^```json\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    _write(tmp_path, example)

    assert len(load_suite("any", ["own"], tmp_path).expectations) == 5
    shown = {*PARAMETERS, STORE_VIEW, CHANGELOG_VIEW, COMPARISON_VIEW, *READABLE}
    assert {name for name in shown if f"`{name}`" not in text} == set()
    suites = {path.stem for path in SUITES.glob("*.json")}
    assert {name for name in suites if f"`{name}`" not in text} == set()


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"raised_exception": False, "exception_message": None}, None),
        ({"raised_exception": True, "exception_message": "no such column\nTraceback"}, "no such column"),
        ({"('column.max', 1)": {"raised_exception": True, "exception_message": "no such metric"}}, "no such metric"),
        ({"('column.max', 1)": {"raised_exception": False, "exception_message": None}}, None),
        ({}, None),
    ],
)
def test_both_shapes_of_exception_info_are_understood(info: dict[str, Any], expected: str | None) -> None:
    assert why_not_evaluated(ExpectationValidationResult(success=False, exception_info=info)) == expected


@pytest.mark.parametrize(
    ("committed", "expected"),
    [(None, 90), (0, 1), (41, 42), (89, 90), (500, 90)],
)
def test_the_log_is_compared_up_to_the_committed_offset(committed: int | None, expected: int) -> None:
    assert log_end(committed, LogRange(start=0, last_stable=90, high_watermark=95)) == expected
