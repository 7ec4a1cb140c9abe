"""The program that runs the suite of stores which are not live (`statestore.rewrite.staged_validation`)."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run the suites that requests name, and write the results, with one Spark session.

    Each line of standard input has the files of a request and of its result, separated by a tab.
    """
    from statestore_expectations.suites import suite_of

    from statestore.rewrite.staged_validation import StagedStores, SuiteRun
    from statestore_jobs.entry import exit_with_parent, spark_session
    from statestore_jobs.sources.register import register
    from statestore_jobs.store_validation import Judge

    exit_with_parent()
    spark = spark_session("validate-staged")
    register(spark)
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    for line in sys.stdin:
        told, said = map(Path, line.rstrip("\n").split("\t"))
        request = StagedStores.model_validate_json(told.read_text(encoding="utf-8"))
        store, settings = request.stores[0].store, request.settings
        topics = settings.cluster.topics
        judge = Judge(spark, topics, request.run_id, settings.data_docs_dir, settings.reports_dir)
        found = judge.store(request.application, request.stores, suite_of(request.application.name, store))
        result = SuiteRun(store=found.store, retry="" if found.retry is None else str(found.retry))
        content = said.with_suffix(".tmp")
        content.write_text(result.model_dump_json(), encoding="utf-8")
        content.replace(said)
        print("done", flush=True)
    spark.stop()
