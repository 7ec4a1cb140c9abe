"""What runs export over OTLP: at their end, from their reports, and never at the cost of the run."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import pytest

from statestore.metrics import export, table
from statestore.metrics.export import export_end, export_report, exported_meanwhile
from statestore.metrics.samples import of_report
from statestore.metrics.table import TABLE, TASK
from statestore.recovery.restore_metrics import of_progress, of_warmed
from statestore.recovery.restore_progress import RestoreProgress
from statestore.recovery.warming import WarmRow
from statestore.reports import (
    Action,
    ArchivedRow,
    Contents,
    DrillConfidence,
    DrillReport,
    DrillRow,
    DrillStanding,
    EvidenceHead,
    Failure,
    Loss,
    MaintenanceReport,
    MaintenanceRow,
    ProcessReport,
    ProcessRow,
    RestorePlanReport,
    RestorePoint,
    RestoreReport,
    RestoreRow,
    SnapshotReport,
    SnapshotRow,
    Status,
    StoreFigures,
    ValidatedStore,
    ValidateReport,
    VerifyReport,
    VerifyRow,
)
from statestore.stores import metrics as of_stores
from tests.otlp import Receiver, receiving

FAILURE = Failure(kind="SomeError", message="no")


def report(kind, rows, **more):
    return kind(run_id="r", applications=("shop",), started_ms=1_000, finished_ms=4_500, rows=tuple(rows), **more)


def figures(**more):
    return StoreFigures(
        store="totals",
        commits=2,
        commit_latency_avg_ms=3.0,
        commit_latency_max_ms=4.0,
        restored=5,
        thread="MainThread",
        scope="rocksdb-window",
        **more,
    )


PROCESSED = report(
    ProcessReport,
    [
        ProcessRow(
            application="shop",
            task="0_0",
            records_in=10,
            lag=1,
            late_records=1,
            poison_records=2,
            process_seconds=4.0,
            seconds=5.0,
            stores=(figures(),),
            snapshots=(SnapshotRow(store="totals", snapshot="s", bytes=100),),
        ),
        ProcessRow(
            application="shop",
            task="0_1",
            records_in=5,
            lag=3,
            process_seconds=2.0,
            seconds=3.0,
            stores=(figures().model_copy(update={"commits": 6, "commit_latency_avg_ms": 1.0}),),
            failure=FAILURE,
        ),
    ],
)
VERIFIED = report(
    VerifyReport,
    [
        VerifyRow(
            application="shop",
            store="totals",
            task=f"0_{number}",
            status=status,
            action=Action.NONE,
            lag=lag,
            loss=Loss.NONE,
            keys=7,
            contents=Contents(other_value=2),
            restore_point=RestorePoint(usable=number != 2, written_ms=60_000 * (number + 1), offsets=4),
            live=number == 0,
            disk_lag=3 if number == 0 else None,
        )
        for number, (status, lag) in enumerate([(Status.OK, 0), (Status.LAGGING, 5), (Status.CORRUPT, None)])
    ],
)
RESTORED = report(
    RestoreReport,
    [
        RestoreRow(
            application="shop",
            store="totals",
            task="0_0",
            outcome="restored",
            records=9,
            seconds=2.0,
            published=SnapshotRow(store="totals", snapshot="s", bytes=50),
        ),
        RestoreRow(application="shop", store="totals", task="0_1", outcome="failed", seconds=1.0, failure=FAILURE),
    ],
)
VALIDATED = report(
    ValidateReport,
    [],
    stores=(ValidatedStore(application="shop", store="totals", verdict="failed", failed_expectations=("a", "b")),),
)
ARCHIVED = report(
    SnapshotReport,
    [ArchivedRow(application="shop", store="totals", task="0_0", snapshot="s", bytes=70)],
    archive="file:///a",
)
MAINTAINED = report(MaintenanceReport, [MaintenanceRow(place="shop/0_0", removed_bytes=11)])
STANDINGS = get_args(DrillStanding)
DRILLED = report(
    DrillReport,
    [
        DrillRow(
            application="shop",
            store="totals",
            task=f"0_{number}",
            standing=standing,
            proven_ms=None if standing == "never proven" else 60_000 * (number + 1),
            drilled_ms=1,
            seconds=number,
        )
        for number, standing in enumerate(STANDINGS)
    ],
    confidence=(DrillConfidence(application="shop", partitions=8, proven=2, application_seconds=30.0),),
    evidence=(EvidenceHead(application="shop", length=4, sha256="0" * 64, recorded=True),),
)
REPORTS = (PROCESSED, VERIFIED, RESTORED, VALIDATED, ARCHIVED, DRILLED, MAINTAINED)
WARMED = [WarmRow("shop", "totals", "0_0", "warmed", records=3, seconds=1.5)]


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    """No variable of OpenTelemetry, and a process that has complained of nothing yet."""
    for name in [name for name in export.os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("STATESTORE_METRICS_RECORDING_LEVEL", raising=False)
    export._said.clear()


@pytest.fixture
def collector(monkeypatch):
    with receiving() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        yield found


def test_each_report_is_exported_in_one_piece_at_the_end_of_its_run(collector):
    for one in REPORTS:
        export_report(one)
    assert len(collector.requests) == len(REPORTS)
    last = collector.last
    assert last("statestore.job.duration", job_name="verify", application="shop") == 3.5
    assert last("statestore.job.end_time", job_name="process") == 4.5
    assert last("statestore.job.exit_code", job_name="restore") == 0
    assert last("statestore.job.findings", job_name="process") == 1
    assert (last("statestore.process.records"), last("statestore.process.lag")) == (15, 4)
    assert [last("statestore.process.skipped", reason=why) for why in ("late", "poison", "dropped")] == [1, 2, 0]
    counts = {status: last("statestore.store.partitions", status=str(status)) for status in Status}
    assert counts == dict.fromkeys(Status, 0) | {Status.OK: 1, Status.LAGGING: 1, Status.CORRUPT: 1}
    assert [last("statestore.store.loss", loss=str(loss)) for loss in Loss] == [3, 0, 0]
    assert (last("statestore.store.lag"), last("statestore.store.rows")) == (5, 21)
    assert last("statestore.store.differing") == 6
    assert last("statestore.snapshot.time") == 60, "the oldest of those that can be used"
    assert (last("statestore.snapshot.lag"), last("statestore.snapshot.missing")) == (8, 1)
    assert [last("statestore.restore.partitions", outcome=what) for what in ("restored", "skipped", "failed")] == [
        1,
        0,
        1,
    ]
    assert (last("statestore.restore.records"), last("statestore.restore.duration")) == (9, 2.0)
    assert last("statestore.restore.remaining") == 0
    assert [last("statestore.validate.stores", verdict=what) for what in ("passed", "failed", "error")] == [0, 1, 0]
    assert last("statestore.validate.failed") == 2
    uploads = [last("statestore.snapshot.uploaded", job_name=job) for job in ("process", "restore", "snapshot")]
    assert uploads == [100, 50, 70]
    assert last("statestore.maintenance.removed") == 11
    assert [last("statestore.drill.partitions", standing=standing) for standing in STANDINGS] == [1] * len(STANDINGS)
    assert (last("statestore.drill.proven.time"), last("statestore.drill.duration")) == (0, len(STANDINGS) - 1)
    assert (last("statestore.drill.share"), last("statestore.drill.application.duration")) == (0.25, 30.0)
    assert last("statestore.drill.evidence") == 4


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_what_is_exported_is_what_the_table_says_and_all_of_its_level(monkeypatch, collector, level):
    monkeypatch.setenv("STATESTORE_METRICS_RECORDING_LEVEL", level)
    for one in REPORTS:
        export_report(one)
    export_end("warm", ["shop"], 0, of_warmed(WARMED))
    known = {metric.name: metric for metric in TABLE if level in ("DEBUG", metric.level)}
    for value in collector.values:
        metric = known[value.name]
        assert (value.unit, value.description) == (metric.unit, metric.description)
        names = {name.replace("<scope>", "rocksdb-window") for name in metric.attributes}
        assert value.attributes.keys() == names | ({TASK} if level == "DEBUG" and metric.by_task else set()), value
    assert {value.name for value in collector.values} == known.keys()


@pytest.mark.behaviour("M3")
def test_kafka_streams_metrics_have_its_tags_and_its_level_and_the_rate_is_over_processing(monkeypatch, collector):
    idle = StoreFigures(store="totals", commits=0, commit_latency_avg_ms=0.0, commit_latency_max_ms=0.0)
    rows = [*PROCESSED.rows, ProcessRow(application="shop", task="0_2", stores=(idle,))]
    processed = PROCESSED.model_copy(update={"rows": tuple(rows)})
    for level in (None, "INFO"):
        if level:
            monkeypatch.setenv("STATESTORE_METRICS_RECORDING_LEVEL", level)
        export_report(processed)
    assert not [value for value in collector.values if value.name.startswith("commit-")]
    monkeypatch.setenv("STATESTORE_METRICS_RECORDING_LEVEL", "DEBUG")
    export_report(processed)
    found = {(value.name, value.attributes["task-id"]): value for value in collector.values if "commit-" in value.name}
    expected = {
        ("commit-rate", "0_0"): 2 / 4,
        ("commit-latency-avg", "0_0"): 3e6,
        ("commit-latency-max", "0_0"): 4e6,
        ("commit-rate", "0_1"): 6 / 2,
        ("commit-latency-avg", "0_1"): 1e6,
        ("commit-latency-max", "0_1"): 4e6,
    }
    assert {of: value.value for of, value in found.items()} == expected, "a task that was idle has opened no store"
    for (_, task), value in found.items():
        assert value.attributes == {
            "application": "shop",
            "store": "totals",
            "type": "stream-state-metrics",
            "thread-id": "MainThread",
            "task-id": task,
            "rocksdb-window-state-id": "totals",
        }


def test_names_and_units_of_kafka_streams_are_those_of_the_stores():
    names = {metric.name: metric.unit for metric in TABLE if not metric.name.startswith("statestore.")}
    of_commits = {f"commit-{figure}": unit for figure, unit, _ in of_stores._FIGURES}
    assert names == of_commits


def with_partitions(count):
    rows = [VERIFIED.rows[0].model_copy(update={"task": f"0_{number}"}) for number in range(count)]
    return VERIFIED.model_copy(update={"rows": tuple(rows)})


def test_values_grow_with_stores_and_not_with_partitions_until_debug_asks_for_tasks(monkeypatch, collector):
    export_report(with_partitions(200))
    assert len(collector.values) < 50
    monkeypatch.setenv("STATESTORE_METRICS_RECORDING_LEVEL", "DEBUG")
    collector.requests.clear()
    export_report(with_partitions(200))
    by_task = [value for value in collector.values if TASK in value.attributes]
    assert {value.name for value in by_task} <= {metric.name for metric in TABLE if metric.by_task}
    assert len({value.attributes[TASK] for value in by_task}) == 200
    assert sum(value.value for value in collector.values if value.name == "statestore.store.partitions") == 200


@pytest.mark.long
def test_no_request_is_larger_than_a_collector_takes_by_grpc(monkeypatch, collector):
    monkeypatch.setenv("STATESTORE_METRICS_RECORDING_LEVEL", "DEBUG")
    export_report(with_partitions(10_000))
    assert len(collector.requests) > 1
    assert max(request.ByteSize() for request in collector.requests) < 4 << 20
    assert len({value.attributes.get(TASK) for value in collector.values}) == 10_001


def test_a_run_that_fails_without_a_report_exports_its_exit_code(collector):
    export_end("process", ["shop"], 5)
    assert collector.last("statestore.job.exit_code", job_name="process", application="shop") == 5
    export_end("maintenance", [], 3)
    assert collector.values[-1].attributes == {"job-name": "maintenance"}


def test_a_plan_is_no_result(collector):
    export_report(report(RestorePlanReport, [], records_per_s=1))
    assert collector.requests == []


def test_who_exports_is_named_by_the_standard_variables_and_has_no_random_instance(monkeypatch, collector):
    export_report(MAINTAINED)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "stores of the shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=pod-1,team=a")
    export_report(MAINTAINED)
    first, second = collector.resources
    assert first["service.name"] == "statestore"
    assert first.keys() == {"service.name", "service.version"}
    assert second.items() >= {
        ("service.name", "stores of the shop"),
        ("service.instance.id", "pod-1"),
        ("team", "a"),
    }


@pytest.mark.long
def test_grpc_is_another_way_to_the_same(monkeypatch):
    grpc = pytest.importorskip("grpc")
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc

    came = []

    class Service(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request, context):
            came.append(request)
            return metrics_service_pb2.ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        export_report(MAINTAINED)
    finally:
        server.stop(None).wait()
    receiver = Receiver()
    receiver.requests += came
    assert receiver.last("statestore.maintenance.removed") == 11


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_METRICS_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
    ],
    ids=str,
)
def test_it_can_be_switched_off(monkeypatch, collector, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    export_report(MAINTAINED)
    assert collector.requests == []


def test_without_an_endpoint_nothing_of_opentelemetrys_sdk_is_loaded():
    program = (
        "import sys\n"
        "from statestore.metrics.export import export_report\n"
        "from statestore.reports import MaintenanceReport\n"
        "export_report(MaintenanceReport(run_id='r', applications=(), started_ms=1, finished_ms=2, rows=()))\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'google.protobuf'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def complaints(caplog):
    return [record.getMessage() for record in caplog.records if record.name == export.__name__]


def test_a_collector_that_is_down_is_said_once_and_fails_nothing(monkeypatch, caplog):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
        export_report(MAINTAINED)
        export_report(VERIFIED)
    (said,) = complaints(caplog)
    assert said.startswith("maintenance: metrics were not exported: ")
    assert "OTEL_EXPORTER_OTLP_" in said


def test_a_collector_that_does_not_answer_holds_a_run_up_for_the_timeout_at_most(monkeypatch, caplog, collector):
    collector.answered.clear()
    monkeypatch.setenv("OTEL_METRIC_EXPORT_TIMEOUT", "300")
    before = time.monotonic()
    export_report(MAINTAINED)
    assert time.monotonic() - before < 5
    (said,) = complaints(caplog)
    assert "did not take them within 0.3 s (OTEL_METRIC_EXPORT_TIMEOUT)" in said


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "expected http/protobuf or grpc, found 'http/json'"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "no-url", "metrics were not exported"),
    ],
)
def test_a_variable_that_is_wrong_is_said_and_fails_nothing(monkeypatch, caplog, collector, variable, value, expected):
    monkeypatch.setenv(variable, value)
    export_report(MAINTAINED)
    (said,) = complaints(caplog)
    assert expected in said
    assert collector.requests == []


def test_what_a_collector_refuses_is_said_with_its_answer(monkeypatch, caplog):
    with receiving(status=401) as refusing:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{refusing.url}/v1/metrics")
        export_report(MAINTAINED)
    (said,) = complaints(caplog)
    assert "401" in said


def test_progress_of_a_restore_is_exported_while_it_runs_and_nothing_is_left_after_it(monkeypatch, collector):
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10")
    seen = [
        RestoreProgress(application="shop", store="totals", task="0_0", phase="reading", next=10, end=40),
        RestoreProgress(application="shop", store="totals", task="0_1", phase="reading", next=10, end=15),
        RestoreProgress(
            application="shop", store="totals", task="0_2", phase="fetching", fetched_bytes=1, snapshot_bytes=9
        ),
    ]
    with exported_meanwhile("restore", lambda: of_progress(seen)), collector.came:
        assert collector.came.wait_for(lambda: collector.requests, 30)
    assert collector.last("statestore.restore.remaining", store="totals") == 35
    assert collector.last("statestore.restore.fetching", store="totals") == 8
    export_report(RESTORED)
    assert collector.last("statestore.restore.remaining", store="totals") == 0


def test_a_report_without_rows_says_that_its_run_has_ended():
    found = {sample.metric for sample in of_report(report(VerifyReport, []))}
    assert found == {table.JOB_DURATION, table.JOB_FINDINGS}
