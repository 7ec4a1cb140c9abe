"""Kafka from an Airflow connection: its extra is the client configuration, with librdkafka's names.

The library reads such a configuration from a file that STATESTORE_KAFKA_CONFIG names. So while an Airflow task asks
Kafka, or a Spark job of its own does, the connection's extra lies in a file of mode 0600, and the environment has the
file's name. Nothing of it goes into arguments, Spark's configuration, rendered fields, XCom or logs.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from statestore.config import BOOTSTRAP_SERVERS
from statestore.errors import InputError
from statestore.private_config import KAFKA_CONFIG
from statestore_dags.private_files import environment, private_file

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
        private_file(json.dumps(properties), directory or Path(tempfile.gettempdir()), _PREFIX) as path,
        environment({KAFKA_CONFIG: str(path), BOOTSTRAP_SERVERS: servers}),
    ):
        yield


def _properties(conn_id: str) -> dict[str, Any]:
    # Here, not at the top: DAG files are parsed every few seconds.
    from statestore.kafka.client_properties import checked_properties

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
