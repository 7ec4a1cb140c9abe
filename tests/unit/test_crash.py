"""A store whose process is killed by SIGKILL: it is at a commit, whole, and nothing flushed is lost."""

from __future__ import annotations

import random
import time

import pytest
from children import change_of, commit_until_killed, open_until_killed
from samples import CHANGELOG, INPUT, TIMESTAMPED

from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.stores.open import open_key_value_store
from tests.forked import child, received
from tests.oracle.rows import fold


def killed_after(directory, seconds, value_bytes, *, flushing, least=0):
    """Run a writer, kill it `seconds` after it reported offset `least`, and return the last offset that it reported."""
    with child(commit_until_killed, directory, value_bytes, flushing) as (process, connection):
        while (reported := received(connection)) < least:
            pass
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            while connection.poll(max(0.0, min(0.01, deadline - time.monotonic()))):
                reported = connection.recv()
        process.kill()
        process.join(120)
        while connection.poll():
            try:
                reported = connection.recv()
            except EOFError:
                break
    return reported


def assert_whole(directory, value_bytes):
    """The store is the fold of the log up to exactly its committed offset, which is returned."""
    store = open_key_value_store(TIMESTAMPED, directory)
    try:
        committed = store.committed_offset(CHANGELOG)
        rows = dict(store.range())
        if committed is None:
            assert rows == {}
            assert store.position() == {}
            return -1
        latest = {b"latest": ValueAndTimestamp(b"%d" % committed, 1_000 + committed)}
        # Each key is written at least once in 250 records, and its last write decides.
        last = (change_of(offset, value_bytes) for offset in range(max(committed - 250, 0), committed + 1))
        assert rows == fold(last) | latest
        assert store.position() == {INPUT: committed * 2}
        return committed
    finally:
        store.close(clean=False)


@pytest.mark.behaviour("K14")
def test_k14_t3_a_killed_store_is_at_a_flushed_commit_or_later_and_whole(tmp_path):
    chance = random.Random(14)
    before = -1
    for _ in range(8):
        flushed = killed_after(tmp_path / "s", chance.random() * 0.15, 20, flushing=True)
        committed = assert_whole(tmp_path / "s", 20)
        assert committed >= flushed, "something flushed was lost"
        assert committed >= before
        before = committed


@pytest.mark.short_for("0.05")
@pytest.mark.behaviour("K14")
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.2])
def test_k14_t3_a_store_killed_while_rocksdb_flushes_by_itself_is_whole(tmp_path, seconds):
    # Memtables of 64 MiB fill up after 160 commits; of three, one at least is on disk.
    killed_after(tmp_path / "s", seconds, 400_000, flushing=False, least=500)
    assert assert_whole(tmp_path / "s", 400_000) >= 100


@pytest.mark.behaviour("K14", "T15")
def test_k14_a_killed_store_that_was_never_flushed_is_empty_again_and_not_half_there(tmp_path):
    killed_after(tmp_path / "s", 0.05, 20, flushing=False)
    assert assert_whole(tmp_path / "s", 20) == -1


@pytest.mark.long
def test_a_store_killed_while_it_is_made_can_be_opened_and_read(tmp_path):
    chance = random.Random(3)
    for number in range(15):
        directory = tmp_path / f"s{number}"
        with child(open_until_killed, directory) as (process, connection):
            received(connection)
            time.sleep(chance.random() * 0.03)
            process.kill()
            process.join(120)
        if (directory / "CURRENT").exists():
            reader = open_key_value_store(TIMESTAMPED, directory, read_only=True)
            assert list(reader.range()) == []
            assert reader.committed_offset(CHANGELOG) is None
            reader.close(clean=False)
        store = open_key_value_store(TIMESTAMPED, directory)
        assert list(store.range()) == []
        store.close()
