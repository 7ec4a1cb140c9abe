"""The client of an archive's object store, and the URLs that name one."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from obstore.store import AzureStore, from_url

from statestore.archive.credentials import archive_credentials
from statestore.errors import InputError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig
    from obstore.store import ObjectStore as Store

#: Schemes of an archive's URL, and what they are called.
SCHEMES = {"s3": "Amazon S3", "az": "Azure Blob Storage", "gs": "Google Cloud Storage", "file": "a directory"}

#: What names another endpoint than the cloud's own. One without TLS is used only if it says so.
_ENDPOINTS = (
    *("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    *("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL"),
)
#: What variables begin with that a client reads when it is made.
_CONFIGURES = ("AWS_", "AZURE_", "GOOGLE_")
#: Names and values, in order.
_Variables = tuple[tuple[str, str], ...]


def client(url: str, timeout_s: float) -> Store:
    """Return the client of an archive that is no directory, made once in a process.

    Making one reads all of the machine's certificates, and its first request connects, and may have to ask for
    credentials: together that takes as long as fetching a small store.

    Parameters
    ----------
    timeout_s
        Seconds after which a request that was repeated again and again counts as failed.

    Raises
    ------
    InputError
        If the credentials' file cannot be used.
    """
    given = archive_credentials(urlsplit(url).scheme)
    environment = {name: text for name, text in os.environ.items() if name.startswith(_CONFIGURES)}
    # In a fork, another process's client would be of no use.
    return _client(url, timeout_s, os.getpid(), tuple(sorted(environment.items())), tuple(sorted(given.items())))


@lru_cache(maxsize=8)
def _client(url: str, timeout_s: float, process: int, environment: _Variables, given: _Variables) -> Store:
    where = dict(environment) | dict(given)
    options: ClientConfig = {
        "timeout": timedelta(seconds=timeout_s),
        "connect_timeout": timedelta(seconds=10),
        "allow_http": any(where.get(name, "").startswith("http://") for name in _ENDPOINTS),
    }
    retry: RetryConfig = {"max_retries": 10, "retry_timeout": timedelta(seconds=timeout_s)}
    config: Any = dict(given)  # each store has a type of its own
    parts = urlsplit(url)
    if parts.scheme == "az":
        container, prefix = _container_and_prefix(parts.path)
        config["account_name"] = parts.netloc
        return AzureStore(container, prefix=prefix, config=config, client_options=options, retry_config=retry)
    return from_url(url, config=config, client_options=options, retry_config=retry)


def checked_url(url: str) -> str:
    """Return an archive's URL, which has no secrets in it.

    Raises
    ------
    InputError
        If it is not one of an archive.
    """
    parts = urlsplit(url)
    expected = "s3://bucket/prefix, az://account/container/prefix, gs://bucket/prefix or file:///directory"
    if parts.scheme not in SCHEMES or (parts.scheme == "file") != (not parts.netloc):
        raise InputError(f"expected the URL of an archive, such as {expected}; found {url.split('@')[-1]!r}")
    if "@" in parts.netloc or parts.query:
        raise InputError(
            f"the URL of archive {parts.scheme}://{parts.netloc.split('@')[-1]}{parts.path} has credentials or options "
            "in it; put them into the environment"
        )
    if parts.scheme == "az" and not _container_and_prefix(parts.path)[0]:
        raise InputError(f"expected az://account/container or az://account/container/prefix, found {url!r}")
    return url.rstrip("/")


def _container_and_prefix(path: str) -> tuple[str, str | None]:
    """Return what the path of an Azure URL says; obstore itself takes the account for the container."""
    container, _, prefix = unquote(path).strip("/").partition("/")
    return container, prefix or None
