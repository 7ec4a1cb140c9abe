"""Export of metrics over OTLP, as the standard variables OTEL_* say; without an endpoint nothing is loaded or sent.

Who has the report exports: the driver of a job, or the command. What the Python workers on the executors did is in the
report's rows, so no worker needs a way to the collector, and a value is exported once, whatever Spark repeats.

Everything is sent at the end of a run, in one piece; while a restore goes on, its progress is sent now and then. The
SDK's own pipeline would add nothing: there is nothing to aggregate, and it drops attributes beyond 2,000 of a metric.

A collector never fails a run, nor holds it up for longer than OTEL_METRIC_EXPORT_TIMEOUT: a thread of its own sends,
which is left behind. What goes wrong is said once.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from statestore import clock
from statestore.errors import StateStoreError
from statestore.metrics.samples import Point, Sample, of_end, of_report, points
from statestore.packages import require_extra
from statestore.reports import AnyReport, RestorePlanReport

# Inside the functions below, and not here: most installations export nothing, and it takes a third of a second.
if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricsData
    from opentelemetry.sdk.resources import Resource

_log = logging.getLogger(__name__)
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_RECORDING_LEVEL = "STATESTORE_METRICS_RECORDING_LEVEL"
#: OpenTelemetry's defaults, ms.
_INTERVAL_MS, _TIMEOUT_MS = 60_000.0, 30_000.0
#: Values in one request: a collector takes 4 MiB by gRPC, and one of these has about 150 bytes.
_BATCH = 10_000
_SERVICE = "statestore"


def is_wanted() -> bool:
    """Whether the environment names an endpoint for metrics, and does not switch them off."""
    exporters = os.environ.get("OTEL_METRICS_EXPORTER", "").strip() or "otlp"
    return (
        any(os.environ.get(name, "").strip() for name in _ENDPOINTS)
        and os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true"
        and "otlp" in (name.strip() for name in exporters.split(","))
    )


def export_report(report: AnyReport, exit_code: int = 0) -> None:
    """Export what a report says, at the end of its run; a plan is no result."""
    if is_wanted() and not isinstance(report, RestorePlanReport):
        end = of_end(report.job, report.applications, exit_code, report.finished_ms)
        _export(report.job, (*end, *of_report(report)))


def export_end(job: str, applications: Sequence[str], exit_code: int, more: Iterable[Sample] = ()) -> None:
    """Export that a run has ended that has no report, and what else there is to say of it."""
    if is_wanted():
        _export(job, (*of_end(job, applications, exit_code, clock.now_ms()), *more))


@contextmanager
def exported_meanwhile(job: str, look: Callable[[], Iterable[Sample]]) -> Iterator[None]:
    """Export what there is to see of running work, every OTEL_METRIC_EXPORT_INTERVAL, until the block ends."""
    if not is_wanted():
        yield
        return
    ended = threading.Event()
    every_s = _from_ms("OTEL_METRIC_EXPORT_INTERVAL", _INTERVAL_MS)

    def watch() -> None:
        while not ended.wait(every_s):
            _export(job, look())

    threading.Thread(target=watch, name="metrics", daemon=True).start()
    try:
        yield
    finally:
        # Nobody waits for what is on its way: it has its own time, and what is sent afterwards is newer.
        ended.set()


# -- sending ----------------------------------------------------------------------------------------------------------


def _export(job: str, samples: Iterable[Sample]) -> None:
    by_task = os.environ.get(_RECORDING_LEVEL, "").strip() in ("DEBUG", "TRACE")
    found = points(samples, by_task=by_task)
    now_ns = time.time_ns()
    trouble: list[str] = []

    def send() -> None:
        try:
            if (why := _send(found, now_ns)) is not None:
                trouble.append(why)
        except StateStoreError as error:
            trouble.append(str(error))
        except Exception as error:  # of the SDK, of the transport, or of a malformed OTEL_* variable
            trouble.append(f"{type(error).__name__}: {error}")

    timeout_s = _from_ms("OTEL_METRIC_EXPORT_TIMEOUT", _TIMEOUT_MS)
    thread = threading.Thread(target=send, name="metrics-export", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        trouble.append(f"the collector did not take them within {timeout_s:g} s (OTEL_METRIC_EXPORT_TIMEOUT)")
    if trouble:
        _say_once(job, trouble[0])


_said = threading.Event()


def _say_once(job: str, why: str) -> None:
    if not _said.is_set():
        _said.set()
        _log.warning(
            "%s: metrics were not exported: %s. The run is not affected. Check the variables OTEL_EXPORTER_OTLP_*, and "
            "that the collector answers there; without an endpoint nothing is exported",
            job,
            why,
        )


def _send(found: Sequence[Point], now_ns: int) -> str | None:
    """Send the values; return why they were not taken."""
    require_extra("metrics", "the export of metrics to an OTEL_EXPORTER_OTLP_ENDPOINT")
    from opentelemetry.sdk.metrics.export import MetricExportResult

    with _last_words() as said:
        exporter = _exporter()
        try:
            if exporter.export(_data(found, now_ns)) is MetricExportResult.SUCCESS:
                return None
        finally:
            exporter.shutdown()
    return said[-1] if said else "the collector did not take them"


def _exporter() -> MetricExporter:
    """Return the exporter of the protocol that is asked for; it reads its other variables itself."""
    protocol = next((value for name in _PROTOCOLS if (value := os.environ.get(name, "").strip())), "http/protobuf")
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as ByHttp

        return ByHttp(max_export_batch_size=_BATCH)
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as ByGrpc

        return ByGrpc(max_export_batch_size=_BATCH)
    raise ValueError(f"{_PROTOCOLS[1]}: expected http/protobuf or grpc, found {protocol!r}")


def _data(found: Sequence[Point], now_ns: int) -> MetricsData:
    from opentelemetry.sdk.metrics.export import (
        Gauge,
        Metric,
        MetricsData,
        NumberDataPoint,
        ResourceMetrics,
        ScopeMetrics,
    )
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    by_metric: dict[object, list[Point]] = {}
    for point in found:
        by_metric.setdefault(point.metric, []).append(point)
    metrics = [
        Metric(
            name=group[0].metric.name,
            description=group[0].metric.description,
            unit=group[0].metric.unit,
            data=Gauge([NumberDataPoint(dict(point.attributes), 0, now_ns, point.value) for point in group]),
        )
        for group in by_metric.values()
    ]
    scope = ScopeMetrics(InstrumentationScope(_SERVICE, version("statestore")), metrics, "")
    return MetricsData([ResourceMetrics(_resource(), [scope], "")])


def _resource() -> Resource:
    """Return who exports: the service, as OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say.

    The SDK would add a random `service.instance.id`, and each short run would begin series of its own.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    own = Resource({"service.name": _SERVICE, "service.version": version("statestore")})
    return own.merge(OTELResourceDetector().detect())


@contextmanager
def _last_words() -> Iterator[list[str]]:
    """Keep what the exporter logs, which would be lines for each of its tries, and more in other versions."""
    said: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger, handler = logging.getLogger("opentelemetry.exporter"), Kept()
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield said
    finally:
        logger.removeHandler(handler)


def _from_ms(variable: str, default_ms: float) -> float:
    """Return a duration in s; what is no positive number is the default."""
    try:
        found = float(os.environ.get(variable, "").strip() or default_ms)
    except ValueError:
        found = 0.0
    return (found if 0 < found < float("inf") else default_ms) / 1000
