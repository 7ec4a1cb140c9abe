"""Judges a store with Great Expectations: its rows against those of its changelog, and against its own rules.

A verdict is one of three: every expectation held (passed), one did not (failed), or one could not be evaluated (error).
The results of all runs are kept beside the Data Docs, so that stores accumulate in one site with one index page.

Suites see the store's rows as `{batch}`, with the columns `partition`, `key`, `value`, `timestamp`, `key_text` and
`value_text` (null where the bytes are not UTF-8), and the view `changelog` with `partition`, `key`, `value`,
`timestamp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

import great_expectations as gx
from great_expectations.checkpoint import Checkpoint, UpdateDataDocsAction
from great_expectations.core.expectation_suite import ExpectationSuite
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
)
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.core.validation_definition import ValidationDefinition
from great_expectations.data_context import EphemeralDataContext
from great_expectations.data_context.types.base import DataContextConfig, ProgressBarsConfig
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from expectations.suites import title

#: The name under which suites find the changelog's rows.
CHANGELOG_VIEW = "changelog"

_SITE = "data_docs"
_RESULTS_SHOWN = 200
_EXAMPLES = 5


@dataclass(frozen=True)
class Verdict:
    """What a validation found.

    Attributes
    ----------
    verdict
        `error` if an expectation could not be evaluated, otherwise `failed` if one did not hold.
    expectations
        How many there were.
    failed
        Those that did not hold.
    detail
        Where to look first: rows that differ from the changelog, or why an expectation could not be evaluated.
    data_docs
        Page of this validation; None if it could not be run.
    """

    verdict: Literal["passed", "failed", "error"]
    expectations: int
    failed: tuple[str, ...]
    detail: str
    data_docs: Path | None


def validate_store(
    spark: SparkSession,
    store_frame: DataFrame,
    log_frame: DataFrame,
    suite: ExpectationSuite,
    *,
    run_id: str,
    data_docs_dir: Path,
) -> Verdict:
    """Validate a store's rows.

    `{batch}` and `changelog` are views with fixed names: one validation at a time in a session.

    Parameters
    ----------
    store_frame
        Rows as the source `state_store` gives them. It is read many times: persist it.
    log_frame
        Rows as the source `changelog` gives them with `latest`, without tombstones, up to the store's committed
        offset. Persist it too.
    suite
        What to expect; see `expectations.suites.load_suite`.
    run_id
        Names the run in the Data Docs.
    data_docs_dir
        Where the Data Docs are, or are to be.
    """
    log_frame = log_frame.select("partition", "key", "value", "timestamp")
    log_frame.createOrReplaceTempView(CHANGELOG_VIEW)
    try:
        result, page = _run(with_text(store_frame), suite, _parameters(log_frame), run_id, data_docs_dir.absolute())
        outcomes = [(title(one.expectation_config), one.success, why_not_evaluated(one)) for one in result.results]
        errors = [f"{name}: {problem}" for name, _, problem in outcomes if problem]
        failed = tuple(name for name, success, problem in outcomes if not success and not problem)
        detail = "; ".join(errors) or (describe_differences(store_frame, log_frame) if failed else "")
    finally:
        spark.catalog.dropTempView(CHANGELOG_VIEW)
    verdict: Literal["passed", "failed", "error"] = "error" if errors else "failed" if failed else "passed"
    return Verdict(verdict, len(result.results), failed, detail, page)


def describe_differences(store_frame: DataFrame, log_frame: DataFrame) -> str:
    """Name the first rows in which a store differs from its changelog; empty if there is none."""
    store, log = store_frame.alias("store"), log_frame.alias("log")
    found = (
        F.when(F.col("store.key").isNull(), "is missing in the store")
        .when(F.col("log.key").isNull(), "is not in the changelog, or deleted there")
        .when(~F.col("store.value").eqNullSafe(F.col("log.value")), "has another value than in the changelog")
        .when(
            (F.col("store.timestamp") != -1) & (F.col("store.timestamp") != F.col("log.timestamp")),
            "has another timestamp than in the changelog",
        )
    )
    same_key = (F.col("store.partition") == F.col("log.partition")) & (F.col("store.key") == F.col("log.key"))
    differences = store.join(log, same_key, "full_outer").select(
        F.coalesce("store.partition", "log.partition").alias("partition"),
        F.coalesce("store.key", "log.key").alias("key"),
        found.alias("found"),
    )
    rows = differences.where("found IS NOT NULL").orderBy("partition", "key").limit(_EXAMPLES).collect()
    return "; ".join(f"partition {row.partition}: key {_shown(row.key)} {row.found}" for row in rows)


def _shown(key: bytes | None) -> str:
    return "null" if key is None else repr(bytes(key))


def with_text(frame: DataFrame) -> DataFrame:
    """Add `key_text` and `value_text`, null where the bytes are not UTF-8."""
    """Add `key_text` and `value_text`, null where the bytes are not UTF-8."""
    # A plain cast takes any bytes, and invalid UTF-8 must not end the job.
    texts = {f"{name}_text": F.try_validate_utf8(F.col(name).cast("string")) for name in ("key", "value")}
    return frame.withColumns(texts)


def _parameters(log_frame: DataFrame) -> dict[str, int]:
    """What suites refer to as `{"$PARAMETER": ...}`."""
    found = log_frame.agg(
        F.count("*").alias("keys"), F.min("timestamp").alias("first"), F.max("timestamp").alias("last")
    ).first()
    assert found is not None
    # Great Expectations wants bounds; where the log has no live key the store has no row to compare with them.
    return {"live_keys": found.keys, "timestamp_min": found.first or 0, "timestamp_max": found.last or 0}


def _run(
    frame: DataFrame, suite: ExpectationSuite, parameters: dict[str, int], run_id: str, data_docs_dir: Path
) -> tuple[ExpectationSuiteValidationResult, Path]:
    context = _context(data_docs_dir)
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
    outcome = context.checkpoints.add(checkpoint).run(
        batch_parameters={"dataframe": frame}, expectation_parameters=parameters, run_id=RunIdentifier(run_name=run_id)
    )
    [(identifier, result)] = outcome.run_results.items()
    [page] = context.get_docs_sites_urls(resource_identifier=identifier, site_names=[_SITE])
    return result, Path(url2pathname(urlsplit(page["site_url"]).path))


def _context(data_docs_dir: Path) -> EphemeralDataContext:
    """A context of this run only, except for what the site's index is made from: suites and results."""

    def kept(directory: str) -> dict[str, Any]:
        return {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(data_docs_dir / directory)}

    def forgotten() -> dict[str, Any]:
        return {"class_name": "InMemoryStoreBackend"}

    config = DataContextConfig(
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
        expectations_store_name="suites",
        validation_results_store_name="results",
        checkpoint_store_name="checkpoints",
        stores={
            "suites": {
                "class_name": "ExpectationsStore",
                "store_backend": {**kept(".suites"), "filepath_suffix": ".json"},
            },
            "results": {
                "class_name": "ValidationResultsStore",
                "store_backend": {**kept(".results"), "filepath_suffix": ".json"},
            },
            "checkpoints": {"class_name": "CheckpointStore", "store_backend": forgotten()},
            "validation_definition_store": {"class_name": "ValidationDefinitionStore", "store_backend": forgotten()},
        },
        data_docs_sites={
            _SITE: {
                "class_name": "SiteBuilder",
                "show_how_to_buttons": False,
                "store_backend": kept("."),
                "site_index_builder": {
                    "class_name": "DefaultSiteIndexBuilder",
                    "validation_results_limit": _RESULTS_SHOWN,
                },
                "site_section_builders": {"profiling": "None"},
            }
        },
    )
    context = gx.get_context(mode="ephemeral", project_config=config)
    assert isinstance(context, EphemeralDataContext)
    return context


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
