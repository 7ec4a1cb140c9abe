"""The services of docker-compose.yml without containers, each as a pod of `tests.kubernetes.pods`.

Real here: commands, environment, order, health checks, volumes, names of services. Not here: images (a service sees the
programs of this machine, and the checkout where the image has it), published ports, limits. PostgreSQL is not here
either: SQLite is in its place. A service has an address on loopback instead of a network, and binds to it.
"""

from __future__ import annotations

import random
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from demo.kafka_jars import fetch_jars, find_java
from demo.processes import MARKER, Processes, wait_until
from tests.kubernetes.manifests import ROOT
from tests.kubernetes.pods import Pod, made_directory

_USER, _GROUP = 50_000, 0
#: Programs of Airflow's image that its entrypoint does not take for a subcommand of `airflow`.
_PROGRAMS = ("bash", "python")
_HEALTHY_S = 600.0
_KAFKA_BIN = "opt/kafka/bin"
#: In the place of the program of Kafka's image, which is not among our jars.
_ASK_BROKER = """\
#!{python}
import sys
from confluent_kafka.admin import AdminClient
AdminClient({{"bootstrap.servers": sys.argv[sys.argv.index("--bootstrap-server") + 1]}}).list_topics(timeout=10)
"""
_START_BROKER = """
set -eu
java="{java} -Xmx512m -cp {jars}/*"
set -f
$java kafka.tools.StorageTool format --ignore-formatted -t "$CLUSTER_ID" -c /opt/kafka/server.properties
exec $java kafka.Kafka /opt/kafka/server.properties
"""


def interpolated(content: Any, variables: Mapping[str, str]) -> Any:
    """Put variables into the texts of a Compose file, as Compose does; one that is required must be there."""
    if isinstance(content, dict):
        return {key: interpolated(value, variables) for key, value in content.items()}
    if isinstance(content, list):
        return [interpolated(value, variables) for value in content]
    if not isinstance(content, str):
        return content

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        name, operator, rest = found.groups()
        if operator in (":?", "?"):
            assert variables.get(name), rest
        chosen = variables.get(name)
        if chosen is None or (not chosen and (operator or "").startswith(":")):
            return rest or ""
        return chosen

    return re.sub(r"\$\$|\$\{(\w+)(?:(:?[-?])([^}]*))?\}", value, content)


