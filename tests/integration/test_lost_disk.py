"""A disk is lost, with the records below `.statestore` or without them, and a changelog has lost its start.

The log is evidence of rows that it no longer has. No task begins with the rest of it: it stops, or has the rows of a
snapshot, until a person accepts the loss, who is asked only once.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from statestore_jobs.nodes import run_here

from demo.kafka import Kafka
from demo.processes import Processes
from statestore import kill_switch
from statestore.changelog.topic_settings import OFFSETS_CONFIG
from statestore.definitions.aggregation import AggregationDefinition, Sessions, TimeWindows
from statestore.definitions.store import StoreDefinition
from statestore.discovery.changelogs import changelog_spec
from statestore.kafka.cluster import Cluster
from statestore.partition.restore_points import restore_points
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.planning import plan_restore
from statestore.recovery.restore import restore
from statestore.recovery.snapshot_building import SnapshotSpec, snapshot_from_log
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.warming import Warming, plan_warming, warm_stores
from statestore.reports import Action, Loss, ProcessRow, RestoreRow, Status, VerifyRow
from statestore.requests.restore import RestoreRequest
from statestore.tasks.spec import TaskSpec
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from statestore.verification.restore_points import with_restore_points
from tests.integration import broker, dying
from tests.integration.archived import TINY_RUN, Archived
from tests.integration.broker import T0, consume, create_topic, delete_records, produce, set_topic_config
from tests.integration.support import STORE, Application

DELETED = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
MINUTE_MS = 60_000
PRECIOUS = [(b"precious-%02d" % number, b"1") for number in range(20)]
KINDS: dict[str, dict[str, Any]] = {
    "key-value": {},
    "window": {"windows": TimeWindows(size_ms=10 * MINUTE_MS, grace_ms=50 * MINUTE_MS)},
    "session": {"sessions": Sessions(gap_ms=10 * MINUTE_MS, grace_ms=50 * MINUTE_MS)},
}
COUNTING = "tests.integration.support:number_of"
Setup = Literal["alone", "archive", "nodes"]
NODE = "a"


class OnDisk(Archived):
    """An application with a disk that can be lost: alone, with an archive, or as nodes with an archive have them."""

    def __init__(self, servers: str, directory: Path, setup: Setup = "alone", kind: str = "key-value", **settings: Any):
        super().__init__(servers, directory, changelog_config=DELETED, **settings)
        self.setup = setup
        self.archive = self.archive.model_copy(update={"node_local": setup == "nodes"})
        if how := KINDS[kind]:
            aggregation = AggregationDefinition(store=STORE, aggregate=COUNTING, **how)
            self.extend(processor=None, stores=(), aggregations=(aggregation,))
            set_topic_config(servers, self.changelog, cleanup_policy="compact,delete", retention_ms="-1")

    @property
    def has_archive(self) -> dict[str, Any]:
        return {"archive": None if self.setup == "alone" else self.archive}

    def task_spec(self, partition: int = 0, **changes: Any) -> TaskSpec:
        return super().task_spec(partition, **{**self.has_archive, **changes})

    def store_spec(self, partition: int = 0, store: str | None = None, **changes: Any) -> StorePartitionSpec:
        return super().store_spec(partition, store, **{**self.has_archive, **changes})

    def run(self, partition: int = 0, **changes: Any) -> ProcessRow:
        """Run the task, after the job has brought its stores."""
        row = run_here(self.task_spec(partition, **changes), "run", TINY_RUN)
        broker.settle(self.servers, self.output, self.changelog)
        return row

    def fill(self) -> None:
        """Log precious rows and one more, and lose the log up to that one."""
        self.process(PRECIOUS)
        self.process([(b"last", b"1")], T0 + 100)
        delete_records(self.servers, self.changelog, consume(self.servers, self.changelog)[0][-1].offset)

    def lose_disk(self, *, records: bool = True) -> None:
        """Lose the stores, and what is recorded of them or not."""
        shutil.rmtree(self.state_dir if records else self.state_dir / self.name)

    def fill_and_lose(self, *, records: bool = True) -> None:
        """Fill the log and cut it, lose the disk, and send more input for a lost row."""
        self.fill()
        self.lose_disk(records=records)
        self.send([(b"precious-00", b"1")], timestamp=T0 + 200)

    def log_end(self) -> int:
        return consume(self.servers, self.changelog)[1]

    def judged(self, depth: Any = "scan") -> VerifyRow:
        """Verify the store as the job does."""
        spec = self.store_spec()
        (row,) = with_restore_points([spec], [verify(spec, VerifyOptions(depth))], depth)
        return row

    def restoring(self, mode: Any = "auto", **how: Any) -> RestoreRow:
        """Restore the store, whatever comes of it."""
        request = RestoreRequest(mode=mode, **how)
        return restore(RestoreSpec(self.store_spec(), request, broker.unique("restore"), TINY_RUN))

    def rows(self) -> int:
        """Verify the store on the disk deeply, and return its number of rows."""
        spec = self.store_spec(archive=None)
        row = verify(spec, VerifyOptions("deep"))
        assert row.status is Status.OK, row
        assert row.contents is not None
        assert row.keys is not None
        assert row.contents.differing == 0
        return row.keys

    def assert_stops(self) -> None:
        """Run the task: it stops and logs nothing, and its store stays as it is."""
        before = self.log_end()
        row = self.run()
        assert row.failure is not None
        assert "its changelog begins at offset" in row.failure.evidence
        assert "Next: statestore restore" in row.failure.message
        assert self.log_end() == before


GUARANTEES = ["exactly_once_v2", "at_least_once"]


@pytest.mark.short_for("True-exactly_once_v2-key-value", "False-at_least_once-session")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("records", [True, False])
def test_a_lost_store_is_not_begun_with_the_rest_of_its_log(
    bootstrap_servers: str, tmp_path: Path, records: bool, guarantee: Any, kind: str
) -> None:
    app = OnDisk(bootstrap_servers, tmp_path, kind=kind, processing_guarantee=guarantee)
    app.fill_and_lose(records=records)
    for _ in range(2):
        found = app.judged()
        assert (found.status, found.action, found.loss) == (Status.MISSING, Action.BY_HAND, Loss.LIKELY)
        assert app.judged("offsets").action is Action.BY_HAND
        app.assert_stops()
    assert app.restoring().failure is not None
    assert app.restoring("full", force=True).failure is not None
    assert app.judged().loss is Loss.LIKELY, "nobody has accepted it"

    accepted = app.restoring(accept_loss=True)
    assert (accepted.failure, accepted.mode) == (None, "full")
    for _ in range(2):
        row = app.run()
        assert row.failure is None, row.failure
        assert (app.judged("deep").status, app.judged().loss) == (Status.OK, Loss.NONE)
    assert app.rows() == 2
    app.lose_disk(records=False)
    assert app.judged().loss is Loss.NONE, "it is asked again what was accepted"
    assert app.run().failure is None


@pytest.mark.short_for("True-key-value")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("records", [True, False])
def test_a_snapshot_has_what_the_log_of_a_lost_store_lost(
    bootstrap_servers: str, tmp_path: Path, records: bool, kind: str
) -> None:
    app = OnDisk(bootstrap_servers, tmp_path, "archive", kind)
    app.fill_and_lose(records=records)
    found = app.judged()
    assert (found.status, found.action, found.loss) == (Status.MISSING, Action.FULL, Loss.LIKELY)
    assert "has what the changelog has lost" in found.detail
    app.assert_stops()
    plan = plan_restore(RestoreSpec(app.store_spec(), RestoreRequest(dry_run=True), "plan", TINY_RUN))
    assert (plan.failure, plan.mode) == (None, "snapshot")
    row = app.restoring()
    assert (row.failure, row.mode, row.keys) == (None, "snapshot", 21)
    done = app.run()
    assert done.failure is None, done.failure
    assert [found.failure for found in done.snapshots] == [None]
    assert app.rows() == 21
    if kind == "key-value":
        assert app.contents()[b"precious-00"].value == b"2"


@pytest.mark.short_for("True-key-value")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("records", [True, False])
def test_a_node_brings_what_the_log_of_a_lost_store_lost(
    bootstrap_servers: str, tmp_path: Path, records: bool, kind: str
) -> None:
    app = OnDisk(bootstrap_servers, tmp_path, "nodes", kind)
    app.fill_and_lose(records=records)
    row = app.run()
    assert row.failure is None, row.failure
    assert app.rows() == 21


@pytest.mark.short_for("key-value")
@pytest.mark.parametrize("kind", KINDS)
def test_a_node_without_a_snapshot_stops(bootstrap_servers: str, tmp_path: Path, kind: str) -> None:
    app = OnDisk(bootstrap_servers, tmp_path, "nodes", kind, processing_guarantee="at_least_once")
    app.fill()
    app.lose_disk()
    app.send([(b"more", b"1")], timestamp=T0 + 200)
    found = app.judged()
    assert (found.action, found.loss) == (Action.BY_HAND, Loss.LIKELY)
    before = app.log_end()
    failure = app.run().failure
    assert failure is not None
    assert "--accept-loss" in failure.message
    assert app.log_end() == before
    assert app.restoring("full", accept_loss=True).failure is None
    for _ in range(2):
        done = app.run()
        assert done.failure is None, done.failure
    assert app.rows() == 2


def test_a_log_of_which_nothing_is_left_is_no_new_one(bootstrap_servers: str, tmp_path: Path) -> None:
    app = OnDisk(bootstrap_servers, tmp_path)
    app.process(PRECIOUS)
    delete_records(bootstrap_servers, app.changelog, -1)
    app.lose_disk()
    found = app.judged()
    assert (found.status, found.action, found.loss) == (Status.MISSING, Action.BY_HAND, Loss.LIKELY)
    app.send([(b"precious-00", b"1")])
    app.assert_stops()
    assert app.restoring(accept_loss=True).keys == 0
    assert app.process().records_in == 1
    assert app.rows() == 1
    assert app.judged().loss is Loss.NONE


def test_a_task_killed_before_it_refused_does_not_begin_the_next_time(bootstrap_servers: str, tmp_path: Path) -> None:
    app = OnDisk(bootstrap_servers, tmp_path)
    app.fill()
    app.lose_disk()
    app.send([(b"more", b"1")])
    dying.die_in(app.task_spec(), "transactions initialized")
    assert app.live.exists()
    found = app.judged()
    assert (found.status, found.action, found.loss) == (Status.TRUNCATED, Action.BY_HAND, Loss.LIKELY)
    app.assert_stops()
    assert not app.live.exists(), "an empty store is left"


def test_a_store_that_took_over_the_cut_log_of_a_dropped_one_is_not_begun(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    app = OnDisk(bootstrap_servers, tmp_path)
    added = StoreDefinition(name="first")
    topic = create_topic(bootstrap_servers, added.changelog_of(app.name), 1, DELETED)
    produce(bootstrap_servers, topic, [(b"a", b"1"), (b"b", b"1")])
    delete_records(bootstrap_servers, topic, 1)
    app.process(PRECIOUS)
    app.defined(stores=(*app.definition.stores, added), processor="tests.integration.support:count_and_keep_first")
    app.send(PRECIOUS)
    app.assert_stops()


def test_a_new_store_and_a_new_task_begin_at_once(bootstrap_servers: str, tmp_path: Path) -> None:
    app = OnDisk(bootstrap_servers, tmp_path, partitions=2)
    app.process(PRECIOUS)
    app.extend(
        stores=(*app.definition.stores, StoreDefinition(name="first")),
        processor="tests.integration.support:count_and_keep_first",
    )
    app.send(PRECIOUS, partition=1)
    assert app.run(1).failure is None
    assert app.process(PRECIOUS, T0 + 100).failure is None


def test_what_has_expired_for_a_lost_store_is_no_loss(bootstrap_servers: str, tmp_path: Path) -> None:
    app = OnDisk(bootstrap_servers, tmp_path, kind="window")
    app.process(PRECIOUS)
    app.process([(b"old-%02d" % number, b"1") for number in range(30)], T0 + MINUTE_MS)
    app.process([(b"new", b"1")], T0 + 90 * MINUTE_MS)
    delete_records(bootstrap_servers, app.changelog, 20)
    app.lose_disk()
    found = app.judged()
    assert (found.status, found.action, found.loss) == (Status.MISSING, Action.FULL, Loss.UNPROVEN)
    assert app.process([(b"newer", b"1")], T0 + 91 * MINUTE_MS).failure is None
    assert (app.judged().status, app.judged().loss) == (Status.OK, Loss.NONE)


# -- retention --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that looks every moment for what retention lets it delete."""
    eager = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "200"}
    directory = tmp_path_factory.mktemp("forgetful")
    with Processes(directory) as processes:
        yield Kafka(processes, directory / "kafka", settings=eager).start()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_what_retention_deletes_of_a_lost_store_is_a_loss(forgetful: str, tmp_path: Path, kind: str) -> None:
    # The marker of a transaction has the time of its commit, and its segment is kept for that long.
    app = OnDisk(forgetful, tmp_path, kind=kind, processing_guarantee="at_least_once")
    set_topic_config(forgetful, app.changelog, segment_ms="100")
    app.process(PRECIOUS)
    app.process([(b"last", b"1")], int(time.time() * 1000) - MINUTE_MS)
    set_topic_config(forgetful, app.changelog, retention_ms=str(50 * MINUTE_MS))
    where = app.store_spec().partition
    topics = Cluster(forgetful, 60).topics
    broker.wait_for(lambda: topics.log_ranges([where])[where].start > 0, "retention")
    app.lose_disk()
    app.send([(b"precious-00", b"1")], timestamp=int(time.time() * 1000))
    assert app.judged().loss is Loss.LIKELY
    app.assert_stops()


