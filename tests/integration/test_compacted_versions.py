"""Versioned stores whose log was compacted: it keeps the record that was logged last, which need not be the latest."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
from statestore_jobs.nodes import run_here

from statestore.changelog.topic_settings import changelog_config
from statestore.partition.quarantine import clean_quarantine
from statestore.reports import Action, Loss, Status
from statestore.statedir.record import read_record, write_record
from statestore.statedir.seal import break_seal
from statestore.stores.open import build_store
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration import broker
from tests.integration.archived import TINY_RUN, Archived
from tests.integration.broker import consume
from tests.integration.compaction import EAGER
from tests.integration.support import Application
from tests.integration.test_versioned_jobs import BEGIN, MINUTE, RETENTION_MS, VERSIONED, opened

pytestmark = pytest.mark.long
DAYS = 86_400_000
#: Older than the log's `min.compaction.lag.ms`, by the brokers' clock.
LONG_AGO = BEGIN - 5 * DAYS
LATEST = LONG_AGO + 5 * MINUTE
STORE = VERSIONED.name
PROCESSOR = "tests.integration.test_versioned_jobs:keep"


def latest(application: Archived) -> bytes | None:
    """The latest value of the key whose latest version was not logged last."""
    store = opened(application)
    found = store.get(b"k")
    store.close(clean=False)
    return None if found is None else found.value


@pytest.fixture(scope="module")
def written(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Archived:
    """An application whose log lacks what its store has; in `earlier`, its state directory of two commits ago."""
    broker.make_compaction_eager(bootstrap_servers)
    directory = tmp_path_factory.mktemp("compacted")
    config = {**changelog_config(VERSIONED), **EAGER}
    app = Archived(bootstrap_servers, directory, stores=[VERSIONED], changelog_config=config)
    app.defined(processor=PROCESSOR)
    app.process([(b"k", b"%013dnew" % LATEST), (b"k", b"%013dold, logged later" % (LONG_AGO + MINUTE))])
    shutil.copytree(app.state_dir, directory / "earlier")
    for number in (1, 2):  # the newest segment of a log is never compacted
        app.process([(b"z", b"%013dz" % (LATEST + number * 1_000))])
    broker.wait_for(lambda: all(record.offset for record in consume(app.servers, app.changelog)[0]), "compaction")
    assert latest(app) == b"new"
    return app


@pytest.fixture
def application(written: Archived, tmp_path: Path) -> Archived:
    app = copy.copy(written)
    app.state_dir = tmp_path / "state"
    shutil.copytree(written.state_dir, app.state_dir)
    return app


def of_long_ago(application: Archived, written: Archived) -> Archived:
    """The same, as it was before its last commits, two days later."""
    shutil.rmtree(application.state_dir)
    shutil.copytree(written.state_dir.with_name("earlier"), application.state_dir)
    paths = application.store_spec().paths
    record = read_record(paths, STORE)
    assert record is not None
    write_record(paths, STORE, record.model_copy(update={"caught_up_ms": record.caught_up_ms - 2 * DAYS}))
    return application


@pytest.mark.behaviour("V4")
@pytest.mark.parametrize("way", ["run", "restore"])
def test_a_store_that_was_behind_for_long_gets_its_tail(application: Archived, written: Archived, way: str) -> None:
    behind = of_long_ago(application, written)
    found = behind.verify("scan")
    assert (found.status, found.action, found.loss) == (Status.LAGGING, Action.TAIL, Loss.UNPROVEN), found
    if way == "run":
        row = behind.run()
        assert row.failure is None
        assert [store.rebuilt for store in row.stores] == [None]
    else:
        assert behind.restore().mode == "tail"
    assert latest(behind) == b"new"


@pytest.mark.behaviour("V4")
def test_a_store_is_kept_that_its_log_may_not_give_again(application: Archived) -> None:
    (application.live / "CURRENT").unlink()
    found = application.verify("scan")
    assert (found.status, found.action, found.loss) == (Status.CORRUPT, Action.FULL, Loss.UNPROVEN), found
    row = application.restore()
    assert (row.mode, row.exact) == ("full", False)
    spec = application.store_spec()
    clean_quarantine(spec.paths, spec.store, 0)
    assert row.quarantine is not None
    assert Path(row.quarantine).exists()


@pytest.mark.behaviour("V4")
@pytest.mark.parametrize("way", ["run", "restore", "restore, its files are lost"])
def test_a_lost_store_comes_from_its_snapshot_however_short_its_log_is(application: Archived, way: str) -> None:
    if way == "restore, its files are lost":
        shutil.rmtree(application.live)
    else:
        application.lose_all()
    if way == "run":
        row = run_here(application.task_spec(archive=application.archive), "run", TINY_RUN)
        assert row.failure is None, row
    else:
        assert application.restored("auto").mode == "snapshot"
    assert latest(application) == b"new"
    assert application.verify("deep").status is Status.OK


def test_what_a_rebuild_may_lack_is_said_if_nothing_else_is_left(application: Archived) -> None:
    application.lose_all()
    row: Any = application.restore()
    assert (row.mode, row.exact) == ("full", False)
    assert latest(application) == b"old, logged later"


def test_snapshots_stay_those_of_a_store_that_its_log_may_not_give_again(application: Archived) -> None:
    """A store that is built from its log alone begins a generation, so no clean-up takes it for their heir."""
    row = application.restored("full", force=True)
    assert row.exact is False
    assert row.published is not None
    assert str(row.published.snapshot).startswith("00000001-"), row.published


def test_a_store_that_a_task_built_from_the_log_alone_is_not_published(application: Archived) -> None:
    """Clean-up would take it for the heir of the snapshots, which have more."""
    application.lose_all()
    (published,) = application.run().snapshots
    assert published.failure is not None
    assert "its changelog was compacted" in published.failure.message


@pytest.fixture
def eager(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application whose log has no markers: these have the time of now."""
    broker.make_compaction_eager(bootstrap_servers)
    config = {**changelog_config(VERSIONED), **EAGER}
    app = Application(bootstrap_servers, tmp_path, stores=[VERSIONED], changelog_config=config)
    return app.defined(processor=PROCESSOR, processing_guarantee="at_least_once")


