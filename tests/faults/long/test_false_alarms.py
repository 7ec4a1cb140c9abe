"""Nothing is wrong, and verification says so: after 100 restarts, those of Kafka Streams on our stores among them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from statestore_jobs.planning import task_specs

from demo.kafka_jars import find_java
from demo.processes import Processes
from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.kafka.cluster import Cluster
from statestore.model import changelog_topic
from statestore.reports import Status
from statestore.requests.verify import DEPTHS
from statestore.tasks.spec import TaskSpec
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.faults.children import Child
from tests.faults.damage import commands
from tests.faults.damage.restarts import Restarts
from tests.integration.broker import settle
from tests.interop.kafka_streams import Driver, KafkaStreams, build_driver

SEED = int(os.environ.get("FAULTS_SEED", "1"))
APPLICATIONS, RESTARTS = 6, 15


@pytest.mark.share_for("0", why="with stores without transactions")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("number", range(APPLICATIONS))
def test_restarts_of_a_whole_application_raise_no_alarm(bootstrap_servers: str, tmp_path: Path, number: int) -> None:
    restarts = Restarts(bootstrap_servers, tmp_path, SEED * 1_000 + number)
    restarts.verify_before_anything()
    for _ in range(RESTARTS):
        restarts.restart()
    restarts.end()
    assert restarts.seen[Status.OK] > 0


# -- Kafka Streams on our stores --------------------------------------------------------------------------------------

TURNS = 5


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The real Kafka Streams."""
    directory = tmp_path_factory.mktemp("kafka-streams")
    with Processes(directory) as processes:
        yield build_driver(processes, find_java(), directory)


@pytest.mark.timeout(1_200)
def test_a_store_that_kafka_streams_had_is_unsealed_and_no_damage(
    driver: Driver, bootstrap_servers: str, tmp_path: Path
) -> None:
    app = KafkaStreams(driver, bootstrap_servers, partitions=1)
    definition, state_dir, chance = commands.definition_of(app), tmp_path / "state", random.Random(SEED)
    for turn in range(TURNS):
        found = list(commands.commands(chance, 2 * turn, 60))
        restored = app.write(state_dir, commands.STORES, found).restored
        assert set(restored.values()) == {0}, f"Kafka Streams restored {restored}"
        _assert_whole(definition, bootstrap_servers, state_dir, sealed=False)

        commands.produce(app, commands.commands(chance, 2 * turn + 1, 60))
        (spec,) = _specs(definition, bootstrap_servers, state_dir)
        (row,) = Child([spec], tmp_path / "run").rows()
        assert row.failure is None, row.failure
        assert (row.records_in, row.restored) == (60, 0)
        _assert_whole(definition, bootstrap_servers, state_dir, sealed=True)


def _assert_whole(definition: ApplicationDefinition, servers: str, state_dir: Path, *, sealed: bool) -> None:
    settle(servers, *(changelog_topic(definition.name, store.name) for store in definition.stores))
    (spec,) = _specs(definition, servers, state_dir)
    for store in definition.stores:
        for depth in DEPTHS:
            row = verify(spec.store_partition(store.name), VerifyOptions(depth))
            assert row.status is Status.OK, f"{store.name}, {depth}: {row.status}: {row.detail}"
            assert row.sealed is sealed, f"{store.name}, {depth}: sealed: {row.sealed}"


def _specs(definition: ApplicationDefinition, servers: str, state_dir: Path) -> list[TaskSpec]:
    settings = Settings(
        bootstrap_servers=servers,
        state_dir=state_dir,
        reports_dir=state_dir / "reports",
        data_docs_dir=state_dir / "docs",
        kafka_timeout_s=60,
    )
    return task_specs(settings, Cluster(servers, 60).topics, definition)


def test_at_least_100_restarts_are_looked_at() -> None:
    assert APPLICATIONS * RESTARTS + 2 * TURNS >= 100
