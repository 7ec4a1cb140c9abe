"""Interprets Great Expectations' results of single expectations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from pyspark.sql import SparkSession

from statestore.reports import FailedRows
from statestore_expectations.custom import Bindable
from statestore_expectations.custom.samples import SAMPLE, first_rows, jsonable
from statestore_expectations.suites import title
from statestore_expectations.views import STORE_VIEW


def why_not_evaluated(result: ExpectationValidationResult) -> str | None:
    """Why an expectation could not be evaluated; None if it was.

    `exception_info` is one such dict, or a dict of them by metric.
    """
    info: dict[str, Any] = result.exception_info or {}
    infos: Sequence[Any] = [info] if "raised_exception" in info else list(info.values())
    for one in infos:
        if isinstance(one, dict) and one.get("raised_exception"):
            return str(one.get("exception_message", "no message")).strip().split("\n")[0]
    return None


def failed_rows_of(spark: SparkSession, result: ExpectationValidationResult) -> FailedRows:
    """Sample the rows that an expectation did not hold for, while the views are there."""
    config, found = result.expectation_config, result.result
    assert config is not None
    name = title(config)
    if isinstance(config.to_domain_obj(), Bindable):
        details = found["details"]
        return FailedRows(expectation=name, count=details["unexpected_count"], rows=tuple(details["unexpected_rows"]))
    if config.type == "unexpected_rows_expectation":
        query = config.kwargs["unexpected_rows_query"].format(batch=STORE_VIEW)
        return FailedRows(expectation=name, count=found["observed_value"], rows=tuple(first_rows(spark.sql(query))))
    if "partial_unexpected_list" in found:
        column = config.kwargs.get("column", "value")
        values = found["partial_unexpected_list"][:SAMPLE]
        rows = tuple({column: jsonable(one)} for one in values)
        return FailedRows(expectation=name, count=found["unexpected_count"], rows=rows)
    return FailedRows(expectation=name, rows=({"observed_value": jsonable(found.get("observed_value"))},))
