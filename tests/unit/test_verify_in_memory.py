"""A store's rows looked up in its log: found is exactly what a fold of the log in Python has."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import KEY_VALUE, ROUTINGS, SIZES, folded, logs, written

from statestore.bulk.digest import Digest
from statestore.bulk.runs import merged
from statestore.formats.timestamped_value import encode
from statestore.model import StoreFormat
from statestore.stores.scan import STORED_SCHEMA
from statestore.verification.in_memory import InMemoryComparison
from tests.session.examples import examples

FORMATS = [StoreFormat.TIMESTAMPED, StoreFormat.PLAIN]


def rows_in(log, routing, store_format=StoreFormat.TIMESTAMPED):
    """(segment, key, value) of a store restored from a log, in order."""
    timestamped = store_format is StoreFormat.TIMESTAMPED
    return [
        (segment, key, encode(value, time) if timestamped else value)
        for segment, key, value, time, _ in folded(log, routing)
    ]


def looked_up(runs, rows, routing, store_format=StoreFormat.TIMESTAMPED, size=5):
    """What is told of these rows of a store: nothing, if one of them is not as in the log."""
    comparison = InMemoryComparison(runs.memory.latest, routing, store_format)
    for segment, found in groupby(rows, key=lambda row: row[0]):
        columns = [list(found) for found in zip(*(row[1:] for row in found), strict=True)]
        batch = pa.record_batch(columns, schema=STORED_SCHEMA)
        for at in range(0, batch.num_rows, size):
            if not comparison.finds(segment, batch.slice(at, size)):
                return None
    return comparison.all_found(routing.oldest_live(runs.stream_time))


@pytest.mark.short_for("window")
@pytest.mark.parametrize("kind", ROUTINGS)
@settings(max_examples=examples(40))
@given(data=st.data(), sizes=SIZES, store_format=st.sampled_from(FORMATS), size=st.integers(1, 90))
def test_o1_a_restored_store_is_found_whole_with_the_digest_of_its_log(
    tmp_path_factory, kind, data, sizes, store_format, size
):
    routing = ROUTINGS[kind]
    log = data.draw(logs(routing))
    runs = written(log, sizes, tmp_path_factory.mktemp("runs"), 1 << 20, routing)
    rows = rows_in(log, routing, store_format)
    found = looked_up(runs, rows, routing, store_format, size)
    digest = Digest(store_format)
    for _, batch in merged([runs], routing):
        digest.add(batch)
    assert found is not None
    assert (found.store_rows, found.log_rows, found.equal, found.differing) == (len(rows), len(rows), len(rows), 0)
    assert found.store_digest == found.log_digest == digest.hexdigest()


@pytest.mark.short_for("window")
@pytest.mark.parametrize("kind", ROUTINGS)
@settings(max_examples=examples(40))
@given(data=st.data(), size=st.integers(1, 90))
def test_whatever_a_store_has_else_is_not_taken_for_the_whole(tmp_path_factory, kind, data, size):
    routing = ROUTINGS[kind]
    log, other = data.draw(logs(routing)), data.draw(logs(routing))
    runs = written(log, [], tmp_path_factory.mktemp("runs"), 1 << 20, routing)
    whole = rows_in(log, routing)
    oldest = routing.oldest_live(runs.stream_time)  # what has expired is not looked up
    more = [row for row in rows_in(other, routing) if row[0] >= oldest]
    rows = sorted({*whole, *(row for row in more if data.draw(st.booleans()))})
    if whole and data.draw(st.booleans()):
        rows.remove(data.draw(st.sampled_from(whole)))
    assert (looked_up(runs, rows, routing, size=size) is not None) == (rows == whole)


LOG = [(b"a", b"1", 1), (b"b", b"2", 2), (b"c", b"3", 3), (b"c", None, 4)]
WHOLE = rows_in(LOG, KEY_VALUE)


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize(
    ("what", "rows"),
    [
        ("a row is missing", WHOLE[:1]),
        ("no row is there", []),
        ("a row more", [*WHOLE, (0, b"d", encode(b"4", 4))]),
        ("a row that the log deleted", [*WHOLE, (0, b"c", encode(b"3", 3))]),
        ("a row that the log deleted, empty", [*WHOLE, (0, b"c", encode(b"", 4))]),
        ("another value", [WHOLE[0], (0, b"b", encode(b"x", 2))]),
        ("a longer value", [WHOLE[0], (0, b"b", encode(b"22", 2))]),
        ("a shorter value", [WHOLE[0], (0, b"b", encode(b"", 2))]),
        ("another timestamp", [WHOLE[0], (0, b"b", encode(b"2", 3))]),
        ("a timestamp that is not known", [WHOLE[0], (0, b"b", encode(b"2", -1))]),
        ("too short for a timestamp", [WHOLE[0], (0, b"b", b"2")]),
        ("one row twice instead of another", [WHOLE[0], WHOLE[0]]),
        ("rows out of order", WHOLE[::-1]),
        ("rows in a segment", [(10, *row[1:]) for row in WHOLE]),
    ],
)
def test_a_store_that_differs_is_not_taken_for_the_whole(tmp_path, what, rows, size):
    runs = written(LOG, [], tmp_path, 1 << 20)
    assert looked_up(runs, WHOLE, KEY_VALUE, size=size) is not None
    assert looked_up(runs, rows, KEY_VALUE, size=size) is None, what


@pytest.mark.parametrize("kind", ["window", "session"])
def test_a_row_in_the_wrong_segment_is_not_found(tmp_path, kind):
    routing = ROUTINGS[kind]
    suffix = bytes(routing.suffix_bytes - 8)
    log = [(b"k" + time.to_bytes(8, "big") + suffix, b"v", 1) for time in (0, routing.interval_ms)]
    runs = written(log, [], tmp_path, 1 << 20, routing)
    rows = rows_in(log, routing)
    assert [segment for segment, *_ in rows] == [0, routing.interval_ms]
    assert looked_up(runs, rows, routing) is not None
    assert looked_up(runs, [(0, *row[1:]) for row in rows], routing) is None
    assert looked_up(runs, [rows[0], (*rows[1][:1], b"short", b"12345678")], routing) is None


def test_equal_fingerprints_are_no_equal_keys(tmp_path):
    # As many keys as there are slots for, so that most of them are not in the slot of their fingerprint.
    log = [(b"%d" % number, b"v", 1) for number in range(5_000)]
    runs = written(log, [], tmp_path, 1 << 20)
    rows = rows_in(log, KEY_VALUE)
    assert looked_up(runs, rows, KEY_VALUE, size=777) is not None
    assert looked_up(runs, [*rows[:-1], (0, b"99990", rows[-1][2])], KEY_VALUE, size=777) is None
