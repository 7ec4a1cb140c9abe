"""Tokens for SASL/OAUTHBEARER on direct connections, from an OIDC token endpoint or from AWS's signer for Amazon MSK.

librdkafka requests its own tokens from the endpoint, with the same properties. A token is requested again after 80 % of
its lifetime, as librdkafka does, and one token serves all connections of a process. A broker that limits sessions to
the lifetime of their token closes the connection; the next connection brings a new token.
"""

from __future__ import annotations

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from statestore.errors import InputError

PREFIX = "sasl.oauthbearer."
#: Property with the callback that librdkafka asks for tokens: it returns a token, and when it expires (s).
CALLBACK = "oauth_cb"
#: Properties without which there is no token.
REQUIRED = (f"{PREFIX}client.id", f"{PREFIX}client.secret", f"{PREFIX}token.endpoint.url")
_CA = "https.ca.location"
_RENEWED_AFTER = 0.8
_LARGEST_ANSWER = 1024 * 1024


class _Token(NamedTuple):
    value: str
    renew_s: float


_tokens: dict[tuple[tuple[str, str], ...], _Token] = {}
_requesting = Lock()


def initial_response(settings: Mapping[str, Any], timeout_s: float) -> bytes:
    """Return the first message of SASL/OAUTHBEARER (RFC 7628), with the token and the extensions (KIP-342).

    Raises
    ------
    OSError
        If the endpoint gives no token. The message has no secret.
    """
    pairs = [f"auth=Bearer {token(settings, timeout_s)}", *(f"{name}={value}" for name, value in extensions(settings))]
    return b"n,,\x01" + b"".join(f"{pair}\x01".encode() for pair in pairs) + b"\x01"


def extensions(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the extensions that go with a token: `name=value`, separated by commas, in the property."""
    said = str(settings.get(f"{PREFIX}extensions", ""))
    return [(name, value) for name, _, value in (pair.partition("=") for pair in said.split(",")) if name]


def token(settings: Mapping[str, Any], timeout_s: float) -> str:
    """Return a token that is still valid for 20 % of its lifetime.

    Raises
    ------
    OSError
        As `initial_response`.
    """
    key = tuple(sorted((name, str(value)) for name, value in settings.items() if name.startswith(PREFIX)))
    key += ((CALLBACK, str(settings.get(CALLBACK))),)
    with _requesting:
        found = _tokens.get(key)
        now_s = time.time()
        if found is None or now_s >= found.renew_s:
            value, lifetime_s = _requested(settings, timeout_s)
            found = _tokens[key] = _Token(value, now_s + _RENEWED_AFTER * lifetime_s)
        return found.value


def _requested(settings: Mapping[str, Any], timeout_s: float) -> tuple[str, float]:
    """Return a new token and its lifetime, s."""
    callback: Callable[[str], tuple[str, float]] | None = settings.get(CALLBACK)
    if callback is not None:
        try:
            value, expires_s = callback("")
        except Exception as error:  # AWS's signer raises errors of several libraries
            raise ConnectionError(f"no token from {callback}: {error}") from error
        return value, expires_s - time.time()
    url = str(settings[f"{PREFIX}token.endpoint.url"])
    identity = f"{settings[f'{PREFIX}client.id']}:{settings[f'{PREFIX}client.secret']}"
    scope = str(settings.get(f"{PREFIX}scope", ""))
    asked = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    headers = {"Authorization": f"Basic {b64encode(identity.encode()).decode()}", "Accept": "application/json"}
    request = Request(url, urlencode(asked).encode(), headers)  # noqa: S310  checked_properties wants http or https
    try:
        with urlopen(request, timeout=timeout_s, context=_tls(settings, url)) as answer:  # noqa: S310
            told = json.loads(answer.read(_LARGEST_ANSWER))
        return str(told["access_token"]), float(told["expires_in"])
    except HTTPError as error:
        raise ConnectionError(f"the token endpoint {url} answers {error.code} {error.reason}") from None
    except (ValueError, LookupError, TypeError) as error:
        raise ConnectionError(
            f"the token endpoint {url}: expected JSON with access_token and expires_in: {type(error).__name__}"
        ) from None
    except OSError as error:
        raise ConnectionError(
            f"the token endpoint {url} cannot be reached: {getattr(error, 'reason', error)}"
        ) from None


def _tls(settings: Mapping[str, Any], url: str) -> ssl.SSLContext | None:
    if urlsplit(url).scheme != "https":
        return None
    trusted = settings.get(_CA)
    return ssl.create_default_context(cafile=None if trusted is None else str(trusted))


class MskToken:
    """Callback with tokens for Amazon MSK, made by AWS's signer from the credentials that AWS's SDK finds.

    Raises
    ------
    InputError
        If the extra `msk` is not installed.
    """

    def __init__(self, region: str) -> None:
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        except ModuleNotFoundError:
            raise InputError(
                "sasl.mechanism AWS_MSK_IAM needs AWS's signer: install the extra, pip install 'statestore[msk]'"
            ) from None
        self._region, self._sign = region, MSKAuthTokenProvider.generate_auth_token

    def __str__(self) -> str:
        return f"MSK in {self._region}"

    def __call__(self, _: str) -> tuple[str, float]:
        """Return a token, and when it expires (s)."""
        value, expires_ms = self._sign(self._region)
        return value, expires_ms / 1000
