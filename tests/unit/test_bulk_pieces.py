"""Runs that are cut at keys: what is merged of each range of keys is, together, the fold of the log."""

from __future__ import annotations

import struct
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import KEY_VALUE, ROUTINGS, SESSION, WINDOW, folded, logs, written
from samples import batches

from statestore.bulk.digest import Digest
from statestore.bulk.pieces import choose_cuts, cut_runs, require_piece
from statestore.bulk.run_file import RunFacts, write_run
from statestore.bulk.runs import merged
from statestore.errors import StoreCorruptedError
from statestore.kafka.record_columns import SCHEMA
from statestore.model import StoreFormat
from tests.session.examples import examples

FACTS = RunFacts(0, 10, 10, 0, 9, -1)


def rows_of(runs, routing):
    return [
        (segment, *row)
        for segment, batch in merged(runs, routing)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]


def row_keys(routing):
    if not routing.suffix_bytes:
        return st.binary(max_size=12)
    suffix = bytes(routing.suffix_bytes - 8)
    times = st.integers(0, 700_000)
    return st.tuples(st.binary(max_size=6), times).map(lambda row: row[0] + struct.pack(">q", row[1]) + suffix)


@pytest.mark.short_for("key-value")
@pytest.mark.parametrize("kind", ROUTINGS)
@settings(max_examples=examples(30))
@given(data=st.data(), run_bytes=st.sampled_from([1, 6_000, 1 << 20]), in_memory=st.booleans())
def test_r9_ranges_of_keys_of_all_ranges_of_a_log_are_its_fold(tmp_path_factory, kind, data, run_bytes, in_memory):
    routing = ROUTINGS[kind]
    log = data.draw(logs(routing))
    at = data.draw(st.integers(0, len(log)))
    known = st.sampled_from(sorted({key for key, _, _ in log if key is not None}) or [bytes(routing.suffix_bytes)])
    cuts = sorted(data.draw(st.sets(known | row_keys(routing), max_size=4)), key=routing.place)
    directory = tmp_path_factory.mktemp("runs")
    ranges = []
    for number, (start, end) in enumerate(pairwise((0, at, len(log)))):
        into = directory / str(number)
        runs = written(log[start:end], [7], into, run_bytes, routing, start, keep_in_memory=in_memory)
        pieces = {piece.number: piece for piece in cut_runs(runs, cuts, routing, into / "pieces")}
        for piece in pieces.values():
            require_piece(piece.path, piece.number, cuts, routing)
        ranges.append((runs, pieces))
    found, digest = [], Digest(StoreFormat.TIMESTAMPED)
    for number in range(len(cuts) + 1):
        own = [
            runs._replace(files=tuple(piece.path for piece in [pieces.get(number)] if piece is not None), memory=None)
            for runs, pieces in ranges
        ]
        part = Digest(StoreFormat.TIMESTAMPED)
        for _, batch in merged(own, routing):
            part.add(batch)
        digest.add_digest(part.rows, part.hexdigest())
        found += rows_of(own, routing)
    assert sorted(found) == folded(log, routing)
    assert found == sorted(found, key=lambda row: row[:2]), "and in the order of all rows"
    whole = Digest(StoreFormat.TIMESTAMPED)
    for _, batch in merged([runs for runs, _ in ranges], routing):
        whole.add(batch)
    assert (digest.rows, digest.hexdigest()) == (whole.rows, whole.hexdigest())


def test_cuts_part_the_bytes_of_a_sample_evenly():
    log = [(b"%04d" % number, bytes(100 if number < 100 else 300), 0) for number in range(200)]
    cuts = choose_cuts(batches(log, [50] * 4), 4, KEY_VALUE)
    assert cuts == (b"0099", b"0133", b"0167")
    assert choose_cuts(batches(log * 3, [50] * 12), 4, KEY_VALUE) == cuts, "a key counts once, however often it changed"


def test_there_are_no_more_cuts_than_keys():
    assert choose_cuts([], 8, KEY_VALUE) == ()
    assert choose_cuts(batches([(b"one", b"1", 0), (None, b"2", 0)] * 9, [9, 9]), 8, KEY_VALUE) == ()
    log = [(b"a", b"1", 0), (b"b", None, 0)]
    assert choose_cuts(batches(log, [2]), 8, KEY_VALUE) == (b"b",)


