"""The real Kafka Streams for the interop tests: fetched and compiled once per session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka_streams import Driver, KafkaStreams, build_driver

from demo.kafka_jars import find_java
from demo.processes import Processes
from tests.interop import compatibility


@pytest.hookimpl(trylast=True)  # pytest itself sorts by stores
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the steps of the matrix in order: the last one lets logs grow, and so ends what the others look at."""
    ordered = iter(sorted(filter(compatibility.order, items), key=compatibility.order))
    items[:] = [next(ordered) if compatibility.order(item) else item for item in items]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The compiled driver; whatever it has started ends with the session."""
    directory = tmp_path_factory.mktemp("kafka-streams")
    with Processes(directory) as processes:
        yield build_driver(processes, find_java(), directory)


@pytest.fixture(scope="session")
def kafka_streams(driver: Driver, bootstrap_servers: str) -> Callable[..., KafkaStreams]:
    """Make an application of its own, with an empty input topic; arguments as of `KafkaStreams`."""

    def make(**arguments: object) -> KafkaStreams:
        return KafkaStreams(driver, bootstrap_servers, **arguments)  # type: ignore[arg-type]

    return make
