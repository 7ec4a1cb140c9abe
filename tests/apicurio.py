"""Apicurio Registry on loopback, which also speaks the REST interface of Confluent's Schema Registry.

Its newer versions need Java 21. Karapace is not on PyPI, and Confluent's own registry is not on Maven Central.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from demo.kafka import HOST, free_port
from demo.kafka_jars import JarSet, fetch_jars, find_java
from demo.processes import Processes, wait_until

_VERSION = "2.6.13.Final"
_START_S = 120
APICURIO = JarSet(
    title=f"Apicurio Registry {_VERSION}",
    directory=f"apicurio-{_VERSION}",
    coordinates=(f"io.apicurio:apicurio-registry-app:{_VERSION}:all:tar.gz",),
    checksums=Path(__file__).parent / "apicurio.sha256",
    megabytes=142,
)


@contextmanager
def running_apicurio(directory: Path) -> Iterator[str]:
    """Run an empty registry, whose schemas are in memory; yield its address."""
    with Processes(directory) as processes:
        java = find_java()
        [archive] = fetch_jars(processes, java, directory / "ivy.log", jar_set=APICURIO).glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(directory / "app", filter="data")
        port = free_port()
        url = f"http://{HOST}:{port}/apis/ccompat/v7"
        listen = (f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={port}")
        jar = directory / "app" / f"apicurio-registry-app-{_VERSION}-runner.jar"
        command = (java, "-Xmx512m", *listen, "-jar", str(jar))
        service = processes.start("apicurio", command, os.environ, directory / "apicurio.log")

        def answers() -> bool:
            try:
                with urlopen(f"{url}/subjects", timeout=10):
                    return True
            except URLError:
                return False

        wait_until(answers, _START_S, "Apicurio to answer", service)
        yield url
