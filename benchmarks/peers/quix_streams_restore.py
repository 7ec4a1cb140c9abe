"""Quix Streams 3.28.1, restoring its state into an empty directory, in an environment of its own.

Its changelog is one that it could have written itself: the same records, with the headers that it puts on each. It
restores while its application is assigned partitions, on the application's one thread; as many processes share them.
"""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.counting import Command
from benchmarks.peers.quix_streams import environment
from benchmarks.restore_log import Log, LogShape, fill
from benchmarks.restore_run import RestoringRun, RestoringSystem
from statestore.kafka.client import client_config

_PROGRAM = Path(__file__).parent / "quix_restore.py"


def quix_streams() -> dict[str, RestoringSystem]:
    """Make the environment where it is not there; return the system, which restores what `fill_quix` has filled."""
    python = environment()

    def command(run: RestoringRun) -> Command:
        log = run.log
        work = {
            "servers": log.servers,
            "group": log.application,
            "topic": log.input,
            "partitions": log.shape.partitions,
            "processes": run.workers,
            "state_dir": str(run.state_dir),
            "result": str(run.result),
        }
        return Command([str(python), str(_PROGRAM), json.dumps(work)])

    return {"Quix Streams": RestoringSystem(command)}


def fill_quix(servers: str, application: str, shape: LogShape) -> Log:
    """Fill a changelog as Quix Streams does for its default store, and commit the input behind it.

    A record is only restored if the input offset in its header is committed.
    """
    topic = f"{application}-in"
    headers = {"__column_family__": b"default", "__processed_tp_offsets__": json.dumps({topic: 0}).encode()}
    log = fill(servers, application, shape, f"changelog__{application}--{topic}--default", headers)
    producer = Producer(client_config(servers, **{"enable.idempotence": True}))
    for partition in range(shape.partitions):
        producer.produce(topic, b"", b"", partition)
    producer.flush(60)
    consumer = Consumer(client_config(servers, **{"group.id": application, "enable.auto.commit": False}))
    try:
        ends = [TopicPartition(topic, partition, 1) for partition in range(shape.partitions)]
        consumer.commit(offsets=ends, asynchronous=False)
    finally:
        consumer.close()
    return log
