"""The parts of a restore that need no broker: what to do, whether it fits, and the hard-linked copy."""

from __future__ import annotations

import shutil

import pytest
from samples import CHANGELOG, TIMESTAMPED, contents

from statestore.errors import DiskSpaceError, InputError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import TaskId
from statestore.recovery.restore import RestoreSpec, choose_mode, link_database, require_disk
from statestore.reports import Action, Status, VerifyRow
from statestore.stores.open import open_key_value_store
from statestore.tasks.spec import StorePartitionSpec


def found(status, action):
    return VerifyRow(application="app", store="s", task="0_0", status=status, action=action, detail="why")


WHOLE = [found(Status.OK, Action.NONE), found(Status.EMPTY, Action.NONE)]
BEHIND = found(Status.LAGGING, Action.TAIL)
BROKEN = [found(status, Action.FULL) for status in (Status.CORRUPT, Status.MISSING, Status.AHEAD, Status.LAGGING)]


@pytest.mark.parametrize("row", WHOLE)
@pytest.mark.parametrize("mode", ["auto", "tail", "full"])
def test_r8_a_whole_store_is_skipped(row, mode):
    assert choose_mode(mode, False, row) is None


@pytest.mark.parametrize("row", [*WHOLE, BEHIND, *BROKEN])
@pytest.mark.parametrize("mode", ["auto", "full"])
def test_a_forced_restore_rebuilds_whatever_was_found(row, mode):
    assert choose_mode(mode, True, row) == "full"


@pytest.mark.parametrize(("mode", "chosen"), [("auto", "tail"), ("tail", "tail"), ("full", "full")])
def test_a_store_that_lags_is_caught_up_unless_a_rebuild_is_asked_for(mode, chosen):
    assert choose_mode(mode, False, BEHIND) == chosen


@pytest.mark.parametrize("row", BROKEN)
def test_r6_a_store_that_needs_a_rebuild_is_never_caught_up(row):
    assert choose_mode("auto", False, row) == "full"
    for force in (False, True):
        with pytest.raises(InputError, match="use mode full"):
            choose_mode("tail", force, row)


@pytest.mark.parametrize("mode", ["auto", "tail", "full"])
@pytest.mark.parametrize("force", [False, True])
def test_m2_a_store_of_unknown_format_is_only_touched_by_hand(mode, force):
    with pytest.raises(InputError, match="only touched by hand: why"):
        choose_mode(mode, force, found(Status.REPLACED, Action.BY_HAND))


@pytest.mark.parametrize("mode", ["auto", "tail", "full"])
@pytest.mark.parametrize("force", [False, True])
def test_a_store_that_could_not_be_looked_at_is_not_touched(mode, force):
    with pytest.raises(InputError):
        choose_mode(mode, force, found(Status.LOCKED, Action.LATER))


# -- disk


def spec(state_dir, run_bytes):
    store = StorePartitionSpec(
        application="app",
        task=TaskId(0, 0),
        store=TIMESTAMPED,
        changelog=None,
        bootstrap_servers="",
        state_dir=state_dir,
        kafka_timeout_s=1,
    )
    return RestoreSpec(store, "full", False, "label", run_bytes)


def test_a_restore_that_fits_may_begin(tmp_path):
    require_disk(spec(tmp_path / "new", 4096))


def test_a_restore_that_does_not_fit_is_refused_with_the_bytes(tmp_path):
    run_bytes = shutil.disk_usage(tmp_path).total + 1
    with pytest.raises(DiskSpaceError, match=rf"app/s/0_0 needs about {run_bytes} bytes"):
        require_disk(spec(tmp_path, run_bytes))


def test_the_live_store_counts_into_what_a_restore_needs(tmp_path):
    asked = spec(tmp_path, shutil.disk_usage(tmp_path).total - 1_000_000)
    asked.store.live.mkdir(parents=True)
    with (asked.store.live / "000001.sst").open("wb") as sparse:
        sparse.truncate(1 << 41)
    with pytest.raises(DiskSpaceError, match=str((1 << 41) + asked.run_bytes)[:5]):
        require_disk(asked)


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
    copy.inner.database._table._families["keyValueWithTimestamp"].compact_range(
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
