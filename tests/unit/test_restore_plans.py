"""What a plan says of one store partition, from what was verified and from the log's ends.

The log and the verification are stood in for, as each case needs ends and sizes of its own; that they are what a broker
and a store say is shown in tests/integration/test_restore.py.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from samples import CHANGELOG, WINDOW, batches, store_partition

from statestore.archive.archive import ArchiveSpec
from statestore.archive.layout import StoreDirectory
from statestore.archive.snapshots import History, Listed
from statestore.bulk.routing import Routing
from statestore.bulk.runs import RunWriter
from statestore.definitions.store import StoreDefinition
from statestore.durable import write_durably
from statestore.errors import DiskSpaceError, TopicMismatchError
from statestore.kafka.topics import LogRange
from statestore.model import TaskId, TopicPartition
from statestore.partition.facts import (
    ArchiveFacts,
    Candidate,
    DiskFacts,
    Facts,
    ListedSnapshots,
    LogFacts,
    NamedSnapshot,
    Needs,
    RebuildLoss,
)
from statestore.partition.plan import Need, Refusal, Request
from statestore.partition.plan import plan as plan_of
from statestore.partition.spec import GLOBAL_TASK
from statestore.partition.verdict import Verdict
from statestore.recovery import deciding, disk_space, full, planning
from statestore.recovery.as_of import claim_target
from statestore.recovery.as_of_source import PointSource
from statestore.recovery.disk_space import (
    disk_needed,
    disk_of_parts,
    disk_to_merge,
    disk_to_put_together,
    estimated_bytes,
    is_cut,
    require_disk,
    require_disk_for_all,
    require_disk_for_snapshot,
    require_room,
    sample_places,
)
from statestore.recovery.full import store_logs
from statestore.recovery.planning import plan_restore, range_count
from statestore.recovery.sources import all_sources
from statestore.recovery.sources.snapshot import SOURCE as SNAPSHOT_SOURCE
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import BuildPlan, OffsetRange, Staging
from statestore.reports import Failure, Loss, RestorePlanRow, Status
from statestore.requests.restore import AsOf, RestoreRequest
from statestore.statedir.record import StoreRecord
from tests.archive.snapshots import manifest

OTHER = CHANGELOG._replace(partition=1)
MIB = 1024 * 1024
VERSIONED = StoreDefinition(name="s", kind="versioned", retention_ms=600_000)


@pytest.fixture
def store(tmp_path):
    return store_partition(tmp_path / "state")


@pytest.fixture
def world(monkeypatch):
    """What was verified, what the log's ends are, how large it is and how much is free; each test changes its part."""
    found = {
        "verdict": Verdict(Status.LAGGING, "behind", catches_up=True, committed=89, log=LogRange(10, 110, 120)),
        "logs": {CHANGELOG: LogRange(10, 2_030_100, 2_030_200)},
        "bytes": 5_000,
        "free": 10**12,
        "asked": [],
    }

    def examine_store(spec, *_):
        found["asked"].append(("verify", spec.store))
        return facts_of(spec.store, found["logs"]), found["verdict"]

    def size(store, logs):
        found["asked"].append(("bytes", store, logs))
        return found["bytes"]

    def free(path):
        found["asked"].append(("free", path))
        return found["free"]

    monkeypatch.setattr(planning, "examine_store", examine_store)
    for room in (planning, deciding, disk_space):
        monkeypatch.setattr(room, "estimated_bytes", size)
    for room in (planning, disk_space):
        monkeypatch.setattr(room, "free_bytes", free)
    return found


def facts_of(store, logs):
    log = LogFacts(store.changelog, logs[CHANGELOG], all_logs=logs)
    return Facts(store, DiskFacts(present=True, committed=89, empty=False), log=log)


def damaged(world, status=Status.CORRUPT, **evidence):
    world["verdict"] = world["verdict"]._replace(status=status, catches_up=False, **evidence)


def plan(store, mode="auto", ranges=1, **how):
    return plan_restore(RestoreSpec(store, RestoreRequest(mode=mode, **how), "label", 4096, ranges=ranges))


LABEL = {"application": "app", "store": "s", "task": "0_0"}


def test_the_plan_of_a_tail_reads_from_the_committed_offset_on_and_is_asked_of_this_store(store, world):
    needed = disk_needed(5_000, 4096, 2_030_010)
    assert plan(store, ranges=4) == RestorePlanRow(
        **LABEL,
        status=Status.LAGGING,
        mode="tail",
        reason="behind",
        start=90,
        end=2_030_100,
        ranges=1,
        log_bytes=5_000,
        disk_needed=needed,
        disk_free=10**12,
        seconds=4.1,
        loss=Loss.NONE,
    )
    tail = {CHANGELOG: LogRange(90, 2_030_100, 2_030_200)}
    assert world["asked"] == [("verify", store), ("bytes", store, tail), ("free", store.state_dir)]


