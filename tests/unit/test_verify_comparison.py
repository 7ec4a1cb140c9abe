"""Comparing a store's rows with its log's: against a plain fold in Python, and what may differ."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import StoreCorruptedError
from statestore.formats.timestamped_value import encode
from statestore.kafka.record_columns import SCHEMA
from statestore.model import StoreFormat
from statestore.stores.scan import STORED_SCHEMA
from statestore.verification.comparison import Allowances, RowComparison
from statestore.verification.kernels import hashes_of, numbers_in, rows_within
from statestore.verification.sampling import choose

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
    comparison = RowComparison(store_format, allowances or Allowances(), first=first, name_keys=True)
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
    comparison = RowComparison(StoreFormat.PLAIN, Allowances(), first=5, name_keys=False)
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
    rows = {window(0, start=start): (b"v", start) for start in (10, 20, 30)} | {window(0, start=31): (b"v", 19)}
    found = compared(rows, {}, allowances=Allowances(gone_before_ms=20, time_back=12))
    # The last one's record is older than its window: it may be gone, too.
    assert (found.not_judged, found.only_in_store) == (2, 2)
    assert compared({}, rows, allowances=Allowances(gone_before_ms=20, time_back=12)).only_in_log == 4
    assert compared(rows, {}, allowances=Allowances(gone_before_ms=20)).not_judged == 4


# -- windows that keep duplicates -------------------------------------------------------------------------------------


def window(sequence, key=b"k", start=10):
    return key + start.to_bytes(8, "big") + sequence.to_bytes(4, "big")


def compared_duplicates(mine, its, store_format=StoreFormat.TIMESTAMPED, sizes=(5, 5), **allowances):
    comparison = RowComparison(store_format, Allowances(**allowances), first=5, name_keys=True, numbered=True)
    comparison.compare(stored(mine, store_format, sizes[0]), logged(its, sizes[1]))
    return comparison.contents(None)


@pytest.mark.parametrize("store_format", [StoreFormat.PLAIN, StoreFormat.TIMESTAMPED])
def test_of_windows_that_keep_duplicates_the_values_count_and_not_their_sequence_numbers(store_format):
    # The log counted a null, the store did not: every number behind it is another.
    log = {window(1): (b"a", 1), window(3): (b"b", 1), window(4): (b"c", 1)}
    same = compared_duplicates({window(1): (b"a", 1), window(2): (b"b", 1), window(3): (b"c", 1)}, log, store_format)
    assert (same.equal, same.differing, same.first) == (3, 0, ())
    other = compared_duplicates({window(1): (b"a", 1), window(2): (b"b", 1), window(3): (b"d", 1)}, log, store_format)
    assert (other.equal, other.only_in_store, other.only_in_log, other.other_value) == (2, 1, 1, 0)
    assert [(told.found, told.key) for told in other.first] == [
        ("only in store", window(3).hex()),
        ("only in log", window(4).hex()),
    ]
    [told] = compared_duplicates({window(1): (b"a", 1), window(2): (b"b", 1)}, log, store_format).first
    assert (told.found, told.key) == ("only in log", window(4).hex())
    as_stored = encode(b"c", 1) if store_format is StoreFormat.TIMESTAMPED else b"c"
    assert (told.store_sha256, told.log_sha256) == (None, sha256(as_stored).hexdigest())


LOG = {window(1): (b"a", 10), window(3): (b"b", 10), window(4): (b"c", 10)}
STORE = {window(1): (b"a", 10), window(2): (b"b", 10), window(3): (b"c", 10)}


@pytest.mark.parametrize("lost", [*(dict([row]) for row in LOG.items()), dict(list(LOG.items())[:2]), LOG])
def test_of_a_window_that_the_log_may_have_dropped_by_age_what_is_left_is_compared_whatever_its_number(lost):
    left = {key: row for key, row in LOG.items() if key not in lost}
    found = compared_duplicates(STORE, left, gone_before_ms=11, time_back=12)
    assert (found.differing, found.not_judged, found.equal) == (0, len(lost), len(left))
    assert compared_duplicates(STORE, left, gone_before_ms=10, time_back=12).only_in_store == len(lost)
    other = compared_duplicates(STORE, left | {window(9): (b"z", 10)}, gone_before_ms=11, time_back=12)
    assert (other.only_in_store, other.only_in_log) == (0, 1)


def test_a_window_that_the_log_has_changed_since_is_not_judged_whatever_the_numbers_and_its_neighbours_are():
    changed = np.unique(hashes_of(pa.array([window(1)], pa.binary()), cut=4))
    mine = STORE | {window(1, b"other"): (b"x", 10)}
    found = compared_duplicates(mine, {window(7): (b"c", 10)}, changed_since=changed)
    assert (found.equal, found.not_judged, found.only_in_store) == (1, 2, 1)
    assert [told.key for told in found.first] == [window(1, b"other").hex()]


def test_where_deletes_may_be_gone_what_only_the_log_has_in_a_window_says_nothing_whatever_the_numbers():
    del_one = {key: row for key, row in STORE.items() if row[0] != b"a"}
    found = compared_duplicates(del_one, LOG, deletes_are_gone=True)
    assert (found.equal, found.not_judged, found.differing) == (2, 1, 0)
    assert compared_duplicates(STORE, {}, deletes_are_gone=True).only_in_store == 3


#: Keys of which one may begin as the row keys of another do: their windows interleave.
_USER_KEYS = st.sampled_from([b"", b"k", window(0)[:-4], window(0), window(2), window(2) + b"x"])
_VALUES = st.sampled_from([b"a", b"b", b"c"])
_WINDOWS = st.dictionaries(st.tuples(_USER_KEYS, st.integers(9, 11)), st.lists(_VALUES, max_size=5), max_size=6)


def _numbered(windows, skipped):
    """Rows of windows; the first numbers are skipped, as where nulls were counted."""
    return {
        window(number, key, start): (value, 1)
        for (key, start), values in windows.items()
        for number, value in enumerate(values, start=1 + skipped)
    }


def _counts(windows):
    return Counter((key, start, value) for (key, start), values in windows.items() for value in values)


@given(_WINDOWS, _WINDOWS, _WINDOWS, FORMATS, SIZES, SIZES, st.integers(0, 3))
def test_windows_are_compared_as_multisets_of_values(common, mine, its, store_format, one, other, skipped):
    store, log = common | mine, common | its
    rows = _numbered(store, 0), _numbered(log, skipped)
    found = compared_duplicates(*rows, store_format, sizes=(one, other))
    stored_values, logged_values = _counts(store), _counts(log)
    assert found.equal == (stored_values & logged_values).total()
    assert found.only_in_store == (stored_values - logged_values).total()
    assert found.only_in_log == (logged_values - stored_values).total()
    assert found.other_value == 0
    assert len(found.first) == min(found.differing, 5)


@given(_WINDOWS, st.integers(0, 3), st.integers(0, 9), st.sampled_from([0.25, 0.5, 0.75]), st.data())
def test_a_sample_has_windows_that_keep_duplicates_whole_or_not_at_all(windows, skipped, seed, fraction, data):
    store, log = _numbered(windows, 0), _numbered(windows, skipped)
    some = data.draw(st.lists(st.sampled_from(sorted(log)), max_size=8)) if log else []
    sample = choose(some, fraction, seed, cut=4)

    def sampled(rows):
        # A store is read in the ranges alone; a log is read in full.
        within = {
            key: row
            for key, row in rows.items()
            if any((start or b"") <= key and (stop is None or key < stop) for start, stop in sample.ranges)
        }
        [batch] = logged(rows, len(rows) + 1) or [None]
        [part] = logged(within, len(rows) + 1) or [None]
        chosen = [] if batch is None else sample.of(batch).column(0).to_pylist()
        assert chosen == ([] if part is None else sample.of(part).column(0).to_pylist()), "the ranges lack some of it"
        return chosen

    mine, its = sampled(store), sampled(log)
    assert Counter(key[:-4] for key in mine) == Counter(key[:-4] for key in its)


def test_where_deletes_may_be_gone_a_row_that_only_the_log_has_says_nothing():
    found = compared({b"a": (b"1", 1)}, {b"b": (b"1", 1)}, allowances=Allowances(deletes_are_gone=True))
    assert (found.not_judged, found.only_in_log, found.only_in_store) == (1, 0, 1)


def test_a_stored_value_too_short_for_its_timestamp_differs():
    comparison = RowComparison(StoreFormat.TIMESTAMPED, Allowances(), first=1, name_keys=True)
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
