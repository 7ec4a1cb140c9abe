"""The suite of a drilled store: the rules of `validate`, run on the restored rows before they are removed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from statestore.config import load_settings
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import RetryError, StateStoreError
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import DrillRow, DrillVerdict
from statestore.rewrite.staged_validation import run_suite

#: Disk space for a validation, as a multiple of the files of the store: Spark keeps the rows of the store, those of the
#: changelog, and both side by side.
_SPACE = 6


def suite_result(
    definition: ApplicationDefinition | None, there: StorePartitionSpec, directory: Path, keep_free: int
) -> dict[str, Any]:
    """Run the suite of a restored store, and return the result as fields of a `DrillRow`.

    Parameters
    ----------
    definition
        Definition of the application; None: it has none, so no suite is known.
    there
        The restored store partition.
    directory
        Scratch space, in which everything is written.
    keep_free
        Bytes that stay free on its disk.

    Raises
    ------
    RetryError
        If Kafka did not answer.
    """
    if definition is None:
        return _not_run("its application has no definition, so no suite is known for it")
    needed, disk = _SPACE * _bytes_in(there.live), os.statvfs(directory)
    free = disk.f_bavail * disk.f_frsize - keep_free
    if needed > free:
        return _not_run(f"it needs about {needed} bytes in {directory.parent}, and can use {max(free, 0)}")
    settings = load_settings(
        bootstrap_servers=there.cluster.servers,
        kafka_timeout_s=there.cluster.timeout_s,
        state_dir=there.state_dir,
        reports_dir=directory / "reports",
        data_docs_dir=directory / "data-docs",
    )
    try:
        found = run_suite(definition, [there], settings, "drill", directory)
    except RetryError:
        raise
    except StateStoreError as error:
        return _not_run(str(error))
    if found.verdict == "not judged" or not found.expectations:
        return _not_run(found.detail or "the suite has no expectation")
    return {
        "suite": found.verdict,
        "suite_expectations": found.expectations,
        "suite_failed": found.failed_expectations,
        "suite_detail": found.detail,
        "suite_sha256": found.suite_sha256,
        "suite_seconds": found.seconds,
    }


def suite_problem(row: DrillRow) -> tuple[DrillVerdict, str] | None:
    """Return the verdict that the suite of a restored store causes, and its reason; None if the suite passed."""
    if row.suite == "passed":
        return None
    if row.suite == "failed":
        return "failed", f"its rows do not pass its suite: {'; '.join([*row.suite_failed, row.suite_detail])}"
    return "unproven", f"restored, but its suite was not run: {row.suite_detail}"


def _not_run(why: str) -> dict[str, Any]:
    return {"suite": "not run", "suite_detail": why}


def _bytes_in(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
