"""What an interrupted restore has left: its plan, its runs and their positions, and who may work on them."""

from __future__ import annotations

import pytest
from samples import CHANGELOG, batches

from statestore.bulk.routing import Routing
from statestore.bulk.runs import RunWriter
from statestore.changelog.epochs import LogEnd
from statestore.durable import write_durably
from statestore.errors import LockedError
from statestore.formats import checkpoint_file
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from statestore.partition.replacement import clear_built
from statestore.recovery.staging import BuildPlan, OffsetRange, Staging, cut, misfit, next_offsets

OTHER = CHANGELOG._replace(partition=1)
PLAN = BuildPlan(topic="c", topic_id="t", routing=Routing(), started_ms=1_000, ranges=(OffsetRange(0, 10, 30),))
INPUT, INPUT_2 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def staging(paths):
    return Staging(paths, "s")


def write_runs(staging, partition, start, end):
    """A run with the records of these offsets, on disk."""
    writer = RunWriter(staging.runs_directory(partition, start), Routing(), 1 << 20, start=start, keep_in_memory=False)
    for batch in batches([(b"k", b"v", 1)] * (end - start), [], start):
        writer.add(batch)
    return writer.finish(end)


# -- the plan and the runs --------------------------------------------------------------------------------------------


def test_a_plan_comes_back_as_it_was_kept(staging):
    assert staging.plan() is None
    staging.begin(PLAN)
    assert staging.plan() == PLAN


def test_a_plan_is_on_disk_before_the_first_run_and_not_without_one(staging, paths):
    staging.begin_with_a_run(PLAN)
    assert not staging.directory.exists()
    seen = []

    def before_a_file():
        staging.before_a_run()
        seen.append((staging.plan(), staging.has_runs))

    writer = RunWriter(
        staging.runs_directory(0, 10), Routing(), 1 << 12, start=10, keep_in_memory=False, before_a_file=before_a_file
    )
    for batch in batches([(b"%d" % number, bytes(100), 1) for number in range(100)], [], 10):
        writer.add(batch)
    writer.finish(110)
    assert seen[0] == (PLAN, False)
    assert seen[-1] == (PLAN, True)
    staging.begin_with_a_run(PLAN)
    staging.clear()
    staging.before_a_run()
    assert staging.plan() is None


@pytest.mark.parametrize("text", ["", "{", "{}", '{"schema_version": 2}'])
def test_a_plan_that_cannot_be_read_is_none(staging, text):
    staging.begin(PLAN)
    (staging.directory / "plan.json").write_text(text)
    assert staging.plan() is None


def test_a_plan_grows_behind_the_end_of_each_partition_and_by_no_other_partition():
    plan = PLAN.model_copy(update={"ranges": (OffsetRange(0, 10, 30), OffsetRange(1, 0, 5))})
    assert plan.extended({0: 31, 1: 5, 2: 100}, {}).ranges == (
        OffsetRange(0, 10, 30),
        OffsetRange(0, 30, 31),
        OffsetRange(1, 0, 5),
    )
    assert plan.extended({0: 29, 1: 9}, {}).ranges == (
        OffsetRange(0, 10, 30),
        OffsetRange(1, 0, 5),
        OffsetRange(1, 5, 9),
    )


def test_a_plan_that_grows_remembers_where_each_log_was_seen_to_end():
    before, seen, another = LogEnd(30, 1), LogEnd(31, 2), LogEnd(5, 1)
    plan = PLAN.model_copy(update={"ends": {0: before, 1: another}})
    assert plan.extended({0: 31}, {0: seen}).ends == {0: seen, 1: another}


def test_a_run_without_a_plan_that_waits_for_it_keeps_none(staging):
    staging.before_a_run()
    assert not staging.directory.exists()


def test_runs_of_a_range_are_found_from_its_start_on_without_a_gap(staging):
    part = OffsetRange(0, 10, 30)
    assert staging.found(part) == []
    first = write_runs(staging, 0, 10, 17)
    behind_a_gap = write_runs(staging, 0, 20, 30)
    assert [found.files for found in staging.found(part)] == [first.files]
    assert next_offsets(staging, [part, OffsetRange(0, 20, 30), OffsetRange(1, 5, 9)]) == {
        part: 17,
        OffsetRange(0, 20, 30): 30,
        OffsetRange(1, 5, 9): 5,
    }
    between = write_runs(staging, 0, 17, 20)
    assert [found.files for found in staging.found(part)] == [first.files, between.files, behind_a_gap.files]
    assert next_offsets(staging, [part]) == {part: 30}
    write_runs(staging, 0, 30, 40)  # of the range behind it
    assert next_offsets(staging, [part]) == {part: 30}


def test_runs_in_a_directory_of_another_offset_are_not_taken_for_those_of_a_range(staging):
    write_runs(staging, 0, 12, 17)
    staging.runs_directory(0, 12).rename(staging.runs_directory(0, 10))
    assert staging.found(OffsetRange(0, 10, 30)) == []


