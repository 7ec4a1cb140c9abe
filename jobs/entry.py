"""What every job does around its work: arguments, definitions, the report, and one clear message when it cannot run.

Definitions come from the catalogue, as it is now or as a pin says; which one is printed and stands in the report. A
job needs certainty: it stops where the metastore is DEGRADED.

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
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.metastore import Metastore
from statestore.metastore.view import Pin, View
from statestore.model import ApplicationDefinition
from statestore.reports import JobReport, write_report

Definitions = dict[str, ApplicationDefinition]
Run = Callable[[argparse.Namespace, Settings, Catalogue], JobReport]


def main(name: str, run: Run, add_arguments: Callable[[argparse.ArgumentParser], None]) -> None:
    """Run the job as a program and exit with its code."""
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--report", type=Path, required=True, help="where to write the JSON report")
    parser.add_argument(
        "--catalogue", metavar="OFFSET:DIGEST", help="pin of the definitions to use; those of now if not said"
    )
    add_arguments(parser)
    arguments = parser.parse_args()
    exit_with_parent()
    try:
        settings = load_settings()
        view = view_of(Metastore.of(settings), arguments.catalogue)
        print(f"{name}: definitions of catalogue {view.pin}", flush=True)
        report = run(arguments, settings, view.catalogue)
        write_report(arguments.report, report.model_copy(update={"catalogue": str(view.pin)}))
    except StateStoreError as error:
        print(f"{name}: {error.kind}: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)
    print(f"{name}: report written to {arguments.report}", flush=True)


def view_of(metastore: Metastore, pin: str | None) -> View:
    """Return the catalogue of a pin, or of now.

    Raises
    ------
    MetastoreDegradedError
        If nobody can be certain of the catalogue.
    InputError
        If the log does not have the catalogue of the pin any more.
    """
    wanted = None if pin is None else Pin.parse(pin)
    now = metastore.require_running()
    return now if wanted in (None, now.pin) else metastore.pinned(wanted)


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
