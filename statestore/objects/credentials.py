"""Who is let into object storage: credentials from a private file, where the environment does not have them.

    STATESTORE_ARCHIVE_CONFIG   {"AWS_ACCESS_KEY_ID": "...", "AWS_SECRET_ACCESS_KEY": "..."}, mode 0600

The file says what variables of the environment would, and takes their place. Nothing of it is put into the
environment, where every child would have it, and no message shows what is in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from statestore.errors import InputError
from statestore.private_config import read_private_config

#: Names the file with the credentials of object storage: variables such as AWS_ACCESS_KEY_ID as a JSON object.
ARCHIVE_CONFIG = "STATESTORE_ARCHIVE_CONFIG"
#: Variables that say who one is, or where the object store is; no others are taken from a file or a connection.
VARIABLES = frozenset(
    {
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL"),
        *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_ENDPOINT"),
        *("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"),
        *("GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_BASE_URL"),
    }
)


def archive_credentials(scheme: str) -> dict[str, str]:
    """Return what the file of STATESTORE_ARCHIVE_CONFIG says for an archive; nothing if that is not set.

    Parameters
    ----------
    scheme
        Of the archive's URL; what is for another one is left out.

    Raises
    ------
    InputError
        If the file cannot be used.
    """
    found = checked_variables(read_private_config(ARCHIVE_CONFIG, "the archive", "variables"), ARCHIVE_CONFIG)
    of_another_key = os.environ.get("AWS_SESSION_TOKEN") and "AWS_SESSION_TOKEN" not in found
    if "AWS_ACCESS_KEY_ID" in found and of_another_key:
        raise InputError(
            f"{ARCHIVE_CONFIG} has AWS_ACCESS_KEY_ID and no AWS_SESSION_TOKEN, and the environment has one, which "
            "belongs to another key: remove it from the environment of this process"
        )
    prefix = {"s3": "AWS_", "az": "AZURE_", "gs": "GOOGLE_"}.get(scheme, "file")
    return {name: value for name, value in found.items() if name.startswith(prefix)}


def checked_variables(found: Mapping[str, object], source: str) -> dict[str, str]:
    """Return variables as they are, if all of them are known and are texts.

    Parameters
    ----------
    source
        Where they are from, for the message.

    Raises
    ------
    InputError
        Naming the variable, without its value.
    """
    for name, value in found.items():
        if name not in VARIABLES:
            raise InputError(f"{source}: {name} is not one of {', '.join(sorted(VARIABLES))}")
        if not isinstance(value, str) or not value:
            raise InputError(f"{source}: {name}: expected a text that is not empty, found {type(value).__name__}")
    return {name: str(value) for name, value in found.items()}
