"""The parts of a restore that need no broker: what to do, whether it fits, what is kept, and the hard-linked copy."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import CHANGELOG, TIMESTAMPED, contents, store_partition

from statestore.archive.archive import ArchiveSpec
from statestore.bulk.routing import Routing
from statestore.durable import write_durably
from statestore.errors import DiskSpaceError, InputError, KafkaUnavailableError, LockedError, TopicMismatchError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.kafka.topics import LogRange
from statestore.partition.facts import DiskFacts, Facts, LogFacts, RebuildLoss
from statestore.partition.plan import Refusal, Request, needed
from statestore.partition.spec import GLOBAL_TASK
from statestore.partition.verdict import Verdict
from statestore.recovery import as_of_source, deciding, disk_space, many, planning
from statestore.recovery.as_of import claim_target
from statestore.recovery.disk_space import require_disk, sample_places
from statestore.recovery.many import cut_by_length, restore_many
from statestore.recovery.planning import plan_restore, require_partitions
from statestore.recovery.sources import log as log_source
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import BuildPlan, OffsetRange, cut, misfit
from statestore.recovery.tail import link_database
from statestore.reports import Loss, RestoreRow, Status
from statestore.requests.restore import AsOf, RestoreRequest
from statestore.stores.open import open_key_value_store
from statestore.stores.rocksdb import RocksDB
from statestore.stores.sst import write_sst

LOG = LogRange(0, 10, 10)


def found(status, **evidence):
    """A verdict on a store with the changelog `LOG`."""
    return Verdict(status, "why", **{"committed": 4, "log": LOG, **evidence})


def choose_mode(mode, force, verdict, *, accept_loss=False, archived=False):
    """Return the mode that a store partition needs, or raise why it is refused."""
    store = store_partition()
    if archived:
        store = store.model_copy(update={"archive": ArchiveSpec(url="file:///archive", cluster="c")})
    facts = Facts(store, DiskFacts(present=True, committed=4), log=LogFacts(store.changelog, LOG))
    need = needed(facts, verdict, Request(mode=mode, force=force, accept_loss=accept_loss))
    if isinstance(need, Refusal):
        raise need.error
    rebuilt = "snapshot" if need.snapshots == "first" else "full"
    return {"nothing": None, "tail": "tail", "rebuild": rebuilt}[need.kind]


LABEL = {"application": "app", "store": "s", "task": "0_0"}
WHOLE = [found(Status.OK), found(Status.EMPTY)]
BEHIND = found(Status.LAGGING, catches_up=True)
BROKEN = [found(status) for status in (Status.CORRUPT, Status.MISSING, Status.AHEAD, Status.LAGGING)]


@pytest.mark.parametrize("row", WHOLE)
@pytest.mark.parametrize("mode", ["auto", "tail", "snapshot", "full"])
def test_r8_a_whole_store_is_skipped(row, mode):
    assert choose_mode(mode, False, row) is None
    assert choose_mode("tail", True, row) is None


@pytest.mark.parametrize("row", [*WHOLE, BEHIND, *BROKEN])
@pytest.mark.parametrize(("mode", "chosen"), [("auto", "full"), ("full", "full"), ("snapshot", "snapshot")])
def test_a_forced_restore_rebuilds_whatever_was_found(row, mode, chosen):
    assert choose_mode(mode, True, row) == chosen


@pytest.mark.parametrize(
    ("mode", "chosen"), [("auto", "tail"), ("tail", "tail"), ("full", "full"), ("snapshot", "snapshot")]
)
def test_a_store_that_lags_is_caught_up_unless_a_rebuild_is_asked_for(mode, chosen):
    assert choose_mode(mode, False, BEHIND) == chosen


@pytest.mark.parametrize("row", BROKEN)
def test_r6_a_store_that_needs_a_rebuild_is_never_caught_up(row):
    assert choose_mode("auto", False, row) == "full"
    assert choose_mode("snapshot", False, row) == "snapshot"
    for force in (False, True):
        said = rf"^app/s/0_0 is {row.status}, which mode tail cannot repair. Use mode full$"
        with pytest.raises(InputError, match=said):
            choose_mode("tail", force, row)


@pytest.mark.parametrize("mode", ["auto", "tail", "full"])
@pytest.mark.parametrize("force", [False, True])
def test_m2_a_store_of_unknown_format_is_only_touched_by_hand(mode, force):
    with pytest.raises(InputError, match=r"^app/s/0_0: The store is not rebuilt automatically"):
        choose_mode(mode, force, found(Status.REPLACED, rebuildable=False))


@pytest.mark.parametrize("mode", ["auto", "tail", "full"])
@pytest.mark.parametrize("force", [False, True])
def test_a_store_that_could_not_be_looked_at_is_not_touched(mode, force):
    with pytest.raises(LockedError, match=r"^app/s/0_0 could not be verified \(LOCKED\): why; try again later$"):
        choose_mode(mode, force, found(Status.LOCKED))


ACCEPT = "to rebuild it anyway, and keep the present store in quarantine, add --accept-loss"
LIKELY = RebuildLoss(Loss.LIKELY, "the log is shorter")


@pytest.mark.parametrize(("mode", "chosen"), [("auto", "full"), ("full", "full"), ("snapshot", "snapshot")])
def test_given_a_rebuild_that_would_lose_something_then_it_needs_the_loss_accepted(mode, chosen):
    waits = found(Status.CORRUPT, loss=LIKELY)
    with pytest.raises(InputError, match=r"^app/s/0_0: .* Next: statestore restore app/s/0_0 --accept-loss$") as raised:
        choose_mode(mode, False, waits)
    assert raised.value.evidence == "CORRUPT: why"
    assert choose_mode(mode, False, waits, accept_loss=True) == chosen


@pytest.mark.parametrize("row", [found(Status.CORRUPT), found(Status.UNKNOWN_FORMAT, loss=LIKELY)])
def test_given_a_store_that_a_rebuild_cannot_repair_then_an_accepted_loss_changes_nothing(row):
    for accept_loss in (False, True):
        with pytest.raises(InputError, match=r"^app/s/0_0: ") as raised:
            choose_mode("full", True, row._replace(rebuildable=False), accept_loss=accept_loss)
        assert "--accept-loss" not in str(raised.value)
        assert raised.value.evidence == f"{row.status}: why"


@pytest.mark.parametrize(("mode", "force"), [("full", False), ("full", True), ("auto", True)])
def test_given_a_healthy_copy_that_may_be_the_only_one_then_a_rebuild_of_choice_needs_the_loss_accepted(mode, force):
    row = (BEHIND if mode == "full" else WHOLE[0])._replace(loss=LIKELY)
    said = f"is {row.status}, and is not rebuilt, because a rebuild would lose data: the log is shorter; {ACCEPT}"
    with pytest.raises(InputError, match=rf"^app/s/0_0 {said}$"):
        choose_mode(mode, force, row)
    assert choose_mode(mode, force, row, accept_loss=True) == "full"


@pytest.mark.parametrize("mode", ["auto", "snapshot"])
@pytest.mark.parametrize("cause", [Status.TRUNCATED, Status.REPLACED, Status.AHEAD])
def test_what_a_log_has_lost_at_its_start_an_archive_may_have_and_nothing_else(mode, cause):
    waits = found(Status.CORRUPT, loss=LIKELY._replace(status=cause))
    for archived in (False, True):
        if archived and cause is Status.TRUNCATED:
            assert choose_mode(mode, False, waits, archived=archived) == "snapshot"
        else:
            with pytest.raises(InputError, match=r"^app/s/0_0: "):
                choose_mode(mode, False, waits, archived=archived)
    with pytest.raises(InputError, match=r"^app/s/0_0: "):
        choose_mode("full", False, waits, archived=True)
    unknown = waits._replace(status=Status.UNKNOWN_FORMAT, rebuildable=False)
    with pytest.raises(InputError, match=r"^app/s/0_0: "):
        choose_mode(mode, False, unknown, archived=True)


def test_a_tail_is_caught_up_also_where_a_rebuild_would_lose_something():
    assert choose_mode("auto", False, BEHIND._replace(loss=LIKELY)) == "tail"


def logged_in(partitions):
    """A store partition whose changelog has so many partitions."""
    changelog = store_partition().changelog.model_copy(update={"partitions": partitions})
    return store_partition(changelog=changelog)


REPARTITIONED = (
    "so no store can be restored from it; recreate the topics with their former number of partitions, or process "
    "the input again with a new application name$"
)


@pytest.mark.behaviour("R10")
def test_r10_a_changelog_with_another_number_of_partitions_is_refused_with_what_to_do():
    for found, tasks in ((3, 4), (4, 3)):
        store = logged_in(found)
        said = f"has {found} partitions, .* has {tasks} tasks: .*{REPARTITIONED}"
        with pytest.raises(TopicMismatchError, match=said):
            require_partitions(store, tasks)
        require_partitions(store.model_copy(update={"task": GLOBAL_TASK}), tasks)
    require_partitions(logged_in(3), 3)
    require_partitions(store_partition(changelog=None), 3)


# -- disk


def log_of(offsets):
    return {CHANGELOG: LogRange(0, offsets, offsets)}


@pytest.mark.parametrize(("supplier", "mode", "copied"), [("a:b", "tail", 300), ("a:b", "full", 0), (None, "tail", 0)])
def test_a_tail_of_a_suppliers_store_needs_room_for_a_copy_of_it(tmp_path, monkeypatch, supplier, mode, copied):
    store = store_partition(tmp_path, store=TIMESTAMPED.model_copy(update={"supplier": supplier}))
    for name, size in (("rows", 100), ("more/rows", 200)):
        write_durably(store.live / name, "x" * size)
    spec = RestoreSpec(store, RestoreRequest(mode=mode), "label", 4096)
    monkeypatch.setattr(disk_space, "estimated_bytes", lambda *_: 1_000)
    needed = disk_space.disk_needed(1_000, 4096, 10**9) + copied
    free = [needed - 1, needed]
    monkeypatch.setattr(disk_space, "free_bytes", lambda _: free.pop(0))
    with pytest.raises(DiskSpaceError, match=f"needs about {needed} bytes in .*, {needed - 1} are free"):
        require_disk(spec, mode, log_of(10**9))
    require_disk(spec, mode, log_of(10**9))


@pytest.mark.parametrize("more", [0, 1])
def test_plenty_of_disk_for_a_copy_and_the_log_asks_for_no_size(tmp_path, monkeypatch, more):
    store = store_partition(tmp_path, store=TIMESTAMPED.model_copy(update={"supplier": "a:b"}))
    write_durably(store.live / "rows", "x" * 100)
    asked = []
    monkeypatch.setattr(disk_space, "estimated_bytes", lambda *_: asked.append("size") or 0)
    monkeypatch.setattr(disk_space, "free_bytes", lambda _: 10 * 4096 + 16 * 1024 * 1024 + 99 + more)
    require_disk(RestoreSpec(store, RestoreRequest(mode="tail"), "label", 4096), "tail", log_of(10))
    assert asked == ([] if more else ["size"])


def as_of(store, best_effort=False):
    """A plan for a store as of offset 3 of a log without its first two offsets."""
    target = store.state_dir.with_name("target")
    request = RestoreRequest(mode="as-of", as_of_offset=3, target=target, best_effort=best_effort)
    return plan_restore(RestoreSpec(store, request, "label", 4096))


def test_r16_a_plan_refuses_a_point_that_the_restore_would_refuse(tmp_path, monkeypatch):
    monkeypatch.setattr(as_of_source, "point_range", lambda *_: {CHANGELOG: LogRange(2, 4, 4)})
    monkeypatch.setattr(planning, "estimated_bytes", lambda *_: 0)
    store = store_partition(tmp_path / "state")
    refused = as_of(store).failure
    assert refused is not None
    assert "its first 2 offsets were deleted" in refused.message
    assert as_of(store, best_effort=True).failure is None


def test_a_store_in_use_can_be_planned_again_later(tmp_path, monkeypatch):
    store = store_partition(tmp_path)
    unobserved = Facts(store, DiskFacts(present=False)), found(Status.LOCKED)
    monkeypatch.setattr(planning, "examine_store", lambda *_: unobserved)
    row = plan_restore(RestoreSpec(store, RestoreRequest(), "label", 4096))
    assert row.failure is not None
    assert row.failure.retriable


def refuse(error):
    def refused(*_):
        raise error

    return refused


@pytest.mark.parametrize("error", [KafkaUnavailableError("away"), OSError("I/O error")])
def test_a_log_whose_length_cannot_be_told_is_not_cut(tmp_path, monkeypatch, error):
    monkeypatch.setattr(many, "store_logs", refuse(error))
    asked = [RestoreSpec(store_partition(tmp_path), RestoreRequest(mode="full"), "label", 4096)]
    assert cut_by_length(asked, 4) == asked


def test_a_log_is_cut_for_nodes_with_a_disk_each_only_if_they_are_enough_to_be_quicker(tmp_path, monkeypatch):
    log = LogRange(0, 5_000_000, 5_000_000)
    monkeypatch.setattr(many, "store_logs", lambda _: {CHANGELOG: log})
    archive = ArchiveSpec(url="file:///archive", cluster="cluster", node_local=True)
    for apart, counts in ((None, [1, 2, 3, 4, 9]), (archive, [1, 1, 1, 4, 9])):
        store = store_partition(tmp_path).model_copy(update={"archive": apart})
        asked = [RestoreSpec(store, RestoreRequest(mode="full"), "label", 4096)]
        assert [cut_by_length(asked, cores)[0].ranges for cores in (1, 2, 3, 4, 9)] == counts


@pytest.mark.short_for("examine_store-error0", "begin_ranges-error1")
@pytest.mark.parametrize("error", [KafkaUnavailableError("away"), OSError("I/O error")])
@pytest.mark.parametrize("at", ["examine_store", "begin_ranges"])
def test_a_store_whose_ranges_cannot_begin_is_left_to_its_restore(tmp_path, monkeypatch, at, error):
    if at == "begin_ranges":
        monkeypatch.setattr(many, "planned_source", lambda _: "log")
    monkeypatch.setattr(log_source if at == "begin_ranges" else deciding, at, refuse(error))
    monkeypatch.setattr(many, "restore", lambda *_: RestoreRow(**LABEL, outcome="restored"))
    asked = [RestoreSpec(store_partition(tmp_path), RestoreRequest(mode="full"), "label", 4096, ranges=2)]
    rows = restore_many(asked, lambda pieces, work, *_: [work(piece) for piece in pieces], tmp_path / "progress")
    assert [row.outcome for row in rows] == ["restored"]


@given(start=st.integers(0, 10**6), length=st.integers(0, 10**6))
def test_samples_of_a_log_lie_in_it_and_do_not_overlap(start, length):
    places = list(sample_places(start, start + length))
    assert sum(end - begin for begin, end in places) <= 1_800
    assert bool(places) == bool(length)
    inside = [start, *(at for place in places for at in place), start + length]
    assert inside == sorted(inside)


# -- ranges


@given(start=st.integers(0, 10**6), length=st.integers(0, 10**6), number=st.integers(1, 40))
def test_ranges_cover_a_log_without_a_gap_and_none_is_empty(start, length, number):
    ranges = cut(3, start, start + length, number)
    assert len(ranges) <= number
    assert all(part.partition == 3 and part.start < part.end for part in ranges)
    ends = [start, *(at for part in ranges for at in part[1:]), start + length]
    assert ends[::2] == ends[1::2]


PLAN = BuildPlan(
    topic="c",
    topic_id="t",
    routing=Routing(),
    started_ms=1_000,
    ranges=(OffsetRange(0, 100, 200), OffsetRange(0, 200, 300)),
)
FIRST, SECOND = PLAN.ranges


@pytest.mark.parametrize(
    ("read", "log", "changes", "unfit"),
    [
        ({FIRST: 150, SECOND: 200}, LogRange(100, 300, 300), {}, None),
        ({FIRST: 200, SECOND: 300}, LogRange(290, 400, 400), {}, None),
        ({FIRST: 200, SECOND: 250}, LogRange(250, 400, 400), {}, None),
        ({FIRST: 150, SECOND: 300}, LogRange(160, 400, 400), {}, "now begins at 160"),
        ({FIRST: 100, SECOND: 200}, LogRange(100, 250, 250), {}, "beyond the end"),
        ({FIRST: 200, SECOND: 300}, LogRange(100, 300, 300), {"topic_id": "u"}, "another changelog"),
        ({FIRST: 200, SECOND: 300}, LogRange(100, 300, 300), {"routing": Routing(12, 60_000, 0)}, "another changelog"),
        ({FIRST: 200, SECOND: 300}, LogRange(100, 300, 300), {"now_ms": 6_000}, "older than delete.retention.ms"),
    ],
)
def test_r8_r6_runs_of_an_earlier_attempt_are_used_only_while_they_fit_the_log(read, log, changes, unfit):
    now = {"topic_id": "t", "routing": Routing(), "delete_retention_ms": 5_000, "now_ms": 5_999, **changes}
    found = misfit(PLAN, read, {CHANGELOG: log}, **now)
    assert found is None if unfit is None else unfit in found


@pytest.mark.parametrize("second", [OffsetRange(0, 208, 300), OffsetRange(0, 200, 104)])
def test_runs_whose_plan_was_damaged_are_not_used(second):
    plan = PLAN.model_copy(update={"ranges": (FIRST, second)})
    now = {"topic_id": "t", "routing": Routing(), "delete_retention_ms": 5_000, "now_ms": 5_999}
    found = misfit(plan, {part: part.end for part in plan.ranges}, {CHANGELOG: LogRange(100, 300, 300)}, **now)
    assert found is not None
    assert re.search("leaves out offsets of .* from 200 on", found)


# -- as of a point


def test_a_target_is_empty_or_of_an_earlier_attempt_at_the_same(tmp_path):
    live, target = tmp_path / "live", tmp_path / "target"
    for _ in range(2):
        claim_target(target, live, AsOf(offset=7))
    with pytest.raises(InputError, match=r"as of offset 8 in .* as of offset 7: name"):
        claim_target(target, live, AsOf(offset=8))
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").touch()
    with pytest.raises(InputError, match="expected an empty directory, found mine"):
        claim_target(tmp_path / "used", live, AsOf(offset=7))
    with pytest.raises(InputError, match="found the file"):
        claim_target(tmp_path / "used" / "mine", live, AsOf(offset=7))
    for inside in (live, live / "app", tmp_path):
        with pytest.raises(InputError, match="apart from the state directory"):
            claim_target(inside, live, AsOf(offset=7))
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["as-of.json", "mine"]


# -- the linked copy


@pytest.fixture
def live(tmp_path):
    store = open_key_value_store(TIMESTAMPED, tmp_path / "live")
    for number in range(100):
        store.put(b"%03d" % number, ValueAndTimestamp(bytes(50), number))
    store.commit({CHANGELOG: 99})
    store.close()
    return tmp_path / "live"


def test_the_copy_is_the_store_with_its_tables_linked(live, tmp_path):
    link_database(live, tmp_path / "new" / "copy")
    for table in live.glob("*.sst"):
        assert (tmp_path / "new" / "copy" / table.name).stat().st_ino == table.stat().st_ino
    copy = open_key_value_store(TIMESTAMPED, tmp_path / "new" / "copy")
    assert (len(list(copy.range())), copy.committed_offset(CHANGELOG)) == (100, 99)
    copy.close()


@pytest.mark.behaviour("R8")
def test_r8_work_on_the_copy_leaves_the_live_store_untouched(live, tmp_path):
    before = contents(live)
    link_database(live, tmp_path / "copy")
    copy = open_key_value_store(TIMESTAMPED, tmp_path / "copy")
    for number in range(100):
        copy.delete(b"%03d" % number)
    copy.put(b"x", ValueAndTimestamp(b"1", 1))
    copy.commit({CHANGELOG: 199})
    copy.sync()
    copy.inner.opened._table.family("keyValueWithTimestamp").rdict.compact_range(
        None, None
    )  # drops the linked tables there
    copy.close()
    assert contents(live) == before
    store = open_key_value_store(TIMESTAMPED, live)
    assert (len(list(store.range())), store.committed_offset(CHANGELOG)) == (100, 99)
    store.close()


def test_the_copy_can_be_made_while_the_store_is_open_elsewhere_for_reading(live, tmp_path):
    reader = open_key_value_store(TIMESTAMPED, live, read_only=True)
    link_database(live, tmp_path / "copy")
    open_key_value_store(TIMESTAMPED, tmp_path / "copy").close()
    reader.close(clean=False)


def test_what_an_interrupted_flush_left_in_the_store_is_not_copied(live, tmp_path):
    for name in ("flush.tmp", "flush.tmp.tmp"):  # RocksDB makes a checkpoint under the second name first
        (live / name).mkdir()
        (live / name / "CURRENT").write_bytes(b"of the checkpoint")
    link_database(live, tmp_path / "copy")
    assert all(file.is_file() for file in (tmp_path / "copy").iterdir())
    copy = open_key_value_store(TIMESTAMPED, tmp_path / "copy")
    assert len(list(copy.range())) == 100
    copy.close()


def test_rows_are_counted_by_the_properties_of_all_files_however_many(tmp_path):
    files = []
    for number in range(30):  # RocksDB's own estimate looks at 20
        files.append(tmp_path / f"{number:02d}.sst")
        write_sst([(b"%02d-%03d" % (number, row), b"x") for row in range(100 + number)], files[-1])
    database = RocksDB(tmp_path / "db", ["default"])
    database.ingest("default", files)
    database.write({"default": {b"another": b"1"}}, {CHANGELOG: 7})
    database.sync()
    assert database.row_count("default") == sum(range(100, 130)) + 1
    database.close()
