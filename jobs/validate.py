"""Validate stores with Great Expectations: what a restore has rebuilt, or all stores of an application.

A store that passes after a restore no longer needs the one it replaced, which is then deleted; otherwise the replaced
store stays in quarantine. Validation changes nothing else.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from great_expectations.core.expectation_suite import ExpectationSuite
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from expectations.runner import Verdict, validate_store
from expectations.suites import load_suite
from jobs.entry import Definitions, main, now_ms, spark_session
from jobs.frames import compared_frames
from jobs.sources.register import register
from statestore.changelog.topics import Topics
from statestore.config import Settings
from statestore.durable import remove_tree
from statestore.errors import InputError, UnknownStoreError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.definitions import select
from statestore.model import StorePartition
from statestore.reports import RestoreReport, ValidateReport, ValidateRow, read_report
from statestore.tasks.spec import StorePartitionSpec
from statestore.verification.targets import store_partition_specs

#: Store partition -> directory of the store that a restore has replaced.
Quarantine = dict[StorePartition, Path]


def add_arguments(parser: ArgumentParser) -> None:
    """Declare this job's arguments."""
    parser.add_argument("--application", help="whose stores to validate")
    parser.add_argument("--store", action="append", default=[], help="may be repeated; none means all")
    parser.add_argument("--restore-report", type=Path, help="validate what this report restored, instead of the above")


def run(arguments: Namespace, settings: Settings, catalogue: Catalogue) -> ValidateReport:
    """Validate one store after the other; suites are read first, so that a bad one ends the run before any work."""
    started = now_ms()
    topics = Topics(settings.bootstrap_servers, settings.kafka_timeout_s)
    specs, quarantine = _chosen(arguments, settings, catalogue.definitions(), topics)
    stores = [list(of_store) for _, of_store in groupby(specs, lambda spec: spec.store_partition[:2])]
    suites = [_suite(of_store[0]) for of_store in stores]
    run_id = Path(arguments.report).stem
    rows: list[ValidateRow] = []
    if stores:
        spark = spark_session("validate")
        register(spark)
        # A suite is some forty small queries, and adaptive execution runs each as several Spark jobs: twice as slow.
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    for of_store, suite in zip(stores, suites, strict=True):
        verdict, keys = _validate(spark, topics, of_store, suite, run_id, settings.data_docs_dir)
        rows += [_row(spec, verdict, keys, quarantine.get(spec.store_partition)) for spec in of_store]
    index = settings.data_docs_dir / "index.html"
    return ValidateReport(
        run_id=run_id,
        applications=tuple(dict.fromkeys(spec.application for spec in specs)),
        started_ms=started,
        finished_ms=now_ms(),
        data_docs=str(index) if index.exists() else None,
        rows=tuple(rows),
    )


# -- what is asked for ------------------------------------------------------------------------------------------------


def _chosen(
    arguments: Namespace, settings: Settings, definitions: Definitions, topics: Topics
) -> tuple[list[StorePartitionSpec], Quarantine]:
    if arguments.restore_report is None:
        if not arguments.application:
            raise InputError("name the application to validate, or a report of a restore")
        applications = select(definitions, [arguments.application], arguments.store)
        specs = store_partition_specs(settings, topics, applications, arguments.store)
        return _key_value(specs, asked_for=bool(arguments.store)), {}
    if arguments.application or arguments.store:
        raise InputError("a report of a restore says what to validate: name no application and no store with it")
    report = read_report(arguments.restore_report, RestoreReport)
    restored = {row.label: row for row in report.rows if row.outcome == "restored"}
    if not restored:
        return [], {}
    applications = select(definitions, sorted({row.application for row in restored.values()}), [])
    specs = store_partition_specs(settings, topics, applications)
    found = {str(spec.store_partition): spec for spec in specs}
    if unknown := sorted(set(restored) - set(found)):
        raise UnknownStoreError(
            f"{arguments.restore_report} names {', '.join(unknown)}; the definitions have: {', '.join(found)}"
        )
    quarantine = {
        found[label].store_partition: _quarantined(found[label], Path(row.quarantine))
        for label, row in restored.items()
        if row.quarantine
    }
    return [spec for label, spec in found.items() if label in restored], quarantine


def _key_value(specs: list[StorePartitionSpec], *, asked_for: bool) -> list[StorePartitionSpec]:
    """Leave out stores that cannot be read as DataFrames yet; it is an error to have asked for one."""
    others = sorted({spec.store.name for spec in specs if spec.store.kind != "key-value"})
    if others and asked_for:
        raise InputError(f"only key-value stores can be validated, and {', '.join(others)} is none")
    return [spec for spec in specs if spec.store.kind == "key-value"]


def _quarantined(spec: StorePartitionSpec, directory: Path) -> Path:
    """Return the directory if it can be one that a restore left: it may be deleted later."""
    quarantine = spec.paths.quarantine(spec.store.name, "_").parent
    if directory.resolve().parent != quarantine.resolve():
        raise InputError(f"{spec.store_partition}: expected a replaced store in {quarantine}, found {directory}")
    return directory


def _suite(spec: StorePartitionSpec) -> ExpectationSuite:
    own = [spec.store.expectations] if spec.store.expectations else []
    return load_suite(f"{spec.application}.{spec.store.name}", ["key_value", *own])


# -- one store --------------------------------------------------------------------------------------------------------


def _validate(
    spark: SparkSession,
    topics: Topics,
    specs: list[StorePartitionSpec],
    suite: ExpectationSuite,
    run_id: str,
    data_docs_dir: Path,
) -> tuple[Verdict, dict[int, int]]:
    """Judge one store; also return the rows of each of its partitions."""
    try:
        with compared_frames(spark, topics, specs) as frames:
            if isinstance(frames, str):
                return Verdict("error", 0, (), frames, None), {}
            verdict = validate_store(spark, frames.store, frames.log, suite, run_id=run_id, data_docs_dir=data_docs_dir)
            if frames.ahead:
                worst = "failed" if verdict.verdict == "passed" else verdict.verdict
                verdict = replace(verdict, verdict=worst, failed=(*verdict.failed, *frames.ahead))
            if frames.unknown:
                said = f"{frames.unknown} keys were not compared: the log has only changes of them that are newer"
                verdict = replace(verdict, detail="; ".join(filter(None, [verdict.detail, said])))
            return verdict, frames.keys
    except (PySparkException, Py4JError) as error:
        return Verdict("error", 0, (), _last_line(error), None), {}


def _row(spec: StorePartitionSpec, verdict: Verdict, keys: dict[int, int], quarantine: Path | None) -> ValidateRow:
    detail = verdict.detail
    if quarantine is not None and quarantine.exists():
        if verdict.verdict == "passed":
            remove_tree(quarantine)
        else:
            detail = f"{detail}; the store that was replaced is kept in {quarantine}".removeprefix("; ")
    return ValidateRow(
        application=spec.application,
        store=spec.store.name,
        task=str(spec.task),
        verdict=verdict.verdict,
        expectations=verdict.expectations,
        failed_expectations=verdict.failed,
        keys=keys.get(spec.task.partition, 0),
        detail=detail,
        data_docs=str(verdict.data_docs) if verdict.data_docs else None,
    )


def _last_line(error: Exception) -> str:
    """What a person needs of an error that comes through the JVM with two stack traces: what Python raised, last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception): ", line)]
    return (raised or lines or [type(error).__name__])[-1]


if __name__ == "__main__":
    main("validate", run, add_arguments)
