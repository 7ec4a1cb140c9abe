"""What every job does around its work: arguments, settings, the report, and one clear message when it cannot run.

Exit codes: 0 the report is written (its rows may tell of damage), 2 bad input, 3 try again later, 5 fenced, 1 a bug.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from statestore.config import Settings, load_settings
from statestore.errors import StateStoreError
from statestore.metastore.definitions import load_definitions
from statestore.model import ApplicationDefinition
from statestore.reports import JobReport, write_report

Definitions = dict[str, ApplicationDefinition]
Run = Callable[[argparse.Namespace, Settings, Definitions], JobReport]


def main(name: str, run: Run, add_arguments: Callable[[argparse.ArgumentParser], None]) -> None:
    """Run the job as a program and exit with its code."""
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--report", type=Path, required=True, help="where to write the JSON report")
    add_arguments(parser)
    arguments = parser.parse_args()
    exit_with_parent()
    try:
        settings = load_settings()
        report = run(arguments, settings, load_definitions(settings.definitions))
        write_report(arguments.report, report)
    except StateStoreError as error:
        print(f"{name}: {error.kind}: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)
    print(f"{name}: report written to {arguments.report}", flush=True)


def exit_with_parent() -> None:
    """End this driver when the process that started it is gone.

    Airflow's operator ends only the JVM of spark-submit; the Python driver would go on unseen.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)  # a parent's end raises no event that Python can wait for
        os._exit(143)

    threading.Thread(target=watch, name="exit-with-parent", daemon=True).start()


def spark_session(name: str) -> SparkSession:
    """Return the session of this job; the master comes from spark-submit."""
    spark = SparkSession.builder.appName(f"statestore-{name}").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def now_ms() -> int:
    """Wall clock, ms since the epoch."""
    return int(time.time() * 1000)
