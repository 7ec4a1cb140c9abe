"""An SMTP server on loopback that keeps what it is sent."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Session(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self._say("220 ready")
        while line := self.rfile.readline():
            match line.split()[0].upper():
                case b"QUIT":
                    self._say("221 bye")
                    return
                case b"DATA":
                    self._say("354 go on")
                    lines = iter(self.rfile.readline, b".\r\n")
                    self.server.mails.append(b"".join(lines).decode())
                    self._say("250 kept")
                case _:
                    self._say("250 ok")

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class MailServer(socketserver.ThreadingTCPServer):
    """Keeps mails."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[str] = []

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.server_address[1]


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """Serve until the block ends."""
    with MailServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
