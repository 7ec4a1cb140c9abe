"""A server that speaks the REST interface of a Schema Registry, on loopback.

It has the GUIDs that ids in headers need, fails when a test wants it to, and starts at once. Whether a real registry
answers in the same way is shown by tests/integration/test_schema_registry.py, with Apicurio.
"""

from __future__ import annotations

import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from statestore.schemas.serdes import CONFIG, URL

#: Path of the issuer of tokens, and its only token.
TOKENS, TOKEN = "/tokens", "canary-token"


class Registry:
    """State of the server: its schemas, the requests for them, and its failures."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        #: Paths of requests for schemas.
        self.asked: list[str] = []
        #: Value of the header Authorization without which requests are refused.
        self.authorization: str | None = None
        #: Status of all answers, if it is not that of a registry that works.
        self.status: int | None = None
        self.url = ""

    def client(self, **conf: Any) -> SchemaRegistryClient:
        """Return a client, as a producer of records has it."""
        return SchemaRegistryClient({"url": self.url, **conf})

    def token(self, authorization: str | None) -> tuple[int, Any]:
        """Return the answer of an OIDC issuer, with a token for the client `ann`."""
        if authorization != basic("ann", "canary"):
            return 401, {"error": "invalid_client"}
        return 200, {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 300}

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Return status and content of an answer."""
        match method, [unquote(step) for step in path.strip("/").split("/")]:
            case "GET", ["schemas", "ids", number]:
                self.asked.append(path)
                return self._found(int(number) - 1)
            case "GET", ["schemas", "guids", guid]:
                self.asked.append(path)
                return self._found(UUID(guid).int - 1)
            case "GET", ["subjects", subject, "versions", version]:
                versions = [one for one in self.schemas if one["subject"] == subject]
                return self._found(versions[int(version) - 1]["id"] - 1)
            case "POST", ["subjects", subject, "versions"]:
                same = [one for one in self.schemas if one["subject"] == subject and one["schema"] == body["schema"]]
                if not same:
                    number = len(self.schemas) + 1
                    versions = [one for one in self.schemas if one["subject"] == subject]
                    own = {"subject": subject, "version": len(versions) + 1, "id": number}
                    own["guid"] = str(UUID(int=number))
                    self.schemas.append({**body, **own})
                    same = self.schemas[-1:]
                return 200, same[0]
        return 404, {"error_code": 404, "message": f"no {method} {path}"}

    def _found(self, index: int) -> tuple[int, Any]:
        if 0 <= index < len(self.schemas):
            return 200, self.schemas[index]
        return 404, {"error_code": 40403, "message": "Schema not found"}


def basic(user: str, password: str) -> str:
    """Return the value of the header for a user's password."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


@contextmanager
def running_registry(certificate: Path | None = None, key: Path | None = None) -> Iterator[Registry]:
    """Run an empty registry, with TLS if it is given a certificate."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(raw) if raw and self.path != TOKENS else {}
            if self.path == TOKENS:
                status, found = registry.token(self.headers.get("Authorization"))
            elif registry.authorization not in (None, self.headers.get("Authorization")):
                status, found = 401, {"error_code": 40101, "message": "Unauthorized"}
            elif registry.status is not None:
                status, found = registry.status, {"error_code": 50001, "message": "Error in the backend data store"}
            else:
                status, found = registry.answer(self.command, urlsplit(self.path).path, body)
            content = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    registry.url = f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry that the settings of this process name."""
    with running_registry() as running:
        monkeypatch.setenv(URL, running.url)
        monkeypatch.delenv(CONFIG, raising=False)
        yield running
