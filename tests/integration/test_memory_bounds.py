"""Files that lack more of the log than memtables hold are those of an earlier time, or have lost rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rocksdict import DBCompactionStyle, Options, Rdict

from statestore.discovery.options_file import (
    Memtables,
    memtables_in_options_files,
    row_changes_in_options_files,
)
from statestore.formats import window_key
from statestore.formats.offsets import COLUMN_FAMILY, STATUS_OPEN
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Action, Status, VerifyRow
from statestore.statedir.record import read_record
from statestore.statedir.seal import break_seal
from statestore.stores.manifest import progress_of
from statestore.stores.rocksdb import RocksDB
from statestore.stores.table import DeletedRange
from statestore.verification.check import verify
from statestore.verification.contents import databases
from statestore.verification.live import verify as live
from statestore.verification.live.verify import verify_live
from statestore.verification.options import VerifyOptions
from statestore.verification.proof import memory
from tests.integration import broker
from tests.integration.broker import T0, Row
from tests.integration.kinds import MINUTE, STORES, logged
from tests.integration.support import Application

SMALL = 64 << 10
DEEP = VerifyOptions("deep", confirm_within_s=60)
#: Rows of each segment: more than its memtables hold with the options of `with_small_memtables`.
COUNT = 500
#: Starts of two segments that are both live.
FIRST, SECOND = (T0 - T0 % (2 * MINUTE) + at * 2 * MINUTE for at in (0, 1))


@pytest.fixture(autouse=True)
def _small_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LARGEST_WRITE_BYTES", 1 << 10)
    monkeypatch.setattr(live, "sleep", lambda _: None)


def rows_of(start: int, prefix: bytes = b"key") -> list[Row]:
    """Return rows of 1 KB in a window of a segment."""
    return [(window_key.encode(b"%s-%04d" % (prefix, at), start), b"v" * 1_000) for at in range(COUNT)]


def rewrite(spec: StorePartitionSpec, segment: int, keys: Sequence[bytes], *, keep_offset: bool = False) -> None:
    """Delete rows of a database, and its offset, as Kafka Streams does; give it small memtables."""
    break_seal(spec.paths, spec.store.name)
    families = spec.store.values.column_families
    for _ in range(3):  # RocksDB keeps the options of its last two openings
        with RocksDB(
            databases(spec)[segment], families, config_setter=lambda _, options: options.set_write_buffer_size(SMALL)
        ) as database:
            ranges = {} if keep_offset else {COLUMN_FAMILY: [DeletedRange(b"", b"\xff")]}
            status = None if keep_offset else STATUS_OPEN
            database.write({families[0]: dict.fromkeys(keys)}, ranges=ranges, status=status)
            database.sync()
    assert memtables_in_options_files(databases(spec)[segment]) == Memtables(SMALL, 3)


def looked(spec: StorePartitionSpec, options: VerifyOptions = DEEP) -> VerifyRow:
    """Verify the store as one in use."""
    (found,) = verify_live([spec], options)
    return found


def _lost_directory(spec: StorePartitionSpec) -> None:
    shutil.rmtree(databases(spec)[FIRST])


def _emptied(spec: StorePartitionSpec) -> None:
    rewrite(spec, FIRST, [key for key, *_ in rows_of(FIRST) if key is not None])


def windows(servers: str, directory: Path, *, rows_each: int) -> StorePartitionSpec:
    """Return a window store that was left open and has all of its log, with so many rows in each transaction."""
    rows = [*rows_of(FIRST), *rows_of(SECOND)]
    application = logged(servers, directory, STORES["plain window"], rows[:rows_each])
    for at in range(rows_each, len(rows), rows_each):
        broker.transaction(servers, application.changelog, rows[at : at + rows_each])
    application.restore("full")
    spec = application.store_spec()
    for segment in (FIRST, SECOND):
        rewrite(spec, segment, [])
    return spec


@pytest.mark.parametrize("damage", [_lost_directory, _emptied])
def test_a_segment_that_lost_what_was_on_disk_is_damage(
    bootstrap_servers: str, tmp_path: Path, damage: Callable[[StorePartitionSpec], None]
) -> None:
    spec = windows(bootstrap_servers, tmp_path, rows_each=10)
    assert looked(spec).status is Status.PROVEN
    damage(spec)
    found, closed = looked(spec), verify(spec, VerifyOptions("deep"))
    assert (found.status, found.action) == (Status.CORRUPT, Action.BY_HAND)
    assert "rows that were on disk are lost" in found.detail
    assert (closed.status, closed.action) == (Status.CORRUPT, Action.FULL)
    assert closed.detail.startswith(found.detail.partition(";")[0])


def test_a_segment_that_lacks_one_large_commit_is_not_damage(bootstrap_servers: str, tmp_path: Path) -> None:
    spec = windows(bootstrap_servers, tmp_path, rows_each=COUNT)
    _emptied(spec)
    assert looked(spec).status is Status.UNCONFIRMED
    assert verify(spec, VerifyOptions("deep")).status is Status.UNCLEAN


def test_a_store_whose_rows_rocksdb_deletes_is_not_judged(bootstrap_servers: str, tmp_path: Path) -> None:
    spec = windows(bootstrap_servers, tmp_path, rows_each=10)
    _emptied(spec)
    _make_fifo(databases(spec)[FIRST], tmp_path / "fifo")
    found, closed = looked(spec), verify(spec, VerifyOptions("deep"))
    assert (found.status, closed.status) == (Status.IN_USE, Status.UNCLEAN)
    for row in (found, closed):
        assert row.contents is not None
        assert "compaction_style=kCompactionStyleFIFO" in row.contents.not_proven


def test_a_closed_store_whose_rows_rocksdb_deletes_is_left_to_a_user(bootstrap_servers: str, tmp_path: Path) -> None:
    rows: list[Row] = [(b"k%02d" % at, b"v") for at in range(50)]
    application = logged(bootstrap_servers, tmp_path, STORES["plain key-value"], rows)
    application.restore("full")
    spec = application.store_spec()
    rewrite(spec, 0, [b"k07"], keep_offset=True)
    assert application.verify("deep").action is Action.FULL
    _make_fifo(databases(spec)[0], tmp_path / "fifo")
    found = application.verify("deep")
    assert (found.status, found.action) == (Status.DIVERGED, Action.BY_HAND)
    assert "so this may be no damage" in found.detail


def _make_fifo(directory: Path, other: Path) -> None:
    """Give a database the options file of another one that RocksDB has made with FIFO compaction."""
    options = Options()
    options.create_if_missing(True)
    options.set_compaction_style(DBCompactionStyle.fifo())
    Rdict(str(other), options).close()
    (made,) = other.glob("OPTIONS-*")
    for path in directory.glob("OPTIONS-*"):
        shutil.copy(made, path)


@pytest.mark.parametrize("setting", ["compaction_filter_factory=TtlCompactionFilterFactory", "merge_operator={id=Add}"])
def test_options_that_change_rows_are_found(tmp_path: Path, setting: str) -> None:
    path = tmp_path / "OPTIONS-000009"
    path.write_text("[CFOptions]\n  compaction_filter=nullptr\n  merge_operator=nullptr\n  ttl=2592000\n")
    assert row_changes_in_options_files(tmp_path) == ""
    path.write_text(f"[CFOptions]\n  compaction_filter=nullptr\n  {setting}\n")
    assert row_changes_in_options_files(tmp_path) == setting


def test_a_segment_whose_last_rows_are_in_memory_is_proven(bootstrap_servers: str, tmp_path: Path) -> None:
    application = logged(bootstrap_servers, tmp_path, STORES["plain window"], [*rows_of(FIRST), *rows_of(SECOND)])
    application.restore("full")
    spec = application.store_spec()
    rewrite(spec, SECOND, [])
    rewrite(spec, FIRST, [key for key, *_ in rows_of(FIRST)[-100:] if key is not None])
    found, closed = looked(spec), verify(spec, VerifyOptions("deep"))
    assert (found.status, found.disk_offset) == (Status.PROVEN, COUNT - 101)
    assert (closed.status, closed.action) == (Status.UNCLEAN, Action.FULL)
    assert "its rows are not those of one offset" in closed.detail


def test_records_that_were_aborted_or_replace_each_other_do_not_count(bootstrap_servers: str, tmp_path: Path) -> None:
    rows: list[Row] = [(b"k%02d" % at, b"v") for at in range(50)]
    application = logged(bootstrap_servers, tmp_path, STORES["plain key-value"], rows)
    application.restore("full")
    spec = application.store_spec()
    rewrite(spec, 0, [])
    many: list[Row] = [(b"k00", b"%04d" % at + b"v" * 1_000) for at in range(2 * COUNT)]
    broker.transaction(bootstrap_servers, application.changelog, many)
    aborted: list[Row] = [(b"a%04d" % at, b"v" * 1_000) for at in range(COUNT)]
    broker.transaction(bootstrap_servers, application.changelog, aborted, end="abort")
    assert looked(spec).status is Status.PROVEN


@pytest.fixture
def behind(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application whose store lacks more of its log than its memtables hold, and does not state its offset."""
    rows: list[Row] = [(b"k%02d" % at, b"v") for at in range(50)]
    application = logged(bootstrap_servers, tmp_path, STORES["plain key-value"], rows)
    application.restore("full")
    rewrite(application.store_spec(), 0, [])
    later: list[Row] = [(b"l%04d" % at, b"v" * 1_000) for at in range(COUNT)]
    broker.transaction(bootstrap_servers, application.changelog, later)
    return application


