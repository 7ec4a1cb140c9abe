"""Kafka from an Airflow connection: its extra is the client configuration, with librdkafka's names.

The library reads such a configuration from a file that STATESTORE_KAFKA_CONFIG names. So while an Airflow task asks
Kafka, or a Spark job of its own does, the connection's extra lies in a file of mode 0600, and the environment has the
file's name. Nothing of it goes into arguments, Spark's configuration, rendered fields, XCom or logs.

It lies in the temporary directory; for Spark's executors on other machines, in one that all of them share, where they
find it under the same path. It is locked as long as it is needed. A worker that was killed leaves it behind without a
lock; the next task that makes one there removes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from statestore.config import BOOTSTRAP_SERVERS, KAFKA_CONFIG
from statestore.errors import InputError

#: Id of the Airflow connection; without it, the other settings alone say how Kafka is reached.
KAFKA_CONN_ID = "STATESTORE_KAFKA_CONN_ID"
_PREFIX = "statestore-kafka-"


@contextmanager
def kafka_connection(directory: Path | None = None) -> Iterator[None]:
    """Let this process, and those that it starts, reach Kafka as the connection of STATESTORE_KAFKA_CONN_ID says.

    Parameters
    ----------
    directory
        Of the file; None: the temporary directory of this machine.

    Raises
    ------
    InputError
        If there is no such connection, or its extra is no client configuration.
    """
    conn_id = os.environ.get(KAFKA_CONN_ID, "").strip()
    if not conn_id:
        yield
        return
    if os.environ.get(KAFKA_CONFIG):
        raise InputError(f"{KAFKA_CONN_ID} and {KAFKA_CONFIG} both say how Kafka is reached: set only one of them")
    properties = _properties(conn_id)
    servers = properties.get("bootstrap.servers") or os.environ.get(BOOTSTRAP_SERVERS)
    if not servers:
        raise InputError(
            f"connection {conn_id!r}: its extra has no bootstrap.servers, and {BOOTSTRAP_SERVERS} is not set"
        )
    with (
        _private_file(json.dumps(properties), directory or Path(tempfile.gettempdir())) as path,
        _set({KAFKA_CONFIG: str(path), BOOTSTRAP_SERVERS: servers}),
    ):
        yield


def _properties(conn_id: str) -> dict[str, Any]:
    # Here, not at the top: DAG files are parsed every few seconds.
    from statestore.changelog.client_properties import checked_properties

    try:
        extra = Connection.get(conn_id).extra
    except AirflowNotFoundException as error:
        raise InputError(
            f"{KAFKA_CONN_ID}: Airflow has no connection {conn_id!r}; add it, its extra the client configuration"
        ) from error
    source = f"extra of connection {conn_id!r}"
    try:
        found = json.loads(extra or "{}")
    except ValueError:
        # Without its cause, which has the whole text in it.
        raise InputError(f"{source}: expected a JSON object of librdkafka's properties, found no JSON") from None
    if not isinstance(found, dict):
        raise InputError(f"{source}: expected a JSON object of librdkafka's properties, found {type(found).__name__}")
    return checked_properties(found, source)


@contextmanager
def _private_file(content: str, directory: Path) -> Iterator[Path]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_leftovers(directory)
    descriptor, path = _locked_file(directory)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            yield path
    finally:
        path.unlink(missing_ok=True)


def _locked_file(directory: Path) -> tuple[int, Path]:
    while True:
        descriptor, name = tempfile.mkstemp(prefix=_PREFIX, dir=directory)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, Path(name)
        os.close(descriptor)  # before it was locked, somebody took it for a leftover


def _remove_leftovers(directory: Path) -> None:
    """Remove the files of tasks that were killed: nobody holds a lock on them any more."""
    for path in directory.glob(f"{_PREFIX}*"):
        try:
            # For writing, or a lock could not be had on NFS.
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # it has just gone, or is another user's
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:  # it is in use
            pass
        finally:
            os.close(descriptor)


@contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
