"""One Spark session for all tests of this directory, and stores that a test fills and damages as it likes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from statestore_jobs import python_daemon
from statestore_jobs.sources.register import register

from demo.processes import wait_until
from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.model import StoreFormat
from tests.spark.logged_store import LoggedStore

#: Tests name offsets, so their changelogs must not be compacted. Kafka would do it at once: a record's timestamp in the
#: past and its transaction's marker of now are too far apart for one segment, and a closed segment may be compacted.
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two threads, with our data sources."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark would take whatever python3 is on PATH
    builder = SparkSession.builder.config(python_daemon.SETTING, python_daemon.__name__)
    builder = builder.config(python_daemon.SHARED, "false")
    session = (
        builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        # Tests run many small queries once: generating and compiling code for them takes longer than running them.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()


@pytest.fixture
def logged_store(bootstrap_servers: str, tmp_path: Path) -> Callable[..., LoggedStore]:
    """Make an application with one store, an empty changelog and an input topic of as many partitions."""

    def make(
        partitions: int = 1,
        store_format: StoreFormat = StoreFormat.TIMESTAMPED,
        expectations: str | None = None,
        topic_config: dict[str, str] = KEPT,
    ) -> LoggedStore:
        name = f"app-{uuid4().hex[:8]}"
        store = StoreDefinition(name="counts", format=store_format, expectations=expectations)
        application = ApplicationDefinition(name=name, input_topic=f"{name}-input", processor="a:b", stores=(store,))
        settings = Settings(
            bootstrap_servers=bootstrap_servers,
            state_dir=tmp_path / "state",
            reports_dir=tmp_path / "reports",
            data_docs_dir=tmp_path / "data_docs",
        )
        result = LoggedStore(application, settings, partitions)
        topics = Cluster(bootstrap_servers).topics
        names = (application.input_topic, result.topic)
        for name in names:
            topics.create(name, partitions, topic_config)
        wait_until(lambda: len(topics.describe(names)) == len(names), 120, f"topics {names} to be there")
        return result

    return make
