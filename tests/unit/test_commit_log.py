"""The files of commits: a commit is read as it was written, and damage is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import CHANGELOG
from store_samples import STORES, context

from statestore.definitions.store import StoreDefinition
from statestore.errors import StoreCorruptedError
from statestore.kafka.cluster import Cluster
from statestore.model import TaskId, TopicPartition
from statestore.partition.last_commit import LastCommit
from statestore.partition.spec import StorePartitionSpec
from statestore.stores import commit_log
from statestore.stores.commit_log import Commit, CommitLog, Piece, numbers
from statestore.stores.open import build_store
from statestore.stores.table import DeletedRange
from statestore.tasks import BYTES
from statestore.verification.unlogged import commits_in_files

LOG = TopicPartition("a-log", 3)
cells = st.binary(max_size=40)
pieces = st.lists(
    st.builds(
        Piece,
        st.sampled_from(["default", "keyValueWithTimestamp"]),
        st.lists(st.builds(DeletedRange, cells, cells), max_size=3),
        st.dictionaries(cells, st.none() | cells, max_size=20),
    ),
    max_size=4,
)


def applied(found):
    """Return the rows that pieces leave; it does not depend on how they are cut."""
    rows = {}
    for family, ranges, changes in found:
        for start, stop in ranges:
            rows = {at: value for at, value in rows.items() if not (at[0] == family and start <= at[1] < stop)}
        rows.update({(family, key): value for key, value in changes.items()})
    return rows


@pytest.mark.behaviour("T9")
@given(
    databases=st.dictionaries(st.sampled_from(["", "s.0", "s.60000"]), pieces), part_bytes=st.sampled_from([30, 999])
)
def test_a_commit_is_read_as_it_was_written(tmp_path_factory, databases, part_bytes):
    log = CommitLog(tmp_path_factory.mktemp("log") / "s")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log, "_PART_BYTES", part_bytes)
        number, size = log.add(databases, {LOG: 7}, None)
    path = log._directory / str(number)
    assert path.stat().st_size == size
    with path.open("rb") as file:
        commit = Commit(file)
        assert (list(commit.databases), commit.offsets, commit.position) == (list(databases), {LOG: 7}, None)
        for name, expected in databases.items():
            assert applied(commit.pieces(name)) == applied(expected)


@pytest.mark.behaviour("T9")
def test_every_shortened_or_changed_file_is_found_to_be_damaged(tmp_path: Path) -> None:
    log = CommitLog(tmp_path / "s")
    number, size = log.add({"": [Piece("default", (), {b"a": b"1", b"b": None})]}, {LOG: 7}, {LOG: 9})
    path = tmp_path / "s" / str(number)
    whole = path.read_bytes()
    for at in range(size):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            path.write_bytes(damaged)
            with path.open("rb") as file, pytest.raises(StoreCorruptedError):
                Commit(file)


@pytest.mark.behaviour("T9")
def test_rows_of_a_commit_have_the_layout_that_the_module_describes(tmp_path: Path) -> None:
    """Another version of Python reads the file, too."""
    log = CommitLog(tmp_path / "s")
    number, _ = log.add({"s.0": [Piece("default", (), {b"a": b"12", b"b": None})]}, {LOG: 7}, None)
    row = b"[\2\0\0\0[\1\0\0\0s\1\0\0\0a[\1\0\0\0s\2\0\0\0" + b"12"
    delete = b"[\2\0\0\0[\1\0\0\0s\1\0\0\0b[\1\0\0\0N"
    written = (tmp_path / "s" / str(number)).read_bytes()
    assert all(b"\3\0\7\0\0s.0default" + rows in written for rows in (row, delete))


def test_numbers_grow_also_from_one_process_to_the_next(tmp_path: Path) -> None:
    added = [CommitLog(tmp_path / "s").add({}, {}, None)[0] for _ in range(3)]
    assert numbers(tmp_path / "s") == sorted(set(added)) == added
    assert numbers(tmp_path / "none") == []


# -- an older copy of a store without a changelog under newer commits -------------------------------------------------


def opened(name, directory):
    """Open a store without a changelog, whose own directory is next to it."""
    store = build_store(STORES[name].model_copy(update={"logged": False}), BYTES, BYTES)
    store.init(context(STORES[name], directory, exactly_once=True, logged=False))
    return store


def commit(store, number, *, start=0):
    """Commit a row as a task does, in the segment of a time in ms."""
    at = (start,) if hasattr(store, "fetch") else ()
    store.put(b"%d" % number, b"value", *at)
    store.inner.prepare(number, {CHANGELOG: number})
    store.commit({CHANGELOG: number})


def files_of(store):
    """Return the names, sizes, and times of the files of a store that is open, except RocksDB's own log."""
    found = ((path, path.stat()) for path in store.rglob("*") if path.name != "LOG")
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found}


