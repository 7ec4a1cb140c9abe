"""Rows that are older than their store's ttl, on a real broker: deleted exactly once, whatever comes between."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from statestore.definitions.fields import Engine
from statestore.definitions.store import StoreDefinition
from statestore.reports import Status
from statestore.statedir.record import ExpiryCursor, read_record
from tests.engines import ENGINES, each_engine
from tests.integration import dying
from tests.integration.broker import T0, consume, delete_records
from tests.integration.support import STORE, Application
from tests.oracle.rows import fold

TTL_MS = 1_000


def _application(servers: str, directory: Path, *, ttl_ms: int | None = TTL_MS, **settings: Any) -> Application:
    store = StoreDefinition(name=STORE, ttl_ms=ttl_ms, engine=settings.pop("engine", "txn_rocksDB"))
    return Application(servers, directory, processor="echo", stores=(store,), **settings)


def _redefined(application: Application, ttl_ms: int | None) -> None:
    store = application.definition.store(STORE)
    application.defined(stores=(store.model_copy(update={"ttl_ms": ttl_ms}),))


def _cursor(application: Application) -> ExpiryCursor | None:
    record = read_record(application.task_spec().paths, STORE)
    assert record is not None
    return record.expiry


def _kept(application: Application) -> set[bytes]:
    """Keys of the store, which must be the fold of its changelog, and be found equal to it by verification."""
    contents = application.contents()
    assert contents == fold(consume(application.servers, application.changelog)[0])
    assert application.verify("deep").status == Status.OK
    return set(contents)


@pytest.mark.behaviour("F12", "F13")
def test_old_rows_are_deleted_verified_and_stay_deleted_when_restored(bootstrap_servers: str, tmp_path: Path) -> None:
    application = _application(bootstrap_servers, tmp_path)
    row = application.process([(b"a", b"1"), (b"b", b"1")])
    assert (row.commits, row.stores[0].deleted) == (1, 0)
    application.process([(b"b", b"2")], T0 + 500)
    row = application.process([(b"c", b"1")], T0 + TTL_MS + 10)
    assert (row.commits, row.stores[0].deleted, row.changelog_records) == (2, 1, 2)
    assert _kept(application) == {b"b", b"c"}
    assert _cursor(application) == ExpiryCursor(offset=3, time=T0 + 500)
    assert application.process().commits == 0  # without input, time stands still
    shutil.rmtree(application.live)
    application.restore("full")
    assert _kept(application) == {b"b", b"c"}
    assert application.process([(b"d", b"1")], T0 + 2 * TTL_MS).stores[0].deleted == 1  # the cursor began anew
    assert _kept(application) == {b"c", b"d"}


_OF_DISK = "store recorded, not sealed"
#: The first commit of the run is that of its input, the second that of the deletes.
_POINTS = [
    "rows expired, not committed",
    "flushed, not committed:2",
    "Kafka committed, stores not:2",
    "store committed:2",
    "stores closed, nothing recorded",
    _OF_DISK,
]


@pytest.mark.short_for("txn_rocksDB-Kafka committed, stores not:2-exactly_once_v2")
@pytest.mark.behaviour("F13")
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
@pytest.mark.parametrize("point", _POINTS)
@each_engine
def test_killed_while_rows_expire_the_next_run_deletes_the_rest(
    bootstrap_servers: str, tmp_path: Path, engine: Engine, guarantee: str, point: str
) -> None:
    if not ENGINES[engine].on_disk and point == _OF_DISK:
        pytest.skip("a store in memory is not sealed")
    application = _application(bootstrap_servers, tmp_path, engine=engine, processing_guarantee=guarantee)
    application.process([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    application.process([(b"b", b"2")], T0 + 900)
    application.send([(b"d", b"1")], timestamp=T0 + TTL_MS + 10)
    dying.die_in(application.task_spec(), point)
    application.process([(b"e", b"1")], T0 + TTL_MS + 20)
    logged = consume(application.servers, application.changelog)[0]
    assert fold(logged).keys() == {b"b", b"d", b"e"}
    assert {record.key for record in logged if record.value is None} == {b"a", b"c"}
    if ENGINES[engine].on_disk:
        assert _kept(application) == {b"b", b"d", b"e"}


@pytest.mark.long
@pytest.mark.behaviour("F13")
def test_two_hosts_in_turn_and_a_lost_cursor_delete_the_same(bootstrap_servers: str, tmp_path: Path) -> None:
    application = _application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1")])
    application.process([(b"b", b"1")], T0 + 500)
    shutil.copytree(application.state_dir, tmp_path / "other")
    here = application.state_dir
    application.state_dir = tmp_path / "other"
    assert application.process([(b"c", b"1")], T0 + 1_200).stores[0].deleted == 1
    application.state_dir = here  # its cursor is an old one, and it lacks what was logged meanwhile
    assert application.process([(b"d", b"1")], T0 + 1_600).stores[0].deleted == 1
    assert _kept(application) == {b"c", b"d"}
    application.task_spec().paths.record(STORE).unlink()
    assert application.process([(b"e", b"1")], T0 + 2_300).stores[0].deleted == 1
    assert _kept(application) == {b"d", b"e"}


@pytest.mark.long
@pytest.mark.behaviour("F12")
def test_a_late_row_goes_once_time_has_moved_by_the_ttl(bootstrap_servers: str, tmp_path: Path) -> None:
    application = _application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1")], T0 + 5_000)
    application.process([(b"late", b"1")], T0)
    assert _kept(application) == {b"a", b"late"}
    application.process([(b"b", b"1")], T0 + 6_001)
    assert _kept(application) == {b"b"}


@pytest.mark.long
@pytest.mark.behaviour("F14")
def test_a_ttl_is_added_shortened_removed_and_added_again(bootstrap_servers: str, tmp_path: Path) -> None:
    application = _application(bootstrap_servers, tmp_path, ttl_ms=None)
    for number in range(5):
        application.process([(b"k%d" % number, b"1")], T0 + number * 1_000)
    _redefined(application, 3_000)
    assert application.process().commits == 0
    assert application.process([(b"k5", b"1")], T0 + 5_000).stores[0].deleted == 2
    _redefined(application, 1_000)
    assert application.process([(b"k6", b"1")], T0 + 5_500).stores[0].deleted == 3
    _redefined(application, None)
    application.process([(b"k7", b"1")], T0 + 9_000)
    assert _kept(application) == {b"k5", b"k6", b"k7"}
    _redefined(application, 1_000)
    assert application.process([(b"k8", b"1")], T0 + 9_100).stores[0].deleted == 2
    assert _kept(application) == {b"k7", b"k8"}


@pytest.mark.long
@pytest.mark.behaviour("F13")
def test_a_log_that_lost_its_start_is_read_from_where_it_starts(bootstrap_servers: str, tmp_path: Path) -> None:
    application = _application(bootstrap_servers, tmp_path, changelog_config={"cleanup.policy": "delete"})
    application.process([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    delete_records(bootstrap_servers, application.changelog, 1)
    application.process([(b"d", b"1")], T0 + TTL_MS + 10)
    assert set(application.contents()) == {b"a", b"d"}  # nothing names the row whose record was cut off
