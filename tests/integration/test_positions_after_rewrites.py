"""A store that is rebuilt after an append or a rewrite knows its position, and its task can resume from there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statestore.definitions.store import StoreDefinition
from statestore.kafka.partitioner import partition_of
from statestore.model import TopicPartition
from statestore.tasks import ProcessorContext, Record, ValueTimestampHeaders
from tests.integration import broker
from tests.integration.broker import T0
from tests.integration.catalogued import CatalogueCommand
from tests.integration.overwriting import Upserting
from tests.integration.support import STORE, Application
from tests.integration.test_overwrite import Overwritable
from tests.integration.test_repartition import KEYS as ALL_KEYS
from tests.integration.test_repartition import Two
from tests.integration.test_transform import Transformable
from tests.integration.test_upsert import CHANGES

pytestmark = pytest.mark.behaviour("R17", "K21")


def keep_with_headers(record: Record, context: ProcessorContext) -> None:
    stored = ValueTimestampHeaders(record.value, record.timestamp, record.headers)
    context.state_store(STORE).put(record.key, stored)


def positions(application: Application) -> list[dict[TopicPartition, int]]:
    return [application.position(task) for task in range(application.partitions)]


def assert_resumes(application: Application, expected: list[dict[TopicPartition, int]]) -> None:
    """Each store is rebuilt from its changelog, and its task, without any other offset, reads only what follows."""
    tasks = range(application.partitions)
    assert all(expected), "each task has read something"
    assert [application.rebuilt_position(task) for task in tasks] == expected
    application.forget_offsets()
    for task in tasks:
        key = next(key for key in ALL_KEYS if partition_of(key, application.partitions) == task)
        application.send([(key, b"1")], task, T0 + 5_000)
        row = application.run(task, resume_from_position=True)
        assert (row.failure, row.records_in) == (None, 1)


@pytest.fixture
def store(bootstrap_servers: str, tmp_path: Path) -> Overwritable:
    return Overwritable(bootstrap_servers, tmp_path)


def test_a_task_resumes_after_its_stores_were_appended_to_overwritten_and_rebuilt(store: Overwritable) -> None:
    before = positions(store.app)
    Upserting(store.write._replace(rows=CHANGES)).carry_out()
    assert [store.app.rebuilt_position(task) for task in range(2)] == before
    store.write.carry_out()
    store.now()
    assert_resumes(store.app, before)


@pytest.mark.long
@pytest.mark.parametrize("known", [True, False])
def test_rows_that_are_appended_to_a_lost_store_have_the_position_of_its_log(store: Overwritable, known: bool) -> None:
    before = positions(store.app)
    if not known:  # another program has written to the log since
        for task in range(2):
            broker.transaction(store.app.servers, store.now(), [(b"other", b"1")], partition=task)
        broker.settle(store.app.servers, store.now())
    shutil.rmtree(store.app.state_dir / store.app.name)
    Upserting(store.write._replace(rows=CHANGES)).carry_out()
    assert positions(store.app) == (before if known else [{}, {}])
    if known:
        assert_resumes(store.app, before)


@pytest.mark.long
def test_a_task_that_works_at_least_once_resumes_after_rows_were_appended(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    """Its own changes have no positions in the log, but a store that was closed knows how far it is."""
    store = Overwritable(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    before = positions(store.app)
    Upserting(store.write._replace(rows=CHANGES)).carry_out()
    assert_resumes(store.app, before)


@pytest.mark.long
def test_a_task_resumes_after_its_stores_were_transformed_and_rebuilt(bootstrap_servers: str, tmp_path: Path) -> None:
    stores = Transformable(bootstrap_servers, tmp_path)
    before = positions(stores.app)
    stores.work.carry_out()
    stores.now()
    assert [stores.app.rebuilt_position(task) for task in range(2)] == before


@pytest.mark.long
@pytest.mark.parametrize(("partitions", "into"), [(2, 2), (2, 3), (4, 2)])
def test_a_task_of_an_application_that_was_made_of_another_resumes(
    command: CatalogueCommand, tmp_path: Path, partitions: int, into: int
) -> None:
    def read_from(two: Two) -> None:
        if partitions == into:
            two.target.input = two.source.input
            two.target.defined(input_topic=two.source.input)

    two = Two(command, tmp_path, partitions, into, change=read_from)
    two.source.process_all(ALL_KEYS)
    if partitions != into:
        for key in ALL_KEYS:
            two.target.send([(key, b"1")], partition_of(key, into))
    two.repartition("--yes", "--reads-from", "end")
    two.prepare_target()
    if partitions == into:
        assert positions(two.target) == positions(two.source)
    assert_resumes(two.target, positions(two.target))


@pytest.mark.long
def test_a_store_that_keeps_headers_says_why_its_task_cannot_resume(bootstrap_servers: str, tmp_path: Path) -> None:
    """A position in its log would become a part of a row."""
    definition = StoreDefinition(name=STORE, format="headers")
    application = Application(bootstrap_servers, tmp_path, stores=[definition])
    application.defined(processor=f"{__name__}:keep_with_headers")
    application.process([(b"a", b"1")])
    assert application.position() == {TopicPartition(application.input, 0): 0}
    assert application.rebuilt_position() == {}
    application.forget_offsets()
    application.send([(b"a", b"1")], timestamp=T0 + 100)
    failure = application.failure("InputOffsetError", resume_from_position=True)
    assert "a changelog of rows with headers has no positions" in failure.evidence
