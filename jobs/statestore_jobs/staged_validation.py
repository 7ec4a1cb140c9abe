"""The program that judges stores which were built and are not in place yet (`statestore.rewrite.staged_validation`)."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Judge what the file that is named first says, and write the verdict into the second."""
    from statestore_expectations.suites import suite_of

    from statestore.kafka.topics import Topics
    from statestore.rewrite.staged_validation import StagedStores
    from statestore_jobs.entry import spark_session
    from statestore_jobs.sources.register import register
    from statestore_jobs.store_validation import Judge

    told, said = map(Path, sys.argv[1:])
    request = StagedStores.model_validate_json(told.read_text(encoding="utf-8"))
    store, settings = request.stores[0].store, request.settings
    spark = spark_session("validate-staged")
    register(spark)
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    topics = Topics(settings.bootstrap_servers, settings.kafka_timeout_s)
    judge = Judge(spark, topics, request.run_id, settings.data_docs_dir, settings.reports_dir)
    found = judge.store(request.application, request.stores, suite_of(request.application.name, store))
    said.write_text(found.store.model_dump_json())
    spark.stop()
