"""Read-only HTTP answers of `warm` while it runs: whether it has ended, and its progress.

`GET /ready` is 200 when all is done, 503 before. `GET /progress` is JSON: the phase, and how far each restore is.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from statestore.errors import InputError
from statestore.progress.files import read_files
from statestore.recovery.restore_progress import RestoreProgress

_LOOPBACK = "127.0.0.1"
_TIMEOUT_S = 5.0


class Address(NamedTuple):
    """Where it listens."""

    host: str
    port: int


@dataclass
class WarmState:
    """How far `warm` is.

    Attributes
    ----------
    phase
        `looking`, `restoring` or `ended`.
    progress
        Directory in which restores tell their progress.
    """

    progress: Path
    phase: str = "looking"

    def as_json(self) -> str:
        """Return it with how far each restore is."""
        restores = [found.model_dump(mode="json") for found in read_files(self.progress, RestoreProgress)]
        return json.dumps({"phase": self.phase, "restores": restores}, ensure_ascii=False)


def parse_address(text: str) -> Address:
    """Read `PORT` or `HOST:PORT`; without a host, only this machine or pod may ask.

    Raises
    ------
    InputError
        If it is neither.
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise InputError(f"--listen: expected PORT or HOST:PORT, such as 8080 or 0.0.0.0:8080, found {text!r}")
    return Address(host or _LOOPBACK, int(port))


@contextmanager
def answering(address: Address | None, state: WarmState) -> Iterator[int | None]:
    """Answer questions while the context lasts; yields the port.

    Raises
    ------
    InputError
        If the address cannot be listened on.
    """
    if address is None:
        yield None
        return

    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_S

        def do_GET(self) -> None:
            ready = state.phase == "ended"
            match self.path:
                case "/ready":
                    self._answer(200 if ready else 503, "text/plain", "ready\n" if ready else f"{state.phase}\n")
                case "/progress":
                    self._answer(200, "application/json", state.as_json())
                case _:
                    self._answer(404, "text/plain", "expected /ready or /progress\n")

        def _answer(self, code: int, kind: str, text: str) -> None:
            content = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Probes come every few seconds: nobody wants a line for each."""

    try:
        server = ThreadingHTTPServer(address, Handler)
    except OSError as error:
        raise InputError(
            f"--listen: {address.host}:{address.port} cannot be used: {error.strerror or error}; name another port"
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="warm-http", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
