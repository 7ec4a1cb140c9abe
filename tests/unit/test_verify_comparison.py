"""Comparing a store's rows with its log's: against a plain fold in Python, and what may differ."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.changelog.reader import SCHEMA
from statestore.errors import StoreCorruptedError
from statestore.formats.timestamped_value import encode
from statestore.model import StoreFormat
from statestore.stores.scan import STORED_SCHEMA
from statestore.verification.comparison import Allowances, Comparison
from statestore.verification.kernels import hashes_of, numbers_in, rows_within

KEYS = st.binary(max_size=12)
ROWS = st.dictionaries(KEYS, st.tuples(st.binary(max_size=20), st.integers(0, 3)), max_size=30)
SIZES = st.integers(1, 7)
FORMATS = st.sampled_from([StoreFormat.TIMESTAMPED, StoreFormat.PLAIN])


def stored(rows, store_format, size=5):
    laid_out = [
        (key, encode(value, time) if store_format is StoreFormat.TIMESTAMPED else value)
        for key, (value, time) in sorted(rows.items())
    ]
    return _batches(laid_out, STORED_SCHEMA, size)


def logged(rows, size=5):
    return _batches([(key, value, time, 0) for key, (value, time) in sorted(rows.items())], SCHEMA, size)


def _batches(rows, schema, size):
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    return [pa.record_batch([list(column) for column in zip(*part, strict=True)], schema=schema) for part in parts]


def compared(store_rows, log_rows, store_format=StoreFormat.TIMESTAMPED, allowances=None, sizes=(5, 5), first=10):
    comparison = Comparison(store_format, allowances or Allowances(), first=first, name_keys=True)
    comparison.compare(stored(store_rows, store_format, sizes[0]), logged(log_rows, sizes[1]))
    return comparison.contents(None)


@given(ROWS, ROWS, ROWS, FORMATS, SIZES, SIZES)
def test_every_row_is_counted_as_a_comparison_of_dicts_counts_it(common, mine, its, store_format, one, other):
    store_rows, log_rows = common | mine, common | its
    timestamped = store_format is StoreFormat.TIMESTAMPED
    same = {
        key
        for key in store_rows.keys() & log_rows.keys()
        if store_rows[key] == log_rows[key] or (not timestamped and store_rows[key][0] == log_rows[key][0])
    }
    found = compared(store_rows, log_rows, store_format, sizes=(one, other), first=100)
    assert (found.store_rows, found.log_rows) == (len(store_rows), len(log_rows))
    assert found.equal == len(same)
    assert found.other_value == len(store_rows.keys() & log_rows.keys()) - len(same)
    assert found.only_in_store == len(store_rows.keys() - log_rows.keys())
    assert found.only_in_log == len(log_rows.keys() - store_rows.keys())
    differing = sorted((store_rows.keys() | log_rows.keys()) - same)
    assert [bytes.fromhex(told.key) for told in found.first] == differing
    assert (found.store_digest == found.log_digest) == (not differing)


def test_an_unknown_timestamp_in_the_store_is_equal_to_any():
    assert compared({b"k": (b"v", -1)}, {b"k": (b"v", 5)}).equal == 1
    assert compared({b"k": (b"v", 5)}, {b"k": (b"v", -1)}).other_value == 1
    assert compared({b"k": (b"w", -1)}, {b"k": (b"v", 5)}).other_value == 1


def test_the_first_keys_that_differ_are_told_with_digests_of_both_values():
    rows = {b"%d" % number: (b"v", 1) for number in range(5)}
    found = compared(rows | {b"1": (b"w", 1)}, rows | {b"9": (b"v", 1)}, first=1)
    [told] = found.first
    assert (told.found, told.key) == ("other value", b"1".hex())
    assert told.key_sha256 == sha256(b"1").hexdigest()
    assert told.store_sha256 == sha256(encode(b"w", 1)).hexdigest()
    assert told.log_sha256 == sha256(encode(b"v", 1)).hexdigest()
    assert found.differing == 2


def test_keys_can_be_left_out():
    comparison = Comparison(StoreFormat.PLAIN, Allowances(), first=5, name_keys=False)
    comparison.compare(stored({b"secret": (b"v", 1)}, StoreFormat.PLAIN), [])
    [told] = comparison.contents(None).first
    assert (told.key, told.key_sha256) == (None, sha256(b"secret").hexdigest())


def test_keys_that_the_log_changed_behind_the_store_are_not_judged():
    changed = np.unique(hashes_of(pa.array([b"a", b"b", b"c"], pa.binary())))
    found = compared(
        {b"a": (b"1", 1), b"b": (b"1", 1), b"d": (b"1", 1)},
        {b"b": (b"2", 1), b"c": (b"1", 1)},
        allowances=Allowances(changed_since=changed),
    )
    assert (found.not_judged, found.differing, found.only_in_store) == (3, 1, 1)
    assert [told.key for told in found.first] == [b"d".hex()]


def test_only_rows_that_the_log_may_have_dropped_by_age_may_be_missing_in_it():
    def window(start):
        return b"k" + start.to_bytes(8, "big") + bytes(4)

    rows = {window(start): (b"v", start) for start in (10, 20, 30)} | {window(31): (b"v", 19)}
    found = compared(rows, {}, allowances=Allowances(gone_before_ms=20, time_back=12))
    # The last one's record is older than its window: it may be gone, too.
    assert (found.not_judged, found.only_in_store) == (2, 2)
    assert compared({}, rows, allowances=Allowances(gone_before_ms=20, time_back=12)).only_in_log == 4
    assert compared(rows, {}, allowances=Allowances(gone_before_ms=20)).not_judged == 4


@pytest.mark.parametrize("store_format", StoreFormat)
def test_of_windows_that_keep_duplicates_the_values_count_and_not_their_sequence_numbers(store_format):
    def window(sequence):
        return b"k" + (10).to_bytes(8, "big") + sequence.to_bytes(4, "big")

    def found(mine, its):
        comparison = Comparison(store_format, Allowances(), first=5, name_keys=True, numbered=True)
        comparison.compare(stored(mine, store_format), logged(its))
        return comparison.contents(None)

    # The log counted a null, the store did not: every number behind it is another.
    log = {window(1): (b"a", 1), window(3): (b"b", 1), window(4): (b"c", 1)}
    same = found({window(1): (b"a", 1), window(2): (b"b", 1), window(3): (b"c", 1)}, log)
    assert (same.equal, same.differing, same.first) == (3, 0, ())
    other = found({window(1): (b"a", 1), window(2): (b"b", 1), window(3): (b"d", 1)}, log)
    assert other.differing > 0
    assert other.first
    assert found({window(1): (b"a", 1), window(2): (b"b", 1)}, log).differing > 0


def test_where_deletes_may_be_gone_a_row_that_only_the_log_has_says_nothing():
    found = compared({b"a": (b"1", 1)}, {b"b": (b"1", 1)}, allowances=Allowances(deletes_are_gone=True))
    assert (found.not_judged, found.only_in_log, found.only_in_store) == (1, 0, 1)


def test_a_stored_value_too_short_for_its_timestamp_differs():
    comparison = Comparison(StoreFormat.TIMESTAMPED, Allowances(), first=1, name_keys=True)
    rows = pa.record_batch([[b"k"], [b"short"]], schema=STORED_SCHEMA)
    with pytest.raises(StoreCorruptedError):
        comparison.compare([rows], logged({b"k": (b"v", 1)}))


@given(st.lists(KEYS, max_size=20), st.sets(KEYS, min_size=1, max_size=6), st.data())
def test_each_key_is_found_in_its_range(keys, bounds, data):
    cuts = sorted(bounds)
    chosen = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(cuts) + 1, max_size=len(cuts) + 1)), np.uint8)
    marks = rows_within(pa.array(keys, pa.binary()), pa.array(cuts, pa.binary()), chosen)
    assert marks.tolist() == [chosen[sum(cut <= key for cut in cuts)] for key in keys]


def test_numbers_are_read_from_either_end_and_also_from_a_slice():
    rows = pa.array([b"zz", b"x" * 9, bytes(7) + b"\x05tail", bytes(7) + b"\x06"], pa.binary())
    assert numbers_in(rows.slice(2)).tolist() == [5, 6]
    assert numbers_in(rows.slice(2), back=8).tolist()[1] == 6
    assert numbers_in(rows, back=12, otherwise=-7).tolist() == [-7, -7, 5, -7]
