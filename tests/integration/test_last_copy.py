"""No last copy is destroyed: where a log can no longer give what a store has, the store stays, in whatever trouble."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from statestore import kill_switch
from statestore.changelog import brokers_clock
from statestore.definitions.aggregation import AggregationDefinition, TimeWindows
from statestore.formats.offsets import STATUS_OPEN
from statestore.formats.value_format import value_format
from statestore.kafka.cluster import Cluster
from statestore.model import StoreFormat, TopicPartition
from statestore.partition.quarantine import clean_quarantine, waits_for_a_person
from statestore.partition.spec import GLOBAL_TASK
from statestore.recovery.restore import restore
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Action, Status
from statestore.statedir.record import StoreRecord
from statestore.statedir.seal import break_seal
from statestore.stores.rocksdb import RocksDB
from statestore.tasks import task_changelogs
from tests.integration import broker, dying
from tests.integration.broker import T0, Row
from tests.integration.support import STORE, Application
from tests.lost_current import begin_anew

INPUT: list[Row] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"b", None), (b"d", b"1")]
DAY_MS = 86_400_000
DELETED = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    return Application(bootstrap_servers, tmp_path, changelog_config=DELETED)


@pytest.fixture
def whole(application: Application) -> Application:
    """An application that has processed some input."""
    application.process(INPUT)
    return application


# -- what is wrong with the store -------------------------------------------------------------------------------------


def leave_open(application: Application) -> None:
    """Leave the store as use without transactions leaves it when it is killed."""
    paths = application.store_spec().paths
    break_seal(paths, STORE)
    database = RocksDB(application.live, value_format(StoreFormat.TIMESTAMPED).column_families)
    database.write({}, status=STATUS_OPEN)
    database.sync()
    database.close()


def damage(application: Application) -> None:
    """Take away the file that RocksDB begins with."""
    (application.live / "CURRENT").unlink()


TROUBLES: dict[str, tuple[Status, Callable[[Application], None]]] = {
    "left open": (Status.UNCLEAN, leave_open),
    "damaged": (Status.CORRUPT, damage),
    "begun anew": (Status.CORRUPT, lambda application: begin_anew(application.live)),
}


# -- what is wrong with the log ---------------------------------------------------------------------------------------


def recreate(application: Application, rows: int = 0) -> None:
    """Delete the changelog and make it anew, with so many records."""
    broker.delete_topic(application.servers, application.changelog)
    broker.create_topic(application.servers, application.changelog, 1, DELETED)
    broker.produce(application.servers, application.changelog, [(b"z", b"1")] * rows)


def empty(application: Application) -> None:
    """Delete all records of the changelog."""
    broker.delete_records(application.servers, application.changelog, -1)


def cut_start(application: Application) -> None:
    """Delete records that the store has seen."""
    broker.delete_records(application.servers, application.changelog, 3)


LOSSES: dict[str, Callable[[Application], None]] = {
    "recreated": recreate,
    "recreated and longer": lambda application: recreate(application, 20),
    "emptied": empty,
    "cut at the start": cut_start,
}


def forget_our_own(application: Application) -> None:
    """Delete our own directory, as an application that was just taken over has none."""
    shutil.rmtree(application.state_dir / ".statestore")


# -- the oracle -------------------------------------------------------------------------------------------------------


def tables(directory: Path) -> set[str]:
    """Digests of all SST files below a directory: rows of a store, whether or not RocksDB can open it."""
    return {sha256(path.read_bytes()).hexdigest() for path in directory.rglob("*.sst")}


class Kept:
    """Everything that a store has on disk must still be somewhere in the state directory."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._tables = tables(application.live)
        assert self._tables

    def check(self) -> None:
        assert self._tables <= tables(self._application.state_dir), "the only copy of rows is gone"

    def check_in_place(self) -> None:
        assert self._tables <= tables(self._application.live), "the store was replaced"


# -- process ----------------------------------------------------------------------------------------------------------

#: Where nothing of ours says which topic the store belongs to, one that is longer than the store passes for its own.
_UNRECORDED = [loss for loss in LOSSES if loss != "recreated and longer"]


