"""The program that judges stores which were built and are not in place yet (`statestore.rewrite.staged_validation`)."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statestore.rewrite.staged_validation import StagedStores


def main() -> None:
    """Judge what the file that is named first says, and write the verdict into the second."""
    from statestore_expectations.suites import suite_of

    from statestore.changelog.topics import Topics
    from statestore_jobs.entry import spark_session
    from statestore_jobs.sources.register import register
    from statestore_jobs.store_validation import Judge

    told, said = map(Path, sys.argv[1:])
    request: StagedStores = pickle.loads(told.read_bytes())  # noqa: S301  written by ourselves a moment ago
    store, settings = request.stores[0].store, request.settings
    spark = spark_session("validate-staged")
    register(spark)
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    topics = Topics(settings.bootstrap_servers, settings.kafka_timeout_s)
    judge = Judge(spark, topics, request.run_id, settings.data_docs_dir, settings.reports_dir)
    found = judge.store(request.application, request.stores, suite_of(request.application.name, store))
    said.write_text(found.store.model_dump_json())
    spark.stop()
