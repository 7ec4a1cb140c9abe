"""Every fault of files and of Kafka, injected into real stores: found for what it is, and mended, or refused.

`make faults SEED=...` repeats the places.
"""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path

import pytest

from statestore.changelog.reader import ChangelogReader
from statestore.errors import StateStoreError, StoreCorruptedError, TopicMismatchError
from statestore.model import TaskId
from statestore.recovery.planning import require_partitions
from statestore.recovery.restore import restore
from statestore.reports import Action, Status
from statestore.requests.verify import DEPTHS, Depth
from statestore.verification.check import verify
from tests.faults.damage import access, directories, forging, judging, logs, places
from tests.faults.damage.places import Place
from tests.faults.damage.stores import FORMATS, TASK, Original, files_of
from tests.faults.subject import as_before_kip_1035
from tests.integration import broker, dying

SEED = os.environ.get("FAULTS_SEED", "1")
STORES = tuple(FORMATS)
EACH = 2
ENOUGH = 200
CHECKPOINTS = 15
#: What a store may be taken for whose offset was changed.
MISREAD = {Status.CORRUPT, Status.LAGGING, Status.AHEAD}


@pytest.fixture(scope="module")
def original(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Original:
    """The stores that files are damaged of."""
    return Original(bootstrap_servers, tmp_path_factory.mktemp("damage"), seed=int(SEED))


def _places(original: Original, store: str, sealed: bool) -> list[Place]:
    return places.draw(original, store, sealed=sealed, seed=SEED, each=EACH)


# -- files --------------------------------------------------------------------------------------------------------


@pytest.mark.share_for(
    "counts-sealed", "visits-unsealed", why="one plain database, one of segments; with a seal and without"
)
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "unsealed"])
@pytest.mark.parametrize("store", STORES)
def test_a_damaged_file_is_found_or_does_no_harm_and_the_store_is_restored(
    original: Original, store: str, sealed: bool
) -> None:
    drawn = _places(original, store, sealed)
    failed = judging.failures(original, drawn, "scan" if sealed else "deep")
    assert failed == [], f"{len(failed)} of {len(drawn)} places, FAULTS_SEED={SEED}"


@pytest.mark.share_for("hourly", why="one store, of another kind and format")
@pytest.mark.parametrize("store", STORES)
def test_what_the_seal_tells_of_files_that_are_not_read_is_found_by_offsets_alone(
    original: Original, store: str
) -> None:
    drawn = [
        place
        for place in _places(original, store, True)
        if place.kind in ("MANIFEST", "CURRENT") or (place.kind == "SST" and place.fault != "flip")
    ]
    assert judging.failures(original, places.sample(drawn, 8, SEED), "offsets") == [], f"FAULTS_SEED={SEED}"


@pytest.mark.share_for(why="only draws")
def test_enough_distinct_places_are_damaged(original: Original) -> None:
    drawn = [place for store in STORES for sealed in (True, False) for place in _places(original, store, sealed)]
    assert len({(place.sealed, place.file, place.fault, place.at, place.bit) for place in drawn}) >= ENOUGH
    parts = {(place.kind, place.part) for place in drawn if place.fault != "gone"}
    assert parts >= {("SST", part) for part in ("header", "body", "end of the body", "filter", "footer")}
    assert {place.kind for place in drawn} >= {
        *("SST", "MANIFEST", "CURRENT", "OPTIONS", "IDENTITY", "WAL", "seal", "digests", "record", "interval"),
    }


@pytest.mark.share_for(every=9, why="faults and stores in turn")
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "unsealed"])
@pytest.mark.parametrize(
    ("store", "fault"), [(store, fault) for store in STORES for fault in directories.faults_of(store)]
)
def test_a_directory_that_is_not_the_stores_own_is_found_and_the_store_is_restored(
    original: Original, store: str, fault: str, sealed: bool
) -> None:
    copy, wrong = original.copy(sealed=sealed), directories.faults_of(store)[fault]
    wrong.inflict(copy, store)
    allowed = wrong.sealed if sealed else wrong.unsealed
    judging.judge(copy, store, allowed, action=wrong.action, depth="scan" if sealed else "deep")


