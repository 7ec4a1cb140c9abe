"""Judges a store with Great Expectations: its rows against those of its changelog, and against its own rules.

A verdict is one of three: every expectation held (passed), one did not (failed), or one could not be evaluated (error).
The results of all runs are kept beside the Data Docs, so that stores accumulate in one site with one index page.

**What costs a pass.** Great Expectations computes the aggregates of one frame together. So all of these read the store
once: `expect_table_row_count_to_equal`, `expect_store_rows_to_satisfy`, `expect_store_values_to_parse`,
`expect_store_keys_to_be_in_their_partition`. Those of them with the view `comparison` read that once. A pass of its
own each: `expect_store_rows_to_be_unique` and `expect_query_to_return_no_rows`. Great Expectations' own expectations
about a column take one or two for the values that they show, `unexpected_rows_expectation` two. Whatever fails is
read again for a sample. Before all that the changelog's rows are read once for the parameters. So persist the frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

from great_expectations.checkpoint import Checkpoint, UpdateDataDocsAction
from great_expectations.core.expectation_suite import ExpectationSuite
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
)
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.core.validation_definition import ValidationDefinition
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from statestore_expectations import partitioner
from statestore_expectations.data_docs import SITE, context_of
from statestore_expectations.outcomes import failed_rows_of, why_not_evaluated
from statestore_expectations.parameters import measured, with_derived
from statestore_expectations.suites import bound, registry_serde_of, title, value_schema_of
from statestore_expectations.verdict import Verdict
from statestore_expectations.views import (
    CHANGELOG_VIEW,
    COMPARISON_VIEW,
    STORE_VIEW,
    compared,
    identity,
    shown,
    with_readable,
)

__all__ = ["Verdict", "validate_store"]

_EXAMPLES = 5


def validate_store(
    spark: SparkSession,
    store_frame: DataFrame,
    log_frame: DataFrame,
    suite: ExpectationSuite,
    *,
    run_id: str,
    data_docs_dir: Path,
    comparison: DataFrame | None = None,
    parameters: Mapping[str, object] | None = None,
) -> Verdict:
    """Validate a store's rows.

    The views have fixed names: one validation at a time in a session.

    Parameters
    ----------
    store_frame
        Rows as the source `state_store` gives them. It is read many times: persist it.
    log_frame
        Rows as the source `changelog` gives them with `latest` and, of a window or session store, `kind`, without
        tombstones, up to the store's committed offset. Persist it too.
    suite
        What to expect; see `statestore_expectations.suites.load_suite`.
    run_id
        Names the run in the Data Docs.
    data_docs_dir
        Where the Data Docs are, or are to be.
    comparison
        Both frames side by side, as `views.compared` makes it; made and persisted here if not given.
    parameters
        What `parameters.py` lists, as far as the store has it; None is a parameter that it has not.
        `live_keys`, `timestamp_min` and `timestamp_max` are taken from `log_frame`. `stream_time` is a time (ms) that
        every partition's log has come to; what `log_frame` tells of a partition counts if it is later.
    """
    log_tells = measured(log_frame)
    known = with_derived({**log_tells.parameters, **(parameters or {})})
    suite, problems = bound(suite, known)
    if problems:
        return Verdict("error", len(suite.expectations), (), problems, None)
    with ExitStack() as views:
        if comparison is None:
            comparison = compared(store_frame, log_frame).persist(StorageLevel.DISK_ONLY)
            views.callback(comparison.unpersist)
        times = _stream_times(log_tells.stream_time, known.get("stream_time"))
        store = with_readable(store_frame, value_schema_of(suite), registry_serde_of(suite))
        store = store.withColumn("stream_time", times)
        named = {STORE_VIEW: store, CHANGELOG_VIEW: log_frame, COMPARISON_VIEW: comparison}
        views.enter_context(shown(spark, named))
        partitioner.register(spark)
        result, page = _run(store, suite, known, run_id, data_docs_dir.absolute())
        order = [title(one) for one in suite.expectations]
        results = sorted(result.results, key=lambda one: order.index(_title(one)))
        outcomes = [(one, why_not_evaluated(one)) for one in results]
        errors = _by_reason((_title(one), why) for one, why in outcomes if why)
        broken = [one for one, why in outcomes if not one.success and not why]
        differences = describe_differences(comparison) if broken else ""
        detail = errors or differences
        failed_rows = tuple(failed_rows_of(spark, one) for one in broken)
    verdict: Literal["passed", "failed", "error"] = "error" if errors else "failed" if broken else "passed"
    failed = tuple(rows.expectation for rows in failed_rows)
    differs = bool(differences) if broken else None
    return Verdict(verdict, len(result.results), failed, detail, page, failed_rows, differs)


def describe_differences(comparison: DataFrame) -> str:
    """Name the first rows in which a store differs from its changelog; empty if there is none."""
    found = (
        F.when(~F.col("in_store"), "is missing from the store")
        .when(~F.col("in_log"), "is not in the changelog, or deleted there")
        .when(~F.col("store_value").eqNullSafe(F.col("log_value")), "has another value than in the changelog")
        .when(
            (F.col("store_timestamp") != -1) & (F.col("store_timestamp") != F.col("log_timestamp")),
            "has another timestamp than in the changelog",
        )
    )
    key = identity(comparison)
    rows = comparison.select(*key, found.alias("found")).where("found IS NOT NULL").orderBy(*key).limit(_EXAMPLES)
    return "; ".join(
        f"partition {row.partition}: key {_shown(row.key)}"
        f"{''.join(f', {name} {row[name]}' for name in key[2:])} {row.found}"
        for row in rows.collect()
    )


def _shown(key: bytes | None) -> str:
    return "null" if key is None else repr(bytes(key))


def _by_reason(problems: Iterable[tuple[str, str]]) -> str:
    """Say why expectations could not be evaluated; those that fail together get one reason of Great Expectations."""
    reasons: dict[str, list[str]] = {}
    for expectation, reason in problems:
        reasons.setdefault(reason, []).append(expectation)
    return "; ".join(f"{', '.join(expectations)}: {reason}" for reason, expectations in reasons.items())


def _stream_times(by_partition: Mapping[int, int], at_least: int | None) -> Column:
    """What is known of the stream time of a row's partition; null if that is nothing."""
    otherwise = F.lit(at_least).cast("long")
    if not by_partition:
        return otherwise
    known = F.create_map(*(F.lit(one) for pair in by_partition.items() for one in pair))
    # `greatest` leaves out nulls.
    return F.greatest(F.try_element_at(known, F.col("partition")).cast("long"), otherwise)


