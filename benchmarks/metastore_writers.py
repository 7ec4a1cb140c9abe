"""Writers of a command topic for `make bench-metastore`: programs of their own, which submit one command after another.

A command's latency is the time from the call of `submit` to its return, or to that of the call that succeeds, where
other writers came first more often than one call bears.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from demo.processes import Processes, ServiceError, wait_until
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import MetastoreContendedError
from statestore.kafka.cluster import Cluster
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import PutApplication
from statestore.metastore.metastore import Metastore
from statestore.metastore.plan import put

_READY_S = 60
_RUN_S = 900


class WriterOrder(BaseModel):
    """What one writer is told to do.

    Attributes
    ----------
    directory
        For the backup, which all share, and for the files by which they and we wait for each other.
    """

    servers: str
    service_id: str
    writer: int
    commands: int
    directory: Path

    @property
    def ready(self) -> Path:
        """File that says that the writer could begin."""
        return self.directory / f"ready-{self.writer}"

    @property
    def go(self) -> Path:
        """File that says that all may begin."""
        return self.directory / "go"

    @property
    def result(self) -> Path:
        """File with the writer's latencies."""
        return self.directory / f"result-{self.writer}.json"

    @property
    def metastore(self) -> Metastore:
        """The metastore, as an installation has it."""
        return Metastore(Cluster(self.servers), self.service_id, self.directory / "backup")


class Latencies(NamedTuple):
    """What all writers of a run took.

    Attributes
    ----------
    ms
        Of each command, in order of size.
    seconds
        From the first command's start to the last one's end.
    """

    ms: Sequence[float]
    seconds: float

    def percentile(self, share: float) -> float:
        """Return the latency (ms) that this share of the commands stays at or below."""
        return self.ms[math.ceil(share * len(self.ms)) - 1]


def submit_from(
    processes: Processes, servers: str, service_id: str, writers: int, commands: int, scratch: Path
) -> Latencies:
    """Have so many processes submit so many commands each, all at the same time.

    Raises
    ------
    ServiceError
        If one fails, or the log does not hold each command once.
    """
    scratch.mkdir()
    orders = [
        WriterOrder(servers=servers, service_id=service_id, writer=number, commands=commands, directory=scratch)
        for number in range(writers)
    ]
    services = [
        processes.start(
            f"{service_id}-{order.writer}",
            [sys.executable, "-m", "benchmarks.metastore_writers", order.model_dump_json()],
            dict(os.environ),
            scratch / f"log-{order.writer}",
        )
        for order in orders
    ]
    try:
        for order, service in zip(orders, services, strict=True):
            wait_until(order.ready.exists, _READY_S, f"writer {order.writer} to be ready", service)
        started = time.monotonic()
        orders[0].go.touch()
        for order, service in zip(orders, services, strict=True):
            wait_until(lambda it=service: it.poll() == 0, _RUN_S, f"writer {order.writer} to end", service)  # type: ignore[misc]
        seconds = time.monotonic() - started
    finally:
        for service in services:
            processes.stop_service(service)
    logged = orders[0].metastore.view().catalogue.next_id - 1
    if logged != writers * commands:
        raise ServiceError(f"{writers} writers were told that {writers * commands} commands are logged, found {logged}")
    ms = sorted(ms for order in orders for ms in json.loads(order.result.read_text(encoding="utf-8")))
    return Latencies(ms, seconds)


def main() -> None:
    """Do what the order says."""
    order = WriterOrder.model_validate_json(sys.argv[1])
    metastore = order.metastore
    metastore.view()
    order.ready.touch()
    wait_until(order.go.exists, _READY_S, "the start", poll_s=0.001)
    latencies = [_latency_ms(metastore, order.writer, number) for number in range(order.commands)]
    order.result.write_text(json.dumps(latencies), encoding="utf-8")


def _latency_ms(metastore: Metastore, writer: int, number: int) -> float:
    def command(catalogue: Catalogue) -> PutApplication | None:
        definition = ApplicationDefinition.model_validate(
            {
                "name": f"app-{writer}",
                "input_topic": "events",
                "processor": "business.rules:process",
                "stores": [{"name": "latest"}],
                "commit_interval_ms": 100 + number,
            }
        )
        return put(catalogue, definition, {"events": 12})

    started = time.perf_counter()
    while True:
        try:
            done = metastore.submit(command)
        except MetastoreContendedError:
            continue
        if done.command is None:
            raise ServiceError(f"command {number} of writer {writer} was logged before it was submitted")
        return (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    main()