def test_runs_that_cannot_be_read_are_read_from_the_log_again_and_so_is_what_follows(staging):
    write_runs(staging, 0, 10, 17)
    write_runs(staging, 0, 17, 20)
    [file] = staging.runs_directory(0, 17).glob("*.arrow")
    file.write_bytes(file.read_bytes()[:-1])
    assert next_offsets(staging, [OffsetRange(0, 10, 30)]) == {OffsetRange(0, 10, 30): 17}


def test_a_directory_of_runs_that_is_none_is_read_from_the_log_again(staging):
    write_runs(staging, 0, 10, 17)
    staging.runs_directory(0, 17).write_text("a file")
    assert next_offsets(staging, [OffsetRange(0, 10, 30)]) == {OffsetRange(0, 10, 30): 17}
    staging.runs_directory(0, 17).unlink()
    staging.runs_directory(0, 17).mkdir()
    (staging.runs_directory(0, 17) / "run-copy-of-one.arrow").touch()
    assert next_offsets(staging, [OffsetRange(0, 10, 30)]) == {OffsetRange(0, 10, 30): 17}


def test_there_are_runs_as_soon_as_one_is_complete(staging):
    assert not staging.has_runs
    staging.begin(PLAN)
    staging.keep_position(0, 10, {INPUT: 4})
    assert not staging.has_runs
    write_runs(staging, 0, 10, 17)
    assert staging.has_runs


@pytest.mark.behaviour("K20")
def test_the_position_of_all_runs_is_the_last_offset_of_each_input_partition(staging):
    assert staging.position() == {}
    staging.keep_position(0, 9, {INPUT: 4, INPUT_2: 9})
    staging.keep_position(0, 20, {INPUT: 7, INPUT_2: 0})
    staging.keep_position(1, 10, {})
    assert staging.position() == {INPUT: 7, INPUT_2: 0}


@pytest.mark.behaviour("K20")
def test_the_position_of_runs_is_unknown_if_the_last_range_has_none(staging):
    staging.keep_position(0, 9, {INPUT: 4})
    staging.keep_position(0, 20, {})
    assert staging.position() == {}
    staging.keep_position(1, 10, {INPUT: 2})
    assert staging.position() == {INPUT: 2}
    staging.keep_position(0, 100, {INPUT_2: 9})
    assert staging.position() == {INPUT: 4, INPUT_2: 9}


def test_a_position_of_which_only_unknown_offsets_are_known_is_at_the_start(staging):
    write_durably(staging.runs_directory(0, 10) / "position", checkpoint_file.write({INPUT: None, INPUT_2: 0}))
    assert staging.position() == {INPUT: 0, INPUT_2: 0}


def test_what_was_staged_is_forgotten_with_its_plan(staging, paths):
    staging.begin(PLAN)
    write_runs(staging, 0, 10, 17)
    other = Staging(paths, "t")
    other.begin(PLAN)
    staging.clear()
    assert not paths.runs("s").exists()
    assert other.plan() == PLAN


def test_what_was_built_of_any_store_is_removed_and_runs_are_not(staging, paths):
    for directory in (paths.staging("s"), paths.staging("t"), paths.staged_segments("s")):
        directory.mkdir(parents=True)
    staging.begin(PLAN)
    clear_built(paths)
    assert not paths.staging("s").parent.exists()
    assert not paths.staged_own.exists()
    assert staging.plan() == PLAN
    clear_built(paths)


# -- who may work on them ---------------------------------------------------------------------------------------------


def refused(lock):
    with pytest.raises(LockedError, match="is locked by another process"), lock:
        pass


def test_ranges_are_read_together_but_nobody_assembles_meanwhile(staging):
    with staging.reading(0), staging.reading(0):
        refused(staging.alone(0))
    with staging.alone(0):
        refused(staging.reading(0))
        refused(staging.alone(0))
    with staging.alone(0):
        pass


def test_one_range_is_read_by_one_and_others_by_others(staging):
    part = OffsetRange(0, 10, 30)
    of_others = staging.reading_range(OffsetRange(1, 10, 30), 0), staging.reading_range(OffsetRange(0, 30, 40), 0)
    with staging.reading_range(part, 0), of_others[0], of_others[1]:
        refused(staging.reading_range(part, 0))


def test_stores_are_restored_at_the_same_time(staging, paths):
    with staging.alone(0), Staging(paths, "t").alone(0):
        pass


# -- whether they fit -------------------------------------------------------------------------------------------------


def unfit(plan, read, logs, **changes):
    now = {"topic_id": "t", "routing": Routing(), "delete_retention_ms": 5_000, "now_ms": 1_000, **changes}
    return misfit(plan, read, logs, **now)


