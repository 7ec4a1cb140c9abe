"""Airflow's database, migrated once for a lock of requirements and copied for each process that runs tests.

A migration takes Airflow many CPU seconds, and gives the same empty tables each time.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from statestore.statedir.lock import locked_file

REPOSITORY = Path(__file__).resolve().parents[2]
_KEPT = REPOSITORY / "build" / "tests"
_MIGRATE_S = 500


def migrated_database(path: Path) -> None:
    """Make an empty database of the Airflow that is installed at `path`."""
    lock = sha256((REPOSITORY / "requirements" / "dev.txt").read_bytes()).hexdigest()
    template = _KEPT / f"airflow-{lock[:16]}.db"
    # Other workers of this run wait here until the first has made it.
    with locked_file(template.with_suffix(".lock"), _MIGRATE_S):
        if not template.exists():
            _migrate(template)
    _copy(template, path)


def _migrate(template: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="statestore-airflow-") as home:
        made = Path(home) / "airflow.db"
        connection = {"AIRFLOW_HOME": home, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{made}"}
        environment = {**os.environ, **connection}
        command = [sys.executable, "-m", "airflow", "db", "migrate"]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=_MIGRATE_S)
        partial = template.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        _copy(made, partial)
        partial.replace(template)


def _copy(source: Path, target: Path) -> None:
    # As SQLite does it: part of a database may lie in its write-ahead log.
    with closing(sqlite3.connect(source)) as there, closing(sqlite3.connect(target)) as here:
        there.backup(here)