class Composition:
    """The services of one run.

    Attributes
    ----------
    services
        As the file says.
    """

    def __init__(self, place: Path, variables: Mapping[str, str], processes: Processes) -> None:
        text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
        self.services: dict[str, Any] = interpolated(yaml.safe_load(text)["services"], variables)
        self._variables, self._place, self._marker = variables, place, processes.marker
        self._java = find_java()
        self._jars = fetch_jars(processes, self._java, place / "ivy.log")
        net = "127." + ".".join(str(random.SystemRandom().randrange(1, 250)) for _ in range(2))
        self.address = {name: f"{net}.{number}" for number, name in enumerate(self.services, 10)}
        self._pods: list[Pod] = []
        self._running: dict[str, Pod] = {}
        dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
        self._image = dict(re.findall(r"(AIRFLOW__\w+)=(\S+)", dockerfile))

    def up(self, name: str) -> Pod:
        """Start a service and before it what it depends on; return it when it is healthy, or has completed."""
        if name in self._running:
            return self._running[name]
        for needed in self.services[name].get("depends_on", {}):
            if needed != "postgres":
                self.up(needed)
        pod = self._running[name] = self.run(name)
        if "healthcheck" not in self.services[name]:
            assert pod.wait(_HEALTHY_S) == 0, self.log(pod)
            return pod
        check = self.services[name]["healthcheck"]["test"]
        # curl takes localhost for 127.0.0.1, whatever /etc/hosts says.
        check = [part.replace("//localhost:", f"//{self.address[name]}:") for part in check]
        command = ["/bin/sh", "-c", check[1]] if check[0] == "CMD-SHELL" else check[1:]

        def healthy() -> bool:
            assert pod.exit_code is None, self.log(pod)
            return self._inside(pod, command) == 0

        wait_until(healthy, _HEALTHY_S, f"{name} to be healthy", poll_s=1)
        return pod

    def run(self, name: str, **mounted: Path) -> Pod:
        """Start a service alone.

        Parameters
        ----------
        mounted
            Other directories in the place of `./demo/definitions`.
        """
        pod = Pod(
            self._manifest(name, mounted),
            self.address[name],
            self._place / "pods" / f"{len(self._pods)}-{name}",
            lambda volume, own: volume["at"] or made_directory(own, 0o2777, _GROUP),
            lambda _: {},
            self._files(name),
        )
        self._pods.append(pod)
        return pod

    def volume(self, name: str) -> Path:
        """Return the directory of a named volume."""
        return made_directory(self._place / "volumes" / name, 0o2777, _GROUP)

    def log(self, pod: Pod) -> str:
        """Return the end of what a service has printed."""
        return f"{pod.name}: {pod.log.read_text(encoding='utf-8', errors='replace')[-4_000:]}"

    def down(self) -> None:
        """End all."""
        for pod in self._pods[::-1]:
            pod.kill()

    def _manifest(self, name: str, mounted: Mapping[str, Path]) -> dict[str, Any]:
        service = self.services[name]
        # The image has these directories, which belong to the container until a volume is mounted on them.
        image = self._place / "images" / str(len(self._pods))
        for directory in ("state", "archive", "reports", "data-docs"):
            made_directory(image / directory, 0o2777, _GROUP)
        made_directory(image, 0o2777, _GROUP)
        mounts: list[tuple[Path | None, str, bool]] = [
            (image, "/var/lib/statestore", False),
            (None, "/opt/airflow", False),
        ]
        for volume in service.get("volumes", ()):
            source, target, *mode = volume.split(":")
            at = mounted.get("applications", ROOT / source) if source.startswith(".") else self.volume(source)
            mounts.append((at, target, mode == ["ro"]))
        if "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" in service["environment"]:
            mounts.append((self.volume("database"), "/database", False))
        return {
            "metadata": {"name": name, "namespace": "compose"},
            "spec": {
                "securityContext": {"runAsUser": _USER, "runAsGroup": _GROUP, "fsGroup": _GROUP},
                "volumes": [{"name": f"volume-{number}", "at": at} for number, (at, _, _) in enumerate(mounts)],
                "containers": [
                    {
                        "command": self._command(name),
                        "args": [],
                        "env": [{"name": key, "value": value} for key, value in self._environment(name).items()],
                        "volumeMounts": [
                            {"name": f"volume-{number}", "mountPath": target, "readOnly": readonly}
                            for number, (_, target, readonly) in enumerate(mounts)
                        ],
                    }
                ],
            },
        }

    def _command(self, name: str) -> list[str]:
        service = self.services[name]
        if name == "kafka":
            return ["bash", "-c", _START_BROKER.format(java=self._java, jars=self._jars)]
        command = service["command"] if isinstance(service["command"], list) else shlex.split(service["command"])
        if "entrypoint" in service:
            return [*service["entrypoint"], *command]
        return command if command[0] in _PROGRAMS else ["airflow", *command]

    def _environment(self, name: str) -> dict[str, str]:
        said = {
            key: str(self._variables.get(key, "") if value is None else value)
            for key, value in self.services[name]["environment"].items()
            if value is not None or key in self._variables
        }
        said |= {MARKER: self._marker, "SPT_NOENV": "1"}  # whatever kills the test, nothing is left
        if name == "kafka":
            return said
        if "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" in said:
            said["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = "sqlite:////database/airflow.db"
        own = self.address[name]
        return {
            **self._image,
            "AIRFLOW_HOME": "/opt/airflow",
            "HOSTNAME": name,
            "PYSPARK_PYTHON": sys.executable,
            # Without a network of its own, a service must not bind to all addresses.
            "SPARK_LOCAL_IP": own,
            "AIRFLOW__API__HOST": own,
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_HOST": own,
            # A machine that does much else imports DAG files slowly.
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "400",
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
            **said,
        }

    def _files(self, name: str) -> dict[str, str]:
        hosts = "".join(f"{address} {other}\n" for other, address in self.address.items() if other != name)
        files = {"etc/hosts": f"{self.address[name]} localhost\n{hosts}"}
        if name == "kafka":
            # As the image does: KAFKA_LOG_DIRS is log.dirs.
            settings = {
                key.removeprefix("KAFKA_").lower().replace("_", "."): value
                for key, value in self._environment(name).items()
                if key.startswith("KAFKA_")
            }
            own = self.address[name]
            settings["listeners"] = settings["listeners"].replace("://:", f"://{own}:")
            settings["advertised.listeners"] = settings["advertised.listeners"].replace("127.0.0.1", own)
            files["opt/kafka/server.properties"] = "".join(f"{key}={value}\n" for key, value in settings.items())
            files[f"{_KAFKA_BIN}/kafka-broker-api-versions.sh"] = _ASK_BROKER.format(python=sys.executable)
        return files

    def _inside(self, pod: Pod, command: list[str]) -> int:
        """Run a command in a pod, as its user; return its exit code."""
        own = psutil.Process(pod._process.pid).children()
        if not own:
            return 1
        enter = ["nsenter", "-t", str(own[0].pid), "--mount", "--uts", "--pid", "--root", "--wd"]
        become = ["setpriv", "--reuid", str(_USER), "--regid", str(_GROUP), "--clear-groups"]
        said = [f"{name}={value}" for name, value in pod.environment.items()]
        ran = subprocess.run(
            [*enter, *become, "env", "-i", *said, *command], capture_output=True, timeout=120, check=False
        )
        return ran.returncode


@contextmanager
def composition(place: Path, variables: Mapping[str, str]) -> Iterator[Composition]:
    """Have the services of the Compose file until the block ends."""
    with Processes(place / "run") as processes:
        found = Composition(place, variables, processes)
        try:
            yield found
        finally:
            found.down()