def test_the_plan_of_a_rebuild_reads_the_whole_log_in_the_ranges_asked_for(store, world):
    damaged(world)
    world["logs"][OTHER] = LogRange(20, 500_020, 500_020)
    row = plan(store, ranges=4)
    assert (row.mode, row.status, row.ranges) == ("full", Status.CORRUPT, 4)
    assert (row.start, row.end, row.resumable) == (10, 10 + 2_030_090 + 500_000, 0)
    assert row.seconds == 5.1
    assert row.disk_needed == disk_needed(5_000, 4096, 2_530_090, 4) > disk_needed(5_000, 4096)
    assert world["asked"][1] == ("bytes", store, world["logs"])


def test_a_healthy_store_is_left_and_the_plan_says_why(store, world):
    damaged(world, Status.OK, detail="")
    assert plan(store) == RestorePlanRow(**LABEL, status=Status.OK, reason="intact")
    damaged(world, Status.EMPTY, detail="nothing logged yet")
    assert plan(store) == RestorePlanRow(**LABEL, status=Status.EMPTY, reason="nothing logged yet")


def test_the_plan_says_why_a_store_of_kafka_streams_without_rows_is_made(store, world):
    damaged(world, Status.EMPTY, detail="nothing logged yet")
    row = plan(store.model_copy(update={"owned": False}))
    assert (row.mode, row.reason) == ("full", "nothing logged yet, but Kafka Streams needs the empty store")


def test_a_healthy_store_is_rebuilt_where_that_is_asked_for(store, world):
    damaged(world, Status.OK, detail="")
    row = plan(store, force=True)
    assert (row.mode, row.reason, row.start) == ("full", "asked for", 10)


def test_a_plan_says_what_cannot_be_done_and_what_was_found(store, world):
    damaged(world, Status.REPLACED, rebuildable=False)
    failure = plan(store).failure
    assert (failure.kind, failure.retriable) == ("InputError", False)
    assert failure.message.startswith("app/s/0_0: ")
    assert failure.evidence == "REPLACED: behind"


def test_a_plan_is_told_whether_a_loss_is_accepted(store, world):
    damaged(world, Status.AHEAD, loss=RebuildLoss(Loss.LIKELY))
    assert "--accept-loss" in plan(store).failure.message
    row = plan(store, accept_loss=True)
    assert (row.mode, row.failure) == ("full", None)


