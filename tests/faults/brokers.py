"""Brokers that join the cluster of another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from demo import kafka
from demo.processes import Processes, wait_until
from tests.integration.broker import WAIT_S


class JoiningBroker(kafka.Kafka):
    """Joins another broker's cluster, whose controller it uses."""

    def __init__(self, processes: Processes, directory: Path, first: kafka.Kafka, node: int) -> None:
        super().__init__(processes, directory)
        self._first = first
        self._node = node

    def _configure(self, port: int, controller_port: int) -> None:
        super()._configure(port, controller_port)
        theirs = self._first._last_ports()[1]
        text = self._config.read_text(encoding="utf-8")
        for old, new in (
            ("process.roles=broker,controller", "process.roles=broker"),
            ("node.id=1", f"node.id={self._node}"),
            (f"1@{kafka.HOST}:{controller_port}", f"1@{kafka.HOST}:{theirs}"),
            (f",CONTROLLER://{kafka.HOST}:{controller_port}", ""),
        ):
            assert old in text
            text = text.replace(old, new)
        self._config.write_text(text, encoding="utf-8")

    def _wait_until_ready(self, bootstrap_servers: str, cluster_id: str) -> None:
        admin = AdminClient({"bootstrap.servers": self._first.bootstrap_servers})

        def joined() -> bool:
            try:
                return self._node in admin.list_topics(timeout=WAIT_S).brokers
            except KafkaException:  # all is told at once, also of topics that are not ready
                return False

        wait_until(joined, kafka._START_S, f"broker {self._node}", self._service)

    def kill(self) -> None:
        """End it at once."""
        self._service.kill()
        self.stop()


@contextmanager
def joined_brokers(processes: Processes, directory: Path, count: int) -> Iterator[tuple[str, list[JoiningBroker]]]:
    """Start a broker and others that join it; yield the first one's address, and the others: nodes 2, 3 and so on."""
    with pytest.MonkeyPatch.context() as patched:
        first = kafka.Kafka(processes, directory / "1")
        address = first.start()
        cluster_id = AdminClient({"bootstrap.servers": address}).list_topics(timeout=WAIT_S).cluster_id
        patched.setattr(kafka, "_new_cluster_id", lambda: cluster_id)
        others = [JoiningBroker(processes, directory / str(node), first, node) for node in range(2, 2 + count)]
        for other in others:
            other.start()
        yield address, others
