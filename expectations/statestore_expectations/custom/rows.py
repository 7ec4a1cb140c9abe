"""Rules that every row has to satisfy, counted together.

Great Expectations computes the aggregates of one frame in one pass. So a rule about rows is an aggregate here, the
number of rows that break it: all such rules of a suite, and those of its own about the whole table, read the store
once. Only if one is broken the frame is read again, for a sample.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

from great_expectations.compatibility import pydantic
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.metric_function_types import MetricPartialFunctionTypes
from great_expectations.execution_engine import ExecutionEngine, SparkDFExecutionEngine
from great_expectations.execution_engine.sparkdf_batch_data import SparkDFBatchData
from great_expectations.expectations.metrics.metric_provider import metric_partial
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.expectations.registry import get_metric_kwargs
from great_expectations.validator.metric_configuration import MetricConfiguration
from great_expectations.validator.validator import ValidationDependencies
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from statestore_expectations.custom.binding import Bindable
from statestore_expectations.custom.samples import first_rows, rows_result
from statestore_expectations.views import STORE_VIEW, shown_columns

View = Literal["store", "changelog", "comparison"]
_METRIC = "store_rows.judged"


class Rule(NamedTuple):
    """What rows have to satisfy, in Spark SQL.

    Attributes
    ----------
    condition
        What holds for a good row; where it is null the row is bad.
    where
        Which rows are judged; None: all.
    view
        Whose rows: `store`, `changelog` or `comparison`.
    """

    condition: str
    where: str | None = None
    view: View = "store"


class JudgedRows(TableMetricProvider):
    """How many rows are judged by a rule, and how many of them break it."""

    metric_name = _METRIC
    value_keys = Rule._fields

    @metric_partial(
        engine=SparkDFExecutionEngine,
        partial_fn_type=MetricPartialFunctionTypes.AGGREGATE_FN,
        domain_type=MetricDomainTypes.TABLE,
    )
    def _spark(
        cls,
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> tuple[Column, dict[str, Any], dict[str, Any]]:
        rule = Rule(**metric_value_kwargs)
        judged, broken = _columns(rule)
        # An unknown column is found here, where it fails this rule and not all that are counted together.
        _frame(execution_engine, rule.view).select(judged, broken)
        domain = metric_domain_kwargs
        if rule.view != STORE_VIEW:
            batches = execution_engine.batch_manager.batch_data_cache
            batches[rule.view] = SparkDFBatchData(execution_engine, _frame(execution_engine, rule.view))
            domain = {**domain, "batch_id": rule.view}
        return F.array(F.count_if(judged), F.count_if(broken)), domain, {}


class RowsExpectation(Bindable):
    """An expectation about each row of a view."""

    mostly: float = pydantic.Field(default=1.0, ge=0, le=1, description="share of the rows that has to pass")

    @abstractmethod
    def rule(self) -> Rule:
        """Return what the rows have to satisfy."""

    def get_validation_dependencies(
        self, execution_engine: ExecutionEngine[Any] | None = None, runtime_configuration: dict[str, Any] | None = None
    ) -> ValidationDependencies:
        """Ask for the counts."""
        dependencies = super().get_validation_dependencies(execution_engine, runtime_configuration)
        # The same domain as Great Expectations' own metrics of the whole table, or they were not computed together.
        kwargs = get_metric_kwargs("table.row_count", self.configuration, runtime_configuration)
        metric = MetricConfiguration(_METRIC, kwargs["metric_domain_kwargs"], self.rule()._asdict())
        dependencies.set_metric_configuration(_METRIC, metric)
        return dependencies

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
    ) -> dict[str, Any]:
        judged, broken = metrics[_METRIC]
        success = not judged or (judged - broken) / judged >= self.mostly
        rows: list[dict[str, Any]] = []
        if not success:
            rule = self.rule()
            assert isinstance(execution_engine, SparkDFExecutionEngine)
            frame = _frame(execution_engine, rule.view).where(_columns(rule)[1])
            rows = first_rows(frame.select(*shown_columns(frame)))
        return {"success": success, "result": rows_result(judged, broken, rows)}


class ExpectStoreRowsToSatisfy(RowsExpectation):
    """Expect a condition in Spark SQL of every row.

    Parameters
    ----------
    condition
        What holds for a good row, such as `value_json.flights >= 0`; where it is null the row is bad.
    where
        Which rows are judged; all if not said.
    view
        Whose rows: `store` (the default), `changelog` or `comparison`.
    mostly
        Share of the judged rows that has to pass: 1 if not said.
    """

    sql: ClassVar[tuple[str, ...]] = ("condition", "where")
    success_keys: ClassVar[tuple[str, ...]] = ("condition", "where", "view", "mostly")
    condition: str
    where: str | None = None
    view: View = "store"

    def rule(self) -> Rule:
        """Return what the suite says."""
        return Rule(self.condition, self.where, self.view)


def _frame(execution_engine: SparkDFExecutionEngine, view: str) -> DataFrame:
    frame: DataFrame = execution_engine.spark.table(view)
    return frame


def _columns(rule: Rule) -> tuple[Column, Column]:
    """Whether a row is judged, and whether it breaks the rule."""
    judged = F.lit(True) if rule.where is None else F.coalesce(F.expr(rule.where), F.lit(False))
    return judged, judged & ~F.coalesce(F.expr(rule.condition), F.lit(False))
