"""Many small stores for `make bench-verify`: changelogs that end with a transaction's marker, and directories of files.

The stores of one task are restored; the other tasks get copies of them. That is enough for offsets, which are compared
without opening a store: all partitions of a changelog hold the same number of records.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.restore_program import Order
from benchmarks.restore_run import seconds_of
from demo.processes import Processes, wait_until
from statestore.changelog.topic_settings import changelog_config
from statestore.definitions.store import StoreDefinition
from statestore.durable import read_checked, write_checked
from statestore.kafka.client import client_config
from statestore.kafka.cluster import Cluster
from statestore.model import StoreFormat, StorePartition, TaskId, changelog_topic
from statestore.statedir.paths import TaskPaths

APPLICATION = "fleet"
RECORDS = 5
_SMALL_INDEX = {"segment.index.bytes": "4096"}
_TIMEOUT_S = 120


def stores(number: int) -> tuple[StoreDefinition, ...]:
    """Return so many stores."""
    return tuple(StoreDefinition(name=f"s{store}", format=StoreFormat.PLAIN) for store in range(number))


def make_fleet(processes: Processes, servers: str, scratch: Path, number: int, tasks: int) -> Path:
    """Make the changelogs of so many stores, each with a partition for each task, and all stores; return where."""
    definitions, state_dir = stores(number), scratch / "fleet"
    _fill(servers, [changelog_topic(APPLICATION, definition.name) for definition in definitions], tasks)
    result = scratch / "fleet.json"
    first = Order(
        work="restore",
        servers=servers,
        application=APPLICATION,
        stores=definitions,
        partitions=1,
        workers=1,  # the stores of a task share its lock
        state_dir=state_dir,
        result=result,
    )
    seconds_of(processes, first.command(), scratch, 1)
    done = TaskPaths(state_dir, APPLICATION, TaskId(0, 0))
    for partition in range(1, tasks):
        copy = TaskPaths(state_dir, APPLICATION, TaskId(0, partition))
        for source, target in ((done.task_dir, copy.task_dir), (done.own_dir, copy.own_dir)):
            shutil.copytree(source, target, copy_function=_copy)
        for definition in definitions:
            mine, its = (StorePartition(APPLICATION, definition.name, task.task) for task in (copy, done))
            sealed = read_checked(copy.seal(definition.name)).decode()
            write_checked(copy.seal(definition.name), sealed.replace(f'"{its}"', f'"{mine}"'))
    os.sync()
    return state_dir


def _copy(source: str, target: str) -> None:
    # SST files never change, so a link to one is as good as a copy.
    if source.endswith(".sst"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _fill(servers: str, names: list[str], partitions: int) -> None:
    topics = Cluster(servers, _TIMEOUT_S).topics
    for name in names:
        topics.create(name, partitions, {**changelog_config(stores(1)[0]), **_SMALL_INDEX})
    wait_until(lambda: len(topics.describe(names)) == len(names), _TIMEOUT_S, "the changelog topics to be there")
    producer = Producer(client_config(servers, **{"transactional.id": APPLICATION, "linger.ms": 20}))
    producer.init_transactions(_TIMEOUT_S)
    for name in names:
        producer.begin_transaction()
        for partition in range(partitions):
            for number in range(RECORDS):
                producer.produce(name, b"value-%d" % number, b"key-%d" % number, partition)
        producer.commit_transaction(_TIMEOUT_S)