# -- in memory --------------------------------------------------------------------------------------------------------


def in_memory(servers: str, directory: Path) -> OnDisk:
    return OnDisk(servers, directory, stores=(StoreDefinition(name=STORE, engine="in_memory"),))


@pytest.mark.parametrize("records", [True, False])
def test_an_in_memory_store_is_not_filled_from_the_rest_of_its_log(
    bootstrap_servers: str, tmp_path: Path, records: bool
) -> None:
    app = in_memory(bootstrap_servers, tmp_path)
    app.fill()
    if records:
        app.lose_disk()
    app.send([(b"precious-00", b"1")])
    before = app.log_end()
    failure = app.run().failure
    assert failure is not None
    assert "STATESTORE_ACCEPT_LOSS" in failure.message
    assert app.log_end() == before
    assert app.run(accept_loss=True).failure is None
    app.send([(b"precious-00", b"1")])
    assert app.run().failure is None, "it is asked again what was accepted"


def test_an_in_memory_store_of_windows_does_not_need_what_kafka_deletes_by_age(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    app = OnDisk(bootstrap_servers, tmp_path, kind="window", default_dsl_store="in_memory")
    set_topic_config(bootstrap_servers, app.changelog, retention_ms=str(2 * 60 * MINUTE_MS))

    def planned() -> dict[str, Any]:
        topics = Cluster(bootstrap_servers, 60).topics
        (topic,) = topics.describe([app.changelog]).values()
        return {"changelogs": {STORE: changelog_spec(topic, topics.topic_configs([app.changelog])[app.changelog])}}

    app.send(PRECIOUS, timestamp=T0 - 3 * 60 * MINUTE_MS)
    assert app.run(**planned()).failure is None
    delete_records(bootstrap_servers, app.changelog, -1)  # four hours old, and kept for two
    app.send([(b"new", b"1")] * 3, timestamp=T0 + 50 * MINUTE_MS)
    assert app.run(**planned()).failure is None
    delete_records(bootstrap_servers, app.changelog, -1)  # ten minutes old, so this was not by age
    app.send([(b"new", b"1")], timestamp=T0 + 50 * MINUTE_MS)
    row = app.run(**planned())
    assert row.failure is not None
    assert "STATESTORE_ACCEPT_LOSS" in row.failure.message


# -- Kafka Streams ----------------------------------------------------------------------------------------------------


def test_a_pod_is_warmed_with_what_its_application_would_begin_with(bootstrap_servers: str, tmp_path: Path) -> None:
    app = OnDisk(bootstrap_servers, tmp_path)
    app.fill()
    pod = app.store_spec(state_dir=tmp_path / "pod", owned=False)
    found = verify(pod, VerifyOptions("offsets"))
    assert (found.status, found.action, found.loss) == (Status.MISSING, Action.BY_HAND, Loss.LIKELY)
    refused = restore(RestoreSpec(pod, RestoreRequest(), "restore", TINY_RUN))
    assert refused.failure is not None

    def run(pieces: Any, work: Any, *_: Any) -> Any:
        return [work(piece) for piece in pieces]

    how = Warming(run, 1, TINY_RUN, tmp_path / "progress", "warm")
    (row,) = warm_stores([pod], plan_warming([pod], how), {}, how)
    assert (row.outcome, row.mode, row.keys) == ("warmed", "full", 1)
    assert "its changelog begins at offset" in row.detail
    assert verify(pod, VerifyOptions("deep")).status is Status.OK


def test_a_pod_is_warmed_with_a_snapshot_that_has_more(bootstrap_servers: str, tmp_path: Path) -> None:
    app = OnDisk(bootstrap_servers, tmp_path, "archive")
    app.fill()
    pod = app.store_spec(state_dir=tmp_path / "pod", owned=False)

    def run(pieces: Any, work: Any, *_: Any) -> Any:
        return [work(piece) for piece in pieces]

    how = Warming(run, 1, TINY_RUN, tmp_path / "progress", "warm")
    (row,) = warm_stores([pod], plan_warming([pod], how), {}, how)
    assert (row.outcome, row.mode, row.keys, row.detail) == ("warmed", "snapshot", 21, "")


# -- the archive as evidence ------------------------------------------------------------------------------------------


def test_a_snapshot_of_what_was_accepted_asks_nobody_again(bootstrap_servers: str, tmp_path: Path) -> None:
    app = OnDisk(bootstrap_servers, tmp_path, "archive")
    app.process(PRECIOUS)
    app.process([(b"last", b"1")], T0 + 100)
    shutil.rmtree(tmp_path / "archive" / "stores")
    delete_records(bootstrap_servers, app.changelog, app.log_end() - 2)
    app.lose_disk()
    app.assert_stops()
    assert app.restoring(accept_loss=True).failure is None
    app.process([(b"more", b"1")], T0 + 200)
    app.lose_disk()
    assert app.judged().loss is Loss.NONE
    assert app.process([(b"more", b"1")], T0 + 300).failure is None
    assert app.rows() == 2


def test_no_task_with_a_log_begins_while_the_archive_does_not_answer(bootstrap_servers: str, tmp_path: Path) -> None:
    app = OnDisk(bootstrap_servers, tmp_path, "archive")
    app.process(PRECIOUS)
    app.lose_disk()
    (tmp_path / "a-file").touch()
    nowhere = app.archive.model_copy(update={"url": f"file://{tmp_path}/a-file"})
    row = app.run(archive=nowhere)
    assert row.failure is not None
    assert row.failure.retriable
    assert app.run().failure is None


def test_no_snapshot_is_made_of_the_rest_of_a_log(bootstrap_servers: str, tmp_path: Path) -> None:
    app = OnDisk(bootstrap_servers, tmp_path, "archive", processing_guarantee="at_least_once")
    app.fill()
    app.lose_disk()
    row = snapshot_from_log(SnapshotSpec(app.store_spec(), "made", TINY_RUN, tmp_path / "scratch"))
    assert row.failure is not None
    assert restore_points([app.store_spec()], look_at_files=False)[0].snapshot is None
    accepted = snapshot_from_log(
        SnapshotSpec(app.store_spec(), "accepted", TINY_RUN, tmp_path / "scratch", accept_loss=True)
    )
    assert (accepted.failure, accepted.keys) == (None, 1)


# -- the task's last commit as evidence -------------------------------------------------------------------------------


@pytest.mark.short_for("True-alone-exactly_once_v2-key-value", "False-archive-at_least_once-window")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("setup", ["alone", "archive"])
@pytest.mark.parametrize("recreated", [True, False])
def test_a_lost_store_is_not_begun_with_a_log_that_was_recreated(
    bootstrap_servers: str, tmp_path: Path, recreated: bool, setup: Any, guarantee: Any, kind: str
) -> None:
    app = OnDisk(bootstrap_servers, tmp_path, setup, kind, processing_guarantee=guarantee)
    app.process(PRECIOUS)
    broker.delete_topic(bootstrap_servers, app.changelog)
    if recreated:
        create_topic(bootstrap_servers, app.changelog, 1, DELETED)
    app.lose_disk()
    for depth in ("offsets", "scan", "deep"):
        found = app.judged(depth)
        assert (found.action, found.loss, found.loss_cause) == (Action.BY_HAND, Loss.LIKELY, Status.REPLACED)
    if not recreated:
        return  # no task is planned without its changelog
    app.send([(b"precious-00", b"1")], timestamp=T0 + 200)
    app.fails("ChangelogReplacedError")
    assert app.log_end() == 0
    assert app.restoring().failure is not None
    assert app.restoring(accept_loss=True).failure is None
    assert app.run().failure is None
    assert app.rows() == 1
    app.lose_disk()
    assert app.judged().loss is Loss.NONE, "it is asked again what was accepted"


def test_a_store_that_a_killed_task_has_opened_does_not_hide_that_its_log_was_recreated(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    app = OnDisk(bootstrap_servers, tmp_path)
    app.defined(stores=tuple(store.model_copy(update={"engine": "rocksDB"}) for store in app.definition.stores))
    app.process(PRECIOUS)
    broker.delete_topic(bootstrap_servers, app.changelog)
    create_topic(bootstrap_servers, app.changelog, 1, DELETED)
    app.lose_disk()
    app.send([(b"precious-00", b"1")], timestamp=T0 + 200)
    dying.die_in(app.task_spec(), "database marked open")
    assert app.live.exists()
    for depth in ("offsets", "scan", "deep"):
        found = app.judged(depth)
        assert (found.action, found.loss, found.loss_cause) == (Action.BY_HAND, Loss.LIKELY, Status.REPLACED)
    assert app.restoring().failure is not None
    app.fails("ChangelogReplacedError")


def test_a_deliberate_reset_is_completed_as_the_error_says(bootstrap_servers: str, tmp_path: Path) -> None:
    app = OnDisk(bootstrap_servers, tmp_path)
    app.process(PRECIOUS)
    app.forget_group()
    shutil.rmtree(app.live)
    for topic in (app.changelog, app.input):
        broker.delete_topic(bootstrap_servers, topic)
        create_topic(bootstrap_servers, topic, 1, DELETED)
    evidence = app.failure("ChangelogReplacedError").evidence
    own, offsets = app.store_spec().paths.own_dir.parent, app.task_spec().offsets.topic
    assert evidence.endswith(f"to start over instead, delete {own} and topic {offsets} as well")
    shutil.rmtree(own)
    broker.delete_topic(bootstrap_servers, offsets)
    create_topic(bootstrap_servers, offsets, 1, OFFSETS_CONFIG)
    assert app.process(PRECIOUS).records_in == len(PRECIOUS)


def test_an_in_memory_store_is_not_begun_with_a_log_that_was_recreated(bootstrap_servers: str, tmp_path: Path) -> None:
    app = in_memory(bootstrap_servers, tmp_path)
    app.process(PRECIOUS)
    broker.delete_topic(bootstrap_servers, app.changelog)
    create_topic(bootstrap_servers, app.changelog, 1, DELETED)
    app.lose_disk()
    app.fails("ChangelogReplacedError")
    assert app.run(accept_loss=True).failure is None
    assert app.run().failure is None


def test_a_store_that_was_added_later_begins_at_once(bootstrap_servers: str, tmp_path: Path) -> None:
    app = OnDisk(bootstrap_servers, tmp_path)
    app.process(PRECIOUS)
    app.lose_disk()
    added = StoreDefinition(name="added")
    create_topic(bootstrap_servers, added.changelog_of(app.name), 1, DELETED)
    app.defined(stores=(*app.definition.stores, added))
    assert app.judged().loss is Loss.NONE
    assert app.process([(b"precious-00", b"1")], T0 + 200).failure is None


# -- a replay that takes too long -------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["txn_rocksDB", "rocksDB", "in_memory"])
def test_a_lost_store_replayed_too_slowly_is_not_used(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any
) -> None:
    app = Application(bootstrap_servers, tmp_path, stores=(StoreDefinition(name=STORE, engine=engine),))
    app.process(PRECIOUS)
    app.delete_retention_ms = 2_000
    shutil.rmtree(app.state_dir)

    def stand_still(point: str) -> None:
        if point == "replayed":
            time.sleep(2.1)

    with monkeypatch.context() as patch:
        patch.setattr(kill_switch, "reached", stand_still)
        assert "it keeps tombstones for 2 s" in app.fails("StoreBehindLogStartError")
    if engine != "in_memory":
        assert app.contents() == {}
        assert app.verify().status is not Status.OK
    row = app.run()
    assert (row.failure, row.restored) == (None, 20)
    assert [figures.rebuilt for figures in row.stores] == [None]


@pytest.mark.long
@pytest.mark.parametrize("point", ["replayed", "store rebuilt, not in its place", "swap, before the last rename"])
def test_a_lost_store_whose_replay_is_killed_is_replayed_anew(
    bootstrap_servers: str, tmp_path: Path, point: str
) -> None:
    app = Application(bootstrap_servers, tmp_path)
    app.process(PRECIOUS)
    shutil.rmtree(app.state_dir)
    dying.die_in(app.task_spec(), point)
    app.process()
    app.assert_oracle()
    assert not list(app.task_spec().paths.replaced.glob("*/*")), "an empty store is in quarantine"
