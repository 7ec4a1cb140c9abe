"""A real S3 endpoint on loopback."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer

BUCKET = "archive"


@contextmanager
def running_s3() -> Iterator[str]:
    """Run moto's server with one bucket; yield its endpoint."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        with urlopen(Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=60):
            yield endpoint
    finally:
        server.stop()


def environment(endpoint: str) -> dict[str, str]:
    """What names the endpoint, and credentials that it takes."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "user",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
