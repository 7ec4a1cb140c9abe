"""The first record of a changelog after which a suite no longer passes.

The suite runs on the store as of offsets of its changelog, each built in scratch space. Only exact stores count: where
compaction has removed records, no such store can be built, and the search ends with an interval. It finds one change
from pass to fail. If the suite fails, passes, and fails again between the two ends, any of these changes may be found.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from statestore.durable import remove_tree
from statestore.errors import InputError
from statestore.kafka.reader import LogReader
from statestore.model import TopicPartition
from statestore.partition.generations import snapshots_of
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.as_of import in_target
from statestore.recovery.as_of_source import point_source
from statestore.recovery.restore import restore
from statestore.recovery.spec import RestoreSpec
from statestore.requests.restore import RestoreRequest
from statestore.rewrite.point_cut import commits_in, first_position, offsets_topic_for
from statestore.rewrite.rows import stored_rows


class BisectionSpec(NamedTuple):
    """Requested search.

    Attributes
    ----------
    good, bad
        Ends (exclusive) of the changelog at which the suite passes and fails; None: the store had no row yet.
    passes
        Runs the suite on a store that is not in use.
    scratch
        Directory to build stores in.
    run_bytes
        Bound of a sorted run in memory.
    """

    store: StorePartitionSpec
    good: int | None
    bad: int | None
    passes: Callable[[StorePartitionSpec], bool]
    scratch: Path
    run_bytes: int


class BadRecord(NamedTuple):
    """The record after which the suite fails.

    Attributes
    ----------
    timestamp
        ms since the epoch.
    key
        As the changelog has it.
    old, new
        Values without timestamp and headers; None: there was no row, or it is deleted.
    inputs
        First and last input offset of the commit that wrote it; None: not known.
    input_record
        Offset of the last input record in this range with the same key, or None.
    before_ms
        A time before that commit and after the one before it, by the clock of the brokers; None: not known.
    """

    offset: int
    timestamp: int
    key: bytes
    old: bytes | None
    new: bytes | None
    inputs: tuple[int, int] | None
    input_record: int | None
    before_ms: int | None


class Bisected(NamedTuple):
    """Result of a search.

    Attributes
    ----------
    passed, failed
        Ends (exclusive) of the changelog: the last one at which the suite passes, and the first one at which it fails.
    probes
        How often the suite ran.
    record
        None if compaction has removed versions between the two, so that there is an interval.
    """

    store: StorePartitionSpec
    passed: int
    failed: int
    probes: int
    record: BadRecord | None


class Bisection:
    """A search for the first record after which a suite fails.

    Raises
    ------
    InputError
        If the suite does not pass at the good end or does not fail at the bad one, or a store cannot be built there.
    """

    def __init__(self, spec: BisectionSpec) -> None:
        self._spec, store = spec, spec.store
        self._topics = store.cluster.topics
        self._log = self._topics.log_ranges([store.partition])[store.partition]
        self._probes = 0
        self._end = self._log.last_stable if spec.bad is None else spec.bad

    def fails_at_end(self) -> bool:
        """Return whether the suite fails at the bad end."""
        return not self._passes(self._end)

    def find(self) -> Bisected:
        """Find the change from pass to fail; the suite fails at the bad end."""
        store = self._spec.store
        low, high = self._log.start if self._spec.good is None else self._spec.good, self._end
        if not self._passes(low):
            raise InputError(
                f"{store.store_partition}: the suite fails already at offset {low - 1} of its changelog, which "
                "is that of --good. Name an earlier time"
            )
        bases = self._bases()
        while high - low > 1:
            middle = (low + high) // 2
            probe = middle if self._is_exact(middle) else self._nearest_exact(low, middle)
            if probe == low:
                probe = next((base for base in bases if low < base < high), high)
            if probe == high:
                break
            if self._passes(probe):
                low = probe
            else:
                high = probe
        record = self._record(low) if high - low == 1 else None
        return Bisected(store, low, high, self._probes, record)

    # -- stores as of an offset ---------------------------------------------------------------------------------------

    def _build_spec(self, end: int) -> RestoreSpec:
        """Return how the store is built of the changelog before an offset; all of it gives the current store."""
        request = RestoreRequest(
            mode="as-of",
            as_of_offset=end - 1,
            target=self._spec.scratch / f"{self._spec.store.task}-{end}",
            best_effort=end == self._log.last_stable,
        )
        return RestoreSpec(self._spec.store, request, "bisect", self._spec.run_bytes)

    def _is_exact(self, end: int) -> bool:
        try:
            return point_source(self._build_spec(end)).exact
        except InputError:
            return False

    def _nearest_exact(self, low: int, high: int) -> int:
        """Return the last end below an inexact one up to which the log has every record from an exact one on."""
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_exact(middle):
                low = middle
            else:
                high = middle
        return low

    def _bases(self) -> list[int]:
        """Return the ends of the store's snapshots: there it is exact whatever compaction has removed."""
        found = sorted(one.name.offset for one in snapshots_of(self._spec.store).usable)
        return [end for end in found if self._is_exact(end)]

    def _built(self, end: int) -> StorePartitionSpec:
        spec = self._build_spec(end)
        row = restore(spec)
        if row.failure is not None:
            raise InputError(f"{self._spec.store.store_partition}: {row.failure.message}")
        return in_target(spec)

    def _passes(self, end: int) -> bool:
        """Return whether the suite passes on the store of the changelog before an offset; an empty store passes."""
        if end <= self._log.start:
            return True
        self._probes += 1
        built = self._built(end)
        passed = self._spec.passes(built)
        remove_tree(built.state_dir)
        return passed

    # -- the record ---------------------------------------------------------------------------------------------------

    def _record(self, offset: int) -> BadRecord:
        store = self._spec.store
        with LogReader(store.cluster, store.partition) as reader:
            (batch,) = reader.read(offset, offset + 1)
        key, new, timestamp, _ = (column[0].as_py() for column in batch.columns)
        inputs = self._inputs_of(offset)
        return BadRecord(
            offset=offset,
            timestamp=timestamp,
            key=key,
            old=self._value_before(offset, key),
            new=new,
            inputs=inputs,
            input_record=None if inputs is None else self._input_with(key, inputs),
            before_ms=None if inputs is None else self._before(inputs[1]),
        )

    def _value_before(self, offset: int, key: bytes) -> bytes | None:
        if offset <= self._log.start:
            return None
        built, found = self._built(offset), None
        layout = built.store.values
        for _, batch in stored_rows(built):
            rows = batch.filter(pc.equal(batch.column(0), pa.scalar(key, batch.schema.field(0).type)))
            if rows.num_rows:
                found = layout.logged(rows.column(1)[0].as_py())[0]
        remove_tree(built.state_dir)
        return found

    @property
    def _input(self) -> TopicPartition:
        assert self._spec.store.input_topic is not None, "a definition tells it"
        return TopicPartition(self._spec.store.input_topic, self._spec.store.task.partition)

    def _inputs_of(self, offset: int) -> tuple[int, int] | None:
        """Return the input of the commit of a record: from where the commit before has ended to its own position."""
        store, end = self._spec.store, self._log.last_stable
        found = first_position(store.cluster, store.partition, (offset, end), self._input)
        if found is None:
            return None
        known = commits_in(
            self._topics, offsets_topic_for(self._topics, store.application, self._input.topic), self._input
        )
        before = [commit.kept.offset for commit in known if commit.kept.offset <= found[1]]
        return (before[-1] if before else 0), found[1]

    def _input_with(self, key: bytes, inputs: tuple[int, int]) -> int | None:
        log = self._topics.log_ranges([self._input])[self._input]
        first, last, found = max(inputs[0], log.start), inputs[1], None
        with LogReader(self._spec.store.cluster, self._input) as reader:
            for batch in reader.read(first, last + 1):
                for other, offset in zip(batch.column(0).to_pylist(), batch.column(3).to_pylist(), strict=True):
                    found = offset if other == key else found
        return found

    def _before(self, last: int) -> int | None:
        topic = offsets_topic_for(self._topics, self._spec.store.application, self._input.topic)
        at_ms = next(
            (one.at_ms for one in commits_in(self._topics, topic, self._input) if one.kept.offset > last), None
        )
        return None if at_ms is None else at_ms - 1
