"""Each expectation of each suite passes what is whole, and names the rows that break it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from statestore_expectations.custom.samples import SAMPLE
from statestore_expectations.runner import Verdict, validate_store
from statestore_expectations.suites import SUITES, load_suite

from tests.spark.suite_examples import EXAMPLES, Example, Row, titles


def _judge(spark: SparkSession, docs: Path, example: Example, store: list[Row], log: list[Row]) -> Verdict:
    store_frame, log_frame = (spark.createDataFrame(rows, example.ddl).persist() for rows in (store, log))
    try:
        suite = load_suite("app.store", example.suites)
        parameters = example.parameters
        return validate_store(
            spark, store_frame, log_frame, suite, run_id="run", data_docs_dir=docs, parameters=parameters
        )
    finally:
        store_frame.unpersist()
        log_frame.unpersist()


def test_every_expectation_of_every_suite_has_an_example_that_breaks_it() -> None:
    examples = [make() for make in EXAMPLES.values()]
    broken = {suite: set(example.broken) for example in examples for suite in example.suites}

    unproven = {path.stem: set(titles(path.stem)) - broken.get(path.stem, set()) for path in SUITES.glob("*.json")}

    assert {suite: expectations for suite, expectations in unproven.items() if expectations} == {}


@pytest.mark.short_for("window")
@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_whole_store_passes(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    example = EXAMPLES[kind]()

    verdict = _judge(spark, tmp_path, example, example.good, example.good)

    assert (verdict.verdict, verdict.failed, verdict.detail, verdict.failed_rows) == ("passed", (), "", ())
    assert verdict.expectations == sum(len(titles(suite)) for suite in example.suites)


@pytest.mark.long
@pytest.mark.parametrize("kind", EXAMPLES)
def test_each_expectation_names_exactly_the_rows_that_break_it(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    example = EXAMPLES[kind]()

    verdict = _judge(spark, tmp_path, example, example.good + example.store, example.good + example.log)

    found = {failed.expectation: failed for failed in verdict.failed_rows}
    assert verdict.verdict == "failed"
    assert set(verdict.failed) == set(found) == set(example.broken)
    named = {
        title: {None if failed.count is None else example.name(row) for row in failed.rows}
        for title, failed in found.items()
    }
    few = {title for title, rows in example.broken.items() if len(rows) <= SAMPLE}
    assert {title: named[title] for title in few} == {title: example.broken[title] for title in few}
    assert all(named[title] <= example.broken[title] for title in found)
    counts = {title: failed.count for title, failed in found.items() if failed.count is not None}
    assert counts == {title: len(rows) for title, rows in example.broken.items() if title in counts}


@pytest.mark.long
@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_store_that_never_had_a_row_passes_and_one_that_lost_all_fails(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    example = EXAMPLES[kind]()
    nothing = _judge(spark, tmp_path, example, [], [])
    lost = _judge(spark, tmp_path, example, [], example.good)

    assert (nothing.verdict, nothing.detail) == ("passed", "")
    assert set(lost.failed) == {
        "the store has as many rows as the changelog has live keys",
        "each partition has the changelog's row count and checksum",
        "no row of the changelog is missing from the store",
    }
    assert "is missing from the store" in lost.detail
