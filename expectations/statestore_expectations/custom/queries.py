"""Rules about several rows: a query that returns the rows that break it. Each runs as a separate Spark job."""

from __future__ import annotations

from typing import Any, ClassVar

from great_expectations.execution_engine import ExecutionEngine, SparkDFExecutionEngine
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from statestore_expectations.custom.binding import Bindable
from statestore_expectations.custom.samples import SAMPLE, first_rows, query_result
from statestore_expectations.views import STORE_VIEW, row_key


class QueriedRows(TableMetricProvider):
    """How many rows a query returns, and the first of them."""

    metric_name = "store_query.rows"
    value_keys = ("query",)

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> tuple[int, list[dict[str, Any]]]:
        return _found(execution_engine.spark.sql(metric_value_kwargs["query"]))


class RepeatedRows(TableMetricProvider):
    """How many row keys are in the store more than once, and the first of them."""

    metric_name = "store_rows.repeated"

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> tuple[int, list[dict[str, Any]]]:
        store = execution_engine.spark.table(STORE_VIEW)
        return _found(store.groupBy(*row_key(store)).agg(F.count("*").alias("times")).where("times > 1"))


class _FindsNoRow:
    """How an expectation of no rows is judged; no expectation itself, or suites could name it."""

    metric_dependencies: ClassVar[tuple[str, ...]]

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
    ) -> dict[str, Any]:
        count, rows = metrics[self.metric_dependencies[0]]
        return {"success": count == 0, "result": query_result(count, rows)}


class ExpectQueryToReturnNoRows(_FindsNoRow, Bindable):
    """Expect no row of a query in Spark SQL; a row that it returns is one that is wrong.

    Parameters
    ----------
    query
        Reads the views `store` (also written `{batch}`), `changelog` and `comparison`. It may name parameters, such as
        `{retention_ms}`; a brace of its own is doubled.
    """

    metric_dependencies: ClassVar[tuple[str, ...]] = ("store_query.rows",)
    success_keys: ClassVar[tuple[str, ...]] = ("query",)
    sql: ClassVar[tuple[str, ...]] = ("query",)
    names: ClassVar[dict[str, str]] = {"batch": STORE_VIEW}
    query: str


class ExpectStoreRowsToBeUnique(_FindsNoRow, Bindable):
    """Expect every row key of the store once in its partition: the key, and a window's or session's times with it."""

    metric_dependencies: ClassVar[tuple[str, ...]] = ("store_rows.repeated",)


def _found(frame: DataFrame) -> tuple[int, list[dict[str, Any]]]:
    rows = first_rows(frame, SAMPLE + 1)
    return (frame.count() if len(rows) > SAMPLE else len(rows)), rows[:SAMPLE]
