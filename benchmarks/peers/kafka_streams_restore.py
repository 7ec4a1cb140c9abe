"""Kafka Streams 4.3.1, restoring a store into an empty state directory: at its defaults, and tuned.

Its time is that of its restore listener: from the first store's start to the last one's end. A part of the data is then
in memtables, not yet on disk, so the time until `close()` has returned, which flushes them, is measured as well.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.counting import Command
from benchmarks.peers.kafka_streams import compiled
from benchmarks.restore_log import STORE
from benchmarks.restore_run import RestoringRun, RestoringSystem
from demo.processes import Processes

#: The restore consumer's default is to hand over 1,000 records at a time, and to fetch 1 MiB of a partition.
TUNED = {
    "restore.consumer.max.poll.records": "10000",
    "restore.consumer.fetch.max.bytes": str(100 * 1024 * 1024),
    "restore.consumer.max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "restore.consumer.receive.buffer.bytes": str(4 * 1024 * 1024),
}


def kafka_streams(processes: Processes, directory: Path) -> dict[str, RestoringSystem]:
    """Fetch and compile what is needed; return Kafka Streams at its defaults, and tuned."""
    java, classpath = compiled(processes, directory)
    return {
        "Kafka Streams": _system(java, classpath, {}),
        "Kafka Streams, tuned": _system(java, classpath, TUNED),
    }


def _system(java: str, classpath: str, further: dict[str, str]) -> RestoringSystem:
    def command(run: RestoringRun) -> Command:
        log, store = run.log, run.log.shape.store
        config = {
            "application.id": log.application,
            "bootstrap.servers": log.servers,
            "state.dir": str(run.state_dir),
            "num.stream.threads": str(run.workers),
            "main.consumer.auto.offset.reset": "earliest",
            **further,
        }
        # RocksDB unpacks its library into the temporary directory.
        options = ["-Xmx2g", f"-Djava.io.tmpdir={run.directory}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        times = [] if store.kind == "key-value" else [store.retention_ms, store.window_size_ms]
        kind = ":".join(map(str, [store.kind, *times]))
        work = [log.input, str(log.shape.partitions), str(run.result), STORE, kind]
        settings = [f"{name}={value}" for name, value in config.items()]
        return Command([java, *options, "-cp", classpath, "RestoreState", *work, *settings])

    return RestoringSystem(command)