def test_every_partition_of_the_log_must_be_in_the_plan():
    read = {OffsetRange(0, 10, 30): 30}
    assert unfit(PLAN, read, {CHANGELOG: LogRange(10, 30, 30)}) is None
    found = unfit(PLAN, read, {CHANGELOG: LogRange(10, 30, 30), OTHER: LogRange(0, 5, 5)})
    assert found == "they reach beyond the end of app-s-changelog-1, which is 5"


def test_each_partition_is_judged_by_its_own_ranges():
    plan = PLAN.model_copy(update={"ranges": (OffsetRange(0, 10, 30), OffsetRange(1, 100, 300))})
    read = {OffsetRange(0, 10, 30): 30, OffsetRange(1, 100, 300): 150}
    logs = {CHANGELOG: LogRange(10, 30, 30), OTHER: LogRange(100, 300, 300)}
    assert unfit(plan, read, logs) is None
    assert "app-s-changelog-1 now begins at 151" in unfit(plan, read, {**logs, OTHER: LogRange(151, 300, 300)})
    assert unfit(plan, read, {**logs, OTHER: LogRange(150, 300, 300)}) is None
    assert "which is 299" in unfit(plan, read, {**logs, OTHER: LogRange(100, 299, 299)})
    assert unfit(plan, read, {**logs, OTHER: LogRange(100, 150, 300)}) is None  # an open transaction may be in runs


def test_ranges_may_overlap_and_come_in_any_order_and_may_not_begin_behind_the_log():
    ranges = (OffsetRange(0, 20, 30), OffsetRange(0, 5, 22))
    plan = PLAN.model_copy(update={"ranges": ranges})
    read = {part: part.end for part in ranges}
    assert unfit(plan, read, {CHANGELOG: LogRange(5, 30, 30)}) is None
    assert unfit(plan, read, {CHANGELOG: LogRange(8, 30, 30)}) is None
    assert "leaves out offsets of app-s-changelog-0 from 4 on" in unfit(plan, read, {CHANGELOG: LogRange(4, 30, 30)})


def test_why_runs_cannot_be_used_is_said_in_full():
    read, logs = {OffsetRange(0, 10, 30): 30}, {CHANGELOG: LogRange(10, 30, 30)}
    found = [
        unfit(PLAN, read, logs, topic_id="u"),
        unfit(PLAN, read, logs, now_ms=999),
        unfit(PLAN, read, logs, now_ms=6_000),
        unfit(PLAN, {OffsetRange(0, 10, 30): 15}, {CHANGELOG: LogRange(16, 30, 30)}),
    ]
    assert found == [
        "they belong to another changelog topic, or to a store of another kind or retention",
        "their plan is damaged: it says that they began in the future",
        "they are older than delete.retention.ms: later deletes may be missing from the log",
        "app-s-changelog-0 now begins at 16: records between them are gone",
    ]


def test_an_empty_range_leaves_no_offsets_out():
    ranges = (OffsetRange(0, 10, 30), OffsetRange(0, 30, 30))
    plan = PLAN.model_copy(update={"ranges": ranges})
    assert unfit(plan, {part: part.end for part in ranges}, {CHANGELOG: LogRange(10, 30, 30)}) is None


@pytest.mark.parametrize(
    ("count", "ranges"),
    [
        (0, [(5, 15)]),
        (1, [(5, 15)]),
        (2, [(5, 10), (10, 15)]),
        (3, [(5, 9), (9, 13), (13, 15)]),
        (100, [(at, at + 1) for at in range(5, 15)]),
    ],
)
def test_a_log_is_cut_into_as_many_ranges_of_about_the_same_length(count, ranges):
    assert cut(3, 5, 15, count) == [OffsetRange(3, *ends) for ends in ranges]
    assert cut(3, 5, 5, count) == []


def test_what_killed_attempts_left_besides_whole_runs_is_removed(staging):
    write_runs(staging, 0, 0, 10)
    directory = staging.runs_directory(0, 0)
    whole = sorted(directory.iterdir())
    (directory / "run-00009.arrow.partial").touch()
    (directory / "merge-1" / "deep").mkdir(parents=True)
    (directory / "merge-1" / "deep" / "run").touch()
    staging.clear_unfinished()
    assert sorted(directory.iterdir()) == whole
    assert staging.found(OffsetRange(0, 0, 10))


def test_where_nothing_was_left_nothing_is_removed(staging):
    staging.clear_unfinished()
    assert not staging.has_runs


@pytest.mark.parametrize("step", ["begin", "clear"])
def test_runs_whose_lock_file_was_deleted_are_neither_begun_nor_cleared(staging, paths, step):
    with staging.alone(0):
        staging.begin(PLAN)
        paths.runs_lock("s").unlink()
        with pytest.raises(LockedError, match="is no longer the file that this process has locked"):
            {"begin": lambda: staging.begin(PLAN), "clear": staging.clear}[step]()
    assert staging.plan() == PLAN
