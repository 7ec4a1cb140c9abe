"""A real endpoint of Azure Blob Storage on loopback: Azurite, which `make archive-azure` installs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from demo.processes import Processes, wait_until

ACCOUNT, CONTAINER = "archives", "container"
#: Names the program; `make archive-azure` sets it.
PROGRAM = "STATESTORE_AZURITE"
_KEY = base64.b64encode(b"a key of the tests").decode()
_LISTENS = re.compile(r"successfully listens on (http://\S+)")


@contextmanager
def running_azurite(directory: Path) -> Iterator[str]:
    """Run Azurite with one container, all in memory; yield its endpoint."""
    program = os.environ.get(PROGRAM)
    if not program:
        pytest.fail(f"{PROGRAM} names no Azurite; run `make archive-azure`, which installs it")
    arguments = ("--blobPort", "0", "--inMemoryPersistence", "--silent", "--disableTelemetry")
    accounts = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{_KEY}"}
    log = directory / "azurite.log"
    with Processes(directory) as processes:
        service = processes.start("azurite", [program, *arguments], {**os.environ, **accounts}, log)
        said = wait_until(lambda: _LISTENS.search(log.read_text()), 60, "Azurite to listen", service)
        endpoint = f"{said[1]}/{ACCOUNT}"
        _create_container(endpoint)
        yield endpoint


def environment(endpoint: str) -> dict[str, str]:
    """What names the endpoint, and credentials that it takes."""
    return {"AZURE_STORAGE_ENDPOINT": endpoint, "AZURE_STORAGE_ACCOUNT_KEY": _KEY}


def _create_container(endpoint: str) -> None:
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    signed = [
        "PUT" + "\n" * 11,
        *(f"{name}:{value}" for name, value in headers.items()),
        f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}",
        "restype:container",
    ]
    digest = hmac.digest(base64.b64decode(_KEY), "\n".join(signed).encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    with urlopen(Request(f"{endpoint}/{CONTAINER}?restype=container", method="PUT", headers=headers), timeout=60):
        return
