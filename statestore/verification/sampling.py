"""A sample of key ranges for deep verification of large stores.

The log must be read in any case. What a sample saves is everything behind that: only keys of the chosen ranges are
gathered, sorted and compared, and the store is read in these ranges alone. The ranges are cut where keys lie that were
found at many places of the log, so that each has about as many of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statestore.changelog.reader import ChangelogReader
from statestore.compiled.batches import Bytes
from statestore.verification.kernels import rows_within

_RANGES = 256
_PLACES = 16
_RECORDS_EACH = 2_000


class KeyRange(NamedTuple):
    """The keys with `start <= key < stop`; None is an open end."""

    start: bytes | None
    stop: bytes | None


class Sample:
    """Chosen ranges of keys.

    Parameters
    ----------
    cut
        Bytes of the keys' ends that do not count: keys that are the same without them are in the sample together.

    Attributes
    ----------
    fraction
        How many of the ranges were chosen.
    ranges
        The chosen ones in order, neighbours as one. They may have more keys than the sample, where keys are cut.
    """

    def __init__(self, bounds: Sequence[bytes], chosen: Sequence[int], *, cut: int = 0) -> None:
        self._bounds = pa.array(bounds, pa.binary())
        self._cut = cut
        self._chosen: Bytes = np.zeros(len(bounds) + 1, np.uint8)
        self._chosen[list(chosen)] = 1
        self.fraction = len(set(chosen)) / len(self._chosen)
        self.ranges = tuple(_joined([None, *bounds, None], sorted(set(chosen))))

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows or records whose keys, the first column, are in the sample."""
        marks = rows_within(batch.column(0), self._bounds, self._chosen, cut=self._cut).view(np.bool_)
        return batch if marks.all() else batch.filter(pa.array(marks))


def choose(keys: Iterable[bytes], fraction: float, seed: int, *, cut: int = 0) -> Sample:
    """Cut the keys into ranges of about as many, and choose a fraction of them: at least one.

    Parameters
    ----------
    keys
        Some keys of the log.
    fraction
        Above 0, at most 1.
    seed
        Decides which ranges are chosen.
    cut
        Bytes of the keys' ends that do not count.
    """
    ordered = sorted({key[: max(len(key) - cut, 0)] for key in keys})
    count = min(_RANGES, len(ordered) + 1)
    bounds = [ordered[at * len(ordered) // count] for at in range(1, count)]
    chosen = np.random.default_rng(seed).choice(count, size=max(1, round(fraction * count)), replace=False)
    return Sample(bounds, chosen.tolist(), cut=cut)


def some_keys(reader: ChangelogReader, start: int, end: int) -> Iterator[bytes]:
    """Yield keys from evenly spaced places of a log."""
    step = max((end - start) // _PLACES, _RECORDS_EACH)
    for first in range(start, end, step):
        for batch in reader.read(first, min(first + _RECORDS_EACH, end)):
            yield from (key for key in batch.column(0).to_pylist() if key is not None)


def _joined(cuts: Sequence[bytes | None], chosen: Sequence[int]) -> Iterator[KeyRange]:
    at = 0
    while at < len(chosen):
        last = at
        while last + 1 < len(chosen) and chosen[last + 1] == chosen[last] + 1:
            last += 1
        yield KeyRange(cuts[chosen[at]], cuts[chosen[last] + 1])
        at = last + 1
