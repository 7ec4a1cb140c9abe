"""A proxy before an object store that answers as object stores do on bad days."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import urlsplit

#: What a fault does with a request: `answer` forwards it and returns status, headers and body.
Fault = Callable[["_Handler", Callable[[], tuple[int, list[tuple[str, str]], bytes]]], None]


class FaultyStore:
    """Forwards requests to a real endpoint; a fault takes those that it is meant for.

    Attributes
    ----------
    taken
        How many requests a fault has taken.
    """

    def __init__(self, endpoint: str) -> None:
        self._target = urlsplit(endpoint).netloc
        self._faults: list[tuple[str, str, list[int], Fault]] = []
        self._lock = Lock()
        self._ended = Event()
        self.taken = 0

    def fail(self, method: str, part: str, fault: Fault, times: int = 1 << 30) -> None:
        """Have a fault take the next requests of a method whose path has a part in it."""
        self._faults.append((method, part, [times], fault))

    def heal(self) -> None:
        """Forget all faults."""
        self._faults.clear()

    def fault_for(self, method: str, path: str) -> Fault | None:
        """Take a request; None: it is forwarded."""
        with self._lock:
            for wanted, part, left, fault in self._faults:
                if method == wanted and part in path and left[0]:
                    left[0] -= 1
                    self.taken += 1
                    return fault
        return None

    @contextmanager
    def running(self) -> Iterator[str]:
        """Yield the proxy's address."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": self}))
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            self._ended.set()
            server.shutdown()
            server.server_close()
            thread.join()

    def wait_for_the_end(self) -> None:
        """Never answer."""
        self._ended.wait()

    def forward(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Ask the real endpoint."""
        connection = http.client.HTTPConnection(self._target, timeout=60)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: FaultyStore

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def answer() -> tuple[int, list[tuple[str, str]], bytes]:
            return self.store.forward(self.command, self.path, self.headers, body)

        fault = self.store.fault_for(self.command, self.path)
        if fault is not None:
            fault(self, answer)
            return
        self.reply(*answer())

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _handle

    def reply(self, status: int, headers: list[tuple[str, str]], body: bytes, length: int | None = None) -> None:
        """Answer, with a length that need not be true."""
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        told = next((value for name, value in headers if name.lower() == "content-length"), str(len(body)))
        self.send_header("Content-Length", told if is_head else str(len(body) if length is None else length))
        self.end_headers()
        if not is_head:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def status(code: int) -> Fault:
    """Answer with an error."""
    return lambda handler, _: handler.reply(code, [], b"<Error><Code>Injected</Code></Error>")


def cut_off(handler: _Handler, answer: Callable[[], tuple[int, list[tuple[str, str]], bytes]]) -> None:
    """Send half of the body, and close the connection."""
    code, headers, body = answer()
    handler.reply(code, headers, body[: len(body) // 2], length=len(body))
    handler.close_connection = True
    handler.connection.close()


def other_bytes(handler: _Handler, answer: Callable[[], tuple[int, list[tuple[str, str]], bytes]]) -> None:
    """Send as many bytes, one of which is another."""
    code, headers, body = answer()
    handler.reply(code, headers, body[:-1] + bytes([body[-1] ^ 1]))


def lose_the_answer(handler: _Handler, answer: Callable[[], tuple[int, list[tuple[str, str]], bytes]]) -> None:
    """Do what is asked for, and close the connection."""
    answer()
    handler.close_connection = True
    handler.connection.close()


def hang(handler: _Handler, _: Callable[[], tuple[int, list[tuple[str, str]], bytes]]) -> None:
    """Never answer."""
    handler.store.wait_for_the_end()
    handler.close_connection = True
