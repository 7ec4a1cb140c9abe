"""Restoring from a real log: equal contents after every damage, and a kill at any point costs nothing but a rerun."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from demo.damage import delete_directory, flip_bit, move_beyond
from statestore.bulk.runs import Runs
from statestore.definitions.store import StoreDefinition
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.kafka.cluster import Cluster
from statestore.partition.quarantine import waits_for_a_person
from statestore.recovery import disk_space, full, tail
from statestore.recovery.restore import restore
from statestore.recovery.staging import Staging
from statestore.reports import Status
from statestore.statedir.lock import locked
from statestore.statedir.record import read_record
from statestore.stores.open import open_key_value_store
from statestore.verification.check import verify
from tests.engines import ENGINES, transactional_alone
from tests.faults.damage.access import own_disk
from tests.integration import broker, dying, support
from tests.integration.broker import NO_BROKER, T0, Row, consume, transaction
from tests.integration.support import STORE, Application
from tests.oracle.rows import fold

# Deletes among the first and the last records, and keys that come and go.
EACH_ENGINE = True
INPUT: list[Row] = [
    (b"gone", b"1"),
    *((b"key-%02d" % (number % 15), b"1") for number in range(40)),
    (b"gone", None),
    (b"key-03", None),
    (b"key-04", None),
    (b"key-04", b"1"),
    (b"never", None),
]
TINY_RUN = 300


@pytest.fixture
def whole(application: Application) -> Application:
    """An application that has processed some input in two runs."""
    application.process(INPUT)
    application.process([(b"key-05", b"1"), (b"key-06", None)], T0 + 100)
    return application


def _lag(application: Application) -> None:
    """Leave the store behind its changelog by one transaction."""
    application.send([(b"key-01", b"1"), (b"key-02", None), (b"new", b"1")], timestamp=T0 + 200)
    dying.die_in(application.task_spec(), "Kafka committed, stores not")


DAMAGES: dict[str, tuple[Status, Callable[[Application], object]]] = {
    "deleted": (Status.MISSING, lambda app: delete_directory(app.live)),
    "bit flipped": (Status.CORRUPT, lambda app: flip_bit(app.live)),
    "CURRENT gone": (Status.CORRUPT, lambda app: (app.live / "CURRENT").unlink()),
    "MANIFEST gone": (Status.CORRUPT, lambda app: next(app.live.glob("MANIFEST*")).unlink()),
    "ahead": (Status.AHEAD, lambda app: move_beyond(app.live, app.store_spec().partition, 10_000)),
    "stale": (Status.LAGGING, lambda app: (_lag(app), app.store_spec().paths.record(STORE).unlink())),
    "rows without an offset": (Status.LAGGING, lambda app: app.write_anew({b"ghost": ValueAndTimestamp(b"1", 5)})),
}


@pytest.mark.short_for("deleted")
@pytest.mark.behaviour("F8", "R7")
@pytest.mark.parametrize("damage", DAMAGES)
def test_r9_full_restore_gives_the_contents_again(whole: Application, damage: str) -> None:
    status, inflict = DAMAGES[damage]
    if damage == "stale" and not ENGINES[whole.definition.store(STORE).engine].transactional:
        status = Status.UNCLEAN  # the run that left it behind was killed
    inflict(whole)
    expected = fold(consume(whole.servers, whole.changelog)[0])
    row = whole.restore(accept_loss=damage == "ahead")
    proven = damage in ("stale", "rows without an offset")  # which tail corrects them
    mode = "tail" if proven else "full"
    assert (row.outcome, row.mode, row.before, row.keys) == ("restored", mode, status, len(expected))
    assert whole.contents() == expected
    assert row.committed == whole.committed()
    assert (row.quarantine is None) == (damage == "deleted")
    assert (_kept_for(whole, row.quarantine) is None) == (damage != "ahead")
    assert whole.verify().status is Status.OK
    whole.process([(b"key-07", b"1")], T0 + 300)
    whole.assert_oracle()


@transactional_alone
def test_truncated_log_is_restored_to_what_it_still_has(whole: Application) -> None:
    _lag(whole)
    broker.set_topic_config(whole.servers, whole.changelog, cleanup_policy="compact,delete")
    _, end = consume(whole.servers, whole.changelog)
    broker.delete_records(whole.servers, whole.changelog, end - 3)
    expected = fold(consume(whole.servers, whole.changelog)[0])
    row = whole.restore(accept_loss=True)
    assert (row.before, row.mode) == (Status.TRUNCATED, "full")
    assert "it was TRUNCATED, and its changelog begins at" in str(_kept_for(whole, row.quarantine))
    assert whole.contents() == expected
    assert whole.verify().status is Status.OK


@pytest.mark.long
@pytest.mark.behaviour("R7")
def test_r7_replaced_topic_is_restored_from_the_new_one_and_the_old_store_is_kept(whole: Application) -> None:
    before = whole.contents()
    broker.delete_topic(whole.servers, whole.changelog)
    broker.create_topic(whole.servers, whole.changelog, 1, {"cleanup.policy": "compact"})
    broker.produce(whole.servers, whole.changelog, [(b"z", b"1")])
    row = whole.restore(accept_loss=True)
    assert (row.before, row.keys) == (Status.REPLACED, 1)
    assert whole.verify().status is Status.OK
    assert _contents(whole, Path(row.quarantine)) == before
    assert "it was REPLACED, and its changelog was topic" in str(_kept_for(whole, row.quarantine))


def _kept_for(application: Application, quarantine: str | None) -> str | None:
    """Why a store in quarantine waits for a person."""
    return waits_for_a_person(application.store_spec().paths, STORE, Path(quarantine).name) if quarantine else None


def _contents(application: Application, directory: Path) -> dict[bytes, ValueAndTimestamp]:
    opened = open_key_value_store(application.store_spec().store, directory, read_only=True)
    try:
        return dict(opened.range())
    finally:
        opened.close(clean=False)


@pytest.mark.short_for("other")
@pytest.mark.behaviour("R9")
@pytest.mark.parametrize("label", ["same", "other"])
def test_r9_restoring_twice_gives_equal_contents(whole: Application, label: str) -> None:
    first = whole.restore(force=True, label="same")
    contents, committed = whole.contents(), whole.committed()
    second = whole.restore(force=True, label=label)  # a retried job has the same label
    assert (whole.contents(), whole.committed()) == (contents, committed)
    assert (first.records, first.keys) == (second.records, second.keys)
    whole.assert_oracle()


@pytest.mark.long
def test_several_runs_really_are_several(whole: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Runs] = []
    write = full.write_databases

    def watched(runs: list[Runs], *rest: Any, **named: Any) -> Any:
        found.extend(runs)
        return write(runs, *rest, **named)

    monkeypatch.setattr(full, "write_databases", watched)
    whole.restore(force=True, run_bytes=TINY_RUN)
    assert sum(len(runs.files) for runs in found) > 1


@pytest.mark.behaviour("R1")
def test_r1_records_without_a_key_are_skipped_and_counted_out(bootstrap_servers: str, tmp_path: Path) -> None:
    kept = {"cleanup.policy": "delete", "retention.ms": "-1"}  # brokers refuse such records in a compacted topic
    whole = Application(bootstrap_servers, tmp_path, changelog_config=kept)
    whole.process(INPUT)
    broker.produce(whole.servers, whole.changelog, [(None, b"v"), (b"k", b"v"), (None, None)], timestamp=T0)
    expected = fold(consume(whole.servers, whole.changelog)[0])
    shutil.rmtree(whole.live)
    assert whole.restore().skipped == 2
    assert whole.contents() == expected
    assert whole.verify().status is Status.OK


@pytest.mark.behaviour("R4")
def test_r4_uncommitted_and_aborted_records_are_not_restored(whole: Application) -> None:
    contents = whole.contents()
    transaction(whole.servers, whole.changelog, [(b"x", b"1"), (b"key-05", None)], end="abort")
    hung = transaction(whole.servers, whole.changelog, [(b"y", b"1")], end="open")
    try:
        shutil.rmtree(whole.live)
        whole.restore()
        assert whole.contents() == contents
    finally:
        hung.abort_transaction(10)


# -- the tail -----------------------------------------------------------------------------------------------------


@transactional_alone
@pytest.mark.short_for("auto")
@pytest.mark.behaviour("F8", "K5")
@pytest.mark.parametrize("mode", ["auto", "tail"])
def test_tail_catches_up_and_leaves_old_files_alone(whole: Application, mode: str) -> None:
    _lag(whole)
    old = {file.name: (file.stat().st_ino, file.read_bytes()) for file in whole.live.glob("*.sst")}
    row = whole.restore(mode)
    assert (row.outcome, row.mode, row.before, row.records) == ("restored", "tail", Status.LAGGING, 3)
    kept = {file.name: (file.stat().st_ino, file.read_bytes()) for file in Path(row.quarantine).glob("*.sst")}
    assert kept == old
    assert any(file.stat().st_ino in {inode for inode, _ in old.values()} for file in whole.live.glob("*.sst"))
    assert whole.verify().status is Status.OK
    whole.process()
    whole.assert_oracle()


@pytest.mark.long
def test_full_was_asked_for_although_the_tail_would_do(whole: Application) -> None:
    _lag(whole)
    assert whole.restore("full").mode == "full"
    whole.process()
    whole.assert_oracle()


def test_r6_tail_is_refused_where_it_would_replay_over_a_stale_store(whole: Application) -> None:
    _lag(whole)
    whole.store_spec().paths.record(STORE).unlink()
    contents = whole.contents()
    row = restore(whole.restore_spec("tail"))
    assert row.outcome == "failed"
    assert (row.failure.kind, row.failure.retriable) == ("InputError", False)
    assert whole.contents() == contents


@transactional_alone
@pytest.mark.long
def test_r6_a_replay_that_took_longer_than_tombstones_are_kept_is_not_used(
    whole: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lag(whole)
    contents = whole.contents()
    with monkeypatch.context() as patch:
        later_s = time.time() + whole.delete_retention_ms / 1000
        patch.setattr(tail, "brokers_clock", SimpleNamespace(now_ms=lambda _: int(later_s * 1000)))
        row = restore(whole.restore_spec())
    assert row.failure.kind == "StoreBehindLogStartError"
    assert "use mode full" in row.failure.message
    assert whole.contents() == contents
    assert whole.restore("full").mode == "full"
    whole.process()
    whole.assert_oracle()


def test_r6_deletes_whose_tombstones_are_gone_do_not_come_back(bootstrap_servers: str, tmp_path: Path) -> None:
    broker.make_compaction_eager(bootstrap_servers)
    eager = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0"}
    application = Application(bootstrap_servers, tmp_path, changelog_config=eager)
    application.delete_retention_ms = 0
    application.process([(b"dead", b"1"), (b"alive", b"1")])
    shutil.copytree(application.live, tmp_path / "copy")
    application.process([(b"dead", None)], T0 + 10_000)
    at = [T0 + 20_000]

    def tombstone_gone() -> bool:
        application.process([(b"alive", b"1")], at[0])  # each rolls a segment
        at[0] += 10_000
        return all(record.key != b"dead" for record in consume(bootstrap_servers, application.changelog)[0])

    broker.wait_for(tombstone_gone, "compaction", 60)
    shutil.rmtree(application.live)
    shutil.copytree(tmp_path / "copy", application.live)
    application.store_spec().paths.seal(STORE).unlink()  # by which the copy would be found out
    assert b"dead" in application.contents()
    row = application.restore()
    assert (row.before, row.mode) == (Status.LAGGING, "tail")  # its row has no record, and is deleted
    assert b"dead" not in application.contents()
    assert application.contents() == application.recomputed()[0]


# -- what is left alone -------------------------------------------------------------------------------------------


def test_whole_store_is_skipped(whole: Application) -> None:
    inode = whole.live.stat().st_ino
    for mode in ("auto", "tail"):
        row = whole.restore(mode)
        assert (row.outcome, row.mode, row.before) == ("skipped", None, Status.OK)
    assert whole.live.stat().st_ino == inode


@pytest.mark.behaviour("R3")
def test_nothing_logged_is_skipped(application: Application) -> None:
    row = application.restore()
    assert (row.outcome, row.before) == ("skipped", Status.EMPTY)
    assert not application.live.exists()


def test_force_rebuilds_a_whole_store(whole: Application) -> None:
    inode = whole.live.stat().st_ino
    row = whole.restore(force=True)
    assert (row.outcome, row.mode, row.before) == ("restored", "full", Status.OK)
    assert whole.live.stat().st_ino != inode
    whole.assert_oracle()


@pytest.mark.short_for("True")
@pytest.mark.parametrize("force", [False, True])
def test_by_hand_only_is_refused_untouched(whole: Application, force: bool) -> None:
    broker.delete_topic(whole.servers, whole.changelog)
    before = whole.live.stat().st_ino, whole.contents()
    row = restore(whole.restore_spec("full", force=force))
    assert (row.outcome, row.before) == ("failed", Status.REPLACED)
    assert row.failure.kind == "InputError"
    assert (whole.live.stat().st_ino, whole.contents()) == before


def test_m2_newer_format_than_the_definitions_is_rebuilt_in_the_definitions(whole: Application) -> None:
    spec = whole.restore_spec()
    plain = spec.store.model_copy(update={"store": support.plain_store()})
    rows = {key: value.value for key, value in whole.contents().items()}
    row = restore(spec._replace(store=plain))
    assert (row.outcome, row.before) == ("restored", Status.DOWNGRADED)
    store = open_key_value_store(plain.store, whole.live, read_only=True)
    assert dict(store.range()) == rows
    store.close(clean=False)
    assert verify(plain).status is Status.OK


@pytest.mark.behaviour("R11")
def test_r11_locked_store_is_waited_for_and_reported(whole: Application) -> None:
    with locked(whole.task_spec().paths, 1):
        row = restore(whole.restore_spec(force=True))
    assert (row.outcome, row.failure.kind, row.failure.retriable) == ("failed", "LockedError", True)


def test_no_broker_is_a_failure_that_may_be_retried_and_changes_nothing(whole: Application) -> None:
    flip_bit(whole.live)
    inode = whole.live.stat().st_ino
    spec = whole.restore_spec()
    unreachable = spec.store.model_copy(update={"cluster": Cluster(NO_BROKER, 1)})
    row = restore(spec._replace(store=unreachable))
    assert (row.outcome, row.failure.kind, row.failure.retriable) == ("failed", "KafkaUnavailableError", True)
    assert whole.live.stat().st_ino == inode


def test_l1_offsets_of_other_stores_in_a_checkpoint_file_survive_the_restore(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    stores = [StoreDefinition(name=STORE), support.plain_store("latest")]
    application = Application(bootstrap_servers, tmp_path, processor="count_in_two_stores", stores=stores)
    application.process([(b"a", b"1"), (b"b", b"2")])
    committed = application.committed(store="latest")
    spec = application.write_anew(application.contents(store="latest"), "latest")
    spec.paths.checkpoint.write_text(f"0\n1\n{spec.partition.topic} 0 {committed}\n")
    application.restore(force=True)  # of the other store
    assert application.process([(b"a", b"3")]).restored == 0
    assert application.contents(store="latest") == {b"a": b"3", b"b": b"2"}


# -- kill -9 ------------------------------------------------------------------------------------------------------

UNTOUCHED = [
    "restore, batch read",
    "restore, range read",
    "restore, range read:2",
    "restore, before the databases",
    "restore, databases written",
    "restore, built, not swapped",
    "swap, journal written",
]
COMPLETED = [
    "swap, old store in quarantine",
    "swap, before the last rename",
    "swap, new store live",
    "swap, before the journal goes",
    "restore, swapped, not sealed",
    "restore, sealed, runs still there",
]
#: The others are left to `make faults`.
SHORT = [
    "restore, range read:2",
    "restore, built, not swapped",
    "swap, before the last rename",
    "restore, swapped, not sealed",
]


@pytest.mark.long
@pytest.mark.behaviour("R8")
@pytest.mark.parametrize(
    "point",
    [*SHORT, *(pytest.param(point, marks=pytest.mark.long) for point in UNTOUCHED + COMPLETED if point not in SHORT)],
)
def test_r8_a_killed_restore_left_the_store_untouched_or_is_completed(whole: Application, point: str) -> None:
    contents = whole.contents()
    live = whole.live.stat().st_ino
    dying.die_in(whole.restore_spec(force=True, run_bytes=TINY_RUN)._replace(ranges=3), point)
    if point in UNTOUCHED:
        assert whole.live.stat().st_ino == live
    assert whole.verify().status is Status.OK
    if point in COMPLETED:
        assert whole.live.stat().st_ino != live
    assert whole.contents() == contents
    whole.restore(force=True, run_bytes=TINY_RUN, label="rerun")
    assert whole.contents() == contents
    _assert_nothing_is_left(whole)
    whole.assert_oracle()


def _assert_nothing_is_left(application: Application) -> None:
    """O7: no journal, no run, nothing staged."""
    own = application.store_spec().paths.own_dir
    left = [path for pattern in ("swap-*", "staging/*", "staged", "runs/*") for path in own.glob(pattern)]
    assert not left, f"O7: {left} is left"


@pytest.mark.short_for("restore, range read", "swap, old store in quarantine")
@pytest.mark.behaviour("R8")
@pytest.mark.parametrize(
    "point",
    [
        "restore, range read",
        "restore, built, not swapped",
        "swap, journal written",
        "swap, old store in quarantine",
    ],
)
def test_r8_a_rerun_with_the_same_label_completes_the_restore_of_a_damaged_store(
    whole: Application, point: str
) -> None:
    contents = whole.contents()
    flip_bit(whole.live)
    spec = whole.restore_spec(run_bytes=TINY_RUN)
    dying.die_in(spec, point)
    row = restore(spec)
    assert row.failure is None, row.failure
    assert row.outcome == "restored"
    assert Path(row.quarantine).is_dir()
    # Of a swap that had begun the rerun had nothing to do, but to say so: what is restored is validated.
    assert (row.mode is None) == (point == "swap, old store in quarantine")
    assert whole.contents() == contents
    assert restore(spec._replace(label="another")).outcome == "skipped"
    whole.assert_oracle()


@pytest.mark.long
@pytest.mark.behaviour("R8")
@pytest.mark.parametrize(
    "point", ["swap, before the last rename", "restore, swapped, not sealed", "restore, sealed, runs still there"]
)
def test_r8_a_rerun_tells_that_its_killed_attempt_restored_a_missing_store(whole: Application, point: str) -> None:
    contents = whole.contents()
    shutil.rmtree(whole.live)
    spec = whole.restore_spec()
    dying.die_in(spec, point)
    row = restore(spec)
    assert (row.outcome, row.mode, row.quarantine) == ("restored", None, None)
    assert whole.contents() == contents
    assert restore(spec._replace(label="another")).outcome == "skipped"


@pytest.mark.long
@pytest.mark.behaviour("R8")
def test_r8_a_merge_that_was_killed_leaves_nothing_that_takes_or_counts_as_room(application: Application) -> None:
    # Each record is a run of its own, and more of them than are merged at once.
    application.process([(b"key-%02d" % number, b"1") for number in range(70)])
    spec = application.restore_spec(force=True, run_bytes=1)
    staging = Staging(spec.store.paths, STORE)
    for _ in range(2):
        dying.die_in(spec, "restore, runs merged")
        assert len(list(staging.directory.glob("*/merge-*"))) == 1, "the merge of the attempt before is still there"
        assert staging.held_bytes == sum(file.stat().st_size for file in staging.directory.glob("*/*.arrow"))
    row = restore(spec)
    assert (row.outcome, row.resumed, row.keys) == ("restored", 70, 70)
    _assert_nothing_is_left(application)


def test_a_disk_that_is_full_while_the_store_is_built_costs_no_run(
    whole: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_disk(tmp_path / "disk", 1 << 25) as disk:
        shutil.copytree(whole.state_dir, disk / "state")
        spec = whole.restore_spec(force=True, run_bytes=TINY_RUN)
        spec = spec._replace(store=spec.store.model_copy(update={"state_dir": disk / "state"}))
        staging = Staging(spec.store.paths, STORE)

        def fill(point: str) -> None:
            if point == "restore, before the databases":
                free = shutil.disk_usage(disk).free
                (disk / "filler").write_bytes(bytes(free))

        monkeypatch.setattr(full.kill_switch, "reached", fill)
        row = restore(spec)
        assert row.failure.kind == "DiskSpaceError", row.failure
        runs = sorted(staging.directory.glob("*/*"))
        assert runs
        assert not staging.directory.parent.with_name("staging").exists()
        monkeypatch.undo()

        # Too little is free for another attempt to begin: that costs no run either.
        monkeypatch.setattr(disk_space, "estimated_bytes", lambda *_: 1 << 40)
        row = restore(spec)
        assert "bytes of sorted runs stay in" in row.failure.message
        assert sorted(staging.directory.glob("*/*")) == runs
        monkeypatch.undo()

        (disk / "filler").unlink()
        row = restore(spec)
        assert (row.outcome, row.resumed) == ("restored", row.records - 1), "the last run was in memory"


@transactional_alone
@pytest.mark.long
@pytest.mark.behaviour("R8")
def test_r8_a_kill_in_the_tail_leaves_the_store_as_it_was(whole: Application) -> None:
    _lag(whole)
    before = {file.name: file.read_bytes() for file in whole.live.glob("*.sst")}, whole.contents()
    dying.die_in(whole.restore_spec(), "restore, tail replayed")
    assert ({file.name: file.read_bytes() for file in whole.live.glob("*.sst")}, whole.contents()) == before
    assert whole.restore().mode == "tail"
    whole.process()
    whole.assert_oracle()


@pytest.mark.long
@pytest.mark.behaviour("R8")
def test_r8_processing_completes_a_swap_that_was_interrupted(whole: Application) -> None:
    flip_bit(whole.live)
    dying.die_in(whole.restore_spec(), "swap, old store in quarantine")
    whole.process([(b"key-07", b"1")], T0 + 300)
    whole.assert_oracle()


@pytest.mark.long
@pytest.mark.behaviour("R7", "R8")
def test_r7_r8_a_replaced_store_whose_swap_was_interrupted_is_whole_after_a_rerun(whole: Application) -> None:
    broker.delete_topic(whole.servers, whole.changelog)
    broker.create_topic(whole.servers, whole.changelog, 1, {"cleanup.policy": "compact"})
    broker.produce(whole.servers, whole.changelog, [(b"z", b"1")])
    spec = whole.restore_spec(accept_loss=True)
    dying.die_in(spec, "swap, old store in quarantine")
    assert whole.restore(label="rerun").outcome == "skipped"
    assert whole.verify().status is Status.OK
    assert "it was REPLACED" in str(waits_for_a_person(spec.store.paths, STORE, spec.label))
    record = read_record(whole.store_spec().paths, STORE)
    changelog = whole.changelog_spec()
    assert record.topic_id == changelog.topic_id


@pytest.mark.long
def test_staging_left_by_a_killed_run_does_not_leak_into_the_next(whole: Application) -> None:
    paths = whole.store_spec().paths
    for directory in (paths.staging(STORE), paths.runs(STORE) / "0-0", paths.staged_own):
        directory.mkdir(parents=True)
        (directory / "run-00000000000000000000-00000000000000000009.arrow").write_bytes(os.urandom(100))
    shutil.rmtree(whole.live)
    whole.restore()
    _assert_nothing_is_left(whole)
    whole.assert_oracle()
