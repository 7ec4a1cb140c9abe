"""Two copies of a store are compared in one pass, whatever their batches, and without holding them."""

from __future__ import annotations

import random
import weakref
from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
import pytest

from statestore.stores.scan import STORED_SCHEMA
from statestore.verification.snapshot_difference import ChangedRow, RowCounts, merged_rows

Rows = dict[bytes, bytes]


def _batches(rows: Rows, rng: random.Random) -> Iterator[pa.RecordBatch]:
    left = iter(sorted(rows.items()))
    while some := list(islice(left, rng.randrange(1, 5))):
        keys, values = zip(*some, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=STORED_SCHEMA
        )


@pytest.mark.parametrize("seed", range(20))
def test_what_differs_is_what_two_dictionaries_tell(seed: int) -> None:
    rng = random.Random(seed)
    before, after = (
        {rng.randbytes(rng.randrange(2)): rng.randbytes(1) for _ in range(rng.randrange(60))} for _ in "ab"
    )
    after |= dict(rng.sample(sorted(before.items()), len(before) // 2))
    counts = RowCounts()

    found = list(merged_rows(_batches(before, rng), _batches(after, rng), counts))

    expected = [ChangedRow("removed", key) for key in before.keys() - after.keys()]
    expected += [ChangedRow("added", key) for key in after.keys() - before.keys()]
    expected += [ChangedRow("changed", key) for key in before.keys() & after.keys() if before[key] != after[key]]
    assert found == sorted(expected, key=lambda row: row.row_key)
    assert counts.differing == len(expected)
    assert counts.equal == sum(before.get(key) == value for key, value in after.items())


def test_no_more_than_two_batches_of_each_are_held_however_many_there_are() -> None:
    alive = most = 0

    def gone() -> None:
        nonlocal alive
        alive -= 1

    def batches(every: int) -> Iterator[pa.RecordBatch]:
        nonlocal alive, most
        for start in range(0, 200_000, 1000):
            keys = [b"%08d" % number for number in range(start, start + 1000, every)]
            made = pa.RecordBatch.from_arrays([pa.array(keys, pa.binary())] * 2, schema=STORED_SCHEMA)
            weakref.finalize(made, gone)
            alive += 1
            most = max(most, alive)
            yield made
            del made

    counts = RowCounts()
    assert sum(1 for _ in merged_rows(batches(1), batches(4), counts)) == 150_000
    assert counts == RowCounts(removed=150_000, equal=50_000)
    assert most <= 4