@pytest.mark.share_for("latest", why="one store")
@pytest.mark.parametrize("store", STORES)
def test_another_partitions_store_is_not_taken_for_whole_by_its_offsets_alone(original: Original, store: str) -> None:
    copy, wrong = original.copy(), directories.faults_of(store)["another partition's with all that we keep"]
    wrong.inflict(copy, store)
    judging.judge(copy, store, wrong.sealed, depth="offsets")


@pytest.mark.share_for(every=4, why="a few forgeries")
@pytest.mark.parametrize(
    ("store", "forgery"), [(store, forgery) for store in STORES for forgery in forging.forgeries_of(store)]
)
def test_rows_that_the_changelog_does_not_give_are_found_by_deep_verification(
    original: Original, store: str, forgery: str
) -> None:
    copy = original.copy(sealed=False)
    forging.forgeries_of(store)[forgery](copy, store)
    judging.judge(copy, store, {Status.DIVERGED}, action=Action.FULL, depth="deep")


@pytest.mark.share_for(every=5, why="each depth, on another store")
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("store", STORES)
def test_an_offset_that_the_log_does_not_have_is_ahead(original: Original, store: str, depth: Depth) -> None:
    copy = original.copy(sealed=False)
    forging.move_offset(copy, store, 1_000_000)
    judging.judge(copy, store, {Status.AHEAD}, action=Action.BY_HAND, depth=depth)


@pytest.mark.share_for(every=4, why="both kinds of store")
@pytest.mark.parametrize("content", [b"", b"\xb6\xff", b"60001"])
@pytest.mark.parametrize("store", directories.SEGMENTED)
def test_a_length_of_segments_that_cannot_be_is_found(original: Original, store: str, content: bytes) -> None:
    copy = original.copy(only=store)
    (copy.paths.segments(store) / "interval").write_bytes(content)
    judging.judge(copy, store, {Status.CORRUPT}, action=Action.FULL)


@pytest.mark.share_for("latest", why="one store")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("store", ["counts", "latest"])
def test_a_damaged_checkpoint_file_is_found_or_does_no_harm(original: Original, store: str) -> None:
    """Kafka Streams' file from before KIP-1035 has no checksum: offsets in it may be changed into others."""
    chance, failed = random.Random(SEED), []
    for number in range(CHECKPOINTS):
        copy = original.copy()
        as_before_kip_1035(copy.paths, [original.store(name) for name in ("counts", "latest")])
        file = copy.paths.checkpoint
        content = bytearray(file.read_bytes())
        at, bit = chance.randrange(len(content)), chance.randrange(8)
        if number % 3:
            content[at] ^= 1 << bit
        else:
            del content[at:]
        file.write_bytes(content)
        try:
            judging.judge(copy, store, MISREAD, must_be_found=False)
        except AssertionError as error:
            failed.append(f"{bytes(content)!r}: {error}")
    assert failed == [], f"FAULTS_SEED={SEED}"


# -- what the operating system refuses ------------------------------------------------------------------------------


DENIED = {
    "state directory": lambda copy, store: copy.state_dir,
    "task directory": lambda copy, store: copy.paths.task_dir,
    "own directory": lambda copy, store: copy.paths.own_dir,
    "store": lambda copy, store: copy.live(store),
    "SST": lambda copy, store: next(copy.live(store).rglob("*.sst")),
    "MANIFEST": lambda copy, store: next(copy.live(store).rglob("MANIFEST-*")),
    "CURRENT": lambda copy, store: next(copy.live(store).rglob("CURRENT")),
    "seal": lambda copy, store: copy.paths.seal(store),
    "record": lambda copy, store: copy.paths.record(store),
    "lock": lambda copy, store: copy.paths.own_dir / "lock",
}


