"""The bulk path: sorted runs, ingested in order, are the fold of the log."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from samples import PLAIN, TIMESTAMPED, batches, fold

from statestore.errors import DiskSpaceError, StateStoreError
from statestore.formats.timestamped_value import decode
from statestore.recovery.runs import build_runs
from statestore.stores.accessor import TIMESTAMPED_COLUMN_FAMILY
from statestore.stores.rocksdb import DEFAULT_COLUMN_FAMILY, RocksDB

KEYS = st.none() | st.sampled_from([b"", b"a", b"a\0", b"b", b"\xff"]) | st.binary(max_size=3)
LOGS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=30), st.integers(0, 2**41)), max_size=60)
SIZES = st.lists(st.integers(1, 9), max_size=40)


def built(log, sizes, directory, run_bytes=1, store_format=TIMESTAMPED.format, first_offset=0):
    directory.mkdir(exist_ok=True)
    return build_runs(batches(log, sizes, first_offset), store_format, directory, run_bytes)


def ingested(runs, directory, family=TIMESTAMPED_COLUMN_FAMILY):
    """Rows of a fresh database with the runs in it."""
    database = RocksDB(directory, [family])
    try:
        database.ingest(family, runs.files)
        return list(database.scan(family))
    finally:
        database.close()


@settings(max_examples=30)
@given(log=LOGS, sizes=SIZES, run_bytes=st.sampled_from([1, 400, 2000, 1 << 20]))
@example(log=[(b"a", b"1", 1), (b"a", None, 2)], sizes=[1], run_bytes=1)
@example(log=[(b"a", None, 1), (b"a", b"1", 2), (b"a", None, 3), (b"a", None, 4)], sizes=[1, 1, 1], run_bytes=1)
def test_r1_the_runs_of_any_log_are_its_fold_however_it_is_cut(tmp_path_factory, log, sizes, run_bytes):
    directory = tmp_path_factory.mktemp("runs")
    runs = built(log, sizes, directory / "runs", run_bytes)
    rows = ingested(runs, directory / "db")
    assert [(key, decode(value)) for key, value in rows] == list(fold(log).items())
    assert runs.skipped == sum(key is None for key, _, _ in log)
    assert runs.records == len(log) - runs.skipped
    assert runs.last_offset == (len(log) - 1 if log else None)
    if len(runs.files) <= 1:
        assert runs.rows == len(rows)


def test_r1_null_keys_are_skipped_and_counted_and_their_offset_is_the_last(tmp_path):
    runs = built([(b"a", b"1", 1), (None, b"2", 2)], [], tmp_path / "runs", first_offset=100)
    assert (runs.records, runs.skipped, runs.last_offset, runs.rows) == (1, 1, 101, 1)


def test_r1_in_one_batch_the_later_record_wins(tmp_path):
    log = [(b"a", b"1", 1), (b"b", b"1", 1), (b"a", b"2", 2), (b"b", None, 2), (b"c", None, 1), (b"c", b"3", 0)]
    runs = built(log, [], tmp_path / "runs", 1 << 20, PLAIN.format)
    assert ingested(runs, tmp_path / "db", DEFAULT_COLUMN_FAMILY) == [(b"a", b"2"), (b"c", b"3")]


def test_an_empty_value_is_a_value_and_not_a_delete(tmp_path):
    runs = built([(b"a", b"1", 1), (b"a", b"", 2)], [1], tmp_path / "runs", 1, PLAIN.format)
    assert ingested(runs, tmp_path / "db", DEFAULT_COLUMN_FAMILY) == [(b"a", b"")]


@pytest.mark.behaviour("R3")
def test_r3_an_empty_log_gives_no_run(tmp_path):
    assert built([], [], tmp_path / "runs") == ([], 0, 0, 0, None)


def test_a_log_of_deletes_gives_no_run(tmp_path):
    runs = built([(b"a", None, 1)] * 5, [1] * 5, tmp_path / "runs")
    assert (runs.files, runs.rows, runs.last_offset) == ([], 0, 4)


def test_a_run_is_bounded_in_bytes(tmp_path):
    log = [(b"key-%04d" % number, bytes(100), number) for number in range(400)]
    runs = built(log, [1] * 400, tmp_path / "runs", 10_000)
    in_memory = 100 + 8 + 8 + 170
    assert len(runs.files) == -(-400 * in_memory // (-(-10_000 // in_memory) * in_memory))
    assert [file.name for file in runs.files] == sorted(file.name for file in runs.files)


def test_a_key_written_over_and_over_still_ends_its_run(tmp_path):
    runs = built([(b"a", bytes(1000), number) for number in range(100)], [1] * 100, tmp_path / "runs", 10_000)
    assert 9 <= len(runs.files) <= 10


@pytest.mark.behaviour("R9")
@settings(max_examples=10)
@given(log=LOGS, sizes=SIZES)
def test_r9_the_runs_of_a_log_are_the_same_each_time(tmp_path_factory, log, sizes):
    directory = tmp_path_factory.mktemp("runs")
    first, second = (built(log, sizes, directory / name, 400) for name in ("first", "second"))
    assert [file.name for file in first.files] == [file.name for file in second.files]
    assert first[1:] == second[1:]
    assert ingested(first, directory / "db1") == ingested(second, directory / "db2")


def test_a_full_disk_is_told_in_our_words(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "run-000000.sst").symlink_to("/dev/full")
    with pytest.raises(DiskSpaceError):
        built([(b"a", bytes(1000), 1)], [], tmp_path / "runs")


def test_a_directory_that_vanished_is_told_in_our_words(tmp_path):
    with pytest.raises(StateStoreError):
        build_runs(batches([(b"a", b"1", 1)], []), TIMESTAMPED.format, tmp_path / "absent", 1)
