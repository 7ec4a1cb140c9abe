"""Suites are read so that nothing in them is lost, and results so that an error is not taken for a failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from great_expectations.core.expectation_validation_result import ExpectationValidationResult

from expectations.runner import why_not_evaluated
from expectations.suites import SUITES, load_suite, title
from jobs.frames import log_end
from statestore.changelog.topics import LogRange
from statestore.errors import InputError

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
        ({"expectations": [{"kwargs": {}}]}, "missing 1 required positional argument: 'type'"),
        ({"expectations": [{**_NOT_NULL, "typ": 1}]}, "unexpected keyword argument 'typ'"),
        ({"expectations": []}, "own.json: expected .*expectations"),
        ([], "own.json: expected .*expectations"),
        ("{", "own.json is not JSON"),
    ],
)
def test_a_suite_that_would_lose_an_expectation_is_refused(tmp_path: Path, content: Any, expected: str) -> None:
    _write(tmp_path, content)

    with pytest.raises(InputError, match=f"(?s){expected}"):
        load_suite("any", ["own"], tmp_path)


def test_a_suite_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    _write(tmp_path, {"expectations": [_NOT_NULL]})

    with pytest.raises(InputError, match=r"no suite 'other' in expectations/suites; there are: own"):
        load_suite("any", ["other"], tmp_path)


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