def logged(application: Application) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in consume(application.servers, application.changelog)[0]]


@pytest.mark.behaviour("V5")
def test_a_record_that_came_too_late_is_no_divergence_once_nothing_tells_that_it_did(eager: Application) -> None:
    eager.process([(b"z", b"%013done" % LATEST)])
    # As Kafka Streams logs a record that its store does not take.
    broker.produce(eager.servers, eager.changelog, [(b"late", b"x")], timestamp=LATEST - 10 * RETENTION_MS)
    broker.settle(eager.servers, eager.changelog)
    spec = eager.store_spec()
    break_seal(spec.paths, STORE)
    store = build_store(spec.store)
    store.init(spec.context())
    store.commit({spec.partition: 1})
    store.close(clean=True)
    for number in (1, 2, 3):
        eager.process([(b"z", b"%013dmore" % (LATEST + number * 1_000))])
    broker.wait_for(lambda: (b"z", b"one") not in logged(eager), "compaction")
    of_kafka_streams = verify(eager.store_spec(owned=False), VerifyOptions("deep"))
    assert of_kafka_streams.status is Status.OK
    ours = eager.verify("deep").contents  # of our own logs, none has such a record
    assert ours is not None
    assert (ours.only_in_log, ours.differing) == (1, 1)


@pytest.mark.behaviour("V5")
def test_a_value_is_no_divergence_whose_earlier_delete_was_compacted_away(eager: Application) -> None:
    broker.set_topic_config(eager.servers, eager.changelog, delete_retention_ms="0")
    eager.delete_retention_ms = 0
    eager.process([(b"k", b"%013dlive" % LATEST), (b"k", b"%013d" % (LATEST - MINUTE))])
    for number in range(1, 100):  # the cleaner drops a delete when it comes by again
        eager.process([(b"z", b"%013dmore" % (LATEST + number * 1_000))])
        if all(key != b"k" for key, _ in logged(eager)):
            break
    assert all(key != b"k" for key, _ in logged(eager))
    found = eager.verify("deep")
    assert found.contents is not None
    assert found.status is Status.OK
    assert found.contents.not_judged > 0
