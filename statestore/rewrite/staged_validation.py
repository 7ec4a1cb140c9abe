"""Runs the suites of stores that are not live: staged ones, and those that a drill has restored.

The library imports neither Spark nor Great Expectations, and the commit of a data source runs where there is no Spark
session. So a program runs the suite (`jobs/statestore_jobs/staged_validation.py`), with a session on this machine. It
reads the stores and their changelog. It reads copies of staged stores, with links to their tables.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from pydantic import BaseModel

from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InputError, RetryError, StateStoreError
from statestore.formats.database_files import has_rows
from statestore.packages import require_extra
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import ValidatedStore

_PROGRAM = "from statestore_jobs.staged_validation import main; main()"
_KEPT_VARIABLES = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
_SPARK = "--master local[*] --conf spark.ui.enabled=false pyspark-shell"


class SuiteRun(BaseModel):
    """The result of the program.

    Attributes
    ----------
    retry
        Why the store could not be judged now; empty: it was judged, or a retry cannot help.
    """

    store: ValidatedStore
    retry: str = ""


class StagedStores(BaseModel):
    """The request to the program."""

    application: ApplicationDefinition
    stores: tuple[StorePartitionSpec, ...]
    settings: Settings
    run_id: str


def require_valid(
    application: ApplicationDefinition,
    stores: Sequence[StorePartitionSpec],
    settings: Settings,
    run_id: str,
    directory: Path,
) -> ValidatedStore:
    """Judge the staged partitions of a store, and refuse those that do not pass.

    Parameters
    ----------
    stores
        With the changelog that they were built from.
    run_id
        Names the run in the Data Docs.
    directory
        Where it may write, on the disk of the stores.

    Raises
    ------
    InputError
        If an expectation is not met, or cannot be evaluated.
    MissingExtraError
        If Spark or Great Expectations is not installed.
    """
    require_extra("validate", "validating stores before they are put in place")
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="validation-", dir=directory) as name:
        shown = [_shown(store, Path(name)) for store in stores]
        verdict = run_suite(application, shown, settings, run_id, Path(name))
    if verdict.verdict != "passed":
        failed = ", ".join(verdict.failed_expectations)
        raise InputError(
            f"{application.name}/{stores[0].store.name}: the rows do not pass the store's suite: "
            f"{'; '.join(filter(None, [failed, verdict.detail]))}. Data Docs: {verdict.data_docs}. Nothing was changed"
        )
    return verdict


def run_suite(
    application: ApplicationDefinition,
    stores: Sequence[StorePartitionSpec],
    settings: Settings,
    run_id: str,
    directory: Path,
) -> ValidatedStore:
    """Run the suite of a store that is not in use, and return its result.

    Parameters
    ----------
    directory
        Where Spark and this function write. The caller removes it.

    Raises
    ------
    MissingExtraError
        If Spark or Great Expectations is not installed.
    RetryError
        If the store could not be judged now, because Kafka did not answer.
    StateStoreError
        If the program ended without a result.
    """
    with SuiteProgram(directory) as program:
        return program.run(application, stores, settings, run_id)


class SuiteProgram:
    """The program that runs suites, one after the other, with one Spark session.

    Parameters
    ----------
    directory
        Where Spark and the program write. The caller removes it.

    Raises
    ------
    MissingExtraError
        If Spark or Great Expectations is not installed.
    """

    def __init__(self, directory: Path) -> None:
        require_extra("validate", "running the suite of a store")
        self._directory, self._runs = directory, 0
        self._errors = (directory / "stderr").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM],
            env={**_environment(), "SPARK_LOCAL_DIRS": str(directory / "spark")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._errors.close()

    def run(
        self,
        application: ApplicationDefinition,
        stores: Sequence[StorePartitionSpec],
        settings: Settings,
        run_id: str,
    ) -> ValidatedStore:
        """Run the suite of a store that is not in use, and return its result; see `run_suite`."""
        assert self._process.stdin is not None, "it is a pipe"
        assert self._process.stdout is not None, "it is a pipe"
        self._runs += 1
        told, said = (self._directory / f"{name}-{self._runs}.json" for name in ("request", "verdict"))
        asked = StagedStores(application=application, stores=tuple(stores), settings=settings, run_id=run_id)
        told.write_text(asked.model_dump_json(), encoding="utf-8")
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{told}\t{said}\n")
            self._process.stdin.flush()
        while not said.exists() and self._process.stdout.readline():
            pass
        if not said.exists():
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            raise StateStoreError(
                f"{application.name}/{stores[0].store.name}: the program that runs its suite failed: "
                f"{' '.join(lines[-3:])}. Nothing was changed"
            )
        found = SuiteRun.model_validate_json(said.read_text(encoding="utf-8"))
        if found.retry:
            raise RetryError(found.retry)
        return found.store


def _environment() -> dict[str, str]:
    """Return the environment of a driver: what Spark tells its Python workers would have it take itself for one."""
    found = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYSPARK_", "SPARK_")) or key in _KEPT_VARIABLES
    }
    spark = find_spec("pyspark")
    assert spark is not None, "it was required"
    assert spark.origin is not None, "it is no mere directory"
    packed = next((place for place in Path(spark.origin).parents if place.is_file()), None)
    if packed is not None:  # in <Spark>/python/lib
        found.setdefault("SPARK_HOME", str(packed.parents[2]))
    found |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": _SPARK}
    return found | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _shown(store: StorePartitionSpec, view: Path) -> StorePartitionSpec:
    """Show a staged store where a state directory has the live one: its tables are linked, the rest is copied."""
    shown = store.model_copy(update={"state_dir": view, "archive": None})
    shutil.copytree(store.paths.staging(store.store.name), shown.live, copy_function=_linked)
    return shown


def _linked(source: str, target: str) -> None:
    if has_rows(source):
        os.link(source, target)
    else:
        shutil.copyfile(source, target)
