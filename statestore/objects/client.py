"""The client of an object store."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from obstore.store import AzureStore, from_url

from statestore.objects.credentials import archive_credentials
from statestore.objects.url import container_and_prefix

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig
    from obstore.store import ObjectStore as Store

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
    """Return the client of an object store that is no directory, made once in a process.

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
        "connect_timeout": timedelta(seconds=min(10.0, timeout_s)),
        "allow_http": any(where.get(name, "").startswith("http://") for name in _ENDPOINTS),
    }
    retry: RetryConfig = {"max_retries": 10, "retry_timeout": timedelta(seconds=timeout_s)}
    config: Any = dict(given)  # each store has a type of its own
    parts = urlsplit(url)
    if parts.scheme == "az":
        container, prefix = container_and_prefix(parts.path)
        config["account_name"] = parts.netloc
        return AzureStore(container, prefix=prefix, config=config, client_options=options, retry_config=retry)
    return from_url(url, config=config, client_options=options, retry_config=retry)
