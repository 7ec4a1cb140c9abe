"""Kafka Streams 4.3.1, counting by key exactly once: jars fetched and pinned, the application compiled for the run.

Everything is at its defaults but what the comparison fixes: two threads, the guarantee and the commit interval.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.counting import Command, CountingRun, CountingSystem
from demo.kafka_jars import fetch_jars, find_java
from demo.processes import Processes, wait_until
from tests.interop.kafka_streams import KAFKA_STREAMS_JARS

THREADS = 2
_SOURCES = Path(__file__).parent / "java"
#: A transaction lives as long as a commit interval, and Kafka Streams' default of 10 s is below the longer one.
_TRANSACTION_MS = 60_000


def kafka_streams(processes: Processes, directory: Path) -> dict[str, CountingSystem]:
    """Fetch and compile what is needed; return Kafka Streams with its record cache as it comes, and without one."""
    java, classpath = compiled(processes, directory)
    return {
        "Kafka Streams": _system(java, classpath),
        "Kafka Streams, no cache": _system(java, classpath, **{"statestore.cache.max.bytes": "0"}),
    }


def compiled(processes: Processes, directory: Path) -> tuple[str, str]:
    """Fetch the jars where needed and compile our programs; return the Java to run, and the class path."""
    java = find_java()
    jars = fetch_jars(processes, java, directory / "ivy.log", jar_set=KAFKA_STREAMS_JARS)
    classes = directory / "classes"
    (compiler,) = jars.glob("ecj-*.jar")
    argv = [
        *(java, "-XX:TieredStopAtLevel=1", "-jar", str(compiler), "-source", "17", "-target", "17", "-proc:none"),
        *("-cp", ":".join(map(str, jars.glob("*.jar"))), "-d", str(classes), str(_SOURCES)),
    ]
    service = processes.start("ecj", argv, {}, directory / "ecj.log")
    try:
        wait_until(lambda: service.poll() == 0, 120, "the Java compiler", service)
    finally:
        processes.stop_service(service)
    return java, f"{classes}:{jars}/*"


def _system(java: str, classpath: str, **further: str) -> CountingSystem:
    def command(run: CountingRun) -> Command:
        config = {
            "application.id": run.application,
            "bootstrap.servers": run.input.servers,
            "state.dir": str(run.directory / "state"),
            "num.stream.threads": str(THREADS),
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": str(run.commit_interval_ms),
            "producer.transaction.timeout.ms": str(_TRANSACTION_MS),
            "main.consumer.auto.offset.reset": "earliest",
            **further,
        }
        options = [
            # RocksDB unpacks its library there.
            *("-Xmx2g", f"-Djava.io.tmpdir={run.directory}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
        ]
        settings = [f"{name}={value}" for name, value in config.items()]
        work = [run.input.topic, str(run.input.records), str(run.started)]
        return Command([java, *options, "-cp", classpath, "CountByKey", *work, *settings])

    return CountingSystem(command, lambda run: f"{run.application}-counts-changelog")