def test_segments_that_have_expired_get_no_cut():
    def key(minute, number):
        return b"%03d" % number + struct.pack(">q", minute * 60_000) + bytes(WINDOW.suffix_bytes - 8)

    old = [(key(1, number), b"v", 0) for number in range(500)]
    live = [(key(100, number), b"v", 0) for number in range(100)]
    cuts = choose_cuts(batches(old + live, [600]), 4, WINDOW)
    assert cuts == tuple(key(100, number) for number in (25, 50, 75))
    assert choose_cuts(batches([(b"short", b"v", 0)] * 3, [3]), 4, WINDOW) == ()


def piece(tmp_path, rows, routing=KEY_VALUE):
    return write_run(tmp_path, batches([(key, b"v", 0) for key in rows], [3] * 9), FACTS, routing)


@pytest.mark.parametrize(
    ("keys", "number", "why"),
    [
        ([b"c", b"b"], 1, "in order"),
        ([b"b", b"b"], 1, "in order"),
        ([b"b", b"c", b"d", b"bb"], 1, "other pieces, or twice"),
        ([b"b", b"c", b"d", b"d"], 1, "other pieces, or twice"),
        ([b"a", b"b"], 1, "other pieces"),
        ([b"e", b"f"], 1, "other pieces"),
        ([b"a", b"b"], 0, "other pieces"),
    ],
)
def test_a_piece_that_is_not_of_its_range_of_keys_is_refused(tmp_path, keys, number, why):
    cuts = [b"b", b"f"]
    with pytest.raises(StoreCorruptedError, match=why):
        require_piece(piece(tmp_path, keys), number, cuts, KEY_VALUE)
    require_piece(piece(tmp_path / "right", [b"b", b"c", b"d", b"e"]), 1, cuts, KEY_VALUE)


def test_a_piece_of_another_store_is_refused(tmp_path):
    with pytest.raises(StoreCorruptedError, match="another kind or retention"):
        require_piece(piece(tmp_path, [bytes(20)], WINDOW), 0, [], SESSION)


def test_a_piece_with_a_key_that_is_too_short_is_refused(tmp_path):
    with pytest.raises(StoreCorruptedError, match="a key is too short"):
        require_piece(piece(tmp_path, [b"short"], WINDOW), 0, [], WINDOW)


def _without_keys(batch):
    return batch.set_column(0, SCHEMA.field(0), pa.nulls(batch.num_rows, pa.binary()))


def _with_ends_outside(batch):
    ends = pa.py_buffer(struct.pack("<4i", 0, 1 << 20, 2, 3))
    keys = pa.Array.from_buffers(pa.binary(), 3, [None, ends, pa.py_buffer(b"abc")])
    return batch.set_column(0, SCHEMA.field(0), keys)


@pytest.mark.parametrize("spoil", [_without_keys, _with_ends_outside])
def test_a_piece_that_would_have_loops_read_elsewhere_is_refused(tmp_path, spoil):
    (batch,) = batches([(key, b"v", 0) for key in (b"a", b"b", b"c")], [3])
    path = write_run(tmp_path, [batch], FACTS, KEY_VALUE)
    metadata = pa.ipc.open_file(path).schema.metadata
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA.with_metadata(metadata)) as writer:
        writer.write_batch(spoil(batch))
    with pytest.raises(StoreCorruptedError, match=r"is not a piece|cannot be read"):
        require_piece(path, 0, [], KEY_VALUE)


def test_what_is_no_run_at_all_is_refused(tmp_path):
    (tmp_path / "piece").write_bytes(b"no run")
    with pytest.raises(StoreCorruptedError):
        require_piece(tmp_path / "piece", 0, [], KEY_VALUE)
    batch = pa.record_batch({"other": [1]})
    with pa.OSFile(str(tmp_path / "other"), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(StoreCorruptedError):
        require_piece(tmp_path / "other", 0, [], KEY_VALUE)
