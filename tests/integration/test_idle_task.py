"""A task without input and with nothing to replay opens nothing, and what is wrong with it is noticed all the same."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statestore.definitions.aggregation import AggregationDefinition, TimeWindows
from statestore.errors import FencedError
from statestore.kafka.cluster import Cluster
from statestore.kafka.writer import TransactionalWriter
from statestore.model import TaskId, TopicPartition, transactional_id
from statestore.reports import ProcessRow
from statestore.statedir.record import read_record, write_record
from tests.integration import broker
from tests.integration.broker import T0, Row
from tests.integration.support import STORE, Application

INPUT: list[Row] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")]


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    application = Application(bootstrap_servers, tmp_path)
    application.process(INPUT)
    return application


def _files(directory: Path) -> dict[Path, tuple[int, int, int]]:
    """All files, each with what tells that it was written or made anew."""
    found = {path: path.stat() for path in directory.rglob("*") if path.is_file()}
    return {path: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def _without_times(row: ProcessRow) -> ProcessRow:
    """Return a row without times, and without figures that only a task with opened stores has."""
    assert row.seconds > 0
    stores = tuple(store.model_copy(update={"thread": "", "scope": ""}) for store in row.stores)
    times = dict.fromkeys(("seconds", "recover_seconds", "process_seconds"), 0.0)
    return row.model_copy(update={**times, "stores": stores})


def _opens(application: Application, **changes: Any) -> ProcessRow:
    """Run the task, which must open its store."""
    before = _files(application.live)
    row = application.run(**changes)
    assert row.failure is not None or _files(application.live) != before
    return row


def _writer(application: Application) -> TransactionalWriter:
    name = transactional_id(application.name, TaskId(0, 0))
    writer = TransactionalWriter(Cluster(application.servers, 60), name)
    writer.init()
    writer.begin()
    return writer


@pytest.mark.short_for("window")
@pytest.mark.parametrize("window", [False, True], ids=["key-value", "window"])
def test_an_idle_task_opens_nothing_and_reports_what_an_opened_one_does(
    bootstrap_servers: str, tmp_path: Path, window: bool
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    if window:
        windows = TimeWindows(size_ms=1_000, grace_ms=1_000)
        application.extend(aggregations=(AggregationDefinition(store="windows", windows=windows),))
    application.process(INPUT)
    application.store_spec().paths.seal(STORE).unlink()
    opened = _opens(application)
    before = _files(application.state_dir)
    idle = application.run()
    assert _files(application.state_dir) == before
    assert _without_times(idle) == _without_times(opened)
    assert (idle.failure, idle.lag, idle.commits) == (None, 0, 0)
    application.process([(b"a", b"3")], T0 + 10)
    application.assert_oracle()


@pytest.mark.long
def test_input_that_is_lost_before_it_is_read_is_reported_by_the_first_run(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.send(INPUT)
    Cluster(bootstrap_servers, 60).topics.delete_records({TopicPartition(application.input, 0): len(INPUT)})
    for never_read in (len(INPUT), 0):
        row = application.run()
        assert (row.failure, row.records_in, row.lag, row.never_read) == (None, 0, 0, never_read)
    row = application.process([(b"a", b"3")])
    assert (row.records_in, row.never_read) == (1, 0)


@pytest.mark.long
def test_a_task_that_never_had_input_is_opened_once(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    first = application.process()
    before = _files(application.state_dir)
    second = application.process()
    assert _files(application.state_dir) == before
    assert (first.commits, second.commits) == (1, 0), "the first run records where the task continues"
    assert _without_times(second) == _without_times(first.model_copy(update={"commits": 0}))
    application.process(INPUT)
    application.assert_oracle()


def test_an_idle_task_fences_nobody(application: Application) -> None:
    later = _writer(application)
    later.produce(application.output, b"k", b"v", T0)
    later.flush()
    assert application.run().failure is None
    later.commit()
    later.close()


def test_a_former_attempt_whose_transaction_is_open_is_fenced(application: Application) -> None:
    former = _writer(application)
    former.produce(application.changelog, b"a", b"9", T0, 0)
    former.flush()
    assert _opens(application).failure is None
    with pytest.raises(FencedError):
        former.commit()
    former.close()
    application.assert_oracle()


@pytest.mark.long
def test_what_somebody_else_has_logged_is_replayed(application: Application) -> None:
    broker.transaction(application.servers, application.changelog, [(b"x", b"1")])
    assert _opens(application).restored == 1


def _lose_a_file(application: Application) -> None:
    next(application.live.glob("*.sst")).unlink()


def _cut_the_manifest(application: Application) -> None:
    path = next(application.live.glob("MANIFEST-*"))
    path.write_bytes(path.read_bytes()[:-20])


def _lose_the_store(application: Application) -> None:
    shutil.rmtree(application.live)


@pytest.mark.short_for("_cut_the_manifest")
@pytest.mark.parametrize("damage", [_lose_a_file, _cut_the_manifest, _lose_the_store])
def test_a_damaged_store_is_noticed_and_rebuilt(
    application: Application, damage: Callable[[Application], None]
) -> None:
    damage(application)
    row = _opens(application)
    assert row.failure is None
    assert row.restored > 0
    application.assert_oracle()


@pytest.mark.long
def test_a_lost_record_or_seal_has_the_store_opened(application: Application) -> None:
    paths = application.store_spec().paths
    for path in (paths.record(STORE), paths.seal(STORE), paths.shape):
        assert application.run().failure is None
        path.unlink()
        assert _opens(application).failure is None
        assert path.exists()


def test_a_changelog_that_was_made_anew_is_told(application: Application) -> None:
    spec = application.task_spec()
    other = {STORE: spec.changelogs[STORE].model_copy(update={"topic_id": "another"})}
    row = _opens(application, changelogs=other)
    assert row.failure.kind == "ChangelogReplacedError"


@pytest.mark.long
def test_a_store_is_recorded_anew_long_before_its_tail_may_not_be_replayed(application: Application) -> None:
    paths = application.store_spec().paths
    record = read_record(paths, STORE)
    half_ms = application.delete_retention_ms // 2
    write_record(paths, STORE, record.model_copy(update={"caught_up_ms": int(time.time() * 1000) - half_ms}))
    assert _opens(application).failure is None
    found = read_record(paths, STORE)
    assert found.caught_up_ms >= record.caught_up_ms
