"""Profile one store on this machine and propose a suite for it: what `statestore expectations suggest` starts.

A program of its own, with a Spark of its own, because the library knows no Spark. The store is read beside its owner.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from statestore_expectations.suggest import suggest

from statestore.definitions.store import StoreDefinition
from statestore.durable import write_durably
from statestore.errors import StateStoreError, of_os_error
from statestore_jobs.source_frames import kind_options
from statestore_jobs.sources.register import register
from statestore_jobs.store_validation import described


def main() -> None:
    """Write the suite, or end with one clear line and an exit code as all jobs do."""
    parser = ArgumentParser(prog="suggest")
    parser.add_argument("--state-dir", required=True)
    parser.add_argument("--application", required=True)
    parser.add_argument("--definition", required=True, help="of the store, as JSON")
    parser.add_argument("--partitions", required=True, help="comma separated")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    store = StoreDefinition.model_validate_json(arguments.definition)
    options = {
        "state_dir": arguments.state_dir,
        "application": arguments.application,
        "store": store.name,
        "partitions": arguments.partitions,
        **kind_options(store),
    }
    try:
        spark = _spark()
        register(spark)
        suite = suggest(spark.read.format("state_store").options(**options).load(), store)
        write_durably(arguments.out, json.dumps(suite, ensure_ascii=False, indent=2) + "\n")
    except (StateStoreError, OSError, PySparkException) as error:
        cause = of_os_error(error) if isinstance(error, OSError) else error
        print(f"suggest: {described(error)}", file=sys.stderr, flush=True)
        sys.exit(cause.exit_code if isinstance(cause, StateStoreError) else 1)


def _spark() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark would take whatever python3 is on PATH
    builder = SparkSession.builder.master("local[2]").appName("statestore-suggest")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