def test_what_the_operating_system_refuses_becomes_part_of_the_plan(store, world, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", "/state")

    monkeypatch.setattr(planning, "examine_store", refuse)
    row = plan(store)
    assert (row.application, row.store, row.task, row.mode) == ("app", "s", "0_0", None)
    assert row.failure.kind == "StoreAccessError"
    assert "Permission denied" in row.failure.message


def test_a_plan_that_just_fits_is_none_that_fails_and_one_byte_less_is_too_little(store, world):
    needed = disk_needed(5_000, 4096, 2_030_010)
    world["free"] = needed
    assert plan(store).failure is None
    world["free"] = needed - 1
    row = plan(store)
    assert (row.failure.kind, row.failure.message) == (
        "DiskSpaceError",
        f"needs about {needed} bytes, {needed - 1} are free",
    )
    assert (row.mode, row.disk_free, row.disk_needed) == ("tail", needed - 1, needed)


def test_the_plan_of_a_suppliers_tail_counts_the_copy(store, world):
    supplied = store.model_copy(update={"store": store.store.model_copy(update={"supplier": "a:b"})})
    write_durably(supplied.live / "rows", "x" * 700)
    assert plan(supplied).disk_needed == disk_needed(5_000, 4096, 2_030_010) + 700
    assert plan(supplied, "full", force=True).disk_needed == disk_needed(5_000, 4096, 2_030_090)


def test_ranges_of_a_log_that_would_fit_into_memory_count_as_on_disk(store, world, monkeypatch):
    world["logs"], world["bytes"] = {CHANGELOG: LogRange(0, 5, 5)}, 1_000
    one, four = disk_needed(1_000, 4096, 5), disk_needed(1_000, 4096, 5, 4)
    assert one < four
    assert [plan(store, "full", ranges=ranges).disk_needed for ranges in (1, 4)] == [one, four]
    world["free"] = 0
    for ranges, needed in ((1, one), (4, four)):
        with pytest.raises(DiskSpaceError, match=f"needs about {needed} bytes"):
            require_disk(
                RestoreSpec(store, RestoreRequest(mode="full"), "label", 4096, ranges=ranges), "full", world["logs"]
            )


def test_a_tail_is_read_in_one_range_however_many_are_asked_for(store, world):
    world["logs"], world["bytes"] = {CHANGELOG: LogRange(87, 93, 93)}, 1_000
    needed = disk_needed(1_000, 4096, 3)
    assert needed < disk_needed(1_000, 4096, 3, 2)
    assert plan(store, ranges=4).disk_needed == needed
    world["free"] = 0
    spec = RestoreSpec(store, RestoreRequest(), "label", 4096, ranges=4)
    with pytest.raises(DiskSpaceError, match=f"needs about {needed} bytes"):
        require_disk(spec, "tail", {CHANGELOG: LogRange(90, 93, 93)})


def test_a_full_disk_tells_which_runs_stay_and_counts_them(store, world):
    world["free"] = 0
    spec = RestoreSpec(store, RestoreRequest(mode="full"), "label", 4096)
    needed = disk_needed(5_000, 4096, 2_030_090)
    refusal = (
        f"restoring app/s/0_0 needs about {{}} bytes in {store.state_dir}, 0 are free. Free some space, then run again"
    )
    with pytest.raises(DiskSpaceError) as raised:
        require_disk(spec, "full", world["logs"])
    assert str(raised.value) == refusal.format(needed)
    leave_runs(store, 10, 17)
    staging = Staging(store.paths, "s")
    with pytest.raises(DiskSpaceError) as raised:
        require_disk(spec, "full", world["logs"])
    kept = f"; {staging.held_bytes} bytes of sorted runs stay in {staging.directory} for the next attempt"
    assert str(raised.value) == refusal.format(needed - staging.held_bytes) + kept


def leave_runs(store, start, end):
    """Runs of an attempt that was interrupted: a range of the plan, and records up to some offset of it."""
    staging = Staging(store.paths, "s")
    staging.begin(
        BuildPlan(topic="c", topic_id="t", routing=Routing(), started_ms=1, ranges=(OffsetRange(0, start, end + 100),))
    )
    writer = RunWriter(staging.runs_directory(0, start), Routing(), MIB, start=start, keep_in_memory=False)
    for batch in batches([(b"k", b"v", 1)] * (end - start), [], start):
        writer.add(batch)
    writer.finish(end)


def test_offsets_that_an_interrupted_rebuild_has_read_are_told_and_a_tail_has_none(store, world):
    leave_runs(store, 10, 17)
    assert plan(store).resumable == 0
    assert plan(store, "full").resumable == 7


def test_offsets_that_other_nodes_have_read_are_told(store, world, monkeypatch, tmp_path):
    done, left = OffsetRange(0, 10, 110), OffsetRange(0, 110, 200)
    build = SimpleNamespace(ranges_left=[left], plan=SimpleNamespace(reading=SimpleNamespace(ranges=(done, left))))
    asked, builds = [], [build, None]

    def builds_there(store, objects, logs):
        asked.append((store, logs))
        return builds.pop(0), []

    monkeypatch.setattr("statestore.recovery.sources.parts.builds_there", builds_there)
    damaged(world)
    monkeypatch.setattr(deciding, "_archive_facts", lambda *_: ArchiveFacts())
    archive = ArchiveSpec(url=f"file://{tmp_path}/archive", cluster="cluster", node_local=True)
    apart = store.model_copy(update={"archive": archive})
    assert [plan(apart, "full", ranges=2).resumable for _ in range(2)] == [100, 0]
    assert asked == [(apart, world["logs"])] * 2


@pytest.fixture
def table(store):
    """A global table."""
    return store.model_copy(update={"task": GLOBAL_TASK, "global_kind": "table"})


@pytest.mark.parametrize(("detail", "reason"), [("", "intact"), ("nothing logged yet", "nothing logged yet")])
def test_a_healthy_global_table_is_left_and_the_plan_says_why(table, world, detail, reason):
    damaged(world, Status.OK, detail=detail)
    row = plan(table, ranges=2)
    assert (row.status, row.mode, row.reason, row.failure) == (Status.OK, None, reason, None)
    assert world["asked"] == [("verify", table)]


@pytest.mark.parametrize(("detail", "reason"), [("", "asked for"), ("damaged", "damaged")])
def test_a_global_table_is_rebuilt_from_all_of_its_logs(table, world, detail, reason):
    damaged(world, detail=detail, loss=RebuildLoss(Loss.NONE))
    row = plan(table, ranges=2)
    assert (row.status, row.mode, row.reason, row.failure) == (Status.CORRUPT, "full", reason, None)
    assert (row.start, row.end, row.snapshot, row.fetched) == (10, 2_030_100, None, 0)
    assert world["asked"][:2] == [("verify", table), ("bytes", table, world["logs"])]


def test_a_point_in_time_is_planned_into_its_own_directory_without_a_look_at_the_store(store, world, monkeypatch):
    asked = []

    def point_source(spec):
        asked.append((spec.store, spec.request.as_of))
        return PointSource({CHANGELOG: LogRange(0, 4, 9)}, None, exact=True)

    monkeypatch.setattr(planning, "point_source", point_source)
    target = store.state_dir.with_name("target")
    row = plan(store, "as-of", as_of_offset=3, target=target)
    assert (row.mode, row.reason, row.status, row.start, row.end) == ("as-of", "as of offset 3", None, 0, 4)
    assert row.disk_needed == disk_needed(5_000, 4096)
    assert row.resumable == 0
    assert asked == [(store, AsOf(offset=3))]
    assert world["asked"] == [("bytes", store, {CHANGELOG: LogRange(0, 4, 9)}), ("free", target)]


def test_a_point_in_time_is_not_planned_into_a_directory_of_something_else(store, world, monkeypatch):
    source = PointSource({CHANGELOG: LogRange(0, 4, 9)}, None, exact=True)
    monkeypatch.setattr(planning, "point_source", lambda _: source)
    target = store.state_dir.with_name("target")
    target.mkdir()
    (target / "mine").touch()
    claimed = store.state_dir.with_name("claimed")
    claim_target(claimed, store.state_dir, AsOf(offset=3))
    assert plan(store, "as-of", as_of_offset=3, target=claimed).failure is None
    claim_target(claimed.with_name("other"), store.state_dir, AsOf(offset=4))
    for directory, said in (
        (target, "found mine"),
        (claimed.with_name("other"), "as of offset 4: name another directory"),
        (store.state_dir, "apart from the state directory"),
    ):
        row = plan(store, "as-of", as_of_offset=3, target=directory)
        assert said in row.failure.message


# -- the log ----------------------------------------------------------------------------------------------------------


class Log:
    """A log in memory in the place of a broker's: each `held`-th offset has a record of 100 bytes."""

    held = 1
    opened: list = []  # noqa: RUF012

    def __init__(self, cluster, partition):
        self.opened.append((cluster, partition))
        self.open = False

    def __enter__(self):
        self.open = True
        return self

    def __exit__(self, *_):
        self.open = False

    def read(self, start, end):
        assert self.open
        yield from batches([(bytes(10), bytes(90), 1)] * ((end - start) // self.held), [40], start)


@pytest.fixture
def log(monkeypatch):
    monkeypatch.setattr(Log, "opened", [])
    monkeypatch.setattr(disk_space, "ChangelogReader", Log)
    return Log


@pytest.mark.parametrize("offsets", [50, 1_000_000])
def test_bytes_of_a_log_are_estimated_from_those_of_a_sample(store, log, offsets):
    bytes_each = estimated_bytes(store, {CHANGELOG: LogRange(7, 7 + offsets, 10**9)}) / offsets
    assert 100 <= bytes_each < 110  # what a record takes in memory besides
    assert log.opened == [(store.cluster, CHANGELOG)]


def test_bytes_of_a_short_log_are_those_of_its_keys_and_values(store, log):
    held = [batch for batch in Log(store.cluster, CHANGELOG).__enter__().read(7, 57)]
    bytes_held = sum(batch.column(0).nbytes + batch.column(1).nbytes for batch in held)
    assert estimated_bytes(store, {CHANGELOG: LogRange(7, 57, 57)}) == bytes_held


def test_offsets_without_a_record_take_no_bytes(store, log, monkeypatch):
    monkeypatch.setattr(log, "held", 2)
    assert 50_000_000 <= estimated_bytes(store, {CHANGELOG: LogRange(0, 1_000_000, 10**9)}) < 55_000_000


def test_bytes_of_several_logs_are_added_up_and_an_empty_one_has_none(store, log):
    one = estimated_bytes(store, {CHANGELOG: LogRange(0, 1_000_000, 10**9)})
    two = {CHANGELOG: LogRange(0, 1_000_000, 10**9), OTHER: LogRange(5, 1_000_005, 10**9)}
    assert estimated_bytes(store, two) == 2 * one
    assert estimated_bytes(store, {CHANGELOG: LogRange(5, 5, 10**9), OTHER: LogRange(0, 1_000_000, 10**9)}) == one
    assert estimated_bytes(store, {CHANGELOG: LogRange(5, 5, 10**9)}) == 0


def test_a_short_log_is_sampled_in_full_and_a_longer_one_in_three_places_spread_over_it():
    assert list(sample_places(5, 5)) == []
    assert list(sample_places(5, 6)) == [(5, 6)]
    assert list(sample_places(5, 1_805)) == [(5, 1_805)]
    assert list(sample_places(0, 1_806)) == [(301, 601), (903, 1_203), (1_505, 1_805)]
    assert list(sample_places(100, 6_100)) == [(1_100, 1_400), (3_100, 3_400), (5_100, 5_400)]


@pytest.mark.parametrize(
    ("offsets", "store_partitions", "parallelism", "ranges"),
    [
        (10_000_000, 0, 4, 4),  # nothing is restored: nothing is divided by it
        (1_000_000, 1, 16, 2),
        (999_999, 1, 16, 1),
        (499_999, 1, 16, 1),
        (0, 1, 16, 1),
        (10_000_000, 1, 16, 16),
        (10_000_000, 3, 16, 5),
        (10_000_000, 32, 16, 1),
    ],
)
def test_a_range_has_half_a_million_offsets_or_more(offsets, store_partitions, parallelism, ranges):
    assert range_count(offsets, store_partitions, parallelism) == ranges


def test_the_ends_of_a_stores_logs_are_asked_for_by_its_partitions(store, monkeypatch):
    asked = []

    def log_ranges(topics, specs):
        asked.append((topics.cluster, specs))
        return {TopicPartition(CHANGELOG.topic, number): LogRange(number, 5, 5) for number in range(4)}

    monkeypatch.setattr(full, "log_ranges", log_ranges)
    assert store_logs(store) == {CHANGELOG: LogRange(0, 5, 5)}
    assert asked == [(store.cluster, [store])]
    changelog = store.changelog.model_copy(update={"partitions": 2})
    of_all = store.model_copy(update={"task": GLOBAL_TASK, "changelog": changelog})
    assert store_logs(of_all) == {
        TopicPartition(CHANGELOG.topic, number): LogRange(number, 5, 5) for number in range(2)
    }


def test_a_store_without_a_changelog_has_nothing_to_be_restored_from(store):
    with pytest.raises(TopicMismatchError, match="topic app-s-changelog does not exist: nothing to restore from"):
        store_logs(store.model_copy(update={"changelog": None}))


# -- disk -------------------------------------------------------------------------------------------------------------


def test_a_restore_needs_its_rows_their_runs_if_they_do_not_fit_into_memory_and_an_empty_database():
    assert disk_needed(1_000, 999) == 2_000 + 16 * MIB
    assert disk_needed(1_000, 1_000) == 1_000 + 16 * MIB


def test_runs_that_are_too_many_to_be_merged_at_once_need_room_for_a_copy_of_them():
    log = 100_000
    assert disk_needed(log, log // 64) == 3 * log + 16 * MIB  # 65 runs: 100,000 / 1,562
    assert disk_needed(log, log // 64 + 1) == 2 * log + 16 * MIB
    assert disk_needed(log, log // 64 + 1, ranges=2) == 3 * log + 16 * MIB
    assert disk_needed(log, log // 64 + 1, offsets=1_000) == 3 * log + 16 * MIB  # what a run has of each record


def test_a_part_of_a_store_needs_its_share_of_the_log_and_of_the_store():
    assert disk_of_parts(4_000, 4096, 0, 4) == 2_000 + 16 * MIB  # pieces and their files
    assert disk_of_parts(100_000, 390, 0, 4) == 3 * 25_000 + 16 * MIB  # runs, what is merged of them, and a piece
    assert disk_of_parts(100_000, 1 << 30, 0, 100) == 3 * 1_000 + 16 * MIB  # pieces of 100 ranges are merged twice
    assert disk_to_merge(10, 1_000, 64) == 10 + 1_000 + 16 * MIB
    assert disk_to_merge(10, 1_000, 65) == 10 + 2_000 + 16 * MIB
    assert disk_to_merge(10, 1_000, 64**3 + 1) == 10 + 3_000 + 16 * MIB  # the pieces of three passes: two at a time
    assert disk_to_put_together(1_000) == 1_000 + 16 * MIB


def test_the_share_of_a_part_is_rounded_up():
    assert disk_of_parts(4_001, 4096, 0, 4) == 2 * 1_001 + 16 * MIB
    assert disk_of_parts(100_000, 392, 0, 4) == 2 * 25_000 + 16 * MIB
    assert disk_of_parts(100_000, 392, 1, 4) == 3 * 25_000 + 16 * MIB  # one record more needs another run


def test_a_part_that_does_not_fit_on_its_node_is_refused(world, store):
    world["free"] = 99
    require_room(store, 99, "merging")
    assert world["asked"] == [("free", store.state_dir)]
    with pytest.raises(DiskSpaceError, match=r"merging needs about 100 bytes in .* 99 are free"):
        require_room(store, 100, "merging")


def test_a_plan_of_a_store_that_many_nodes_build_says_what_each_of_them_needs(world, store, tmp_path, monkeypatch):
    damaged(world)
    monkeypatch.setattr(deciding, "_archive_facts", lambda *_: ArchiveFacts())
    archive = ArchiveSpec(url=f"file://{tmp_path}/archive", cluster="cluster", node_local=True)
    apart = store.model_copy(update={"archive": archive})
    each = disk_of_parts(5_000, 4096, 2_030_090, 2)
    row = plan(apart, ranges=2)
    assert (row.mode, row.ranges, row.disk_each, row.disk_needed) == ("full", 2, each, each)
    world["bytes"] = 10**9
    row = plan(apart, ranges=100)
    assert row.disk_each < row.disk_needed == disk_to_put_together(10**9)
    alone = plan(apart)
    assert (alone.disk_each, alone.disk_needed) == (0, disk_needed(10**9, 4096, 2_030_090))


def test_what_nodes_with_a_disk_each_cannot_build_together_is_not_cut_for_them(store):
    archive = ArchiveSpec(url="file:///archive", cluster="cluster", node_local=True)
    apart = store.model_copy(update={"archive": archive})
    everywhere = apart.model_copy(update={"task": GLOBAL_TASK})
    for spec, prepared_by in ((store, ["log"]), (apart, ["parts"]), (everywhere, [])):
        asked = RestoreSpec(spec, RestoreRequest(), "label", 4096, ranges=4)
        assert [source.name for source in all_sources() if source.prepares(asked)] == prepared_by
    assert not is_cut(RestoreSpec(apart, RestoreRequest(), "label", 4096))


@pytest.mark.parametrize(("mode", "cut"), [("auto", True), ("full", True), ("tail", False), ("snapshot", False)])
def test_only_a_log_that_is_read_in_full_is_cut_and_none_of_a_suppliers_store(store, mode, cut):
    supplied = store.model_copy(update={"store": store.store.model_copy(update={"supplier": "a:b"})})
    for spec, expected in ((store, cut), (supplied, False), (store.model_copy(update={"store": VERSIONED}), False)):
        assert is_cut(RestoreSpec(spec, RestoreRequest(mode=mode), "label", 4096, ranges=4)) is expected


def test_ranges_of_a_log_that_fits_into_memory_are_on_disk_all_the_same():
    assert disk_needed(1_000, 10_000, ranges=2) == 2_000 + 16 * MIB


def require(store, logs, mode="full"):
    require_disk(RestoreSpec(store, RestoreRequest(mode=mode), "label", 4096), mode, logs)


def test_nobody_reads_from_a_log_that_fits_however_large_its_records_are(store, world):
    logs = {CHANGELOG: LogRange(10, 20, 20), OTHER: LogRange(0, 5, 5)}
    world["free"] = 15 * 4096 + 16 * MIB
    require(store, logs)
    assert world["asked"] == [("free", store.state_dir)]
    world["free"] -= 1
    require(store, logs)
    assert world["asked"][2:] == [("bytes", store, logs)]


def test_a_restore_that_just_fits_may_begin_and_one_byte_less_is_too_little(store, world):
    logs = {CHANGELOG: LogRange(0, 10**9, 10**9)}
    world["free"] = disk_needed(5_000, 4096, 10**9)
    require(store, logs)
    world["free"] -= 1
    with pytest.raises(DiskSpaceError, match=rf"{world['free'] + 1} bytes in .*state, {world['free']} are free"):
        require(store, logs)


def test_runs_that_are_there_already_need_no_room_again(store, world):
    leave_runs(store, 10, 17)
    held = sum(file.stat().st_size for file in store.paths.runs("s").rglob("*.arrow"))
    assert held
    world["free"] = disk_needed(5_000, 4096, 10**9) - held
    require(store, {CHANGELOG: LogRange(0, 10**9, 10**9)})
    world["free"] -= 1
    with pytest.raises(DiskSpaceError):
        require(store, {CHANGELOG: LogRange(0, 10**9, 10**9)})


def test_free_bytes_are_those_of_the_directory_or_of_where_it_will_be(tmp_path):
    free = disk_space.free_bytes(tmp_path / "not" / "there" / "yet")
    assert free == pytest.approx(disk_space.free_bytes(tmp_path), rel=0.1)
    assert free > 0


def plan_row(**what):
    return RestorePlanRow(**LABEL, **what)


def test_a_plan_fits_as_a_whole_into_the_least_that_is_free_and_not_a_byte_less():
    fits = [
        plan_row(mode="full", disk_needed=60, disk_free=100),
        plan_row(mode="tail", disk_needed=40, disk_free=200),
        plan_row(mode=None, disk_needed=1_000, disk_free=0),
    ]
    require_disk_for_all(fits)
    refused = plan_row(mode="full", disk_needed=10**6, disk_free=1).model_copy(
        update={"failure": Failure(kind="DiskSpaceError", message="needs more")}
    )
    require_disk_for_all([*fits, refused])
    said = (
        "restoring 3 store partitions needs about 101 bytes, 100 are free. Free some space, or restore fewer at a time"
    )
    with pytest.raises(DiskSpaceError, match=f"^{said}$"):
        require_disk_for_all([*fits, plan_row(mode="full", disk_needed=1, disk_free=300)])
    require_disk_for_all([])


def test_a_store_of_another_kind_is_planned_under_its_own_name(store, world):
    row = plan(store.model_copy(update={"store": WINDOW, "application": "other", "task": TaskId(1, 2)}))
    assert row.label == "other/s/1_2"


# -- snapshots --------------------------------------------------------------------------------------------------------


@pytest.fixture
def archived(store, world, monkeypatch, tmp_path):
    """A store with an archive, of whose log half comes after the newest snapshot; it is to be rebuilt."""
    damaged(world)
    world["logs"] = {CHANGELOG: LogRange(10, 110, 120)}
    world["bytes"], world["local"], world["snapshots"] = 1_000, {}, [snapshot_of(499), snapshot_of(1)]
    directory = StoreDirectory("c", store.store_partition)

    def listed(*_):
        world["asked"].append("listed")
        return History(directory, 0, tuple(Listed(directory, one.name, 0, suspect=False) for one in world["snapshots"]))

    def read(_, listed):
        world["asked"].append("read")
        return next(one for one in world["snapshots"] if one.name == listed.name)

    def newest(_, found):
        return ListedSnapshots(found, next(iter(world["snapshots"]), None))

    monkeypatch.setattr(deciding, "snapshots_of", listed)
    monkeypatch.setattr(deciding, "listed_snapshots", newest)
    monkeypatch.setattr(deciding, "read_usable", read)
    monkeypatch.setattr(deciding, "compared_end", lambda *_: None)
    monkeypatch.setattr(deciding, "inadmissible", lambda *_: None)
    monkeypatch.setattr(deciding, "find_correction", lambda *_: (None, None))
    monkeypatch.setattr(deciding, "_no_earlier", lambda _, now_ms: now_ms)
    monkeypatch.setattr(disk_space, "known_files", lambda *_: world["local"])
    return store.model_copy(update={"archive": ArchiveSpec(url=f"file://{tmp_path}/archive", cluster="c")})


def snapshot_of(size, committed=59):
    return manifest({"000007.sst": bytes(size)}, application="app", committed=committed)


def test_the_plan_of_a_restore_from_a_snapshot_reads_what_came_after_it(archived, world):
    newest = world["snapshots"][0]
    row = plan(archived, "snapshot")
    assert (row.mode, row.snapshot, row.fetched) == ("snapshot", str(newest.name), 499)
    assert (row.start, row.end, row.ranges, row.resumable) == (60, 110, 1, 0)
    assert row.disk_needed == disk_needed(1_000, 4096, 50) + 499
    assert world["asked"][-2] == ("bytes", archived, {CHANGELOG: LogRange(60, 110, 120)})
    world["snapshots"] = []
    row = plan(archived, "snapshot")
    assert (row.mode, row.snapshot, row.fetched, row.start) == ("full", None, 0, 10)


def test_auto_begins_with_a_snapshot_that_reads_less_than_the_log(archived, world):
    row = plan(archived)
    assert (row.mode, row.start, row.fetched) == ("snapshot", 60, 499)
    assert world["asked"] == [
        ("verify", archived),
        "listed",
        ("bytes", archived, world["logs"]),
        ("bytes", archived, {CHANGELOG: LogRange(60, 110, 120)}),
        ("free", archived.state_dir),
    ]
    world["snapshots"] = [snapshot_of(500)]
    assert (plan(archived).mode, plan(archived).start) == ("full", 10)  # as much
    world["local"] = {"000001.sst": world["snapshots"][0].files[0].sha256}
    assert plan(archived).mode == "snapshot"  # but it is here
    world["snapshots"] = []
    assert plan(archived).mode == "full"


def test_a_snapshot_with_all_of_a_log_still_to_be_read_saves_nothing(archived, world):
    world["logs"], world["snapshots"] = {CHANGELOG: LogRange(10, 11, 11)}, [snapshot_of(0, committed=9)]
    assert plan(archived).mode == "full"
    world["logs"], world["bytes"] = {CHANGELOG: LogRange(10, 10, 10)}, 0
    assert plan(archived).mode == "full"


@pytest.mark.parametrize("how", [{"mode": "full"}, {"force": True}])
def test_who_does_not_trust_a_store_does_not_get_it_from_a_snapshot(archived, world, how):
    assert plan(archived, **how).mode == "full"
    assert "read" not in world["asked"]


def test_a_store_is_not_built_from_snapshots_that_are_not_to_be_used(archived, store, world):
    spec = RestoreSpec(archived, RestoreRequest(), "label", 4096)
    assert plan_restore(spec).mode == "snapshot"
    world["asked"].clear()
    for none in (spec._replace(diverged=True, request=RestoreRequest(force=True)), spec._replace(from_log=True)):
        assert plan_restore(none).mode == "full"
    assert plan_restore(spec._replace(store=store)).mode == "full"
    assert "read" not in world["asked"]


def candidates_of(world):
    return tuple(
        Candidate(str(one.name), one.committed, one.record, fetched=one.bytes, replayed=50)
        for one in world["snapshots"]
    )


def offered(archived, world, *failed, snapshots="cheaper", covers=None, store=None):
    """Return the snapshot that is offered if others have failed, in a log of 1,000 bytes and 100 offsets."""
    archive = ArchiveFacts(candidates=candidates_of(world))
    facts = facts_of(store or archived, world["logs"])._replace(archive=archive, failed=frozenset(failed))
    return SNAPSHOT_SOURCE.offer(facts, Need("rebuild", snapshots, covers), Request())


def chosen(archived, world, *failed, mode="auto", store=None):
    """Return the snapshot that is planned if others have failed."""
    archive = ArchiveFacts(history=History(None, 0, ()), candidates=candidates_of(world))
    facts = facts_of(store or archived, world["logs"])._replace(archive=archive, log_bytes=1_000)
    facts = facts._replace(failed=frozenset(failed))
    return plan_of(facts, world["verdict"], Request(mode=mode), all_sources()).snapshot


def test_older_snapshots_are_used_while_they_read_less_than_the_log(archived, world):
    world["snapshots"] = [snapshot_of(499), snapshot_of(500), snapshot_of(499)]
    first, second, third = (str(one.name) for one in world["snapshots"])
    assert chosen(archived, world) == first
    assert chosen(archived, world, first) is None  # the next one reads as much
    assert [chosen(archived, world, *failed, mode="snapshot") for failed in ((), (first,), (first, second))] == [
        first,
        second,
        third,
    ]


def test_a_snapshot_is_fetched_only_where_it_fits_beside_an_empty_database(archived, world):
    spec = RestoreSpec(archived, RestoreRequest(), "label", 4096)
    snapshot = snapshot_of(499)
    world["free"] = 16 * MIB + 499
    require_disk_for_snapshot(spec, snapshot)
    assert world["asked"][0] == ("free", archived.state_dir)
    world["free"] -= 1
    with pytest.raises(DiskSpaceError, match=r"fetches 499 bytes .* are free"):
        require_disk_for_snapshot(spec, snapshot)
    world["local"] = {"000001.sst": snapshot.files[0].sha256}
    require_disk_for_snapshot(spec, snapshot)


def test_a_tail_needs_no_snapshot(archived, world):
    world["verdict"] = world["verdict"]._replace(status=Status.LAGGING, catches_up=True)
    assert (plan(archived).mode, plan(archived, "snapshot").mode) == ("tail", "snapshot")


def test_a_snapshot_of_a_versioned_store_is_used_however_much_it_reads(archived, world):
    world["snapshots"] = [snapshot_of(1_000), snapshot_of(2_000)]
    first, second = (str(one.name) for one in world["snapshots"])
    versioned = archived.model_copy(update={"store": VERSIONED})
    assert chosen(archived, world, store=versioned) == first
    assert chosen(archived, world, first, store=versioned) == second


def test_the_tail_of_a_snapshot_is_its_share_of_the_log_in_whole_bytes(archived, world):
    world["bytes"], world["snapshots"] = 999, [snapshot_of(489, committed=58)]  # 51 of 100 offsets: 509 bytes
    assert plan(archived).mode == "snapshot"
    world["snapshots"] = [snapshot_of(490, committed=58)]
    assert plan(archived).mode == "full"


def test_the_plan_of_a_restore_from_a_snapshot_reads_its_tail_in_one_range(archived, world):
    needed = disk_needed(1_000, 4096, 20)
    world["logs"] = {CHANGELOG: LogRange(40, 80, 80)}
    assert needed < disk_needed(1_000, 4096, 20, 2)
    assert plan(archived, "snapshot", ranges=4).disk_needed == needed + 499


def test_of_a_log_without_its_start_only_snapshots_with_all_that_is_needed_are_used(archived, world):
    records = [StoreRecord(topic_id="id", caught_up_ms=5, needed_from=needed) for needed in (8, 7, None)]
    world["snapshots"] = [manifest({}, application="app", record=record) for record in records]
    names = [str(one.name) for one in world["snapshots"]]
    covers = Needs(7, adopted=False)
    assert offered(archived, world, covers=covers).snapshot == names[1]
    assert offered(archived, world, names[1], covers=covers) is None
    assert offered(archived, world).snapshot == names[0]


@pytest.mark.parametrize(
    ("changes", "against"),
    [
        ({}, None),
        ({"suspect": True}, "it is marked as suspect: it may hold wrong rows"),
        ({"generation": 1}, "it belongs to generation 0, but generation 1 has begun"),
        ({"covers": Needs(7, adopted=False)}, "it lacks some of what the log has lost"),
        ({"refused": "its changelog was cut"}, "its changelog was cut"),
    ],
)
def test_a_snapshot_that_was_named_is_used_and_what_speaks_against_it_is_to_be_accepted(
    archived, world, changes, against
):
    made, directory = world["snapshots"][0], StoreDirectory("c", archived.store_partition)
    candidate = Candidate(str(made.name), 59, made.record, changes.get("refused"))
    listed = Listed(directory, made.name, 0, changes.get("suspect", False))
    named = NamedSnapshot(listed, changes.get("generation", 0), candidate, "")
    facts = facts_of(archived, world["logs"])._replace(archive=ArchiveFacts(named=named))
    need = Need("rebuild", "first", changes.get("covers"))
    accepted = SNAPSHOT_SOURCE.offer(facts, need, Request(snapshot="named", accept_loss=True))
    assert (accepted.snapshot, accepted.against) == (str(made.name), against or "")
    unaccepted = SNAPSHOT_SOURCE.offer(facts, need, Request(snapshot="named"))
    if against is None:
        assert unaccepted == accepted
    else:
        assert isinstance(unaccepted, Refusal)
        assert f"is not used: {against}. To begin with it anyway" in str(unaccepted.error)
    assert SNAPSHOT_SOURCE.offer(facts, Need("rebuild", "never"), Request(snapshot="named")) is None
