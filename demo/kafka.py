"""A real single-node Kafka for the demo and the tests: broker and KRaft controller in one JVM, on loopback only.

All of it lives in one directory, which can be stopped and started again, on the same ports where they are still free.
"""

from __future__ import annotations

import base64
import os
import random
import re
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from demo.kafka_jars import check_disk, fetch_jars, find_java, pyspark_jar
from demo.processes import Processes, ServiceError, ServiceProcess, wait_until
from statestore.errors import InputError

HOST = "127.0.0.1"
_START_S = 300
_PORT_ATTEMPTS = 5
#: Where no connection gets a port of its own: those of Linux begin at 32768.
_SERVER_PORTS = 10_000, 32_000

_SERVER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}{secured}
advertised.listeners=PLAINTEXT://{host}:{port}{secured}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\
SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
log.dirs={data}
auto.create.topics.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
# Ten years: the demo's consumer groups pause for as long as their owner likes.
offsets.retention.minutes=5256000
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
"""

_LOGGING_JARS = ("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-core-*.jar", "log4j-api-*.jar")
_LOGGING = """\
rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m (%c)%n
"""


class Kafka:
    """One broker in one directory.

    Parameters
    ----------
    directory
        Configuration, data and logs; kept between starts.
    port
        Port of the broker; if None, the one of the last start in this directory, else a free one.
    secured
        Ports of further listeners by security protocol: SSL, SASL_PLAINTEXT or SASL_SSL.
    settings
        Further settings of the broker, such as what those listeners ask for.
    """

    def __init__(
        self,
        processes: Processes,
        directory: Path,
        port: int | None = None,
        secured: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._processes = processes
        self.directory = directory.absolute()
        self._wanted_port = port
        self._secured = dict(secured or {})
        self._settings = dict(settings or {})
        self._service: ServiceProcess | None = None
        self.bootstrap_servers = ""

    def start(self) -> str:
        """Start the broker and return its bootstrap servers once it answers.

        Raises
        ------
        InputError
            If Java is missing or too old, or the port asked for is taken.
        DiskSpaceError
            If less than 2 GiB of disk are free.
        DownloadError
            If Kafka's jars are not there and cannot be fetched.
        ServiceError
            If the broker does not start.
        """
        java = find_java()
        check_disk(self.directory, 2, "Kafka")
        jars = fetch_jars(self._processes, java, self.directory / "logs" / "ivy.log")
        logging = self.directory / "log4j2.properties"
        logging.write_text(_LOGGING, encoding="utf-8")
        # Kafka's own dependencies name no logger for slf4j, and its errors would be lost; PySpark has a matching set.
        classpath = [*(str(pyspark_jar(name)) for name in _LOGGING_JARS), f"{jars}/*"]
        options = ["-Xmx1g", "-XX:+ExitOnOutOfMemoryError", f"-Dlog4j2.configurationFile={logging}"]
        command = [java, *options, "-cp", ":".join(classpath)]
        port, controller_port = self._last_ports()
        for _ in range(_PORT_ATTEMPTS):
            port, controller_port = self._free_ports(port, controller_port)
            self._configure(port, controller_port)
            cluster_id = self._format(command)
            self._service = self._run("kafka", [*command, "kafka.Kafka", str(self._config)])
            try:
                self._wait_until_ready(f"{HOST}:{port}", cluster_id)
            except ServiceError:
                died = self._service.poll() is not None
                self.stop()
                # Somebody may have taken a port between our look and the broker's: then others are tried.
                if not died or (is_free(port) and is_free(controller_port)):
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                self.bootstrap_servers = f"{HOST}:{port}"
                return self.bootstrap_servers
        raise ServiceError(f"Kafka found its ports in use {_PORT_ATTEMPTS} times in a row: run this command again")

    def stop(self) -> None:
        """Stop the broker; nothing happens if it does not run."""
        if self._service is not None:
            self._processes.stop_service(self._service)
            self._service = None

    @property
    def _config(self) -> Path:
        return self.directory / "server.properties"

    def _last_ports(self) -> tuple[int | None, int | None]:
        if not self._config.exists():
            return None, None
        found = re.search(r"^listeners=\S+?:(\d+),\S+?:(\d+)", self._config.read_text(encoding="utf-8"), re.MULTILINE)
        return (int(found[1]), int(found[2])) if found else (None, None)

    def _free_ports(self, port: int | None, controller_port: int | None) -> tuple[int, int]:
        if self._wanted_port is not None and not is_free(self._wanted_port):
            raise InputError(
                f"port {self._wanted_port} on {HOST} is in use: end the process that uses it, or choose another port"
            )
        port = self._wanted_port or port
        if port is None or not is_free(port):
            port = free_port(self._secured.values())
        while controller_port is None or controller_port == port or not is_free(controller_port):
            controller_port = free_port(self._secured.values())
        return port, controller_port

    def _configure(self, port: int, controller_port: int) -> None:
        secured = "".join(f",{protocol}://{HOST}:{number}" for protocol, number in self._secured.items())
        data = self.directory / "data"
        text = _SERVER.format(host=HOST, port=port, controller_port=controller_port, secured=secured, data=data)
        text += "".join(f"{name}={value}\n" for name, value in self._settings.items())
        self._config.write_text(text, encoding="utf-8")

    def _format(self, command: list[str]) -> str:
        """Give the directory a cluster id, unless it has one; return it."""
        properties = self.directory / "data" / "meta.properties"
        if not properties.exists():
            argv = [*command, "kafka.tools.StorageTool", "format", "-t", _new_cluster_id(), "-c", str(self._config)]
            service = self._run("kafka-format", argv)
            try:
                wait_until(properties.exists, _START_S, "Kafka's storage to be formatted", service)
                wait_until(lambda: service.poll() is not None, _START_S, "Kafka's storage tool to end")
            finally:
                self._processes.stop_service(service)
        found = re.search(r"^cluster\.id=(\S+)$", properties.read_text(encoding="utf-8"), re.MULTILINE)
        if found is None:
            raise InputError(f"{properties} has no cluster.id: it was damaged; delete {self.directory} and start again")
        return found[1]

    def _run(self, name: str, argv: list[str]) -> ServiceProcess:
        return self._processes.start(name, argv, os.environ, self.directory / "logs" / f"{name}.log")

    def _wait_until_ready(self, bootstrap_servers: str, cluster_id: str) -> None:
        # The client's own complaints about a broker that is not up yet would only alarm the reader.
        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 500})

        def answers() -> bool:
            try:
                metadata = admin.list_topics(timeout=1)
            except KafkaException:
                return False
            # Another Kafka may have taken the port; its answer is not ours.
            return metadata.cluster_id == cluster_id and len(metadata.brokers) == 1

        wait_until(answers, _START_S, f"Kafka to answer at {bootstrap_servers}", self._service)


def free_port(but: Collection[int] = ()) -> int:
    """Return a port of the loopback interface, but these, that nobody has now, and that the system gives to nobody."""
    port = 0
    while not port or port in but or not is_free(port):
        port = random.SystemRandom().randrange(*_SERVER_PORTS)
    return port


def is_free(port: int) -> bool:
    """Return whether a server could bind the port of the loopback interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _new_cluster_id() -> str:
    while True:
        identifier = base64.urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
        if not identifier.startswith("-"):  # the storage tool would take it for an option
            return identifier
