"""The key that signs evidence, from an Airflow connection, in a private file while a job needs it.

STATESTORE_EVIDENCE_CONNECTION   id of a connection whose password is the private key as PEM
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from statestore.drills.keys import KEY, KEY_FILE
from statestore.errors import InputError
from statestore_dags.private_files import environment, private_file

EVIDENCE_CONNECTION = "STATESTORE_EVIDENCE_CONNECTION"
_PREFIX = "statestore-evidence-"


@contextmanager
def evidence_connection() -> Iterator[None]:
    """Give this process, and those that it starts, the key of the connection.

    Raises
    ------
    InputError
        If there is no such connection, it has no password, or another setting names a key, too.
    """
    conn_id = os.environ.get(EVIDENCE_CONNECTION, "").strip()
    if not conn_id:
        yield
        return
    if any(os.environ.get(name, "").strip() for name in (KEY, KEY_FILE)):
        raise InputError(
            f"{EVIDENCE_CONNECTION} and {KEY_FILE} both say which key signs evidence: set only one of them"
        )
    try:
        key = Connection.get(conn_id).password
    except AirflowNotFoundException:
        raise InputError(f"{EVIDENCE_CONNECTION}: there is no connection {conn_id!r}; create it") from None
    if not key:
        raise InputError(
            f"{EVIDENCE_CONNECTION}: connection {conn_id!r} has no password; expected a private key as PEM"
        )
    directory = Path(tempfile.gettempdir()) / f"statestore-evidence-{os.getuid()}"
    with private_file(key, directory, _PREFIX) as path, environment({KEY_FILE: str(path)}):
        yield