@pytest.mark.share_for(every=11, why="a few files, each of another store")
@pytest.mark.parametrize("what", DENIED)
@pytest.mark.parametrize("store", STORES)
def test_a_missing_permission_is_an_error_and_no_damage(original: Original, store: str, what: str) -> None:
    copy = original.copy()
    before = files_of(copy.live(store))
    with access.denied(DENIED[what](copy, store)):
        for kind, said in access.verified(copy.spec(store)), access.restored(copy.restore_spec(store)):
            assert kind == "StoreAccessError", said
    assert files_of(copy.live(store)) == before
    assert access.verified(copy.spec(store)) == ("OK", "")
    assert access.restored(copy.restore_spec(store, force=True)) == ("restored", "")


@pytest.mark.share_for("counts", why="one store")
@pytest.mark.parametrize("store", STORES)
def test_a_read_only_disk_is_verified_and_not_restored(original: Original, tmp_path: Path, store: str) -> None:
    with access.own_disk(tmp_path / "disk") as disk:
        copy = original.copy(directory=disk / "state")
        before = files_of(copy.live(store))
        access.make_read_only(disk)
        assert access.verified(copy.spec(store)) == ("OK", "")
        kind, said = access.restored(copy.restore_spec(store, force=True))
        assert kind == "StoreAccessError", said
        assert files_of(copy.live(store)) == before


@pytest.mark.share_for("hourly", why="one store")
@pytest.mark.parametrize("store", STORES)
def test_a_full_disk_is_an_error_and_no_damage(original: Original, tmp_path: Path, store: str) -> None:
    with access.own_disk(tmp_path / "disk") as disk:
        copy = original.copy(directory=disk / "state")
        before = files_of(copy.live(store))
        with access.filled(disk):
            kind, said = access.verified(copy.spec(store))
            assert kind in ("OK", "DiskSpaceError"), said
            kind, said = access.restored(copy.restore_spec(store, force=True))
            assert kind == "DiskSpaceError", said
            assert files_of(copy.live(store)) == before
        assert access.verified(copy.spec(store)) == ("OK", "")


@pytest.mark.share_for("visits", why="one store")
@pytest.mark.parametrize("store", STORES)
def test_a_store_in_use_is_locked_and_no_damage(original: Original, store: str) -> None:
    copy = original.copy()
    task = original.subject.specs(state_dir=copy.state_dir)[TASK.partition]
    held, let_go = dying.new_event(), dying.new_event()
    process = dying.start_process(dying.hold_lock, task, held, let_go)
    try:
        assert held.wait(broker.WAIT_S)
        row = copy.verify(store)
        assert (row.status, row.action) == (Status.LOCKED, Action.LATER)
        restored = copy.restore(store, force=True)
        assert (restored.failure.kind, restored.failure.retriable) == ("LockedError", True)
    finally:
        let_go.set()
        process.join(broker.WAIT_S)
    assert copy.verify(store).status is Status.OK


# -- Kafka --------------------------------------------------------------------------------------------------------


@pytest.fixture
def logged(bootstrap_servers: str, tmp_path: Path) -> Original:
    """Stores whose changelogs are damaged."""
    config = {"cleanup_policy": "compact,delete"}  # records are deleted of none that is only compacted
    return Original(bootstrap_servers, tmp_path, seed=int(SEED), runs=2, records=60, changelog_config=config)


@pytest.mark.share_for(why="the changelog is gone")
def test_without_its_changelog_a_store_is_replaced_and_restoring_it_is_refused(logged: Original) -> None:
    logs.delete(logged)
    copy = logged.copy()
    for store in STORES:
        before = files_of(copy.live(store))
        found = copy.verify(store)
        assert (found.status, found.action) == (Status.REPLACED, Action.BY_HAND)
        for force in (False, True):
            row = copy.restore(store, force=force)
            assert (row.outcome, row.before) == ("failed", Status.REPLACED)
            assert logged.changelog_name(store) in row.failure.evidence
        assert files_of(copy.live(store)) == before