def test_a_store_that_is_too_far_behind_is_not_proven(behind: Application) -> None:
    found = looked(behind.store_spec())
    assert (found.status, found.action) == (Status.UNCONFIRMED, Action.LATER)
    assert "or an older copy was put back" in found.detail
    assert found.disk_offset == 50  # the marker after its rows
    closed = verify(behind.store_spec(), VerifyOptions("deep"))
    assert (closed.status, closed.action) == (Status.UNCLEAN, Action.FULL)
    assert "or an older copy was put back" in closed.detail
    assert closed.contents is not None
    assert closed.contents.offsets == ((49, 50),)


def test_a_store_before_its_last_verification_has_lost_rows(behind: Application) -> None:
    spec = behind.store_spec(owned=False)
    record = read_record(spec.paths, spec.store.name)
    assert record is not None
    seen = {
        "progress_seen": tuple(progress_of(spec.live, segmented=False).items()),
        "restored_by_seen": record.restored_by,
    }
    found = looked(spec.model_copy(update={**seen, "committed_seen": 500}))
    assert (found.status, found.action) == (Status.CORRUPT, Action.BY_HAND)
    assert "it had offset 500 when it was last verified" in found.detail
    assert looked(spec.model_copy(update={**seen, "committed_seen": 49})).status is Status.UNCONFIRMED
    # A log that ends before that offset is another one, and so is the database that a restore has put in place.
    for other in ({"committed_seen": 10**6}, {"committed_seen": 500, "restored_by_seen": "another"}):
        assert looked(spec.model_copy(update={**seen, **other})).status is Status.UNCONFIRMED


