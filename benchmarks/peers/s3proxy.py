"""s3proxy 4.1.0: an S3 server on loopback that keeps its objects in a directory; the jar is fetched and pinned."""

from __future__ import annotations

import os
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from demo.kafka import HOST, free_port
from demo.kafka_jars import JarSet, fetch_jars, find_java
from demo.processes import Processes, wait_until

_VERSION = "4.1.0"
_BUCKET = "bench"
_START_S = 60

S3PROXY_JARS = JarSet(
    title=f"s3proxy {_VERSION}",
    directory=f"s3proxy-{_VERSION}",
    coordinates=(f"org.gaul:s3proxy:{_VERSION}:jar-with-dependencies",),
    checksums=Path(__file__).parent / "s3proxy_jars.sha256",
    megabytes=55,
)


class S3Proxy(NamedTuple):
    """A running server with one bucket.

    Attributes
    ----------
    url
        Of an archive in the bucket.
    environment
        What names the server, and credentials that it does not look at.
    """

    url: str
    environment: Mapping[str, str]


def start_s3proxy(processes: Processes, directory: Path) -> S3Proxy:
    """Fetch the jar where needed, start the server, and make its bucket.

    Raises
    ------
    InputError
        If Java is missing or too old.
    DownloadError
        If the jar is not there and cannot be fetched.
    ServiceError
        If the server does not start.
    """
    java = find_java()
    jars = fetch_jars(processes, java, directory / "ivy.log", jar_set=S3PROXY_JARS)
    objects = directory / "objects"
    objects.mkdir(parents=True)
    endpoint = f"http://{HOST}:{free_port()}"
    settings = {
        "s3proxy.endpoint": endpoint,
        "s3proxy.authorization": "none",
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(objects),
    }
    config = directory / "s3proxy.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    options = ["-Xmx512m", "-DLOG_LEVEL=warn"]
    argv = [java, *options, "-cp", f"{jars}/*", "org.gaul.s3proxy.Main", "--properties", str(config)]
    service = processes.start("s3proxy", argv, os.environ, directory / "log")

    def has_bucket() -> bool:
        try:
            connection = HTTPConnection(endpoint.removeprefix("http://"), timeout=10)
            connection.request("PUT", f"/{_BUCKET}")
            return connection.getresponse().status == HTTPStatus.OK
        except OSError:  # it does not listen yet
            return False

    wait_until(has_bucket, _START_S, "s3proxy to make a bucket", service)
    credentials = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_REGION": "us-east-1"}
    return S3Proxy(f"s3://{_BUCKET}/archive", {"AWS_ENDPOINT_URL": endpoint, **credentials})
