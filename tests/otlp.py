"""A receiver of OTLP over HTTP, and the names that Prometheus gives to metrics.

The receiver is the HTTP side of a collector alone. No registry ships a collector's binary, and building one takes
longer than all tests of this directory; what is sent is real, and is decoded by OpenTelemetry's own messages.
"""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


class Received(NamedTuple):
    """One value of one metric."""

    name: str
    unit: str
    description: str
    attributes: dict[str, str]
    value: float


class Receiver:
    """What has come so far."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.requests: list[ExportMetricsServiceRequest] = []
        self.came = threading.Condition()
        self.url = ""
        #: Set it to have the answers that wait for it sent.
        self.answered = threading.Event()
        self.answered.set()

    @property
    def values(self) -> list[Received]:
        """Every value, in the order of its coming."""
        return [
            Received(
                metric.name,
                metric.unit,
                metric.description,
                {item.key: item.value.string_value for item in point.attributes},
                getattr(point, point.WhichOneof("value")),
            )
            for request in self.requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.gauge.data_points
        ]

    @property
    def resources(self) -> list[dict[str, str]]:
        """Attributes of who has sent each request."""
        return [
            {item.key: item.value.string_value for item in resource.resource.attributes}
            for request in self.requests
            for resource in request.resource_metrics
        ]

    def last(self, name: str, **attributes: str) -> float | None:
        """Return the last value of a metric with these attributes; an underscore is a hyphen."""
        wanted = {key.replace("_", "-"): value for key, value in attributes.items()}
        found = [one.value for one in self.values if one.name == name and wanted.items() <= one.attributes.items()]
        return found[-1] if found else None


@contextmanager
def receiving(status: int = 200) -> Iterator[Receiver]:
    """Receive on loopback until the block ends."""
    receiver = Receiver(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/metrics"
            with receiver.came:
                receiver.requests.append(ExportMetricsServiceRequest.FromString(body))
                receiver.came.notify_all()
            receiver.answered.wait(60)
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.answered.set()
        server.shutdown()
        server.server_close()
        thread.join()


#: Words of units that Prometheus appends, of those that the table uses (github.com/prometheus/otlptranslator).
_UNITS = {"s": "seconds", "ns": "nanoseconds", "By": "bytes", "1/s": "per_second", "1": "ratio"}


def prometheus_name(name: str, unit: str) -> str:
    """Return what Prometheus, and a collector's exporter for it, call a gauge: `otlptranslator` with unit suffixes."""
    assert unit in _UNITS or not unit or re.fullmatch(r"\{\w+\}", unit), f"unit {unit!r} has no rule here"
    words = [word for word in re.split(r"[^a-zA-Z0-9]+", name) if word]
    suffix = _UNITS.get(unit, "")
    return "_".join([word for word in words if word != suffix] + ([suffix] if suffix else []))


def prometheus_label(attribute: str) -> str:
    """Return what Prometheus calls an attribute."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", attribute)