@pytest.mark.parametrize("offset", ["its own", "none"])
def test_an_emptied_database_is_never_proven(bootstrap_servers: str, tmp_path: Path, offset: str) -> None:
    rows: list[Row] = [(b"k%02d" % at, b"v") for at in range(50)]
    application = logged(bootstrap_servers, tmp_path, STORES["plain key-value"], rows)
    application.restore("full")
    spec = application.store_spec()
    rewrite(spec, 0, [key for key, *_ in rows if key is not None], keep_offset=offset == "its own")
    found, closed = looked(spec, VerifyOptions("deep", confirm_within_s=0)), application.verify("deep")
    assert not closed.status.healthy
    assert closed.contents is not None
    if offset == "its own":
        assert (found.status, closed.status) == (Status.UNCONFIRMED, Status.WRONG_OFFSET)
        return
    assert found.status is Status.IN_USE
    assert found.contents is not None
    for contents in (found.contents, closed.contents):
        assert (contents.not_proven, contents.offsets) == ("the store has no rows on disk", ())


def test_options_that_do_not_limit_memory_give_no_bound(tmp_path: Path) -> None:
    assert memtables_in_options_files(tmp_path) is None
    (tmp_path / "OPTIONS-000007").write_text("[CFOptions]\n  write_buffer_size=100\n  max_write_buffer_number=2\n")
    (tmp_path / "OPTIONS-000009").write_text("[CFOptions]\n  write_buffer_size=90\n  max_write_buffer_number=3\n")
    assert memtables_in_options_files(tmp_path) == Memtables(100, 3)
    (tmp_path / "OPTIONS-000011").write_text("[CFOptions]\n  inplace_update_support=true\n")
    assert memtables_in_options_files(tmp_path) is None