def copied(store, target):
    """Copy a store that is open, at a moment when RocksDB changes no file: a compaction may be in progress."""
    while True:
        try:
            before = files_of(store)
            shutil.copytree(store, target)
            if files_of(store) == before:
                return
        except (FileNotFoundError, shutil.Error):  # a compaction has just ended
            pass
        shutil.rmtree(target, ignore_errors=True)


@pytest.mark.behaviour("U2", "U6")
@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("name", ["plain key-value", "plain window"])
def test_commits_are_not_repeated_in_an_older_copy_of_their_store(tmp_path, name, older):
    """Given a copy that was made since the store was opened last, so that this opening is the recorded one."""
    here, there = tmp_path / "here", tmp_path / "there"
    store = opened(name, here / "live")
    for number in (1, 2, 3):
        commit(store, number)
        store.sync()
        if number == 1:
            copied(here / "live", tmp_path / "copy")
    commit(store, 4)
    copied(here, there)
    store.close(clean=False)
    if older:
        shutil.rmtree(there / "live")
        shutil.copytree(tmp_path / "copy", there / "live")
        with pytest.raises(StoreCorruptedError, match="follows commit"):
            opened(name, there / "live")
        return
    store = opened(name, there / "live")
    assert len(list(store.all())) == store.committed_offset(CHANGELOG) == 4
    store.close()


def test_a_segment_that_a_removed_commit_did_not_change_is_no_older_copy(tmp_path):
    here = tmp_path / "here"
    store = opened("plain window", here / "live")
    commit(store, 1)
    commit(store, 2, start=100_000)
    store.sync()
    for number in (3, 4):
        commit(store, number, start=100_000)
        store.inner.opened._sync(100_000)
        store.inner.opened._remove_flushed()
    commit(store, 5)
    assert len(numbers(here / "own" / "commits" / "s")) == 1
    copied(here, tmp_path / "there")
    store.close(clean=False)
    store = opened("plain window", tmp_path / "there" / "live")
    assert len(list(store.all())) == store.committed_offset(CHANGELOG) == 5
    store.close()


@pytest.mark.behaviour("U3")
def test_verification_finds_commits_that_follow_one_that_the_store_does_not_have(tmp_path):
    spec = StorePartitionSpec(
        application="app",
        task=TaskId(0, 0),
        store=StoreDefinition(name="s", logged=False),
        changelog=None,
        cluster=Cluster("nowhere:9092", 1),
        state_dir=tmp_path,
    )
    log, own = CommitLog(spec.paths.commits("s"), only_copy=True), TopicPartition(*spec.partition)
    log.prepare(3, {"": []}, {own: 3}, None, {"": {own: 2}})
    log.promote()
    last = LastCommit({"s": 3})
    assert commits_in_files(spec, last, committed=2) == (3, 1)
    with pytest.raises(StoreCorruptedError, match="follows commit 2"):
        commits_in_files(spec, last, committed=1)
