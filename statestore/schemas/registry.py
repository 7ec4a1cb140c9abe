"""The client of the Schema Registry, which keeps each schema by its id.

The address is in STATESTORE_SCHEMA_REGISTRY_URL, or with sign-in and TLS in the file that
STATESTORE_SCHEMA_REGISTRY_CONFIG names. As with Kafka, every process reads that file itself: no specification,
argument, or message has a secret.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.error import OAuthTokenError
from httpx2 import HTTPError

from statestore.errors import InputError, SchemaRegistryUnavailableError
from statestore.private_config import read_private_config
from statestore.schemas.serdes import CONFIG, URL

T = TypeVar("T")

_BEARER = "bearer.auth."
_TAKEN = frozenset(
    {
        *("url", "basic.auth.user.info", "proxy", "timeout"),
        *(f"ssl.{name}" for name in ("ca.location", "certificate.location", "key.location", "key.password")),
        *(f"{_BEARER}{name}" for name in ("credentials.source", "token", "client.id", "client.secret", "scope")),
        *(f"{_BEARER}{name}" for name in ("issuer.endpoint.url", "logical.cluster", "identity.pool.id")),
    }
)
#: Deadline (s) and retries of a request. The client's own default has no deadline.
_DEFAULTS: Mapping[str, Any] = {"timeout": 30, "max.retries": 2, "retries.wait.ms": 500}
#: The registry may get a schema while a long run reads rows, so an id is asked for again.
_UNKNOWN_S = 60.0
_NOT_FOUND = 404
_REFUSED = (401, 403, 408, 429)
_SERVER_ERRORS = 500


class UnknownSchemaError(ValueError):
    """The registry has no schema with this id."""


def registry_settings(url: str | None = None) -> dict[str, Any]:
    """Return the client's properties.

    Parameters
    ----------
    url
        Address to use instead of the environment's.

    Raises
    ------
    InputError
        If no address is set, or a property is unknown, malformed, or missing.
    """
    given = read_private_config(CONFIG, "the Schema Registry", "properties")
    if unknown := sorted(set(given) - _TAKEN):
        raise InputError(
            f"{CONFIG}: {', '.join(unknown)}: not accepted. Remove it, or correct its name. Expected only: "
            f"{', '.join(sorted(_TAKEN))}"
        )
    address = url or os.environ.get(URL) or given.get("url")
    if not address:
        raise InputError(
            f"no Schema Registry is set. Set {URL}, such as http://registry:8081, or url in the file of {CONFIG}"
        )
    for one in str(address).split(","):
        parts = urlsplit(one.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{URL}: expected URLs with http or https, separated by commas")
        if parts.username or parts.password:
            raise InputError(f"{URL}: a password in a URL is shown. Set basic.auth.user.info in the file of {CONFIG}")
    if any(name.startswith(_BEARER) for name in given):
        given.setdefault(
            f"{_BEARER}credentials.source", "STATIC_TOKEN" if f"{_BEARER}token" in given else "OAUTHBEARER"
        )
        given.setdefault(f"{_BEARER}logical.cluster", "")  # only Confluent Cloud has clusters
    return {**_DEFAULTS, **given, "url": str(address)}


class Registry(SchemaRegistryClient):  # type: ignore[misc]
    """A client that tells an unknown schema, which concerns one row, from a registry that cannot be used.

    Raises
    ------
    InputError
        If the settings cannot be used.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._url = settings["url"]
        self._unknown: dict[tuple[Any, ...], tuple[float, str]] = {}
        try:
            super().__init__(dict(settings))
        except (OSError, TypeError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else type(error).__name__
            names = ", ".join(sorted(set(settings) - {"url"} - set(_DEFAULTS)))
            # Without its cause, which may have a secret in it.
            raise InputError(f"{CONFIG}: a client for {self._url} cannot be made ({reason}); check {names}") from None

    def get_schema(self, *arguments: Any, **options: Any) -> Any:
        """Return a schema by its id."""
        return self._asked(super().get_schema, arguments, options)

    def get_schema_by_guid(self, *arguments: Any, **options: Any) -> Any:
        """Return a schema by its GUID."""
        return self._asked(super().get_schema_by_guid, arguments, options)

    def get_version(self, *arguments: Any, **options: Any) -> Any:
        """Return a schema that another one refers to."""
        return self._asked(super().get_version, arguments, options)

    def _asked(self, ask: Callable[..., T], arguments: tuple[Any, ...], options: dict[str, Any]) -> T:
        """Ask the registry, and remember for a while what it does not know: rows ask for the same id again."""
        key = (ask.__name__, *arguments)
        since, reason = self._unknown.get(key, (0.0, ""))
        if reason and time.monotonic() - since < _UNKNOWN_S:
            raise UnknownSchemaError(reason)
        try:
            return ask(*arguments, **options)
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status in _REFUSED or status >= _SERVER_ERRORS:
                raise self._unavailable(f"answers {status} ({error.error_message!s:.200})") from error
            reason = f"the Schema Registry answers {status} for schema {arguments[0]}: {error.error_message!s:.200}"
            if status == _NOT_FOUND:
                reason = f"the Schema Registry does not know the schema {arguments[0]}"
            self._unknown[key] = (time.monotonic(), reason)
            raise UnknownSchemaError(reason) from error
        except HTTPError as error:
            raise self._unavailable(f"cannot be reached ({type(error).__name__}: {error})") from error
        except OAuthTokenError:
            # Without its cause, which may have the token endpoint's whole answer in it.
            raise self._unavailable("needs a token, and its issuer gives none") from None

    def _unavailable(self, found: str) -> SchemaRegistryUnavailableError:
        return SchemaRegistryUnavailableError(
            f"the Schema Registry {self._url} {found}. Check the address ({URL}) and the sign-in ({CONFIG}), then run "
            "again"
        )
