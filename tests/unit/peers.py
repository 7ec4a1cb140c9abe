"""Peers on real sockets that play brokers: each answers one request after the other as it is told, then hangs up."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Generic, TypeVar

import pytest
from confluent_kafka import KafkaError

from statestore.kafka import leader_requests, partition_fetcher
from statestore.kafka.connection_pool import Address
from statestore.model import TopicPartition

A = TypeVar("A")
#: Error codes of a broker that does not lead any more, or not yet.
PASSING = {
    "leader not available": 5,
    "not leader or follower": 6,
    "fenced leader epoch": 74,
    "unknown leader epoch": 75,
    "offset not available": 78,
    "unknown topic or partition": 3,
    "storage error": 56,
}
#: Each of them in turn.
each_passing = pytest.mark.parametrize("code", PASSING.values(), ids=PASSING.keys())


def framed(body: bytes) -> bytes:
    """Return a message with its length before it."""
    return struct.pack(">i", len(body)) + body


class Peer(Generic[A]):
    """One broker.

    Parameters
    ----------
    read
        Makes of a request, from its api key on, what the answers go by and `asked` remembers.
    answers
        What to answer, one after the other; the connection ends with an answer that is not whole.
    """

    def __init__(self, read: Callable[[bytes], A], *answers: Callable[[A], bytes]) -> None:
        self.asked: list[A] = []
        self._read = read
        self._answers = iter(answers)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with closing(connection), connection.makefile("rb") as requests:
                while head := requests.read(4):
                    asked = self._read(requests.read(struct.unpack(">i", head)[0]))
                    self.asked.append(asked)
                    answer = next(self._answers, lambda _: b"")(asked)
                    connection.sendall(answer)
                    if len(answer) < 4 or len(answer) != 4 + struct.unpack_from(">i", answer)[0]:
                        break

    def close(self) -> None:
        """Take no more connections."""
        self._listening.close()


#: Starts peers from their answers; whoever asks is told that the first leads, then the second, and so on.
Play = Callable[..., list[Peer[A]]]


@contextmanager
def playing(monkeypatch: pytest.MonkeyPatch, read: Callable[[bytes], A]) -> Iterator[Play[A]]:
    """Start peers in the block instead of asking who leads; in the place of a peer, an error says that nobody does."""
    started: list[Peer[A]] = []

    def start(*scripts: list[Callable[[A], bytes]] | KafkaError) -> list[Peer[A]]:
        said: list[Address | KafkaError] = []
        for script in scripts:
            if isinstance(script, KafkaError):
                said.append(script)
            else:
                started.append(Peer(read, *script))
                said.append(started[-1].address)

        def find(_: object, partitions: list[TopicPartition], timeout_s: float) -> dict[TopicPartition, object]:
            return dict.fromkeys(partitions, said.pop(0) if len(said) > 1 else said[0])

        for module in (leader_requests, partition_fetcher):
            monkeypatch.setattr(module, "find_leaders", find)
        return started

    try:
        yield start
    finally:
        for peer in started:
            peer.close()
