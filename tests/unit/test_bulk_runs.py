"""Sorted runs and their merge are the fold of the log, however it is cut and however little memory there is."""

from __future__ import annotations

import pickle
import struct
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_samples import KEY_VALUE, ROUTINGS, SIZES, WINDOW, folded, logs, time_of, written
from samples import batches

from statestore.bulk import merging as merge_module
from statestore.bulk.last_records import LastRecords
from statestore.bulk.run_file import read_facts
from statestore.bulk.runs import RunWriter, finished_runs, merge_passes, merged, sorted_records
from statestore.errors import DiskSpaceError, InvalidStateError, StoreAccessError, StoreCorruptedError
from statestore.kafka.record_columns import SCHEMA
from tests.session.examples import examples


def rows_of(runs, routing=KEY_VALUE):
    found = []
    for segment, batch in merged(runs, routing):
        assert batch.num_rows
        found += [(segment, *row) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
    return found


@pytest.mark.short_for("key-value", "session")
@pytest.mark.parametrize("kind", ROUTINGS)
@settings(max_examples=examples(60))
@given(data=st.data(), sizes=SIZES, run_bytes=st.sampled_from([1, 2_000, 6_000, 20_000, 1 << 20]))
def test_r1_the_runs_of_any_log_are_its_fold_however_it_is_cut(tmp_path_factory, kind, data, sizes, run_bytes):
    routing = ROUTINGS[kind]
    log = data.draw(logs(routing))
    runs = written(log, sizes, tmp_path_factory.mktemp("runs"), run_bytes, routing)
    assert rows_of([runs], routing) == folded(log, routing)
    keys = [key for key, _, _ in log if key is not None]
    assert (runs.records, runs.skipped) == (len(keys), len(log) - len(keys))
    assert (runs.last_offset, runs.position) == (len(log) - 1 if log else None, len(log))
    assert runs.stream_time == max((time_of(key, routing) for key in keys if routing.suffix_bytes), default=-1)


@pytest.mark.short_for("window")
@pytest.mark.parametrize("kind", ROUTINGS)
@settings(max_examples=examples(40))
@given(data=st.data(), cut=st.integers(0, 80), run_bytes=st.sampled_from([1, 6_000, 1 << 20]), in_memory=st.booleans())
def test_r9_ranges_of_a_log_merge_to_the_rows_of_the_log_in_one_piece(
    tmp_path_factory, kind, data, cut, run_bytes, in_memory
):
    routing = ROUTINGS[kind]
    log = data.draw(logs(routing))
    cut = min(cut, len(log))
    directory = tmp_path_factory.mktemp("runs")
    first = written(log[:cut], [7], directory / "first", run_bytes, routing, keep_in_memory=in_memory)
    second = written(log[cut:], [7], directory / "second", run_bytes, routing, cut, keep_in_memory=in_memory)
    assert rows_of([first, second], routing) == folded(log, routing)


@settings(max_examples=examples(40))
@given(log=logs(KEY_VALUE), sizes=SIZES, done=st.integers(0, 80), run_bytes=st.sampled_from([1, 6_000, 1 << 20]))
@example(log=[(b"a", b"1", 1), (None, b"2", 2), (b"a", None, 3)], sizes=[1, 1], done=2, run_bytes=1)
def test_r8_a_build_that_was_interrupted_goes_on_behind_its_last_whole_run(
    tmp_path_factory, log, sizes, done, run_bytes
):
    directory = tmp_path_factory.mktemp("runs")
    whole = written(log, sizes, directory / "whole", run_bytes)
    interrupted = RunWriter(directory / "runs", KEY_VALUE, run_bytes, start=0)
    for batch in batches(log[:done], sizes):
        interrupted.add(batch)
    left = finished_runs(directory / "runs")
    start = 0 if left is None else left.position
    rest = written(log[start:], sizes, directory / "runs", run_bytes, first_offset=start)
    both = [rest] if left is None else [left, rest]
    assert rows_of(both) == rows_of([whole])
    assert sum(found.records for found in both) == whole.records
    assert sum(found.skipped for found in both) == whole.skipped


def test_a_log_that_fits_never_touches_the_disk(tmp_path):
    log = [(b"%d" % (number % 100), bytes(100), number) for number in range(10_000)]
    runs = written(log, [100] * 200, tmp_path / "runs", 100_000)
    assert runs.files == ()
    assert not (tmp_path / "runs").exists()
    assert len(rows_of([runs])) == 100


def test_of_a_log_that_does_not_fit_the_last_run_stays_in_memory_if_it_leaves_room_for_a_merge(tmp_path):
    log = [(b"%02d" % (number % 27), None if number % 7 == 0 else b"%d" % number, 1) for number in range(60)]
    runs = written(log, [], tmp_path, 2_000)
    assert len(runs.files) >= 1
    assert runs.memory.latest.used <= 2_000 * 3 // 4
    assert (runs.records, runs.last_offset, runs.position) == (60, 59, 60)
    offsets = pa.Table.from_batches(sorted_records(runs, KEY_VALUE)).column(3).to_pylist()
    assert offsets == [*range(54, 60), *range(33, 54)]
    assert rows_of([runs]) == folded(log, KEY_VALUE)


def test_a_run_for_another_process_is_a_file_also_if_it_fits(tmp_path):
    runs = written([(b"a", b"1", 1)], [], tmp_path, 1 << 20, first_offset=5, keep_in_memory=False)
    assert [path.name[:46] for path in runs.files] == ["run-00000000000000000005-00000000000000000006-"]
    assert runs.memory is None
    assert pickle.loads(pickle.dumps(runs)) == runs == finished_runs(tmp_path)


def test_a_run_in_memory_does_not_leave_its_process(tmp_path):
    with pytest.raises(TypeError, match="stays in its process"):
        pickle.dumps(written([(b"a", b"1", 1)], [], tmp_path, 1 << 20))


def test_r2_a_range_without_records_is_known_to_be_done(tmp_path):
    writer = RunWriter(tmp_path, KEY_VALUE, 1 << 20, start=7, keep_in_memory=False)
    writer.finish(9)
    assert (finished_runs(tmp_path).start, finished_runs(tmp_path).position) == (7, 9)
    assert rows_of([finished_runs(tmp_path)]) == []


@pytest.mark.parametrize("in_memory", [True, False])
def test_r3_an_empty_log_has_no_rows(tmp_path, in_memory):
    runs = written([], [], tmp_path, 1 << 20, keep_in_memory=in_memory)
    assert (runs.files, runs.records, runs.last_offset, runs.position) == ((), 0, None, 0)
    assert rows_of([runs]) == []
    assert rows_of([]) == []
    assert finished_runs(tmp_path / "absent") is None


@pytest.mark.behaviour("S8")
def test_null_values_are_no_deletes_where_duplicates_are_retained(tmp_path):
    routing = WINDOW._replace(ignores_deletes=True)
    later = struct.pack(">qi", 7, 0)
    log = [(b"k" + bytes(12), b"1", 1), (b"k" + bytes(12), None, 2), (b"k" + later, None, 3)]
    runs = written(log, [1], tmp_path, 1 << 20, routing)
    assert rows_of([runs], routing) == [(0, b"k" + bytes(12), b"1", 1, 0)]
    assert (runs.records, runs.skipped, runs.last_offset, runs.stream_time) == (1, 2, 2, 7)


def test_s3_rows_that_a_later_record_makes_expire_are_left_out(tmp_path):
    def row(time, value=b"v"):
        return b"k" + struct.pack(">qi", time, 0), value, 1

    log = [row(0), row(100_000), row(300_000, None)]
    assert [found[0] for found in rows_of([written(log, [1, 1], tmp_path, 1, WINDOW)], WINDOW)] == [100_000]


def test_memory_stays_within_the_bound_and_spilled_runs_are_as_large_as_it_allows(tmp_path):
    run_bytes = 200_000
    latest = LastRecords(KEY_VALUE, run_bytes)
    log = [(b"key-%06d" % number, bytes(100), number) for number in range(5_000)]
    [batch] = batches(log, [])
    row = taken = runs = 0
    while row < batch.num_rows:
        before, row = row, latest.add(batch, row)
        held = latest.memory.nbytes + latest.table.nbytes + 16 * latest.keys
        assert latest.used + latest.table.nbytes + 16 * latest.keys <= run_bytes
        assert held <= 2 * run_bytes
        taken += latest.keys
        assert latest.keys == row - before
        runs += 1
        latest.clear()
    assert taken == 5_000
    assert runs <= -(-5_000 * (32 + 10 + 100 + 64) // run_bytes) + 1


def random_records(first_offset, count):
    """Records with random keys of 12 bytes and values of 100."""

    def column(size):
        ends = pa.py_buffer(np.arange(0, count * size + 1, size, dtype=np.int32))
        data = pa.py_buffer(np.random.default_rng([first_offset, size]).bytes(count * size))
        return pa.Array.from_buffers(pa.binary(), count, [None, ends, data])

    numbers = pa.array(np.arange(first_offset, first_offset + count))
    return pa.RecordBatch.from_arrays([column(12), column(100), numbers, numbers], schema=SCHEMA)


@pytest.mark.short_for("4194304")
@pytest.mark.parametrize("run_bytes", [1 << 20, 4 << 20])
def test_memory_of_folding_and_merging_does_not_grow_with_the_log(tmp_path, run_bytes):
    rows_of(
        [written([(b"a", b"1", 1), (b"b", b"1", 1)], [], tmp_path / "first", 1)]
    )  # compiles what is not yet compiled
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        writer = RunWriter(tmp_path / "runs", KEY_VALUE, run_bytes, start=0)
        for start in range(0, 200_000, 2_000):
            writer.add(random_records(start, 2_000))
        rows = sum(batch.num_rows for _, batch in merged([writer.finish(200_000)], KEY_VALUE))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
    assert rows == 200_000
    batch_and_output = 4 << 20
    assert peak + pool.max_memory() <= run_bytes + run_bytes // 2 + batch_and_output


@pytest.mark.long
def test_a_key_written_over_and_over_takes_no_more_memory(tmp_path):
    log = [(b"a", bytes(number % 1000), number) for number in range(20_000)]
    runs = written(log, [], tmp_path / "runs", 10_000)
    assert runs.files == ()
    assert rows_of([runs]) == [(0, b"a", bytes(19_999 % 1000), 19_999, 19_999)]


def test_a_record_beyond_the_bound_is_a_run_of_its_own(tmp_path):
    log = [(b"a", b"1", 1), (b"b" * 100_000, bytes(1 << 20), 2), (b"c", b"3", 3), (b"b" * 100_000, b"", 4)]
    runs = written(log, [2], tmp_path, 4_096)
    assert len(runs.files) > 1
    assert rows_of([runs]) == folded(log, KEY_VALUE)


@pytest.mark.long
def test_more_runs_than_are_merged_at_once_are_merged_in_steps(tmp_path):
    log = [(b"%03d" % (number * 7 % 250), None if number % 5 == 0 else b"%d" % number, number) for number in range(600)]
    runs = written(log, [], tmp_path, 1, keep_in_memory=False)
    assert len(runs.files) == 600
    assert rows_of([runs]) == folded(log, KEY_VALUE)
    assert sorted(tmp_path.iterdir()) == sorted(runs.files)


@pytest.mark.parametrize("count", range(3, 12))
def test_any_number_of_steps_leaves_the_same_rows_and_nothing_on_disk(tmp_path, monkeypatch, count):
    monkeypatch.setattr("statestore.bulk.runs._FAN_IN", 2)
    log = [(b"%d" % (number % 4), b"value %d" % number, number) for number in range(count)]
    found = [
        written([record], [1], tmp_path / str(at), 1 << 20, first_offset=at, keep_in_memory=False)
        for at, record in enumerate(log)
    ]
    before = sorted(tmp_path.rglob("*"))
    assert rows_of(found) == folded(log, KEY_VALUE)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.short_for("16-1", "64-2")
@pytest.mark.parametrize(("count", "copies"), [(4, 0), (5, 1), (16, 1), (17, 2), (64, 2)])
def test_merging_takes_the_disk_that_is_planned_for_it(tmp_path, monkeypatch, count, copies):
    monkeypatch.setattr("statestore.bulk.runs._FAN_IN", 4)
    rng = np.random.default_rng(1)
    made = written([(b"%04d" % number, rng.bytes(20_000), 1) for number in range(count)], [], tmp_path, 1)
    on_disk = []
    merging = merge_module.merge

    def watched(*arguments, **keywords):
        for batch in merging(*arguments, **keywords):
            yield batch
            on_disk.append(sum(file.stat().st_size for file in tmp_path.rglob("run-*")))

    monkeypatch.setattr("statestore.bulk.runs.merge", watched)
    on_disk.append(sum(file.stat().st_size for file in made.files))
    assert len(rows_of([made])) == count
    assert merge_passes(count) == copies
    assert round(max(on_disk) / on_disk[0]) == 1 + copies


def test_many_keys_that_share_long_prefixes_are_in_order(tmp_path):
    rng = np.random.default_rng(1)
    log = [(b"\0" * int(rng.integers(0, 30)) + rng.bytes(int(rng.integers(0, 4))), b"v", 1) for _ in range(20_000)]
    assert rows_of([written(log, [3_000] * 9, tmp_path, 1 << 22)]) == folded(log, KEY_VALUE)


def test_many_rows_of_several_segments_are_in_order(tmp_path):
    rng = np.random.default_rng(2)
    times = (WINDOW.interval_ms * rng.integers(0, 3, 20_000) + rng.integers(0, 5, 20_000)).tolist()
    log = [(rng.bytes(time % 12) + struct.pack(">qi", time, 0), b"v", 1) for time in times]
    assert rows_of([written(log, [], tmp_path, 1 << 23, WINDOW)], WINDOW) == folded(log, WINDOW)


@pytest.mark.short_for(every=5)
@pytest.mark.parametrize(
    "order",
    [
        lambda number: number,
        lambda number: 20_000 - number,
        lambda number: 2 * min(number, 20_000 - number) + number // 10_000,
        lambda number: number % 200 * 100 + number // 200,
    ],
    ids=["rising", "falling", "rising, then falling", "rising again and again"],
)
@pytest.mark.parametrize("key", [b"%06d", b"a-long-prefix-%06d", b"%06d-two-of-a-kind"])
def test_keys_that_come_in_an_order_are_sorted(tmp_path, order, key):
    log = [((key % (order(number) // 2)) + b"AB"[number % 2 :][:1], b"v", 1) for number in range(20_000)]
    assert rows_of([written(log, [], tmp_path, 1 << 23)]) == folded(log, KEY_VALUE)


def test_a_key_too_short_for_its_kind_of_store_is_refused_with_its_offset(tmp_path):
    with pytest.raises(StoreCorruptedError, match="offset 101 has a key of 11 bytes, expected at least 12"):
        written([(None, b"v", 1), (bytes(11), b"v", 1)], [], tmp_path, 1 << 20, WINDOW, first_offset=100)


def test_runs_of_another_definition_are_refused(tmp_path):
    key = b"k" + bytes(12)
    runs = written([(key, b"1", 1)], [], tmp_path, 1, WINDOW, keep_in_memory=False)
    with pytest.raises(InvalidStateError, match="was changed"):
        rows_of([runs], WINDOW._replace(interval_ms=60_000))


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_a_damaged_run_ends_what_an_interrupted_build_left(tmp_path, damage):
    log = [(b"%d" % number, bytes(50), number) for number in range(4)]
    runs = written(log, [], tmp_path, 1)
    raw = bytearray(runs.files[1].read_bytes())
    raw[len(raw) // 2] ^= 1
    damaged = {"flipped": bytes(raw), "cut": bytes(raw[:-20]), "empty": b""}[damage]
    runs.files[1].write_bytes(damaged)
    assert finished_runs(tmp_path).position == 1
    assert finished_runs(tmp_path).files == runs.files[:1]


def test_a_run_that_was_cut_after_it_was_written_is_told(tmp_path):
    runs = written([(b"a", bytes(500), 1)], [], tmp_path, 1, keep_in_memory=False)
    runs.files[0].write_bytes(runs.files[0].read_bytes()[:-30])
    with pytest.raises(StoreCorruptedError, match="run-0000"):
        rows_of([runs])


def test_a_gap_ends_what_an_interrupted_build_left(tmp_path):
    runs = written([(b"%d" % number, bytes(50), number) for number in range(4)], [], tmp_path, 1, keep_in_memory=False)
    runs.files[2].unlink()
    assert finished_runs(tmp_path).position == 2
    assert read_facts(runs.files[3])[0].start == 3


def test_a_full_disk_is_told_in_our_words(tmp_path):
    (tmp_path / f"run-{0:020d}-{1:020d}.partial").symlink_to("/dev/full")
    with pytest.raises(DiskSpaceError):
        written([(b"a", bytes(1000), 1)], [], tmp_path, 1, keep_in_memory=False)


def test_a_directory_that_cannot_be_made_is_told_in_our_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreAccessError):
        written([(b"a", b"1", 1)], [], tmp_path / "file" / "runs", 1, keep_in_memory=False)


@settings(max_examples=examples(30))
@given(log=logs(KEY_VALUE), at=st.integers(0, 10))
def test_batches_may_be_slices_of_others(tmp_path_factory, log, at):
    writer = RunWriter(tmp_path_factory.mktemp("runs"), KEY_VALUE, 1 << 20, start=0)
    for whole in batches(log, []):
        writer.add(whole.slice(at))
    assert rows_of([writer.finish(len(log))]) == folded(log[at:], KEY_VALUE, at)
