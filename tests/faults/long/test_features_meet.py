"""Features meet at random, and nothing is lost or falsified; and each clause of the oracle notices a planted defect."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import statestore.changelog.brokers_clock
import statestore.partition.inspection
import statestore.partition.quarantine
import statestore.partition.verdict
import statestore.recovery.deciding
import statestore.rewrite.adoption
import statestore.statedir.seal
import statestore.tasks.input_position
import statestore.tasks.task_changelogs
import statestore.tasks.task_store
import statestore.tasks.topology
import statestore.verification.check
from demo.kafka_jars import find_java
from demo.processes import Processes
from statestore import clock
from statestore.partition.facts import LastKnown, RebuildLoss
from statestore.reports import Contents, Loss
from statestore.statedir.record import StoreRecord
from statestore.stores.processor_store import processor_store
from tests.faults.meeting.counting import COUNTS, HOURLY
from tests.faults.meeting.machine import FeaturesMeet, machine_on, run_sequences
from tests.faults.meeting.rocksdb_options import BLOBS
from tests.interop.kafka_streams import build_driver

SEED = int(os.environ.get("FAULTS_SEED", "1"))
INPUT: list[tuple[bytes, bytes | None]] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"1"), (b"c", b"1"), (b"b", None)]


@pytest.mark.share_for("0", why="the others draw from other seeds")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("number", [str(number) for number in range(8)])
def test_features_that_meet_lose_and_falsify_nothing(bootstrap_servers: str, tmp_path: Path, number: str) -> None:
    steps = run_sequences(bootstrap_servers, tmp_path, 2, SEED * 1_000 + int(number))
    assert steps > 60


@pytest.mark.timeout(1_800)
def test_features_that_meet_kafka_streams_lose_and_falsify_nothing(bootstrap_servers: str, tmp_path: Path) -> None:
    with Processes(tmp_path / "streams") as processes:
        driver = build_driver(processes, find_java(), tmp_path / "streams")
        assert run_sequences(bootstrap_servers, tmp_path, 1, SEED * 1_000 + 100, driver=driver) > 30


@pytest.fixture
def machine(bootstrap_servers: str, tmp_path: Path) -> Iterator[FeaturesMeet]:
    """The state machine, whose steps the test chooses."""
    made = machine_on(bootstrap_servers, tmp_path)()
    yield made
    made.teardown()


def release_what_waits_for_a_person(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.cut_log(COUNTS, 1)
    machine.restore(COUNTS, "full", True, True, None)
    machine.validate(COUNTS)


def rebuild_what_the_log_has_lost(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.cut_log(COUNTS, 1)
    machine.damage(COUNTS, "lose_current")
    machine.process(INPUT, 0)
    machine.clean_quarantine(COUNTS)


def trust_what_was_left_open(machine: FeaturesMeet) -> None:
    machine.change_engine(COUNTS)
    machine.process(INPUT, 0)
    machine.process_and_die(INPUT, 0, "flushed, not committed", 1, True)
    machine.process([], 0)


def replay_nothing(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.process_and_die(INPUT, 0, "Kafka committed, stores not", 1, False)
    machine.process([], 0)


def rest_without_input(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.rest()
    machine.process(INPUT, 0)


def begin_with_the_rest_of_a_log(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.process(INPUT[:1], 0)
    machine.lose_disk(True, 0.7)
    machine.verify(COUNTS, "scan")
    machine.process(INPUT, 0)


def begin_with_the_rest_of_a_log_that_was_recorded(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.lose_disk(False, 1)
    machine.process(INPUT, 0)
    machine.restore(COUNTS, "auto", False, False, None)
    machine.restore(COUNTS, "auto", False, True, None)
    machine.restore(HOURLY, "auto", False, True, None)
    machine.process(INPUT, 0)


def begin_with_a_new_log(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.recreate_log(COUNTS, 20)
    machine.lose_disk(True, 0)
    machine.process(INPUT, 0)


def begin_a_store_and_die(machine: FeaturesMeet) -> None:
    machine.change_engine(COUNTS)
    machine.process(INPUT, 0)
    machine.lose_disk(True, 0)
    machine.recreate_log(COUNTS, 0)
    machine.process_and_die(INPUT[:1], 0, "database marked open", 1, False)
    machine.verify(COUNTS, "offsets")


def lose_a_disk_and_no_record(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.lose_disk(True, 0)
    machine.process(INPUT, 0)


def use_what_belongs_to_the_task(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.misbehave("commit", False)
    machine.process(INPUT, 0)


def catch_a_refusal(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.misbehave("sync", True)
    machine.process(INPUT, 0)


def lose_values(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.change_options(BLOBS)
    machine.process(INPUT, 0)
    machine.damage(COUNTS, "lose_blob")
    machine.verify(COUNTS, "offsets")
    machine.process(INPUT, 0)


def kill_an_append(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.append({b"a": b"40", b"c": None}, "upsert, committed", True)
    machine.process(INPUT, 0)


def kill_an_overwrite_that_is_not_adopted(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.overwrite({b"a": b"40", b"c": b"50"}, "rewrite, judged", "run")
    machine.process(INPUT, 0)


def kill_an_overwrite_that_is_adopted(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.overwrite({b"a": b"40", b"c": b"50"}, "rewrite, adopted", "run")
    machine.process(INPUT, 0)


def outlive_a_delete(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.outlive_a_delete(-1)
    machine.process(INPUT, 0)
    machine.outlive_a_delete(1)


def outlive_a_delete_a_little_behind(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.outlive_a_delete(-30 / 3_600)


def restore_from_an_older_archive(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.bring_back_an_archive("nothing", False)
    machine.bring_back_an_archive("stores", False)
    machine.bring_back_an_archive("stores and records", False)
    machine.bring_back_an_archive("stores and records", True)


def see_no_row_that_differs(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.damage(HOURLY, "tamper")
    machine.verify(HOURLY, "deep")


def see_differences_everywhere(machine: FeaturesMeet) -> None:
    machine.process(INPUT, 0)
    machine.verify(COUNTS, "deep")


def _nobody_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statestore.partition.quarantine, "waits_for_a_person", lambda *_: None)


def _nothing_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statestore.partition.verdict, "rebuild_loss", lambda *_, **__: RebuildLoss(Loss.NONE))


def _all_is_clean(patch: pytest.MonkeyPatch) -> None:
    context = statestore.tasks.task_store.store_context
    patch.setattr(
        statestore.tasks.task_store,
        "store_context",
        lambda *found, **how: context(*found, **{**how, "exactly_once": False}),
    )


def _nothing_to_replay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statestore.tasks.task_changelogs.TaskChangelogs, "replay", lambda *_: 0)


def _no_offset_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statestore.tasks.input_position, "read_kept", lambda *_: None)
    patch.setattr(statestore.tasks.input_position, "_position_of_stores", lambda *_: None)


def _commits_show_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statestore.tasks.task_changelogs.TaskChangelogs, "had_by_commits", lambda *_: None)


def _a_begun_store_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LastKnown, "is_unknown", property(lambda known: not known.anything))


def _stores_are_not_restricted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statestore.tasks.topology, "processor_store", lambda store, _=None: store)


def _refusals_are_only_raised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statestore.tasks.topology, "processor_store", lambda store, _=None: processor_store(store))


def _only_tables_have_rows(patch: pytest.MonkeyPatch) -> None:
    for room in (statestore.partition.inspection, statestore.statedir.seal):
        patch.setattr(room, "files_with_rows", lambda directory: sorted(directory.glob("*.sst")))


def _a_row_is_lost_in_a_rewrite(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        statestore.rewrite.adoption,
        "_with_values",
        lambda rows, store: (batch.slice(1) for batch in rows.batches(store.task.partition)),
    )
    patch.setattr(statestore.rewrite.adoption, "require_written", lambda *_: None)


def _deletes_have_the_age_that_hosts_say(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statestore.changelog.brokers_clock, "now_ms", lambda _: clock.now_ms())


def _no_store_is_too_old(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoreRecord, "whole_ms", lambda _, __, now_ms: now_ms)


def _every_snapshot_is_continued(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statestore.recovery.deciding, "inadmissible", lambda *_: None)


def _contents_are(differing: int) -> Callable[[pytest.MonkeyPatch], None]:
    def plant(patch: pytest.MonkeyPatch) -> None:
        compare = statestore.verification.check.compare_contents

        def compared(*found: object, **how: object) -> Contents:
            told = {"other_value": differing, "only_in_store": 0, "only_in_log": 0}
            return compare(*found, **how).model_copy(update=told)  # type: ignore[arg-type]

        patch.setattr(statestore.verification.check, "compare_contents", compared)

    return plant


DEFECTS: dict[str, tuple[str, Callable[[FeaturesMeet], None], Callable[[pytest.MonkeyPatch], None]]] = {
    "the only copy is released": ("kept", release_what_waits_for_a_person, _nobody_waits),
    "a loss is not noticed": ("kept", rebuild_what_the_log_has_lost, _nothing_is_lost),
    "what was left open is trusted": ("counted once", trust_what_was_left_open, _all_is_clean),
    "input is processed again after months": ("counted once", rest_without_input, _no_offset_is_kept),
    "the rest of a log is all": ("seen", begin_with_the_rest_of_a_log, _nothing_is_lost),
    "the rest of a recorded log is all": (
        "seen",
        begin_with_the_rest_of_a_log_that_was_recorded,
        _nothing_is_lost,
    ),
    "a new log is all": ("seen", begin_with_a_new_log, _commits_show_nothing),
    "a begun store hides what its log was": ("seen", begin_a_store_and_die, _a_begun_store_is_known),
    "a lost store is not filled": ("counted once", lose_a_disk_and_no_record, _nothing_to_replay),
    "a processor commits": ("counted once", use_what_belongs_to_the_task, _stores_are_not_restricted),
    "a processor catches a refusal": ("seen", catch_a_refusal, _refusals_are_only_raised),
    "lost blob files are not missed": ("seen", lose_values, _only_tables_have_rows),
    "rows of a killed append are not replayed": ("counted once", kill_an_append, _nothing_to_replay),
    "an overwrite loses a row": (
        "counted once",
        kill_an_overwrite_that_is_not_adopted,
        _a_row_is_lost_in_a_rewrite,
    ),
    "an adopted overwrite loses a row": (
        "counted once",
        kill_an_overwrite_that_is_adopted,
        _a_row_is_lost_in_a_rewrite,
    ),
    "a delete that is gone is not missed": ("counted once", outlive_a_delete, _no_store_is_too_old),
    "a snapshot is used whose log has lost the rest": (
        "seen",
        restore_from_an_older_archive,
        _every_snapshot_is_continued,
    ),
    "deletes have the age that hosts say": (
        "counted once",
        outlive_a_delete_a_little_behind,
        _deletes_have_the_age_that_hosts_say,
    ),
    "a tail is not replayed": ("counted once", replay_nothing, _nothing_to_replay),
    "differing rows are not seen": ("seen", see_no_row_that_differs, _contents_are(0)),
    "equal rows differ": ("seen", see_differences_everywhere, _contents_are(1)),
}


@pytest.mark.share_for(
    "the only copy is released", "a tail is not replayed", "differing rows are not seen", why="one of each clause"
)
@pytest.mark.parametrize("defect", DEFECTS)
def test_the_oracle_notices_a_planted_defect(
    machine: FeaturesMeet, monkeypatch: pytest.MonkeyPatch, defect: str
) -> None:
    clause, steps, plant = DEFECTS[defect]
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=f"^{clause}: "):
        steps(machine)


@pytest.mark.share_for("what was left open is trusted", why="the steps of one stand for all")
@pytest.mark.parametrize("defect", DEFECTS)
def test_the_steps_that_show_a_planted_defect_are_well_without_it(machine: FeaturesMeet, defect: str) -> None:
    DEFECTS[defect][1](machine)