@pytest.mark.short_for("damaged-emptied")
@pytest.mark.parametrize("loss", _UNRECORDED)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_process_does_not_replace_a_store_that_its_log_cannot_give_again_though_nothing_is_recorded(
    whole: Application, trouble: str, loss: str
) -> None:
    forget_our_own(whole)
    TROUBLES[trouble][1](whole)
    kept = Kept(whole)
    LOSSES[loss](whole)
    shutil.rmtree(whole.state_dir / ".statestore", ignore_errors=True)
    row = whole.run()
    assert row.failure is not None
    kept.check_in_place()


@pytest.mark.short_for("emptied")
@pytest.mark.parametrize("loss", ["emptied", "cut at the start"])
def test_process_does_not_replace_a_store_whose_log_lost_what_it_had_seen(whole: Application, loss: str) -> None:
    damage(whole)
    kept = Kept(whole)
    LOSSES[loss](whole)
    row = whole.run()
    assert row.failure is not None
    kept.check_in_place()


@pytest.mark.short_for("damaged")
@pytest.mark.parametrize("trouble", TROUBLES)
def test_process_quarantines_what_it_rebuilds(whole: Application, trouble: str) -> None:
    TROUBLES[trouble][1](whole)
    kept = Kept(whole)
    whole.process([(b"a", b"1")], T0 + 100)
    kept.check()
    whole.assert_oracle()


def test_process_that_cannot_find_its_input_offset_has_destroyed_nothing(whole: Application) -> None:
    leave_open(whole)
    kept = Kept(whole)
    broker.delete_records(whole.servers, whole.input, -1)
    broker.delete_topic(whole.servers, whole.input)
    broker.create_topic(whole.servers, whole.input, 1)
    whole.fails("InputOffsetError")
    kept.check()


