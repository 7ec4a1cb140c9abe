"""The job `verify` itself over many small stores: what its driver takes, with one state directory or one on each node.

Run as a program, this is one run of the job in a fresh Spark session; it writes what that took.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pydantic import BaseModel
from statestore_jobs.entry import spark_session
from statestore_jobs.verify import run as run_verify

from benchmarks.counting import Command
from benchmarks.measure import Result
from benchmarks.peak_memory import peak_kib
from benchmarks.registered import register
from benchmarks.restore_program import Order, specs_of
from benchmarks.restore_run import seconds_of
from benchmarks.validate_memory import JVM, PYTHON, PeakMemory
from demo.processes import Processes, ServiceError
from statestore.archive.archive import ArchiveSpec, archive_spec
from statestore.archive.layout import time_ordered_uuid
from statestore.archive.snapshots import history, read_snapshot
from statestore.archive.upload import commit
from statestore.config import load_settings
from statestore.kafka.cluster import Cluster
from statestore.metastore.metastore import Metastore
from statestore.objects.store import ObjectStore
from statestore.partition.generations import snapshot_directory
from statestore.partition.snapshots import publish_row
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Status
from statestore.requests.verify import VerifyRequest

_TIMEOUT_S = 60.0
_INPUT = "fleet-in"
#: Systems by where the stores are.
ONE_DIRECTORY, OWN_DISKS = "ours", "ours, own disks"
_UNITS = {"seconds": "s", "driver_mib": "MiB", "jvm_mib": "MiB", "python_mib": "MiB"}


class Took(BaseModel):
    """What a run of the job took.

    Attributes
    ----------
    seconds
        Until the report is there; starting Spark's JVM is left out.
    driver_mib
        The Python driver's memory at its peak.
    jvm_mib, python_mib
        Of Spark's JVM, and of all Python processes together, at the moment at which they took most.
    """

    seconds: float
    driver_mib: float
    jvm_mib: float
    python_mib: float


def case_of(partitions: int, part: str = "seconds") -> str:
    """Return the name of the case in which a part of what it took is measured."""
    names = {"seconds": "", "driver_mib": ", driver", "jvm_mib": ", JVM", "python_mib": ", Python"}
    return f"job verify, {partitions:,} store partitions{names[part]}"


def measure_job(processes: Processes, scratch: Path, order: Order, rounds: int) -> list[Result]:
    """Measure the job on a fleet, which is registered and archived first.

    Parameters
    ----------
    order
        Names the fleet's stores and how many tasks they have.
    """
    archive = archive_spec(f"file://{scratch}/archive", _TIMEOUT_S, Cluster(order.servers).topics)
    assert archive is not None
    one_directory = _environment(order, scratch)
    _archive(order.model_copy(update={"archive": archive}), archive)
    environments = {
        ONE_DIRECTORY: one_directory,
        OWN_DISKS: {
            **one_directory,
            "STATESTORE_ARCHIVE": archive.url,
            "STATESTORE_NODE_LOCAL_STATE": "true",
            "STATESTORE_STATE_DIR": str(scratch / "nothing-here"),
        },
    }
    took: dict[str, list[Took]] = {name: [] for name in environments}
    for number in range(rounds):
        for name in list(environments) if number % 2 == 0 else reversed(environments):
            command = Command([sys.executable, "-m", "benchmarks.verify_job", str(order.result)], environments[name])
            seconds_of(processes, command, scratch, order.workers)
            took[name].append(Took.model_validate_json(order.result.read_text(encoding="utf-8")))
    partitions = len(order.stores) * order.partitions
    return [
        Result(case_of(partitions, part), name, unit, [getattr(one, part) for one in found])
        for part, unit in _UNITS.items()
        for name, found in took.items()
    ]


def _environment(order: Order, scratch: Path) -> dict[str, str]:
    Cluster(order.servers).topics.create(_INPUT, order.partitions, {})
    definition = {
        "name": order.application,
        "input_topic": _INPUT,
        "processor": "benchmarks.count_ours:count",  # an application needs one; nothing calls it
        "stores": [store.model_dump(mode="json") for store in order.stores],
    }
    return {
        **register(order.servers, definition),
        "STATESTORE_BOOTSTRAP_SERVERS": order.servers,
        "STATESTORE_STATE_DIR": str(order.state_dir),
        "STATESTORE_REPORTS_DIR": str(scratch / "reports"),
        "STATESTORE_DATA_DOCS_DIR": str(scratch / "docs"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--master local[{order.workers}] --conf spark.ui.enabled=false pyspark-shell",
    }


def _archive(order: Order, archive: ArchiveSpec) -> None:
    """Publish the first task's stores, and for each other task manifests of the same files."""
    objects = archive.open()
    specs = specs_of(order)
    for spec in specs:
        if spec.task.partition == 0:
            row = publish_row(spec, "restore")
            if row.failure is not None:
                raise ServiceError(f"{spec.store_partition} was to be published: {row.failure}")
    for spec in specs:
        if spec.task.partition > 0:
            _copy_manifest(objects, archive, spec)


def _copy_manifest(objects: ObjectStore, archive: ArchiveSpec, spec: StorePartitionSpec) -> None:
    first = spec.model_copy(update={"task": spec.task._replace(partition=0)})
    (listed,) = history(objects, snapshot_directory(first)).snapshots
    its = {"task": str(spec.task), "partition": spec.task.partition, "uuid": time_ordered_uuid(listed.written_ms)}
    commit(objects, read_snapshot(objects, listed).model_copy(update=its))


def main(result: Path) -> None:
    """Run the job in this process, and write what it took; every store must be whole."""
    settings = load_settings()
    catalogue = Metastore.of(settings).require_running().catalogue
    spark = spark_session("verify")
    try:
        with PeakMemory() as memory:
            started = time.perf_counter()
            report = run_verify(VerifyRequest(depth="offsets"), settings, catalogue, "bench")
            seconds = time.perf_counter() - started
    finally:
        spark.stop()
    if damaged := [row for row in report.rows if row.status is not Status.OK]:
        raise ServiceError(f"{damaged[0].label} was to be whole, found {damaged[0].status}: {damaged[0].detail}")
    mib = {part: size / 2**20 for part, size in memory.peak.items()}
    took = Took(seconds=seconds, driver_mib=peak_kib() / 1024, jvm_mib=mib[JVM], python_mib=mib[PYTHON])
    result.write_text(took.model_dump_json(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
