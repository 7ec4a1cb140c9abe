"""One store partition that many nodes build, each with a disk of its own: it is what one task builds alone."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from statestore.archive import builds
from statestore.archive.cleanup import DAY_MS, Retention
from statestore.archive.documents import to_document
from statestore.archive.layout import BLOBS, build_directory
from statestore.formats.position import encode
from statestore.kafka.cluster import Cluster
from statestore.model import TopicPartition
from statestore.partition.archived import look_into_archive
from statestore.recovery.archive_cleanup import ArchiveCleanup, clean_archive
from statestore.recovery.distributed import begin_build, read_log_range, remove_builds
from statestore.recovery.distributed_plan import DistributedPlan
from statestore.recovery.planning import plan_restore
from statestore.recovery.restore import restore
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.reports import Action, RestoreRow, Status
from statestore.statedir.record import read_record
from statestore.stores.open import build_store
from statestore.verification.check import verify, verify_many
from statestore.verification.options import VerifyOptions
from tests.integration import broker, dying
from tests.integration.broker import T0
from tests.integration.distributed import Distributed, DistributedRestore, Nodes
from tests.integration.kinds import ALL_STORES, EVERY_KIND, STORES, changes, stored
from tests.integration.support import CHANGELOG_CONFIG

DEEP = VerifyOptions(depth="deep")


def alone(application: Distributed) -> tuple[RestoreRow, dict[bytes, bytes], Any]:
    """Restore the store by one task, elsewhere, without publishing; return its row, its rows and its record."""
    spec = application.restore_spec("full", label="alone", force=True, accept_loss=True)
    row = restore(spec)
    assert row.failure is None, row.failure
    return row, stored(spec.store, spec.store.live), read_record(spec.store.paths, spec.store.store.name)


def assert_whole(application: Distributed, done: DistributedRestore, row: RestoreRow) -> None:
    """Compare a restored store with its log and with what one task restores, on its node and in the archive."""
    assert row.failure is None, row.failure
    assert (row.mode, row.outcome) == ("full", "restored")
    assert row.published is not None
    assert row.published.failure is None
    assert row.published.snapshot is not None
    expected = assert_store(application, done)
    figures = {"keys", "records", "skipped", "committed", "end"}
    assert row.model_dump(include=figures) == expected.model_dump(include=figures)


def assert_store(application: Distributed, done: DistributedRestore) -> RestoreRow:
    """Compare what is there with its log and with what one task restores, on its node and in the archive."""
    expected, rows, record = alone(application)
    store = done.there
    assert stored(store, store.live) == rows
    ours = read_record(store.paths, store.store.name)
    when = {"caught_up_ms": 0, "restored_by": None}
    assert ours is not None
    assert ours.model_copy(update=when) == record.model_copy(update=when)
    found = verify(store.model_copy(update={"archive": None}), DEEP)
    assert (found.status, found.contents.differing) == (Status.OK, 0), found
    (found,) = verify_many([done.spec.store], DEEP)
    assert (found.status, found.contents.differing) == (Status.OK, 0), found
    assert application.builds() == []
    return expected


@pytest.fixture(params=EVERY_KIND)
def application(request: Any, bootstrap_servers: str, tmp_path: Path) -> Distributed:
    store = ALL_STORES[request.param]
    return Distributed(bootstrap_servers, tmp_path, store, changes(store, 300, 1))


@pytest.fixture
def windows(bootstrap_servers: str, tmp_path: Path) -> Distributed:
    return Distributed(bootstrap_servers, tmp_path, STORES["window"], changes(STORES["window"], 300, 1))


# -- the same store ---------------------------------------------------------------------------------------------------


@pytest.mark.short_for("session")
def test_many_nodes_build_what_one_task_builds(application: Distributed) -> None:
    done, nodes = application.distributed(), Nodes(application.directory / "run")
    row = done.run(nodes)
    assert nodes.parts() == {"_read_log_range": 3, "_merge_key_range": 3}
    assert row.digest == alone(application)[0].digest
    assert row.resumed == row.records
    assert_whole(application, done, row)
    assert [path for path in done.directory.rglob(".scratch/*")] == []
    assert row.checked == "files"


@pytest.mark.long
def test_files_that_were_merged_keep_their_bytes_and_are_uploaded_once(windows: Distributed) -> None:
    merged: set[str] = set()

    def look(name: str, _: Sequence[Any]) -> None:
        if name == "_restore_tasks":
            merged.update(found.name for found in windows.objects.entries(BLOBS))

    done = windows.distributed()
    row = done.run(Nodes(done.directory, look))
    assert_whole(windows, done, row)
    ((_, snapshot),) = look_into_archive([done.spec.store], look_at_files=True)
    assert snapshot is not None
    assert len(merged) > 3
    assert merged < snapshot.blobs
    assert row.published.files == len(snapshot.blobs - merged)


@pytest.mark.short_for("window")
@pytest.mark.parametrize("kind", ["key-value", "window"])
def test_what_is_logged_while_it_is_built_is_in_the_store(bootstrap_servers: str, tmp_path: Path, kind: str) -> None:
    store = STORES[kind]
    application = Distributed(bootstrap_servers, tmp_path, store, changes(store, 300, 1))

    def log(name: str, _: Sequence[Any]) -> None:
        if name == "_merge_key_range":
            application.log(changes(store, 60, 2, minute=31))

    done = application.distributed()
    row = done.run(Nodes(done.directory, log))
    assert (row.records, row.resumed, row.checked, row.digest) == (360, 300, "rows", None)
    assert_whole(application, done, row)


@pytest.mark.long
def test_a_store_of_fewer_keys_than_ranges_is_built(bootstrap_servers: str, tmp_path: Path) -> None:
    rows = [(b"key", b"%d" % number) for number in range(40)]
    application = Distributed(bootstrap_servers, tmp_path, STORES["key-value"], rows)
    done, nodes = application.distributed(ranges=4), Nodes(tmp_path / "run")
    row = done.run(nodes)
    assert nodes.parts() == {"_read_log_range": 4, "_merge_key_range": 1}
    assert row.keys == 1
    assert_whole(application, done, row)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["key-value", "session"])
def test_a_log_of_which_no_row_is_left_gives_an_empty_store(bootstrap_servers: str, tmp_path: Path, kind: str) -> None:
    rows = [(key, None) for key, _ in changes(STORES[kind], 60, 1)]
    application = Distributed(bootstrap_servers, tmp_path, STORES[kind], rows)
    done = application.distributed()
    row = done.run()
    assert row.keys == 0
    assert_whole(application, done, row)


@pytest.mark.long
def test_an_empty_log_gives_an_empty_store(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Distributed(bootstrap_servers, tmp_path, STORES["window"], [])
    done = application.distributed(force=True)
    row = done.run()
    assert (row.failure, row.outcome, row.keys, row.committed) == (None, "restored", 0, None)
    assert application.builds() == []


@pytest.mark.long
def test_the_position_in_headers_of_all_ranges_is_the_stores(bootstrap_servers: str, tmp_path: Path) -> None:
    definition = STORES["window"]
    application = Distributed(bootstrap_servers, tmp_path, definition, [])
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number, (key, value) in enumerate(changes(definition, 30, 1)):
        position = {TopicPartition("in", 0): number * 2, TopicPartition("in", 1): 100 - number}
        headers = [("v", b"\0"), ("c", encode(position))]
        producer.produce(application.changelog, value, key, 0, timestamp=T0, headers=headers)
    assert producer.flush(120) == 0
    done = application.distributed()
    assert done.run().failure is None
    opened = build_store(definition)
    opened.init(done.there.context(read_only=True))
    assert opened.position() == {TopicPartition("in", 0): 58, TopicPartition("in", 1): 71}
    opened.close(clean=False)


# -- killed, and gone on with -----------------------------------------------------------------------------------------

#: Where a process dies, and how many ranges of the log and of keys are left to the next attempt.
POINTS = {
    "restore, batch read": (3, 3),
    "restore, pieces uploaded:2": (2, 3),
    "restore, range committed:2": (1, 3),
    "restore, range committed:3": (0, 3),
    "restore, key range uploaded": (0, 3),
    "restore, key range committed:2": (0, 1),
    "restore, files fetched": (0, 0),
    "restore, databases written": (0, 0),
    "restore, built, not swapped": (0, 0),
    "swap, before the last rename": None,
    "restore, swapped, not sealed": None,
    "restore, sealed, runs still there": None,
    "snapshot, blobs uploaded": None,
}
SHORT = ("restore, range committed:2", "restore, key range committed:2")


@pytest.mark.short_for("restore, key range committed:2")
@pytest.mark.parametrize(
    "point", [point if point in SHORT else pytest.param(point, marks=pytest.mark.long) for point in POINTS]
)
def test_a_restore_that_was_killed_goes_on_with_what_was_committed(windows: Distributed, point: str) -> None:
    done = windows.distributed()
    dying.die_in(done, point)
    before = windows.builds()
    nodes = Nodes(done.directory)
    row = done.run(nodes)
    left = POINTS[point]
    if left is None:  # the store was put in place; it is in the archive when this attempt has ended
        assert nodes.parts() == {}
    else:
        parts = nodes.parts()
        assert (parts.get("_read_log_range", 0), parts.get("_merge_key_range", 0)) == left
    assert before
    assert_whole(windows, done, row)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_restore_that_is_killed_at_any_moments_ends_with_the_same_store(windows: Distributed, seed: int) -> None:
    chance, done = random.Random(seed), windows.distributed()
    codes = []
    while 0 not in codes:
        # Each attempt has more time than the one before, so one of them comes to its end.
        moment = partial(_die_after, chance.uniform(0.0, 0.4) * (1 + len(codes)))
        codes.append(dying.exit_code(done, "at no point", hooks=[moment]))
    assert set(codes) <= {0, -signal.SIGKILL}
    row = done.run()  # a killed one may have put the store in place and not said so
    assert row.failure is None, row.failure
    assert_store(windows, done)


def _die_after(seconds: float) -> None:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()


@pytest.mark.long
def test_another_run_on_other_nodes_goes_on_with_what_was_committed(windows: Distributed) -> None:
    dying.die_in(windows.distributed("killed"), "restore, range committed:2")
    plan = plan_restore(windows.distributed("other").spec)
    assert (plan.failure, plan.mode, plan.ranges, plan.resumable) == (None, "full", 3, 202)
    windows.log(changes(STORES["window"], 60, 2, minute=31))
    done, nodes = windows.distributed("other", ranges=5), Nodes(windows.directory / "other")
    row = done.run(nodes)
    assert nodes.parts() == {"_read_log_range": 1, "_merge_key_range": 3}
    assert row.records == 360
    assert_whole(windows, done, row)


# -- what does not fit any more ---------------------------------------------------------------------------------------


def _recreate(application: Distributed) -> None:
    broker.delete_topic(application.servers, application.changelog)
    broker.create_topic(application.servers, application.changelog, 1, CHANGELOG_CONFIG)
    application.log(changes(application.definition.stores[0], 300, 3))


def _cut_the_start(application: Distributed) -> None:
    broker.set_topic_config(application.servers, application.changelog, cleanup_policy="compact,delete")
    broker.delete_records(application.servers, application.changelog, 250)


def _age(application: Distributed) -> None:
    (name,) = (name for name in application.builds() if name.endswith("plan.json"))
    plan = builds.read(application.objects, name, DistributedPlan)
    old = plan.reading.started_ms - application.delete_retention_ms
    plan = plan.model_copy(update={"reading": plan.reading.model_copy(update={"started_ms": old})})
    application.objects.upload(name, [to_document(plan, "build")])


def _cut_and_grown_again(application: Distributed) -> None:
    """Have the plan say that the log ended further on, in the same epoch, as one that was cut says."""
    (name,) = (name for name in application.builds() if name.endswith("plan.json"))
    plan = builds.read(application.objects, name, DistributedPlan)
    ends = {number: end._replace(offset=end.offset + 1_000) for number, end in plan.reading.ends.items()}
    assert ends
    plan = plan.model_copy(update={"reading": plan.reading.model_copy(update={"ends": ends})})
    application.objects.upload(name, [to_document(plan, "build")])


def _damage_the_plan(application: Distributed) -> None:
    (name,) = (name for name in application.builds() if name.endswith("plan.json"))
    raw = application.objects.read(name, 1 << 20)
    application.objects.upload(name, [raw.replace(b'"start', b'"stort')])


def _change_the_format(application: Distributed) -> None:
    changed = STORES["plain window"]
    application.definition = application.definition.model_copy(update={"stores": (changed,)})


@pytest.mark.short_for("_recreate")
@pytest.mark.parametrize(
    "meanwhile", [_recreate, _cut_the_start, _cut_and_grown_again, _age, _damage_the_plan, _change_the_format]
)
def test_a_build_that_does_not_fit_the_log_any_more_is_not_used(windows: Distributed, meanwhile: Any) -> None:
    dying.die_in(windows.distributed(), "restore, range committed:2")
    meanwhile(windows)
    done, nodes = windows.distributed(mode="full", force=True, accept_loss=True), Nodes(windows.directory / "run")
    row = done.run(nodes)
    assert nodes.parts() == {"_read_log_range": 3, "_merge_key_range": 3}
    assert_whole(windows, done, row)


@pytest.mark.long
def test_a_topic_that_is_recreated_while_it_is_built_gives_nothing_of_the_old_one(windows: Distributed) -> None:
    def recreate(name: str, _: Sequence[Any]) -> None:
        if name == "_restore_tasks":
            _recreate(windows)

    done = windows.distributed()
    row = done.run(Nodes(done.directory, recreate))
    assert row.failure is None, row.failure
    # It is what the old topic gave, and says so.
    (found,) = verify_many([windows.store_spec(archive=windows.archive)], DEEP)
    assert (found.status, found.action) == (Status.REPLACED, Action.BY_HAND)
    done = windows.distributed("again", mode="full", accept_loss=True)
    assert_whole(windows, done, done.run())


# -- what is damaged or gone ------------------------------------------------------------------------------------------


def _pieces(application: Distributed) -> list[str]:
    return [name for name in application.builds() if "/pieces/" in name]


def _lose_a_piece(application: Distributed) -> None:
    application.objects.delete(_pieces(application)[1])


def _damage_a_piece(application: Distributed) -> None:
    name = _pieces(application)[1]
    raw = bytearray(application.objects.read(name, 1 << 30))
    raw[len(raw) // 3] ^= 0x10
    application.objects.upload(name, [bytes(raw)])


def _put_another_piece(application: Distributed) -> None:
    """Have a range name the piece of other keys, with all of its digests right."""
    for name, found in _ranges(application):
        first, *others = found.pieces
        if first is not None and any(others):
            pieces = (next(filter(None, others)), *others)
            application.objects.upload(name, [to_document(found.model_copy(update={"pieces": pieces}), "build")])
            return
    raise AssertionError("no range has several pieces")


def _put_no_run(application: Distributed) -> None:
    """Have a range name what is no file of a run, with all of its digests right."""
    ((name, found),) = list(_ranges(application))[:1]
    build = build_directory(name)
    raw = b"no run" * 100
    digest = hashlib.sha256(raw).hexdigest()
    application.objects.upload(build.piece(digest), [raw])
    piece = builds.Piece(bytes=len(raw), sha256=digest, row_bytes=1)
    changed = found.model_copy(update={"pieces": (piece, *found.pieces[1:])})
    application.objects.upload(name, [to_document(changed, "build")])


def _lose_a_range(application: Distributed) -> None:
    ((name, _),) = list(_ranges(application))[:1]
    application.objects.delete(name)


def _damage_a_range(application: Distributed) -> None:
    ((name, _),) = list(_ranges(application))[:1]
    raw = application.objects.read(name, 1 << 20)
    application.objects.upload(name, [raw.replace(b'"records":1', b'"records":2')])


def _lose_the_build(application: Distributed) -> None:
    for name in application.builds():
        application.objects.delete(name)


def _ranges(application: Distributed) -> Iterator[tuple[str, Any]]:
    for name in application.builds():
        if "/range-" in name:
            yield name, builds.read(application.objects, name, builds.LogRangeRead)


@pytest.mark.long
@pytest.mark.parametrize(
    "damage",
    [
        _lose_a_piece,
        _damage_a_piece,
        _put_another_piece,
        _put_no_run,
        _lose_a_range,
        _damage_a_range,
        _lose_the_build,
    ],
)
def test_where_a_part_is_damaged_or_gone_one_task_builds_the_store_alone(
    windows: Distributed, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    def spoil(name: str, _: Sequence[Any]) -> None:
        if name == "_merge_key_range":
            damage(windows)

    done = windows.distributed()
    row = done.run(Nodes(done.directory, spoil))
    assert row.resumed == 0
    assert "is built by one task alone: a part of it failed" in caplog.text
    assert_whole(windows, done, row)


def _lose_a_file(application: Distributed) -> None:
    application.objects.delete(_largest(application))


def _damage_a_file(application: Distributed) -> None:
    name = _largest(application)
    raw = bytearray(application.objects.read(name, 1 << 30))
    raw[len(raw) // 3] ^= 0x10
    application.objects.upload(name, [bytes(raw)])


def _damage_keys(application: Distributed) -> None:
    name = next(name for name in application.builds() if "/keys-" in name)
    raw = application.objects.read(name, 1 << 20)
    application.objects.upload(name, [raw.replace(b'"rows":', b'"rows":1')])


def _miscount_keys(application: Distributed) -> None:
    name = next(name for name in application.builds() if "/keys-" in name)
    found = builds.read(application.objects, name, builds.KeyRangeMerged)
    changed = found.model_copy(update={"rows": found.rows + 1})
    application.objects.upload(name, [to_document(changed, "build")])


def _largest(application: Distributed) -> str:
    return max(application.objects.entries(BLOBS), key=lambda found: found.size).name


@pytest.mark.long
@pytest.mark.short_for("_damage_a_file", "_miscount_keys")
@pytest.mark.parametrize("damage", [_lose_a_file, _damage_a_file, _damage_keys, _miscount_keys, _lose_the_build])
def test_where_a_merged_file_is_damaged_or_gone_one_task_builds_the_store_alone(
    windows: Distributed, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    def spoil(name: str, _: Sequence[Any]) -> None:
        if name == "_restore_tasks":
            damage(windows)

    done = windows.distributed()
    row = done.run(Nodes(done.directory, spoil))
    assert row.resumed == 0
    assert "this task alone builds it from its log" in caplog.text
    assert_whole(windows, done, row)


@pytest.mark.long
def test_where_the_archive_does_not_answer_for_a_while_one_task_builds_the_store_alone(
    windows: Distributed, caplog: pytest.LogCaptureFixture
) -> None:
    archive, away = windows.directory / "archive", windows.directory / "away"

    def lose(name: str, _: Sequence[Any]) -> None:
        if name == "_read_log_range":
            archive.rename(away)
            archive.write_text("no directory")
        elif away.exists():
            archive.unlink()
            away.rename(archive)

    done = windows.distributed()
    row = done.run(Nodes(done.directory, lose))
    assert row.resumed == 0
    assert "is built by one task alone: a part of it failed" in caplog.text
    assert_whole(windows, done, row)


# -- beside others ----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_another_restore_that_ends_first_does_no_harm(windows: Distributed) -> None:
    other = windows.distributed("other")

    def overtake(name: str, _: Sequence[Any]) -> None:
        if name == "_restore_tasks":
            row = other.run()
            assert row.failure is None, row.failure

    done = windows.distributed(force=True)
    row = done.run(Nodes(done.directory, overtake))
    assert_whole(windows, done, row)
    assert stored(other.there, other.there.live) == stored(done.there, done.there.live)


@pytest.mark.long
def test_two_restores_at_the_same_time_give_the_same_store(windows: Distributed) -> None:
    both = [windows.distributed(label, force=True) for label in ("one", "other")]
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(lambda done: done.run(), both))
    assert [row.failure for row in rows] == [None, None]
    for done in both:  # one of them may have left what it was writing while the other one cleared up
        remove_builds(done.spec.store)
    for done, row in zip(both, rows, strict=True):
        assert_whole(windows, done, row)


def test_a_part_that_two_attempts_do_is_committed_once(windows: Distributed) -> None:
    done = windows.distributed()
    found = begin_build(done.spec)
    spec, part = done.spec._replace(build=found.directory.uuid), found.plan.reading.ranges[0]
    progress = RestoreProgressWriter(spec.store, None)
    first = read_log_range(spec, part, progress)
    windows.log(changes(STORES["window"], 60, 2))
    assert read_log_range(spec, part, progress) == first
    assert begin_build(done.spec).ranges_left == list(found.plan.reading.ranges[1:])


# -- clean-up ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_what_a_killed_restore_has_left_is_cleaned_up_after_the_grace_period(windows: Distributed) -> None:
    dying.die_in(windows.distributed(), "restore, key range committed:2")
    left = windows.builds()
    assert len(left) > 6

    def clean(grace_ms: int, *, dry_run: bool = False) -> ArchiveCleanup:
        retention = Retention(3, 0, grace_ms)
        return clean_archive(windows.archive, Cluster(windows.servers, 60), retention, dry_run=dry_run)

    assert clean(DAY_MS).builds == ()
    found = clean(0, dry_run=True)
    assert [str(one.directory) for one in found.builds] == [left[0].rpartition("/")[0]]
    assert windows.builds() == left
    clean(0)
    assert windows.builds() == []
    assert list(windows.objects.entries(BLOBS)) == []
    done = windows.distributed()
    assert_whole(windows, done, done.run())