@pytest.mark.long
def test_the_tail_of_a_log_that_is_not_compacted_is_replayed_by_process_as_by_restore(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    config = {"cleanup.policy": "delete", "retention.ms": "-1"}
    application = Application(bootstrap_servers, tmp_path, changelog_config=config)
    application.process(INPUT)
    broker.delete_records(bootstrap_servers, application.changelog, 3)
    before = application.contents()
    application.send([(b"e", b"1")], timestamp=T0 + 100)
    dying.die_in(application.task_spec(), "Kafka committed, stores not")
    application.store_spec().paths.record(STORE).unlink()  # so that it is not known whole
    spec = application.task_spec()
    changelogs = {name: found.model_copy(update={"compacted": False}) for name, found in spec.changelogs.items()}
    row = application.run(changelogs=changelogs)
    assert row.failure is None, row.failure
    assert row.stores[0].rebuilt is None
    assert {key: found.value for key, found in application.contents().items()} == {
        **{key: found.value for key, found in before.items()},
        b"e": b"1",
    }


# -- verify, restore, quarantine --------------------------------------------------------------------------------------


@pytest.mark.short_for("damaged-recreated")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_store_in_trouble_whose_log_lost_something_is_for_a_person(
    whole: Application, trouble: str, loss: str
) -> None:
    status, inflict = TROUBLES[trouble]
    inflict(whole)
    kept = Kept(whole)
    LOSSES[loss](whole)
    found = whole.verify()
    assert (found.status, found.action) == (status, Action.BY_HAND)
    assert restore(whole.restore_spec()).outcome == "failed"
    assert restore(whole.restore_spec("full", force=True)).outcome == "failed"
    kept.check_in_place()


def test_rows_that_differ_are_for_a_person_where_the_log_lost_its_start(whole: Application) -> None:
    spec = whole.store_spec()
    offset = whole.committed()
    assert offset is not None
    rows = whole.contents()
    rows[b"d"] = rows[b"d"]._replace(value=b"77")
    whole.write_anew(rows, offsets={spec.partition: offset})
    cut_start(whole)
    found = whole.verify("deep")
    assert (found.status, found.action) == (Status.DIVERGED, Action.BY_HAND)


def test_a_restore_that_may_lose_nothing_leaves_a_copy_that_goes_by_age(whole: Application) -> None:
    damage(whole)
    row = whole.restore()
    assert clean_quarantine(whole.store_spec().paths, whole.store_spec().store, 0.0)
    assert not Path(row.quarantine).exists()


# -- an idle store ----------------------------------------------------------------------------------------------------


def windowed(servers: str, directory: Path) -> Application:
    application = Application(servers, directory).extend(
        processor=None,
        stores=(),
        aggregations=(AggregationDefinition(store=STORE, windows=TimeWindows(size_ms=600_000, grace_ms=600_000)),),
    )
    broker.set_topic_config(servers, application.changelog, cleanup_policy="compact,delete", retention_ms="-1")
    return application


@pytest.mark.long
def test_an_idle_store_is_well_when_retention_has_emptied_its_log(bootstrap_servers: str, tmp_path: Path) -> None:
    application = windowed(bootstrap_servers, tmp_path)
    application.process([(b"k", b"1")] * 7)
    empty(application)
    assert application.verify().status is Status.OK
    assert application.process([(b"k", b"1")], T0 + 100).failure is None
    assert application.verify().status is Status.OK


def test_what_a_cut_log_has_lost_is_still_needed_after_the_next_run(bootstrap_servers: str, tmp_path: Path) -> None:
    application = windowed(bootstrap_servers, tmp_path)
    application.process([(b"k", b"1")] * 7)
    empty(application)
    assert application.process([(b"j", b"1")], T0 + 100).failure is None  # the log has this record alone now
    kept = Kept(application)
    (segment,) = application.live.iterdir()
    (segment / "CURRENT").unlink()
    assert application.verify().action is Action.BY_HAND
    failure = application.run().failure
    assert "needed from 0 on" in failure.evidence
    kept.check_in_place()


def test_a_window_store_that_cannot_be_read_is_kept_if_its_log_has_lost_what_it_has(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    """Given a store at the end of its log, and damage in the middle of a file, which only reading all rows shows."""
    application = windowed(bootstrap_servers, tmp_path)
    rows: list[Row] = [(b"key-%05d" % number, b"1") for number in range(2_000)]
    application.process(rows)
    empty(application)
    assert application.process([(b"j", b"1")], T0 + 100).failure is None
    path = max(application.live.rglob("*.sst"), key=lambda found: found.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert application.verify("offsets").status is Status.OK
    application.send(rows)
    failure = application.run().failure
    assert failure is not None
    assert "needed from 0 on" in failure.evidence
    assert not application.store_spec().paths.replaced.exists()


# -- a rebuild that ends early ----------------------------------------------------------------------------------------


class _KilledError(BaseException):
    pass


def test_a_rebuild_that_is_killed_again_and_again_destroys_nothing(
    whole: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(whole)
    kept = Kept(whole)
    seen: set[str] = set()

    def die(point: str) -> None:
        if point not in seen and point != "transactions initialized":
            seen.add(point)
            raise _KilledError

    for _ in range(80):
        with monkeypatch.context() as patch:
            patch.setattr(kill_switch, "reached", die)
            try:
                row = whole.run()
            except _KilledError:
                kept.check()
                continue
        break
    assert row.failure is None
    kept.check()
    whole.assert_oracle()


def test_another_partitions_store_in_the_place_is_kept(whole: Application) -> None:
    break_seal(whole.store_spec().paths, STORE)
    database = RocksDB(whole.live, value_format(StoreFormat.TIMESTAMPED).column_families)
    database.write({}, {TopicPartition(whole.changelog, 7): 5})
    database.close()
    kept = Kept(whole)
    whole.run()
    kept.check()
    clean_quarantine(whole.store_spec().paths, whole.store_spec().store, 0.0)
    kept.check()


# -- clocks -----------------------------------------------------------------------------------------------------------


def change_record(application: Application, **changes: Any) -> None:
    path = application.store_spec().paths.record(STORE)
    record = StoreRecord.model_validate_json(path.read_bytes().splitlines()[0])
    path.write_text(record.model_copy(update=changes).model_dump_json())


@pytest.mark.short_for("172800000")
@pytest.mark.parametrize("ahead_ms", [3 * 3_600_000, 2 * DAY_MS])
def test_a_record_from_the_future_proves_no_store_whole(whole: Application, ahead_ms: int) -> None:
    whole.send([(b"a", b"3")])
    dying.die_in(whole.task_spec(), "Kafka committed, stores not")
    change_record(whole, caught_up_ms=int(time.time() * 1000) + ahead_ms)
    found = whole.verify()
    assert (found.status, found.action) == (Status.LAGGING, Action.FULL)


@pytest.mark.long
def test_a_record_from_the_future_still_names_the_topic(whole: Application) -> None:
    change_record(whole, caught_up_ms=int(time.time() * 1000) + 2 * DAY_MS)
    recreate(whole, 20)
    assert whole.verify().status is Status.REPLACED


@pytest.mark.behaviour("R6")
def test_a_rebuild_that_took_longer_than_tombstones_are_kept_replaces_nothing(
    whole: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(whole)
    kept = Kept(whole)
    replay = task_changelogs.replay

    def slowly(*arguments: Any) -> Any:
        result = replay(*arguments)
        later_ms = int(time.time() * 1000) + whole.delete_retention_ms
        monkeypatch.setattr(brokers_clock, "now_ms", lambda _: later_ms)
        return result

    monkeypatch.setattr(task_changelogs, "replay", slowly)
    row = whole.run()
    monkeypatch.undo()
    assert row.failure.kind == "StoreBehindLogStartError"
    kept.check_in_place()


# -- a store that is gone ---------------------------------------------------------------------------------------------


@pytest.mark.short_for("emptied")
@pytest.mark.parametrize("loss", LOSSES)
def test_a_store_that_is_gone_is_for_a_person_where_its_log_lost_something_too(whole: Application, loss: str) -> None:
    shutil.rmtree(whole.live)
    LOSSES[loss](whole)
    found = whole.verify()
    assert (found.status, found.action) == (Status.MISSING, Action.BY_HAND)
    row = whole.run()
    assert row.failure is not None


def test_store_and_log_that_are_both_gone_are_not_taken_for_empty(whole: Application) -> None:
    shutil.rmtree(whole.live)
    broker.delete_topic(whole.servers, whole.changelog)
    found = whole.verify()
    assert (found.status, found.action) == (Status.MISSING, Action.BY_HAND)


@pytest.mark.short_for(every=2)
@pytest.mark.parametrize("left_open", [False, True], ids=["", "with a transaction open in it"])
def test_an_idle_store_is_compared_with_a_log_that_was_emptied(whole: Application, left_open: bool) -> None:
    if left_open:
        whole.send([(b"e", b"1")])
        dying.die_in(whole.task_spec(), "flushed, not committed")
    where = whole.store_spec().partition
    stable = Cluster(whole.servers, 60).topics.log_ranges([where])[where].last_stable
    broker.delete_records(whole.servers, whole.changelog, stable)
    assert whole.verify("deep").status is Status.OK


@pytest.mark.short_for("damaged")
@pytest.mark.parametrize("lost", ["damaged", "gone"])
def test_a_copy_that_the_log_could_give_waits_for_a_person_once_the_log_cannot(whole: Application, lost: str) -> None:
    damage(whole)
    whole.restore(label="first")
    first = whole.store_spec().paths.quarantine(STORE, "first")
    if lost == "gone":
        shutil.rmtree(whole.live)
    else:
        damage(whole)
    recreate(whole)
    whole.restore("full", force=True, label="second", accept_loss=True)
    assert clean_quarantine(whole.store_spec().paths, whole.store_spec().store, 0.0) == []
    assert first.exists()


def test_a_copy_that_waits_for_a_person_is_not_removed_by_a_later_restore_that_accepts_loss(whole: Application) -> None:
    damage(whole)
    recreate(whole)
    whole.restore("full", label="first", accept_loss=True)
    first = whole.store_spec().paths.quarantine(STORE, "first")
    assert first.exists()
    row = restore(whole.restore_spec("full", force=True, label="second", accept_loss=True)._replace(quarantine_s=0.0))
    assert row.failure is None, row.failure
    assert first.exists()


def test_a_copy_of_another_logs_time_waits_for_a_person(whole: Application) -> None:
    damage(whole)
    whole.restore(label="first")
    recreate(whole)
    whole.store_spec().paths.record(STORE).unlink()
    shutil.rmtree(whole.live)
    whole.send([(b"a", b"1")], timestamp=T0 + 100)
    assert "--accept-loss" in whole.fails("ChangelogReplacedError")
    whole.restore("full", label="accepted", accept_loss=True)
    whole.process()
    assert clean_quarantine(whole.store_spec().paths, whole.store_spec().store, 0.0) == []
    assert whole.store_spec().paths.quarantine(STORE, "first").exists()


@pytest.mark.short_for(every=2)
@pytest.mark.parametrize("then", ["", "its tail restored"])
def test_a_store_that_was_there_before_its_first_record_waits_for_a_person(whole: Application, then: str) -> None:
    forget_our_own(whole)
    recreate(whole, len(INPUT))
    whole.process([(b"e", b"1")], T0 + 100)
    if then:
        whole.restore("tail", force=True, label="tail")
    kept = Kept(whole)
    damage(whole)
    whole.restore("full", label="full")
    clean_quarantine(whole.store_spec().paths, whole.store_spec().store, 0.0)
    kept.check()
    whole.restore("full", force=True, label="again")
    assert clean_quarantine(whole.store_spec().paths, whole.store_spec().store, 0.0), "what we built is the log's"


# -- a log that is cut while it is restored from ----------------------------------------------------------------------


@pytest.mark.short_for("False-cut")
@pytest.mark.parametrize("moment", ["cut", "made anew"])
@pytest.mark.parametrize("accept_loss", [False, True])
def test_a_log_that_is_cut_after_the_store_was_judged_is_judged_again(
    whole: Application, monkeypatch: pytest.MonkeyPatch, *, moment: str, accept_loss: bool
) -> None:
    spec = whole.store_spec()
    (whole.live / "CURRENT").unlink()
    asked = []

    def cut_once(restored: RestoreSpec, *_: object) -> None:
        asked.append(restored)
        if len(asked) > 1:
            return
        if moment == "made anew":
            broker.delete_topic(whole.servers, spec.partition.topic)
            broker.create_topic(whole.servers, spec.partition.topic, config=DELETED)
        else:
            broker.delete_records(whole.servers, spec.partition.topic, before=2)

    monkeypatch.setattr("statestore.recovery.sources.log.require_disk", cut_once)  # just before it is read
    row = restore(whole.restore_spec(accept_loss=accept_loss))
    if moment == "made anew":  # the user must accept the loss again, for the new topic
        assert (row.outcome, row.failure and row.failure.kind) == ("failed", "ChangelogReplacedError")
        assert whole.live.exists()
    elif accept_loss:
        assert (row.outcome, row.start) == ("restored", 2)
        assert waits_for_a_person(spec.paths, STORE, Path(row.quarantine).name)
    else:
        assert (row.outcome, row.failure and row.failure.kind) == ("failed", "InputError")
        assert whole.live.exists()


@pytest.mark.behaviour("R6")
def test_a_tail_that_is_cut_after_the_store_was_judged_is_not_skipped(
    whole: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = whole.store_spec()
    offset = whole.committed()
    assert offset is not None
    broker.transaction(whole.servers, whole.changelog, [(b"x", b"1")] * 3)
    broker.transaction(whole.servers, whole.changelog, [(b"y", b"1")])
    found = whole.verify()
    assert (found.status, found.action) == (Status.LAGGING, Action.TAIL)
    kept = Kept(whole)

    def cut(*_: object) -> None:
        broker.delete_records(whole.servers, spec.partition.topic, before=offset + 4)

    monkeypatch.setattr("statestore.recovery.sources.tail.require_disk", cut)  # just before it is read
    row = restore(whole.restore_spec())
    assert (row.outcome, row.failure and row.failure.kind) == ("failed", "InputError")
    kept.check_in_place()


@pytest.mark.parametrize("accept_loss", [False, True])
def test_a_global_table_whose_topic_is_cut_after_it_was_judged_is_not_rebuilt_unasked(
    application: Application, monkeypatch: pytest.MonkeyPatch, *, accept_loss: bool
) -> None:
    broker.produce(application.servers, application.changelog, [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    topic = application.store_spec().changelog
    assert topic is not None
    table = {
        "task": GLOBAL_TASK,
        "owned": False,
        "global_kind": "table",
        "global_said": True,
        "changelog": topic.model_copy(update={"partitions": 1}),
    }
    application.restore("full", force=True, label="first", **table)
    spec = application.store_spec(**table)
    before = tables(spec.live)
    assert before

    def cut(*_: object) -> None:
        broker.delete_records(application.servers, application.changelog, 2)

    monkeypatch.setattr("statestore.recovery.sources.global_topic.require_disk", cut)  # just before it is read
    asked = application.restore_spec("full", force=True, label="second", accept_loss=accept_loss, **table)
    row = restore(asked._replace(quarantine_s=0.0))
    if accept_loss:
        assert row.failure is None, row.failure
        assert before <= tables(Path(row.quarantine))
    else:
        assert row.failure is not None
        assert row.failure.kind == "InputError"
        assert before <= tables(spec.live)
