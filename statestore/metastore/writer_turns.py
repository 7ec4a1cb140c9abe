"""Turns of the writers of a command topic, kept in a second topic: writers are served in the order of their arrival.

    key     a random id of one turn, 16 bytes
    value   empty in the first record of a turn, whose offset is the number of the turn
            the number, as text, in later records: the writer is alive
            null: the turn has ended, or a waiting writer has passed it over; later records of the id do not count

The turn belongs to the writer with the lowest number. Turns only decide which writers wait. Kafka's fencing ensures
that only one writer commits, so writers need no common clock, and a wrong judgement costs an attempt, not a command. A
waiting writer measures on its own clock how long writers before it have been silent, and how long the same one has been
first. If it was passed over itself, it takes a new number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import NamedTuple
from uuid import uuid4

from statestore import clock, kill_switch
from statestore.errors import StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.kafka.log_tail import LogTail
from statestore.kafka.topics import APPEND_TIME, TIMESTAMP_TYPE
from statestore.kafka.writer import RecordWriter
from statestore.metastore.command_topic import turns_topic_name
from statestore.model import TopicPartition

#: A command takes 0.1 s, and one that waits for Kafka as long as its deadline.
LONGEST_TURN_S = 10.0
#: A writer that is silent for longer is considered dead or suspended. Each writer sends a record every `_ALIVE_S`.
SILENT_S = 3.0
_ALIVE_S = 0.5
#: No turn lasts an hour. The broker's time decides what is older, as a writer's clock may be wrong.
_CONFIG = {"cleanup.policy": "delete", "retention.ms": "3600000", TIMESTAMP_TYPE: APPEND_TIME}
#: Number of records that are read back. They include every living writer, unless more than 300 writers wait.
_READ_BACK = 2_000
_POLL_S = 0.1
#: Deadline of requests. If Kafka does not answer, a writer does not wait for its turn. If it cannot end its turn, the
#: others pass it over.
_TIMEOUT_S = SILENT_S


class _Heard(NamedTuple):
    """The number of a writer, and the monotonic time (s) of its last record."""

    number: int
    at_s: float


class Turns:
    """The turns of one service's writers.

    Parameters
    ----------
    service_id
        Names the topic.
    longest_s
        A writer that is first for longer (s) is passed over.
    silent_s
        A writer that is silent for longer (s) is passed over.
    """

    def __init__(
        self,
        cluster: Cluster,
        service_id: str,
        longest_s: float = LONGEST_TURN_S,
        silent_s: float = SILENT_S,
    ) -> None:
        self._cluster = cluster.within(_TIMEOUT_S)
        self._partition = TopicPartition(turns_topic_name(service_id), 0)
        self._longest_s = longest_s
        self._silent_s = silent_s

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for earlier writers, then hold the turn. Do not wait if Kafka does not permit the topic."""
        turn: _Turn | None = None
        with suppress(StateStoreError):
            self._cluster.topics.ensure(self._partition.topic, 1, _CONFIG)
            turn = _Turn(self._cluster, self._partition)
        if turn is None:
            yield
            return
        try:
            with suppress(StateStoreError):
                self._wait(turn)
            kill_switch.reached("command writer has its turn")
            yield
        finally:
            turn.end()

    def _wait(self, turn: _Turn) -> None:
        """Return when every earlier writer has ended its turn or was passed over."""
        heard: dict[bytes, _Heard] = {}
        ended: set[bytes] = set()
        read_up_to = -1
        first, since_s = b"", time.monotonic()
        deadline = since_s + _TIMEOUT_S
        with LogTail(self._cluster, self._partition, max(turn.number - _READ_BACK, 0)) as tail:
            while True:
                for message in tail.poll(_POLL_S):
                    _note(heard, ended, message.key(), message.value(), message.offset())
                    read_up_to = message.offset()
                if turn.key in ended:
                    turn.draw()
                    deadline = time.monotonic() + _TIMEOUT_S
                if read_up_to < turn.number and time.monotonic() < deadline:
                    continue
                before = sorted((found.number, key) for key, found in heard.items() if found.number < turn.number)
                if not before:
                    return
                now_s = time.monotonic()
                if before[0][1] != first:
                    first, since_s = before[0][1], now_s
                for _, key in before:
                    late = key == first and now_s - since_s > self._longest_s
                    if late or now_s - heard[key].at_s > self._silent_s:
                        turn.pass_over(key)
                        ended.add(key)
                        del heard[key]


def _note(heard: dict[bytes, _Heard], ended: set[bytes], key: bytes, value: bytes | None, offset: int) -> None:
    if value is None:
        ended.add(key)
        heard.pop(key, None)
    elif key not in ended:
        heard[key] = _Heard(int(value) if value else offset, time.monotonic())


class _Turn:
    """The turn of one writer. It takes a number when it is created, and sends records until it ends.

    Attributes
    ----------
    key, number
        Id of the turn, and its place among the others.
    """

    def __init__(self, cluster: Cluster, partition: TopicPartition) -> None:
        self._partition = partition
        self._ended = Event()
        self._drawing = Lock()
        # An idempotent producer would first wait half a second for its id.
        config = {"linger.ms": 0, "enable.sparse.connections": False}
        self._writer = RecordWriter(cluster, "a turn", None, **config)
        self.draw()
        self._alive = Thread(target=self._stay_alive, name="turn of a command writer", daemon=True)
        self._alive.start()

    def draw(self) -> None:
        """Take a new number, which is the highest."""
        with self._drawing:  # so that the last delivered record is this one
            self.key = uuid4().bytes
            self._send(self.key, b"")
            self.number = self._writer.flush()[self._partition]

    def end(self) -> None:
        """Give the turn to the next writer."""
        self._ended.set()
        self._alive.join()
        with suppress(StateStoreError):
            self._send(self.key, None)
            self._writer.flush()
        self._writer.close()

    def pass_over(self, key: bytes) -> None:
        """End the turn of another writer for all waiting writers."""
        self._send(key, None)

    def _stay_alive(self) -> None:
        with suppress(StateStoreError):
            while not self._ended.wait(_ALIVE_S):
                with self._drawing:
                    self._send(self.key, str(self.number).encode())
                self._writer.poll()

    def _send(self, key: bytes, value: bytes | None) -> None:
        topic, partition = self._partition
        self._writer.produce(topic, key, value, clock.now_ms(), partition)