def _run(
    frame: DataFrame, suite: ExpectationSuite, parameters: dict[str, int], run_id: str, data_docs_dir: Path
) -> tuple[ExpectationSuiteValidationResult, Path]:
    context = context_of(data_docs_dir)
    asset = context.data_sources.add_spark(name="stores", persist=False).add_dataframe_asset(name=suite.name)
    definition = ValidationDefinition(
        name=suite.name,
        data=asset.add_batch_definition_whole_dataframe("all partitions"),
        suite=context.suites.add_or_update(suite),
    )
    checkpoint = Checkpoint(
        name=suite.name,
        validation_definitions=[context.validation_definitions.add(definition)],
        actions=[UpdateDataDocsAction(name="update data docs")],
        result_format="SUMMARY",
    )
    arguments: dict[str, Any] = {"batch_parameters": {"dataframe": frame}, "expectation_parameters": parameters}
    outcome = context.checkpoints.add(checkpoint).run(**arguments, run_id=RunIdentifier(run_name=run_id))
    [(identifier, result)] = outcome.run_results.items()
    [page] = context.get_docs_sites_urls(resource_identifier=identifier, site_names=[SITE])
    return result, Path(url2pathname(urlsplit(str(page["site_url"])).path))


def _title(result: ExpectationValidationResult) -> str:
    assert result.expectation_config is not None, "a result of a suite's expectation"
    return title(result.expectation_config)
