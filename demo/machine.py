"""A machine that processes by the command `statestore process`, and that can be lost.

Losing it means: all of its processes end at once, in the middle of their work, and its state directory is gone. What
is left of its work is in Kafka and in the archive.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from demo.flights import INPUT_TOPIC, PARTITIONS
from demo.installation import Installation
from demo.processes import Processes, ServiceProcess, wait_until
from statestore.definitions.application import ApplicationDefinition
from statestore.drills.keys import KEY_FILE, write_key_pair
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import ConsumerGroup
from statestore.model import TopicPartition, changelog_topic
from statestore.reports import DrillReport, ProcessReport, read_report

_PROCESS_S = 900


class Machine:
    """One machine of an installation.

    Parameters
    ----------
    application
        What it processes.
    """

    def __init__(self, installation: Installation, bootstrap_servers: str, application: ApplicationDefinition) -> None:
        self._installation = installation
        self._servers = bootstrap_servers
        self._topics = Cluster(bootstrap_servers).topics
        self._application = application
        self._directory = installation.root / "machine"

    def process(self) -> ProcessReport:
        """Process what has arrived; return the report.

        Raises
        ------
        ServiceError
            If the command failed, or took too long; the message ends with what it has printed.
        """
        report = self._directory / "process.json"
        with Processes(self._directory) as processes:
            service = self._start(processes, "--json", str(report))
            wait_until(lambda: service.poll() == 0, _PROCESS_S, "the command to have processed all", service)
        return read_report(report, ProcessReport)

    def drill(self, store_partition: str) -> DrillReport:
        """Drill a store partition, and leave signed evidence; return the report.

        Raises
        ------
        ServiceError
            If it was not proven, or took too long; the message ends with what the command has printed.
        """
        report, key = self._directory / "drill.json", self._directory / "evidence.pem"
        write_key_pair(key, key.with_suffix(".pub"))
        environment = {**self._installation.environment(self._servers), KEY_FILE: str(key)}
        scratch = ("--scratch", str(self._directory / "drills"), "--reserve-bytes", "0")
        command = [sys.executable, "-m", "statestore.cli", "drill", store_partition, *scratch, "--json", str(report)]
        with Processes(self._directory) as processes:
            service = processes.start("drill", command, environment, self._installation.logs_dir / "drill.log")
            wait_until(lambda: service.poll() == 0, _PROCESS_S, "the drill to have proven the store", service)
        return read_report(report, DrillReport)

    def die_processing(self) -> Path:
        """Begin to process, and lose the machine after the first commits; return its state directory, which is gone.

        Raises
        ------
        ServiceError
            If the command commits nothing.
        """
        before = self._log_ends()
        with Processes(self._directory) as processes:
            service = self._start(processes)
            wait_until(lambda: self._log_ends() != before, _PROCESS_S, "the command to commit something", service)
            processes.kill()
        shutil.rmtree(self._installation.state_dir)
        return self._installation.state_dir

    def records_read(self) -> int:
        """Return how many input records the application has processed, by the offsets that it has committed."""
        with ConsumerGroup(Cluster(self._servers), self._application.name) as group:
            found = [group.committed(TopicPartition(INPUT_TOPIC, number)) for number in range(PARTITIONS)]
        return sum(offset.next_offset for offset in found if offset is not None)

    def _start(self, processes: Processes, *arguments: str) -> ServiceProcess:
        command = [sys.executable, "-m", "statestore.cli", "process", "--application", self._application.name]
        environment = self._installation.environment(self._servers)
        log_path = self._installation.logs_dir / "process.log"
        return processes.start("process", [*command, "--parallel", "2", *arguments], environment, log_path)

    def _log_ends(self) -> Sequence[int]:
        names = [changelog_topic(self._application.name, store.name) for store in self._application.stores]
        partitions = [TopicPartition(name, number) for name in names for number in range(PARTITIONS)]
        ranges = self._topics.log_ranges(partitions)
        return [ranges[partition].last_stable for partition in partitions]
