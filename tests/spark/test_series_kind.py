"""A kind of store that one file adds goes through everything that ours go through."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession
from statestore_jobs import process, restore, validate, verify

from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import DefinitionError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.loading import require_loadable
from statestore.model import TaskId
from statestore.reports import Status
from statestore.requests.process import ProcessRequest
from statestore.requests.restore import RestoreRequest
from statestore.requests.validate import ValidateRequest
from statestore.requests.verify import VerifyRequest
from statestore.statedir.paths import TaskPaths
from tests.integration.broker import T0, produce, unique
from tests.integration.catalogued import changed, defined
from tests.integration.support import register
from tests.spark.series_kind import KIND

MINUTE = 60_000
STORE = {"name": "series", "kind": "tests.spark.series_kind:KIND", "retention_ms": 4 * MINUTE}


_REQUESTS = {process: ProcessRequest, verify: VerifyRequest, restore: RestoreRequest, validate: ValidateRequest}


class Jobs:
    """Runs jobs for one application."""

    def __init__(self, settings: Settings, catalogue: Catalogue, application: str) -> None:
        self.settings = settings
        self._catalogue = catalogue
        self._application = application

    def __call__(self, job: ModuleType, **asked: Any) -> Any:
        request = _REQUESTS[job](applications=[self._application], **asked)
        return job.run(request, self.settings, self._catalogue, unique("run"))


@pytest.fixture
def application(bootstrap_servers: str) -> ApplicationDefinition:
    return defined(
        bootstrap_servers, partitions=1, processor="tests.spark.series_kind:measure", stores=[STORE], output_topics=[]
    )


@pytest.fixture
def jobs(spark: SparkSession, bootstrap_servers: str, application: ApplicationDefinition, tmp_path: Path) -> Jobs:
    settings = Settings(
        bootstrap_servers=bootstrap_servers,
        state_dir=tmp_path / "state",
        reports_dir=tmp_path / "reports",
        data_docs_dir=tmp_path / "docs",
        service_id=unique("service"),
        kafka_timeout_s=60,
    )
    require_loadable([application])
    metastore = register(bootstrap_servers, application, service_id=settings.service_id)
    return Jobs(settings, metastore.view().catalogue, application.name)


def read(spark: SparkSession, settings: Settings, application: str, **options: str) -> list[tuple[Any, ...]]:
    """What the data source `state_store` shows of the store."""
    options |= {"state_dir": str(settings.state_dir), "application": application, "store": "series"}
    options |= {"kind": STORE["kind"], "retention_ms": str(STORE["retention_ms"])}
    frame = spark.read.format("state_store").options(**options).load()
    assert frame.columns == ["partition", "key", "measured_at", "channel", "value", "timestamp"]
    return sorted(tuple(row)[1:5] for row in frame.collect())


@pytest.mark.long
def test_a_kind_from_one_file_is_applied_processed_verified_restored_validated_and_read(
    spark: SparkSession, jobs: Jobs, application: ApplicationDefinition
) -> None:
    settings = jobs.settings
    measured = [(b"k%d" % (at % 7), T0 + at * 10_000, at % 3, b"%d" % at) for at in range(60)]
    deleted = [(b"k2", T0 + 58 * 10_000, 1, b"")]
    rows = [(key, b"%d,%d,%s" % tuple(rest)) for key, *rest in (*measured, *deleted)]
    produce(settings.bootstrap_servers, application.input_topic, rows)
    assert [row.failure for row in jobs(process).rows] == [None]
    oldest = T0 + 59 * 10_000 - 4 * MINUTE
    alive = sorted((bytearray(key), *rest, bytearray(value)) for key, *rest, value in measured if rest[0] >= oldest)
    alive = [row for row in alive if row[:3] != deleted[0][:3]]
    assert 20 < len(alive) < 30

    def shown(**options: str) -> list[tuple[Any, ...]]:
        return [row for row in read(spark, settings, application.name, **options) if row[1] >= oldest]

    assert shown() == alive
    assert shown(key="6b33") == [row for row in alive if row[0] == b"k3"]
    later = T0 + 50 * 10_000
    assert shown(time_from=str(later)) == [row for row in alive if row[1] >= later]
    assert [row.status for row in jobs(verify, depth="deep").rows] == [Status.OK]

    store = TaskPaths(settings.state_dir, application.name, TaskId(0, 0)).live(application.stores[0])
    assert len(KIND.databases(store)) > 1
    shutil.rmtree(store)
    assert [row.status for row in jobs(verify, depth="offsets").rows] == [Status.MISSING]
    (restored,) = jobs(restore, check="deep").rows
    assert (restored.mode, restored.outcome, restored.failure) == ("full", "restored", None)
    assert shown() == alive
    (judged,) = jobs(validate).rows
    assert (judged.verdict, judged.keys >= len(alive)) == ("passed", True), judged
    (compared,) = jobs(verify, depth="deep").rows
    assert compared.status is Status.OK
    assert compared.contents.equal == compared.contents.store_rows >= len(alive)

    # And it goes on.
    produce(settings.bootstrap_servers, application.input_topic, [(b"k1", b"%d,9,x" % (T0 + 600_000))])
    assert [row.failure for row in jobs(process).rows] == [None]
    assert (bytearray(b"k1"), T0 + 600_000, 9, bytearray(b"x")) in shown()


def test_a_definition_that_does_not_say_what_its_kind_needs_is_refused_where_it_is_applied(
    application: ApplicationDefinition,
) -> None:
    without = changed(application, stores=[{**STORE, "retention_ms": None}])
    with pytest.raises(DefinitionError, match=r"store series: a series store has retention_ms.*found none"):
        require_loadable([without])
    elsewhere = changed(application, stores=[{**STORE, "kind": "no.such.module:KIND"}])
    with pytest.raises(DefinitionError, match=r"kind no\.such.module:KIND cannot be used"):
        require_loadable([elsewhere])
