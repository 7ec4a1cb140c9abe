"""Files with secrets, which the environment names: only their owner may read them, no message shows them."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

from statestore.errors import InputError

#: Names the file with the Kafka clients' configuration: librdkafka's properties as a JSON object.
KAFKA_CONFIG = "STATESTORE_KAFKA_CONFIG"


def read_private_config(variable: str, asked: str, content: str) -> dict[str, Any]:
    """Return what is in the JSON file that a variable of the environment names; nothing if the variable is not set.

    Parameters
    ----------
    asked
        What a machine asks with what is in the file.
    content
        What the file is an object of.

    Raises
    ------
    InputError
        If the file is not there, may be read by others, or is no JSON object. No message shows what is in it.
    """
    name = os.environ.get(variable)
    if not name:
        return {}
    try:
        with open(name, encoding="utf-8") as file:
            _require_private(variable, os.fstat(file.fileno()), name)
            found = json.load(file)
    except OSError as error:
        raise InputError(
            f"{variable}: {name} cannot be read ({error.strerror}); it must be there on every machine that asks "
            f"{asked}, also on those of Spark's executors"
        ) from error
    except ValueError as error:
        # Without its cause, which has the whole text in it.
        raise InputError(f"{variable}: {name} is not JSON in UTF-8: {_where(error)}") from None
    if not isinstance(found, dict):
        raise InputError(f"{variable}: {name}: expected a JSON object of {content}, found {type(found).__name__}")
    return found


def read_kafka_config() -> dict[str, Any]:
    """Return what is in the file of STATESTORE_KAFKA_CONFIG; nothing if that is not set.

    Raises
    ------
    InputError
        As `read_private_config`.
    """
    return read_private_config(KAFKA_CONFIG, "Kafka", "properties")


def read_private_file(variable: str, needed: str) -> str:
    """Return the text of the file that a variable of the environment names.

    Parameters
    ----------
    needed
        Purpose of the file, for the error.

    Raises
    ------
    InputError
        As `read_private_config`.
    """
    name = os.environ[variable]
    try:
        with open(name, encoding="utf-8") as file:
            _require_private(variable, os.fstat(file.fileno()), name)
            return file.read()
    except OSError as error:
        raise InputError(f"{variable}: {name} cannot be read ({error.strerror}); it is needed {needed}") from error
    except ValueError:
        raise InputError(f"{variable}: {name} is not UTF-8") from None


def _require_private(variable: str, status: os.stat_result, name: str) -> None:
    """Refuse a file with passwords that others may read, as PostgreSQL's clients do.

    A file of root, such as a mounted secret, may be read by the group through which we read it.
    """
    others = stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO
    if status.st_uid == os.geteuid():
        others |= stat.S_IRGRP
    elif status.st_uid != 0:
        raise InputError(f"{variable}: {name} belongs to another user; make one of your own, or of root")
    if status.st_mode & others:
        raise InputError(
            f"{variable}: {name} has mode {stat.S_IMODE(status.st_mode):04o}, so that others may read or change "
            f"it: chmod 0600 {name}"
        )


def _where(error: ValueError) -> str:
    return f"line {error.lineno}, {error.msg}" if isinstance(error, json.JSONDecodeError) else "not in UTF-8"
