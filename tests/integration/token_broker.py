"""A broker that authenticates by tokens (SASL/OAUTHBEARER), and the OIDC endpoint that issues them, on loopback."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from demo.kafka import HOST, Kafka, free_port
from demo.processes import Processes

USER = "statestore"
_AUDIENCE, _ISSUER = "kafka", "https://issuer.example"
_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


class TokenEndpoint:
    """Issues tokens for the client credentials of one user.

    Attributes
    ----------
    lifetime_s
        Lifetime of the tokens issued from now on.
    issued
        Number of tokens issued so far, each counted by a semaphore, too.
    """

    def __init__(self) -> None:
        self.secret, self.lifetime_s, self.issued = f"canary{uuid4().hex}", 3600.0, 0
        self.any_issued = threading.Semaphore(0)
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.server = ThreadingHTTPServer((HOST, 0), self._handler())
        self.url = f"http://{HOST}:{self.server.server_port}/token"

    def key_set(self) -> str:
        """Return the public key as a JSON Web Key Set."""
        numbers = self._key.public_key().public_numbers()
        modulus, exponent = (_base64(n.to_bytes((n.bit_length() + 7) // 8)) for n in (numbers.n, numbers.e))
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "key", "n": modulus, "e": exponent}
        return json.dumps({"keys": [key]})

    def token(self, audience: str = _AUDIENCE) -> str:
        """Return a new token."""
        now = time.time()
        claims = {"sub": USER, "aud": audience, "iss": _ISSUER, "iat": now, "exp": now + self.lifetime_s}
        head = {"alg": "RS256", "kid": "key", "typ": "JWT"}
        signed = ".".join(_base64(json.dumps(part).encode()) for part in (head, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}"

    def _handler(endpoint: TokenEndpoint) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                identity = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                if identity != f"{USER}:{endpoint.secret}" or asked["grant_type"] != ["client_credentials"]:
                    self.send_error(401, "invalid_client")
                    return
                (scope,) = asked.get("scope", [_AUDIENCE])
                answer = {"access_token": endpoint.token(scope), "expires_in": endpoint.lifetime_s}
                content = json.dumps({**answer, "token_type": "Bearer"}).encode()
                endpoint.issued += 1
                endpoint.any_issued.release()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        return Handler


class TokenBroker:
    """One broker with a listener for tokens.

    Attributes
    ----------
    plain_servers
        A listener without authentication, for what tests do themselves.
    """

    def __init__(self, processes: Processes, directory: Path, endpoint: TokenEndpoint) -> None:
        self.endpoint, self._port = endpoint, free_port(())
        keys = directory / "keys.json"
        keys.write_text(endpoint.key_set())
        name = "listener.name.sasl_plaintext.oauthbearer"
        settings = {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "connections.max.reauth.ms": "3600000",
            f"{name}.sasl.jaas.config": _LOGIN,
            f"{name}.sasl.server.callback.handler.class": _VALIDATOR,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": _AUDIENCE,
            "sasl.oauthbearer.expected.issuer": _ISSUER,
        }
        allowed = " ".join(
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{kind}={where}"
            for kind, where in (("urls", keys.as_uri()), ("files", keys))
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_TOOL_OPTIONS", allowed)
            kafka = Kafka(processes, directory / "kafka", secured={"SASL_PLAINTEXT": self._port}, settings=settings)
            self.plain_servers = kafka.start()

    def configuration(self, **changes: str) -> dict[str, str]:
        """Return the client configuration of the user; changes name properties after `sasl.oauthbearer.`."""
        oauth = {
            "client.id": USER,
            "client.secret": self.endpoint.secret,
            "token.endpoint.url": self.endpoint.url,
            **{name.replace("_", "."): value for name, value in changes.items()},
        }
        return {
            "bootstrap.servers": f"{HOST}:{self._port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            **{f"sasl.oauthbearer.{name}": value for name, value in oauth.items()},
        }


@contextmanager
def token_broker(directory: Path) -> Iterator[TokenBroker]:
    """Run the broker and the endpoint until the block ends."""
    endpoint = TokenEndpoint()
    thread = threading.Thread(target=endpoint.server.serve_forever, daemon=True)
    thread.start()
    try:
        with Processes(directory) as processes:
            yield TokenBroker(processes, directory, endpoint)
    finally:
        endpoint.server.shutdown()
        endpoint.server.server_close()
        thread.join()
