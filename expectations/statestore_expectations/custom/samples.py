"""The first rows that did not pass, as JSON has them."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, Row

from statestore_expectations.views import READABLE

#: Rows of a sample.
SAMPLE = 5
#: Of a value longer than this only the beginning is shown.
_SHOWN_BYTES = 256
_SHOWN_CHARACTERS = 512
_ORDERED = ("int", "bigint", "binary", "string", "boolean", "smallint", "tinyint", "double", "date", "timestamp")


def first_rows(frame: DataFrame, count: int = SAMPLE) -> list[dict[str, Any]]:
    """Return the first rows of a frame, in the order of its columns as far as they have one."""
    order = [name for name, kind in frame.dtypes if kind in _ORDERED]
    return [jsonable_row(row) for row in frame.orderBy(*order).limit(count).collect()]


def jsonable_row(row: Row) -> dict[str, Any]:
    """Return a row as JSON has it, without what only repeats key or value and does not apply."""
    found = row.asDict(recursive=True)
    return {name: jsonable(value) for name, value in found.items() if value is not None or name not in READABLE}


def jsonable(value: Any) -> Any:
    """Return a value as JSON has it: bytes as hexadecimal text, and long texts cut."""
    match value:
        case bytes() | bytearray():
            return _cut(bytes(value[:_SHOWN_BYTES]).hex(), len(value) - _SHOWN_BYTES, "bytes")
        case str():
            return _cut(value[:_SHOWN_CHARACTERS], len(value) - _SHOWN_CHARACTERS, "characters")
        case bool() | int() | float() | None:
            return value
        case dict():
            return {str(name): jsonable(one) for name, one in value.items()}
        case list() | tuple():
            return [jsonable(one) for one in value]
    return str(value)


def rows_result(judged: int, unexpected: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what Great Expectations keeps of a rule about each row, under the names by which Data Docs show it."""
    return {
        "observed_value": unexpected,
        "element_count": judged,
        "unexpected_count": unexpected,
        "unexpected_percent": 100 * unexpected / judged if judged else 0.0,
        # Texts: Data Docs take anything else in a table for a part of the page.
        "partial_unexpected_list": [json.dumps(row, ensure_ascii=False) for row in rows],
        "details": {"unexpected_count": unexpected, "unexpected_rows": rows},
    }


def query_result(unexpected: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what Great Expectations keeps of a query that should find nothing."""
    shown = ", ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return {
        "observed_value": f"{unexpected} rows, such as {shown}" if rows else "0 rows",
        "details": {"unexpected_count": unexpected, "unexpected_rows": rows},
    }


def _cut(shown: str, left: int, unit: str) -> str:
    return f"{shown}… ({left} more {unit})" if left > 0 else shown