def test_a_changelog_deleted_after_planning_is_an_error_and_no_damage(logged: Original) -> None:
    planned = dict(logged.changelogs)
    logs.delete(logged)
    logged.changelogs = planned
    copy = logged.copy()
    for store in STORES:
        before = files_of(copy.live(store))
        with pytest.raises(StateStoreError) as raised:
            copy.verify(store)
        assert not isinstance(raised.value, StoreCorruptedError)
        assert copy.restore(store).failure is not None
        assert files_of(copy.live(store)) == before


@pytest.mark.share_for("as long", why="the one that its length does not give away")
@pytest.mark.parametrize("records", [0, 5, 10_000], ids=["empty", "shorter", "as long"])
def test_a_changelog_of_the_same_name_is_not_the_stores_own(logged: Original, records: int) -> None:
    logs.recreate(logged, records)
    copy = logged.copy()
    for store in STORES:
        judging.judge(copy, store, {Status.REPLACED})


def test_records_that_every_store_has_may_go(logged: Original) -> None:
    rows = {store: logged.copy().contents(store) for store in STORES}
    logs.delete_records(logged, partial(logs.end, logged))
    copy = logged.copy()
    for store in STORES:
        assert copy.verify(store).status is Status.OK
        assert copy.restore(store).outcome == "skipped"
        assert copy.contents(store) == rows[store]


@pytest.mark.share_for(why="the log lost records")
def test_records_that_a_store_has_not_are_missed(logged: Original) -> None:
    logs.delete_records(logged, lambda store: logs.end(logged, store) - 3)
    copy = logged.copy(older=True)
    for store in STORES:
        judging.judge(copy, store, {Status.TRUNCATED})


def test_partitions_added_to_the_input_are_no_damage_and_have_no_store_to_be_restored(logged: Original) -> None:
    subject, copy = logged.subject, logged.copy()
    total = subject.partitions + 1
    broker.add_partitions(subject.servers, subject.definition.input_topic, total)
    with pytest.raises(TopicMismatchError, match=f"{total} partitions, expected {subject.partitions} "):
        subject.prepare()
    for store in STORES:
        found = copy.verify(store)
        assert found.status is Status.OK
        new = copy.spec(store, task=TaskId(0, subject.partitions))
        row = verify(new)
        assert (row.status, row.action) == (Status.REPARTITIONED, Action.BY_HAND)
        refused = restore(copy.restore_spec(store, force=True)._replace(store=new))
        assert refused.failure is not None
        assert not new.live.exists()


def test_partitions_added_to_a_changelog_are_no_damage_and_restoring_from_it_is_refused(logged: Original) -> None:
    subject = logged.subject
    for store in STORES:
        broker.add_partitions(subject.servers, logged.changelog_name(store), subject.partitions + 1)
    logged.look()
    copy = logged.copy()
    with pytest.raises(TopicMismatchError, match=f"{subject.partitions + 1} partitions"):
        subject.prepare()
    for store in STORES:
        assert copy.verify(store).status is Status.OK
        with pytest.raises(TopicMismatchError, match="process the input again"):
            require_partitions(copy.spec(store), subject.partitions)


@pytest.mark.share_for("counts", why="one store")
@pytest.mark.parametrize("store", STORES)
def test_a_changelog_may_be_compacted_while_a_store_is_restored(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    broker.make_compaction_eager(bootstrap_servers)
    original = Original(bootstrap_servers, tmp_path, seed=int(SEED), records=150, changelog_config=logs.SMALL_SEGMENTS)
    read, seen = logs.read_in_two_parts(original, store)
    copy = original.copy()
    monkeypatch.setattr(ChangelogReader, "read", read)
    row = copy.restore(store, force=True)
    monkeypatch.undo()
    assert row.failure is None
    assert len(seen) == 2, "O8: it was not compacted"
    original.look()
    assert copy.contents(store) == original.expected(store)
    assert copy.verify(store).status is Status.OK
