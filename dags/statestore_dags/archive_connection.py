"""Credentials of object storage from an Airflow connection, by the way of Kafka's (`connections.py`).

They are for the archive, and for reports and Data Docs in object storage. While a Spark job or a step needs them, they
lie in a file of mode 0600 that STATESTORE_ARCHIVE_CONFIG names, as variables:

    aws               login and password are the access key; extra: aws_session_token, region_name, endpoint_url
    wasb              password is the account's key; or sas_token in extra; or login, password, and tenant_id in extra
                      are a service principal
    any other type    extra is an object of the variables themselves

Anything else in a connection would not be done, so it is refused: the name of an extra is shown, never its value.
"""

from __future__ import annotations

import atexit
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from statestore.errors import InputError
from statestore.objects.credentials import ARCHIVE_CONFIG
from statestore.objects.path import is_url
from statestore_dags.private_files import environment, private_file

#: Id of the Airflow connection; without it, the environment says who is let into the archive.
ARCHIVE_CONNECTION = "STATESTORE_ARCHIVE_CONNECTION"
_PREFIX = "statestore-archive-"
#: What a step may read or write in object storage.
_PLACES = ("STATESTORE_REPORTS_DIR", "STATESTORE_METASTORE_BACKUP")
_BOTH = f"{ARCHIVE_CONNECTION} and {ARCHIVE_CONFIG} both say who is let into the archive: set only one of them"
#: How often a process that serves for long looks whether the connection was changed.
_LOOKS_EVERY_S = 60.0
#: Variables of extras, by the connection's type.
_EXTRAS = {
    "aws": {
        "aws_session_token": "AWS_SESSION_TOKEN",
        "region_name": "AWS_REGION",
        "endpoint_url": "AWS_ENDPOINT_URL",
    },
    "wasb": {"tenant_id": "AZURE_TENANT_ID", "sas_token": "AZURE_STORAGE_SAS_TOKEN"},
}


@contextmanager
def archive_connection(directory: Path | None = None) -> Iterator[None]:
    """Let this process, and those that it starts, into the archive as the connection says.

    Parameters
    ----------
    directory
        Of the file; None: the temporary directory of this machine.

    Raises
    ------
    InputError
        If there is no such connection, or what it has is not what an archive needs.
    """
    conn_id = os.environ.get(ARCHIVE_CONNECTION, "").strip()
    if not conn_id:
        yield
        return
    if os.environ.get(ARCHIVE_CONFIG):
        raise InputError(_BOTH)
    content = json.dumps(_variables(conn_id))
    with (
        private_file(content, directory or Path(tempfile.gettempdir()), _PREFIX) as path,
        environment({ARCHIVE_CONFIG: str(path)}),
    ):
        yield


@contextmanager
def reports_access() -> Iterator[None]:
    """Let this process read and write reports where they lie; a directory needs nothing.

    Raises
    ------
    InputError
        As `archive_connection`.
    """
    if not any(is_url(os.environ.get(variable, "").strip()) for variable in _PLACES):
        yield
        return
    with archive_connection():
        yield


class LastingAccess:
    """Lets a process that serves for long into object storage as the connection says, and says now.

    The file is there as long as the process, and another one takes its place if the connection was changed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked_s = -_LOOKS_EVERY_S
        self._content: str | None = None
        self._file = ExitStack()
        atexit.register(self.close)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
        if self._content is not None:
            os.environ.pop(ARCHIVE_CONFIG, None)
        self._content = None

    def renew(self) -> None:
        """Look at the connection, if that was long ago; without one, the environment says who is let in.

        Raises
        ------
        InputError
            As `archive_connection`.
        """
        conn_id = os.environ.get(ARCHIVE_CONNECTION, "").strip()
        with self._lock:
            if not conn_id or time.monotonic() - self._looked_s < _LOOKS_EVERY_S:
                return
            if self._content is None and os.environ.get(ARCHIVE_CONFIG):
                raise InputError(_BOTH)
            content = json.dumps(_variables(conn_id))
            if content != self._content:
                before, self._file = self._file.pop_all(), ExitStack()
                path = self._file.enter_context(private_file(content, Path(tempfile.gettempdir()), _PREFIX))
                os.environ[ARCHIVE_CONFIG] = str(path)
                self._content = content
                before.close()
            self._looked_s = time.monotonic()


def _variables(conn_id: str) -> dict[str, str]:
    # Here, not at the top: DAG files are parsed every few seconds.
    from statestore.objects.credentials import checked_variables

    try:
        connection = Connection.get(conn_id)
    except AirflowNotFoundException as error:
        raise InputError(
            f"{ARCHIVE_CONNECTION}: Airflow has no connection {conn_id!r}; add it, with the credentials of the archive"
        ) from error
    extra = _extra(conn_id, connection.extra)
    kind = connection.conn_type
    if kind not in _EXTRAS:
        return checked_variables(extra, f"extra of connection {conn_id!r}")
    known = _EXTRAS[kind]
    if odd := sorted(set(extra) - set(known)):
        raise InputError(
            f"extra of connection {conn_id!r}: {', '.join(odd)} cannot be used for the archive; a connection of type "
            f"{kind} may have {', '.join(known)}. Make one of its own for the archive"
        )
    found = {known[name]: value for name, value in extra.items()}
    for name, value in zip(_keys(kind, found), (connection.login, connection.password), strict=True):
        if name is not None and value:
            found[name] = value
    return checked_variables(found, f"connection {conn_id!r}")


def _keys(kind: str, found: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the variables of login and password; the URL of the archive names an account of Azure."""
    if kind == "aws":
        return "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
    if "AZURE_TENANT_ID" in found:
        return "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"
    return None, "AZURE_STORAGE_ACCOUNT_KEY"


def _extra(conn_id: str, text: str | None) -> dict[str, Any]:
    wanted = f"extra of connection {conn_id!r}: expected a JSON object"
    try:
        found = json.loads(text or "{}")
    except ValueError:
        # Without its cause, which has the whole text in it.
        raise InputError(f"{wanted}, found no JSON") from None
    if not isinstance(found, dict):
        raise InputError(f"{wanted}, found {type(found).__name__}")
    return {name: value for name, value in found.items() if value not in (None, "")}  # fields that were left blank
